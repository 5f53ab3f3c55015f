package chat

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/sandbox-agent/internal/provider"
)

// imageFolder holds the images of messages, below the folder where a coding agent
// works (seed 002).
const imageFolder = ".tmp/images"

// imageFiles are those of one message.
type imageFiles struct {
	dir     string // where the coding agent works
	message string // "": there are none
}

// putImages stores images where a coding agent that works in dir can read them,
// and sets their paths. No link leads out of dir.
func putImages(dir, message string, images []provider.Image) (imageFiles, error) {
	files := imageFiles{dir, message}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return files, err
	}
	defer root.Close()
	folder := filepath.Join(imageFolder, message)
	if err := root.MkdirAll(folder, 0o755); err != nil {
		return files, err
	}
	for i := range images {
		image := &images[i]
		name := filepath.Join(folder, fmt.Sprintf("image_%d.%s", i, extensions[image.MimeType]))
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return files, err
		}
		_, err = f.Write(image.Data)
		if closed := f.Close(); err == nil {
			err = closed
		}
		if err != nil {
			return files, err
		}
		image.Path = filepath.Join(dir, name)
	}
	return files, nil
}

// remove removes the files, and the folders that are empty then. What a program
// has moved meanwhile stays.
func (f imageFiles) remove() {
	if f.message == "" {
		return
	}
	root, err := os.OpenRoot(f.dir)
	if err != nil {
		return
	}
	defer root.Close()
	_ = root.RemoveAll(filepath.Join(imageFolder, f.message))
	for dir := imageFolder; dir != "."; dir = filepath.Dir(dir) {
		if root.Remove(dir) != nil {
			return // others use it
		}
	}
}

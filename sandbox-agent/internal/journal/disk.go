package journal

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/deploy/program"
)

// A Disk stores the files of logs by their names.
type Disk interface {
	Read(name string) ([]byte, error)
	// Append appends data to an existing file and syncs it.
	Append(name string, data []byte) error
	// Replace replaces a file's content by data, or leaves the file as it was.
	Replace(name string, data []byte) error
	Remove(name string) error
}

// A Folder is a Disk's directory.
type Folder string

// MakeFolder returns the directory at path, made when missing, 0700.
func MakeFolder(path string) (Folder, error) { return Folder(path), os.MkdirAll(path, 0o700) }

// Path returns where the file called name is.
func (f Folder) Path(name string) string { return filepath.Join(string(f), name) }

func (f Folder) Read(name string) ([]byte, error) { return os.ReadFile(f.Path(name)) }

func (f Folder) Append(name string, data []byte) error {
	file, err := os.OpenFile(f.Path(name), os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Sync(), file.Close())
}

func (f Folder) Replace(name string, data []byte) error {
	return program.ReplaceFile(f.Path(name), data, 0o600)
}

func (f Folder) Remove(name string) error {
	err := os.Remove(f.Path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// PutAside renames a damaged file, so that its log can start anew and a person
// can inspect the file.
func (f Folder) PutAside(name string) error {
	return os.Rename(f.Path(name), f.Path(name)+".damaged")
}

// Names returns the names of the files with a suffix, without it, the one last
// written first.
func (f Folder) Names(suffix string) ([]string, error) {
	entries, err := os.ReadDir(string(f))
	if err != nil {
		return nil, err
	}
	type file struct {
		name     string
		modified int64
	}
	var files []file
	for _, e := range entries {
		name, ours := strings.CutSuffix(e.Name(), suffix)
		if info, err := e.Info(); ours && err == nil && info.Mode().IsRegular() {
			files = append(files, file{name, info.ModTime().UnixNano()})
		}
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(b.modified, a.modified) })
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.name
	}
	return names, nil
}

package extension

import (
	"archive/zip"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
)

// WriteTo writes the extension unpacked into dir, which it makes. Files of an
// extension that was there before go; a folder that holds anything else is left
// alone.
func (e *Extension) WriteTo(dir string) error {
	if err := clear(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// The manifest comes last: with it Chrome takes the folder for an extension.
	names := slices.DeleteFunc(e.Names(), func(name string) bool { return name == manifestName })
	for _, name := range append(names, manifestName) {
		if err := program.ReplaceFile(filepath.Join(dir, name), e.Files[name], 0o644); err != nil {
			return err
		}
	}
	return nil
}

const (
	manifestName = "manifest.json"
	chromesOwn   = "_metadata" // a folder that Chrome may leave in an extension
)

// clear empties a folder that an extension was written to before.
func clear(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, manifestName)); err != nil {
		return protocol.Errorf(protocol.KindConflict, "%s holds something that is no extension", dir)
	}
	for _, entry := range entries {
		if entry.IsDir() && entry.Name() != chromesOwn {
			return protocol.Errorf(protocol.KindConflict, "%s holds a folder %s, so it is not one of our extensions", dir, entry.Name())
		}
	}
	for _, entry := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, entry.Name())))
	}
	return err
}

// Zip returns the extension as a store takes it: the same bytes for the same
// files.
func (e *Extension) Zip() ([]byte, error) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, name := range e.Names() {
		f, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate})
		if err != nil {
			return nil, err
		}
		if _, err := f.Write(e.Files[name]); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

package hooks

import (
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
)

// recordFile lists what Wire made in a home and couldn't tell from what a
// person made: files, folders, and the objects around its entries.
const recordFile = ".fairlead/wired.json"

// A record is the content of recordFile.
type record struct {
	Files   map[string]*fileRecord `json:"files"`
	Folders []string               `json:"folders,omitempty"` // outermost first
}

// A fileRecord lists what Wire made in one file.
type fileRecord struct {
	Created bool     `json:"created,omitempty"`
	Made    []string `json:"made,omitempty"` // objects and arrays, as pointer names them
}

// readRecord returns an empty record if none can be read. Unwire then leaves
// empty objects behind.
func readRecord(h homeDir) record {
	r := record{}
	if text, err := h.read(recordFile); err == nil {
		if json.Unmarshal(text, &r) != nil {
			r = record{}
		}
	}
	if r.Files == nil {
		r.Files = make(map[string]*fileRecord)
	}
	return r
}

// file returns the record of a file, for changes.
func (r record) file(name string) *fileRecord {
	if r.Files[name] == nil {
		r.Files[name] = &fileRecord{}
	}
	return r.Files[name]
}

// note adds what is new.
func (f *fileRecord) note(created bool, made []string) {
	f.Created = f.Created || created
	for _, m := range made {
		if !slices.Contains(f.Made, m) {
			f.Made = append(f.Made, m)
		}
	}
}

// write stores the record. If the record is empty, it removes the file.
func (r *record) write(h homeDir) error {
	for name, f := range r.Files {
		if f == nil || !f.Created && len(f.Made) == 0 {
			delete(r.Files, name)
		}
	}
	if len(r.Files) == 0 && len(r.Folders) == 0 {
		return h.remove(recordFile)
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if old, err := h.read(recordFile); err == nil && string(old) == string(text) {
		return nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	made, err := h.write(recordFile, text)
	if err != nil || len(made) == 0 {
		return err
	}
	r.Folders = append(made, r.Folders...)
	return r.write(h)
}

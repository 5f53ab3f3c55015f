// Package places keeps on disk which number each entry of a side panel has, and
// where what it says stands: in a conversation's log, which alone holds texts. So
// entries come back with their numbers after a crash, and what became a secret since
// then is hidden in them.
package places

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
)

// A Place is one entry's.
type Place struct {
	Number uint64 `json:"n"`
	Tab    int64  `json:"t"`
	Type   string `json:"k"` // of the entry
	Time   int64  `json:"m"` // Unix milliseconds
	// Seq is of the event in the log of the tab's conversation; 0: it is the panel's
	// own, and Text is what it says.
	Seq      uint64             `json:"s,omitempty"`
	Command  protocol.CommandID `json:"c,omitempty"` // that brought a message, or began a run
	Question string             `json:"q,omitempty"` // its id
	Text     string             `json:"e,omitempty"` // never a person's, or a program's
}

// A File holds places, the oldest first. It is not safe for concurrent use. Places
// outlive this program when they are added, and the machine when they are replaced:
// what was added since then it may lose.
type File struct {
	path string
	file *os.File // nil: none is open
	held int
}

// Open returns the file at path, which need not exist, and what it holds. Whatever
// stands behind the first line that makes no sense is dropped: a crash has cut it.
func Open(path string) (*File, []Place, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	all := decode(text)
	f := &File{path: path}
	return f, all, f.Replace(all)
}

// decode returns the places in a file's text.
func decode(text []byte) (all []Place) {
	for line := range bytes.Lines(text) {
		var p Place
		if line[len(line)-1] != '\n' || json.Unmarshal(line, &p) != nil {
			return all
		}
		if n := len(all); p.Number == 0 || n > 0 && p.Number <= all[n-1].Number {
			return all
		}
		all = append(all, p)
	}
	return all
}

// Len returns how many places the file holds.
func (f *File) Len() int { return f.held }

// Add adds a place.
func (f *File) Add(p Place) error {
	if f.file == nil {
		return fs.ErrClosed
	}
	line, err := json.Marshal(p)
	if err == nil {
		_, err = f.file.Write(append(line, '\n'))
	}
	if err == nil {
		f.held++
	}
	return err
}

// Replace has the file hold these places instead.
func (f *File) Replace(all []Place) error {
	var text bytes.Buffer
	lines := json.NewEncoder(&text)
	for _, p := range all {
		if err := lines.Encode(p); err != nil {
			return err
		}
	}
	if err := program.ReplaceFile(f.path, text.Bytes(), 0o600); err != nil {
		return err
	}
	f.Close()
	file, err := os.OpenFile(f.path, os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil {
		f.file, f.held = file, len(all)
	}
	return err
}

// Close closes the file. Nothing can be added then.
func (f *File) Close() {
	if f.file != nil {
		f.file.Close()
		f.file = nil
	}
}

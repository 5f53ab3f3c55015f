package cookies

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
)

const (
	// maxHostnames bounds the names that a pairing's sources have.
	maxHostnames = 64
	// maxTrackerBytes bounds a tracker's file: that many names, each escaped, and
	// their numbers.
	maxTrackerBytes = 256 << 10

	trackerFormat = 1
)

// A tracker is the greatest sequence of each source_hostname of a pairing, in a file
// alone: there is no second copy that could say something else. A missing file is
// one that can't be read, since each pairing begins with one.
type tracker struct{ path string }

type trackerFile struct {
	Format int              `json:"format"`
	Last   map[string]int64 `json:"last"`
}

// begin makes the file of a pairing that has no envelopes yet.
func (t tracker) begin() error { return t.write(map[string]int64{}) }

// check returns the sequences with that of an envelope, unless it isn't greater than
// the last one of its hostname. Nothing is stored.
func (t tracker) check(hostname string, sequence int64) (map[string]int64, error) {
	last, err := t.read()
	if err != nil {
		return nil, fault("the sequences can't be read", err)
	}
	seen, known := last[hostname]
	switch {
	case known && sequence <= seen:
		return nil, protocol.Errorf(protocol.KindConflict, "the sequence isn't greater than the last one of this source_hostname")
	case !known && len(last) >= maxHostnames:
		return nil, protocol.Errorf(protocol.KindInvalid, "source_hostname: a pairing has %d of them at most", maxHostnames)
	}
	last[hostname] = sequence
	return last, nil
}

// store makes sequences that check has returned outlive everything.
func (t tracker) store(last map[string]int64) error {
	if err := t.write(last); err != nil {
		return fault("the sequence can't be stored", err)
	}
	return nil
}

func (t tracker) read() (map[string]int64, error) {
	f, err := os.Open(t.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxTrackerBytes))
	if err != nil {
		return nil, err
	}
	var file trackerFile
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", t.path, err)
	}
	if file.Format != trackerFormat || file.Last == nil {
		return nil, fmt.Errorf("%s: of format %d, want %d", t.path, file.Format, trackerFormat)
	}
	return file.Last, nil
}

func (t tracker) write(last map[string]int64) error {
	text, err := json.Marshal(trackerFile{trackerFormat, last})
	if err != nil {
		return err
	}
	return program.ReplaceFile(t.path, text, 0o600)
}

// fault is a failure of this side, answered with 500: what says it, and err is for the
// log.
func fault(what string, err error) error {
	return &protocol.Error{Kind: protocol.KindInternal, Message: what, Err: err}
}

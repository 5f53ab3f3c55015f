package approval

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
)

const (
	format = 1
	suffix = ".jsonl"
	// maxFiles bounds the sessions that are remembered over a restart; those
	// that were asked last stay.
	maxFiles = 256
)

// A header is the first line of a session's file. The others are
// [protocol.ApprovalEvent]s, without holes from Offset on.
type header struct {
	Format  int                 `json:"format"`
	Session protocol.SessionID  `json:"session"`
	Epoch   protocol.Epoch      `json:"epoch"`
	Offset  uint64              `json:"offset"`  // of the first event
	Pending []protocol.Approval `json:"pending"` // as they stood there
}

var errDamaged = errors.New("the log is damaged")

// line returns v with its end.
func line(v any) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("approval: line of plain values: %v", err))
	}
	return append(body, '\n')
}

// encode returns the file of a log that goes on with more.
func (s *sessionLog) encode(more ...protocol.Approval) []byte {
	content := line(header{format, s.session, s.epoch, s.base, append([]protocol.Approval{}, s.before...)})
	for i, a := range s.events {
		content = append(content, line(protocol.ApprovalEvent{Offset: s.base + uint64(i), Approval: a})...)
	}
	return append(content, s.lines(more)...)
}

// lines returns what more adds to the file.
func (s *sessionLog) lines(more []protocol.Approval) []byte {
	var content []byte
	for i, a := range more {
		content = append(content, line(protocol.ApprovalEvent{Offset: s.next() + uint64(i), Approval: a})...)
	}
	return content
}

// parse reads the file of a session. A crash may have cut its last line, which
// nobody has heard of then; torn reports that. Anything else that is not as
// encode writes it is damage.
func parse(session protocol.SessionID, data []byte) (s *sessionLog, torn bool, err error) {
	first, rest, whole := bytes.Cut(data, []byte("\n"))
	var h header
	if !whole || protocol.UnmarshalStrict(first, &h) != nil || h.Format != format || h.Session != session {
		return nil, false, fmt.Errorf("first line: %w", errDamaged)
	}
	s = &sessionLog{session: session, epoch: h.Epoch, base: h.Offset, before: h.Pending}
	for _, a := range h.Pending {
		if !stored(a, session) || a.State != protocol.ApprovalPending {
			return nil, false, fmt.Errorf("first line: %w", errDamaged)
		}
	}
	for len(rest) > 0 {
		var text []byte
		text, rest, whole = bytes.Cut(rest, []byte("\n"))
		var e protocol.ApprovalEvent
		switch err := protocol.UnmarshalStrict(text, &e); {
		case err == nil && whole && e.Offset == s.next() && stored(e.Approval, session) && len(s.events) < maxEvents:
			s.events = append(s.events, e.Approval)
		case (err != nil || !whole) && len(bytes.Trim(rest, "\x00")) == 0:
			return s, true, nil
		default:
			return nil, false, fmt.Errorf("event %d: %w", s.next(), errDamaged)
		}
	}
	return s, false, nil
}

// stored reports whether a is an approval that a log of session can hold.
func stored(a protocol.Approval, session protocol.SessionID) bool {
	known := a.State == protocol.ApprovalPending && a.Revision == 1 || a.State == protocol.ApprovalExpired ||
		a.State == protocol.ApprovalDecided && a.Decision.Known()
	return known && protocol.ValidID(a.ID) && a.SessionID == session && a.Kind.Known() && a.Revision > 0
}

// A disk stores the logs.
type disk interface {
	// Append puts data at the end of the file called name and on disk.
	Append(name string, data []byte) error
	// Replace makes data the whole of it, or leaves it as it was.
	Replace(name string, data []byte) error
	Remove(name string) error
}

// A folder is a disk's directory.
type folder string

func (f folder) Append(name string, data []byte) error {
	file, err := os.OpenFile(filepath.Join(string(f), name), os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Sync(), file.Close())
}

func (f folder) Replace(name string, data []byte) error {
	return program.ReplaceFile(filepath.Join(string(f), name), data, 0o600)
}

func (f folder) Remove(name string) error {
	err := os.Remove(filepath.Join(string(f), name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// names returns the sessions' files, that of the session which was asked last
// first.
func (f folder) names() ([]string, error) {
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
		session, ours := strings.CutSuffix(e.Name(), suffix)
		info, err := e.Info()
		if ours && err == nil && info.Mode().IsRegular() && protocol.ValidID(session) {
			files = append(files, file{e.Name(), info.ModTime().UnixNano()})
		}
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(b.modified, a.modified) })
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.name
	}
	return names, nil
}

// unstored is the error of what could not be written.
func unstored(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return protocol.Errorf(protocol.KindNoSpace, "the sandbox's disk is full: the approval can't be stored")
	}
	return protocol.Fault(protocol.KindUnavailable, fmt.Errorf("approval log: %w", err))
}

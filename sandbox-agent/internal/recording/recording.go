package recording

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// bufferBytes is how much of a recording is buffered in memory.
const bufferBytes = 64 << 10

// ErrFull says that a recording has reached its limit.
var ErrFull = errors.New("recording: it has reached its limit")

// Params describe what to record.
type Params struct {
	Session protocol.SessionID
	PTY     protocol.PTYID
	Command string // of the terminal
	Cols    int    // at the start
	Rows    int    // at the start
	Term    string // TERM of the terminal
	Start   time.Time
}

// A Recording is a running recording. [Recording.Info] is safe for concurrent
// use; everything else is for one goroutine. After an error it must be ended.
type Recording struct {
	// Static after construction.
	store   *Store
	id      string
	session protocol.SessionID
	start   time.Time
	term    string // TERM
	file    *os.File

	// Owned by the goroutine that writes.
	buf     []byte        // whole lines
	begun   []byte        // the beginning of a character, at most 3 bytes
	last    time.Duration // of the last event
	written int64         // bytes in the file
	checked uint64        // the round of secrets of the last Check

	mu sync.Mutex
	// Guarded by mu.
	info    protocol.RecordingInfo
	round   uint64 // of the secrets that it was last checked for
	suspect bool   // it may hold a secret
}

// header is the first line of an asciicast v2 file.
type header struct {
	Version   int               `json:"version"` // 2
	Width     int               `json:"width"`
	Height    int               `json:"height"`
	Timestamp int64             `json:"timestamp"` // Unix seconds
	Title     string            `json:"title,omitempty"`
	Env       map[string]string `json:"env,omitempty"`
}

// Create begins a recording. Its file exists when Create returns.
func (s *Store) Create(p Params) (*Recording, error) {
	s.prune()
	if !protocol.ValidID(p.Session) {
		return nil, protocol.Errorf(protocol.KindInvalid, "not a session id")
	}
	round := s.secretsRound()
	r := &Recording{store: s, id: newID(), session: p.Session, start: p.Start, term: p.Term, round: round}
	r.info = protocol.RecordingInfo{
		ID: r.id, PTYID: p.PTY, Command: p.Command, Cols: p.Cols, Rows: p.Rows,
		StartedAt: p.Start.UnixMilli(),
	}
	first, err := headerLine(p)
	if err != nil {
		return nil, fmt.Errorf("recording: %w", err)
	}
	r.buf = first
	if err := r.create(); err != nil {
		return nil, fmt.Errorf("recording: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[r.id] = r
	return r, nil
}

// headerLine returns the first line of a recording.
func headerLine(p Params) ([]byte, error) {
	first, err := json.Marshal(header{
		Version: 2, Width: p.Cols, Height: p.Rows, Timestamp: p.Start.Unix(), Title: p.Command,
		Env: map[string]string{"TERM": p.Term},
	})
	return append(first, '\n'), err
}

// create makes the files. The info comes first, so that each recording has one.
func (r *Recording) create() error {
	if err := os.MkdirAll(filepath.Join(r.store.dir, string(r.session)), 0o700); err != nil {
		return err
	}
	if err := r.store.store(r.session, r.Info()); err != nil {
		return err
	}
	path := r.store.path(r.session, r.id, castSuffix)
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		r.file = file
		if err = r.Flush(); err == nil {
			return nil
		}
		err = errors.Join(err, file.Close(), os.Remove(path))
	}
	return errors.Join(err, os.Remove(r.store.path(r.session, r.id, infoSuffix)))
}

// ID returns the recording's name.
func (r *Recording) ID() string { return r.id }

// Info returns the recording's entry in a list.
func (r *Recording) Info() protocol.RecordingInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.info
}

// Output adds what the terminal printed at a time. An incomplete character
// waits for the rest of its bytes. It fails with [ErrFull], or if the disk
// does.
func (r *Recording) Output(at time.Time, p []byte) error {
	if len(r.begun) > 0 {
		p = append(r.begun, p...)
	}
	whole := len(p) - incomplete(p)
	err := r.event(at, 'o', p[:whole])
	r.begun = append([]byte(nil), p[whole:]...)
	return err
}

// Resize adds a new size of the terminal. It fails as Output does.
func (r *Recording) Resize(at time.Time, cols, rows int) error {
	return r.event(at, 'r', fmt.Appendf(nil, "%dx%d", cols, rows))
}

// event adds a line, unless data is empty.
func (r *Recording) event(at time.Time, code byte, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	r.last = max(r.last, at.Sub(r.start)) // times never go back
	held := len(r.buf)
	r.buf = appendEvent(r.buf, r.last, code, data)
	if r.written+int64(len(r.buf)) > r.store.maxBytes {
		r.buf = r.buf[:held]
		return ErrFull
	}
	if len(r.buf) < bufferBytes {
		return nil
	}
	return r.Flush()
}

// Buffered reports whether anything is buffered.
func (r *Recording) Buffered() bool { return len(r.buf) > 0 }

// Flush writes the buffer. If the disk fails, it removes a partial write, so
// that the file ends with a whole line.
func (r *Recording) Flush() error {
	n, err := r.file.Write(r.buf)
	if err != nil {
		if n > 0 {
			err = errors.Join(err, r.file.Truncate(r.written))
		}
		return err
	}
	r.written += int64(n)
	r.buf = r.buf[:0]
	if cap(r.buf) > 4*bufferBytes { // it held a keyframe
		r.buf = nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.info.Bytes = r.written
	return nil
}

// End ends the recording at a time. cause is the error that ended it, if any.
// The recording must not be used afterwards. If the disk fails, End fails, and
// the end or the last output is lost.
func (r *Recording) End(at time.Time, cause error) error {
	var err error
	if cause == nil && len(r.begun) > 0 {
		err = r.event(at, 'o', r.begun)
	}
	if (cause == nil || errors.Is(cause, ErrFull)) && err == nil {
		err = r.Flush()
	}
	note := ""
	switch {
	case errors.Is(cause, ErrFull) || errors.Is(err, ErrFull):
		note = fmt.Sprintf("it reached the limit of %d bytes", r.store.maxBytes)
	case cause != nil || err != nil:
		note = "it ended early: the disk failed"
	}
	r.mu.Lock()
	r.info.EndedAt, r.info.Note = max(at.UnixMilli(), r.info.StartedAt), note
	info := r.info
	r.mu.Unlock()
	if errors.Is(err, ErrFull) {
		err = nil
	}
	err = errors.Join(err, r.file.Close(), r.store.store(r.session, info))

	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	delete(r.store.running, r.id)
	return err
}

// Discard ends the recording and removes it.
func (r *Recording) Discard() error {
	r.store.mu.Lock()
	delete(r.store.running, r.id)
	r.store.mu.Unlock()
	return errors.Join(r.file.Close(),
		os.Remove(r.store.path(r.session, r.id, castSuffix)), os.Remove(r.store.path(r.session, r.id, infoSuffix)))
}

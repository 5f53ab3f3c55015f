// Package recording writes a terminal's output as asciicast v2 files and stores
// them.
//
// A recording is <session>/<id>.cast below the store's directory. Beside it is
// <id>.json, a protocol.RecordingInfo, which says when it ended. A recording
// without an end was cut short by the agent's end.
package recording

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
)

const (
	// DefaultMaxBytes bounds a recording.
	DefaultMaxBytes = 256 << 20

	castSuffix = ".cast"
	infoSuffix = ".json"
	// tailBytes is how much is read at a time to find the last whole line of a
	// recording that was cut short.
	tailBytes = 64 << 10
)

// noteCutShort is the note of a recording that was cut short.
const noteCutShort = "it was cut short: the agent ended"

// Options configure a [Store].
type Options struct {
	Dir      string       // made when missing; one process at a time uses it
	MaxBytes int64        // of one recording; default: DefaultMaxBytes
	MaxTotal int64        // of all; beyond it the oldest are removed; default: DefaultMaxTotal
	Logger   *slog.Logger // nil: silent
}

// A Store is a directory of recordings. It is safe for concurrent use.
type Store struct {
	// Static after construction.
	dir      string
	maxBytes int64
	maxTotal int64
	log      *slog.Logger

	rewriting sync.Mutex // held while an ended recording is rewritten; before mu

	mu      sync.Mutex
	running map[string]*Recording // guarded by mu: by id
	masking masking               // guarded by mu
}

// Open makes o.Dir, for its owner alone, if missing. It ends the recordings
// that an earlier process left without an end.
func Open(o Options) (*Store, error) {
	s := &Store{dir: o.Dir, maxBytes: o.MaxBytes, maxTotal: o.MaxTotal, log: o.Logger, running: make(map[string]*Recording)}
	if s.maxBytes == 0 {
		s.maxBytes = DefaultMaxBytes
	}
	if s.maxTotal == 0 {
		s.maxTotal = DefaultMaxTotal
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("recording: %w", err)
	}
	sessions, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("recording: %w", err)
	}
	for _, e := range sessions {
		if session := protocol.SessionID(e.Name()); e.IsDir() && protocol.ValidID(session) {
			s.recover(session)
			s.removeAside(session)
		}
	}
	return s, nil
}

// recover ends the session's recordings that have no end. One that can't be
// ended stays as it is.
func (s *Store) recover(session protocol.SessionID) {
	for _, id := range s.ids(session) {
		info, err := s.load(session, id)
		if err == nil && info.EndedAt == 0 {
			err = s.endLate(session, info)
		}
		if err != nil {
			s.log.Warn("a recording can't be used", "session", session, "recording", id, "err", err)
		}
	}
}

// endLate ends a recording of an earlier process after its last whole line.
func (s *Store) endLate(session protocol.SessionID, info protocol.RecordingInfo) error {
	path := s.path(session, info.ID, castSuffix)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	size, err := wholeLines(f, st.Size())
	if err != nil {
		return err
	}
	if size < st.Size() {
		if err := f.Truncate(size); err != nil {
			return err
		}
	}
	info.EndedAt, info.Note = st.ModTime().UnixMilli(), noteCutShort
	return s.store(session, info)
}

// wholeLines returns the size of the whole lines in the first size bytes of f.
func wholeLines(f io.ReaderAt, size int64) (int64, error) {
	buf := make([]byte, tailBytes)
	for end := size; end > 0; {
		p := buf[:min(end, tailBytes)]
		begin := end - int64(len(p))
		if _, err := f.ReadAt(p, begin); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(p, '\n'); i >= 0 {
			return begin + int64(i) + 1, nil
		}
		end = begin
	}
	return 0, nil
}

// path returns the name of a recording's file. Both ids have been checked.
func (s *Store) path(session protocol.SessionID, id, suffix string) string {
	return filepath.Join(s.dir, string(session), id+suffix)
}

// ids returns the recordings of session.
func (s *Store) ids(session protocol.SessionID) (ids []string) {
	entries, err := os.ReadDir(filepath.Join(s.dir, string(session)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("recordings can't be listed", "session", session, "err", err)
	}
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), infoSuffix); ok && protocol.ValidID(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// load reads a recording's info, without its size.
func (s *Store) load(session protocol.SessionID, id string) (info protocol.RecordingInfo, err error) {
	data, err := os.ReadFile(s.path(session, id, infoSuffix))
	if err != nil {
		return info, err
	}
	if err := json.Unmarshal(data, &info); err != nil {
		return info, err
	}
	info.ID = id
	return info, nil
}

func (s *Store) store(session protocol.SessionID, info protocol.RecordingInfo) error {
	data, err := json.Marshal(info)
	if err != nil {
		return err
	}
	return program.ReplaceFile(s.path(session, info.ID, infoSuffix), data, 0o600)
}

// List returns the recordings of session, the oldest first.
func (s *Store) List(session protocol.SessionID) []protocol.RecordingInfo {
	var infos []protocol.RecordingInfo
	if !protocol.ValidID(session) {
		return nil
	}
	for _, id := range s.ids(session) {
		if info, err := s.info(session, id); err == nil { // otherwise it is incomplete
			infos = append(infos, info)
		}
	}
	slices.SortFunc(infos, func(a, b protocol.RecordingInfo) int {
		return cmp.Or(cmp.Compare(a.StartedAt, b.StartedAt), cmp.Compare(a.ID, b.ID))
	})
	return infos
}

// info returns a recording's entry in a list.
func (s *Store) info(session protocol.SessionID, id string) (protocol.RecordingInfo, error) {
	s.mu.Lock()
	r := s.running[id]
	s.mu.Unlock()
	if r != nil && r.session == session {
		return r.Info(), nil
	}
	info, err := s.load(session, id)
	if err != nil {
		return info, err
	}
	st, err := os.Stat(s.path(session, id, castSuffix))
	if err != nil {
		return info, err
	}
	info.Bytes = st.Size()
	if info.EndedAt == 0 { // the disk failed at its end
		info.EndedAt, info.Note = st.ModTime().UnixMilli(), noteCutShort
	}
	return info, nil
}

// A Content is a recording as it was when opened.
type Content struct {
	Info     protocol.RecordingInfo
	Modified time.Time
	*io.SectionReader

	file *os.File
}

// Close closes the content's file.
func (c *Content) Close() error { return c.file.Close() }

// Read opens the recording id of session, which holds none of the store's
// secrets. It fails with KindNotFound if there is none. It fails with
// KindUnavailable if secrets can't be ruled out: a running one is being
// checked, or the disk prevents an ended one from being masked.
func (s *Store) Read(session protocol.SessionID, id string) (*Content, error) {
	missing := protocol.Errorf(protocol.KindNotFound, "no such recording")
	if !protocol.ValidID(session) || !protocol.ValidID(id) {
		return nil, missing
	}
	if err := s.clearToRead(session, id); err != nil {
		return nil, err
	}
	info, err := s.info(session, id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing
	}
	if err != nil {
		return nil, protocol.Fault(protocol.KindInternal, err)
	}
	f, err := os.Open(s.path(session, id, castSuffix))
	if err != nil {
		return nil, protocol.Fault(protocol.KindInternal, err)
	}
	modified := time.Now() // a running one changes constantly
	if info.EndedAt != 0 {
		modified = time.UnixMilli(info.EndedAt)
	}
	return &Content{
		Info: info, Modified: modified,
		SectionReader: io.NewSectionReader(f, 0, info.Bytes), file: f,
	}, nil
}

// clearToRead masks an ended recording if necessary, and fails if a running one
// has yet to be checked.
func (s *Store) clearToRead(session protocol.SessionID, id string) error {
	s.mu.Lock()
	r, round := s.running[id], s.masking.round
	s.mu.Unlock()
	if r != nil && !r.readable(round) {
		return protocol.Errorf(protocol.KindUnavailable, "the recording is being looked through for secrets")
	}
	if round == 0 || r != nil {
		return nil
	}
	if err := s.mask(session, id); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return protocol.Fault(protocol.KindUnavailable, fmt.Errorf("recording: %w", err))
	}
	return nil
}

// newID returns a recording's name.
func newID() string { return "rec_" + strings.ToLower(rand.Text()) }

// DefaultMaxTotal bounds all recordings together, in bytes.
const DefaultMaxTotal = 4 << 30

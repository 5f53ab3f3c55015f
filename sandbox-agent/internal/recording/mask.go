package recording

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
)

// maskSuffix names a file that is about to replace a recording.
const maskSuffix = ".masked"

// masking is a store's state of secrets. The store's mutex guards it.
type masking struct {
	sets   []*redact.Set     // each masks the output of the one before it
	round  uint64            // of SetSecrets; 0: there has never been a secret
	masked map[string]uint64 // the round in which an ended recording was last masked, by id
}

// SetSecrets sets the secrets that recordings must not hold. From now on an
// ended recording is read only after it has been masked, see [Store.Mask], and
// a running one only after [Recording.Check] or [Recording.Restart]. New ones
// must get masked output. Each set masks the output of the one before.
func (s *Store) SetSecrets(sets ...*redact.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.masking.sets = filled(sets)
	s.masking.round++
	if s.masking.masked == nil {
		s.masking.masked = make(map[string]uint64)
	}
}

// filled returns the sets that aren't empty.
func filled(sets []*redact.Set) []*redact.Set {
	return slices.DeleteFunc(slices.Clone(sets), (*redact.Set).Empty)
}

// secretsRound returns the round of the current secrets.
func (s *Store) secretsRound() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.masking.round
}

// Mask masks the secrets in all ended recordings, until ctx ends. It writes
// each masked copy beside the original, then replaces the original. It
// continues after errors and returns all of them.
func (s *Store) Mask(ctx context.Context) error {
	sessions, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("recording: %w", err)
	}
	var errs []error
	for _, e := range sessions {
		session := protocol.SessionID(e.Name())
		if !e.IsDir() || !protocol.ValidID(session) {
			continue
		}
		for _, id := range s.ids(session) {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := s.mask(session, id); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, fmt.Errorf("recording %s: %w", id, err))
			}
		}
	}
	return errors.Join(errs...)
}

// mask masks the current secrets in an ended recording, unless that was done.
// It ignores a running one.
func (s *Store) mask(session protocol.SessionID, id string) error {
	s.rewriting.Lock()
	defer s.rewriting.Unlock()
	s.mu.Lock()
	sets, round := s.masking.sets, s.masking.round
	done := s.running[id] != nil || s.masking.masked[id] == round
	s.mu.Unlock()
	if done {
		return nil
	}
	if len(sets) > 0 {
		if err := s.rewrite(session, id, sets); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.masking.masked[id] = round
	return nil
}

// rewrite masks the secrets of sets in an ended recording.
func (s *Store) rewrite(session protocol.SessionID, id string, sets []*redact.Set) error {
	info, err := s.load(session, id)
	if err != nil {
		return err
	}
	if command := string(maskText(sets, []byte(info.Command))); command != info.Command {
		info.Command = command
		if err := s.store(session, info); err != nil {
			return err
		}
	}
	path := s.path(session, id, castSuffix)
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	found, err := holds(in, sets)
	if err != nil || !found {
		return err
	}
	if _, err := in.Seek(0, io.SeekStart); err != nil {
		return err
	}
	aside := s.path(session, id, maskSuffix)
	if err := s.copyMasked(aside, in, sets); err != nil {
		return errors.Join(err, removeIfThere(aside))
	}
	if err := os.Rename(aside, path); err != nil {
		return errors.Join(err, removeIfThere(aside))
	}
	if _, err := os.Stat(s.path(session, id, infoSuffix)); errors.Is(err, fs.ErrNotExist) {
		return removeIfThere(path) // it was pruned meanwhile
	}
	return nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// copyMasked copies the recording in to a new file, with the secrets of sets
// masked.
func (s *Store) copyMasked(path string, in io.Reader, sets []*redact.Set) (err error) {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	events := newEventReader(in)
	first, err := events.header()
	if err != nil {
		return err
	}
	r := &Recording{store: s, file: out, buf: maskText(sets, first)}
	masked := newChain(sets)
	for {
		e, err := events.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		at := r.start.Add(e.at)
		if e.code == "o" {
			err = r.Output(at, masked.write([]byte(e.data)))
		} else {
			err = r.event(at, e.code[0], []byte(e.data))
		}
		if err != nil && !errors.Is(err, ErrFull) {
			return err
		}
	}
	end := r.start.Add(r.last)
	if err := errors.Join(r.Output(end, masked.flush()), r.event(end, 'o', r.begun), r.Flush()); err != nil && !errors.Is(err, ErrFull) {
		return err
	}
	return out.Sync()
}

// holds reports whether a recording's header or output holds a secret of sets.
func holds(in io.Reader, sets []*redact.Set) (bool, error) {
	events := newEventReader(in)
	first, err := events.header()
	if err != nil {
		return false, err
	}
	if !bytes.Equal(maskText(sets, first), first) {
		return true, nil
	}
	streams, buf := newChain(sets).streams, []byte(nil)
	for {
		e, err := events.next()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if e.code != "o" {
			continue
		}
		for _, s := range streams { // while none finds any, each leaves all to the next
			buf = s.Write(buf[:0], []byte(e.data))
			if s.Matches() > 0 {
				return true, nil
			}
		}
	}
}

// Check reports whether the running recording holds a secret of sets. If it
// doesn't, [Recording.Clear] may follow.
func (r *Recording) Check(sets ...*redact.Set) (found bool, err error) {
	r.checked = r.store.secretsRound()
	if err := r.Flush(); err != nil {
		return false, err
	}
	in, err := os.Open(r.store.path(r.session, r.id, castSuffix))
	if err != nil {
		return false, err
	}
	defer in.Close()
	return holds(in, filled(sets))
}

// Clear says that by the last [Recording.Check] the recording holds no secret
// and may be read.
func (r *Recording) Clear() { r.clear(r.checked) }

// clear says that the file holds no secret of round.
func (r *Recording) clear(round uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.round = max(r.round, round)
	r.suspect = false
}

// Suspect keeps the recording from being read before the next
// [Recording.Restart] or [Recording.Clear]: something is in it that must not be seen. It is safe for
// concurrent use.
func (r *Recording) Suspect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.suspect = true
}

// readable reports whether the recording has been checked since the secrets of
// round were set.
func (r *Recording) readable(round uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.suspect && r.round >= round
}

// Restart discards the recording's content. Recording continues in the same
// file, with the same clock and a terminal of cols × rows. It fails if the disk
// does.
func (r *Recording) Restart(cols, rows int, command string) error {
	round := r.store.secretsRound()
	first, err := headerLine(Params{
		Command: command, Cols: cols, Rows: rows, Term: r.term, Start: r.start,
	})
	if err != nil {
		return err
	}
	if err := r.file.Truncate(0); err != nil {
		return err
	}
	if _, err := r.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	r.buf, r.begun, r.written = first, nil, 0
	if err := r.Flush(); err != nil {
		return err
	}
	r.mu.Lock()
	r.info.Cols, r.info.Rows, r.info.Command = cols, rows, command
	info := r.info
	r.mu.Unlock()
	if err := r.store.store(r.session, info); err != nil {
		return err
	}
	r.clear(round)
	return nil
}

// removeAside removes masked copies that an earlier process left in a session's
// folder.
func (s *Store) removeAside(session protocol.SessionID) {
	entries, err := os.ReadDir(s.path(session, "", ""))
	if err != nil {
		return // recover has logged it
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), maskSuffix) {
			if err := os.Remove(s.path(session, e.Name(), "")); err != nil {
				s.log.Warn("a recording's copy can't be removed", "session", session, "err", err)
			}
		}
	}
}

// A recordedEvent is one line of a recording.
type recordedEvent struct {
	at   time.Duration
	code string // "o", "r"; at least one byte
	data string
}

// An eventReader reads a recording. It ignores an incomplete last line.
type eventReader struct{ lines *bufio.Reader }

func newEventReader(in io.Reader) *eventReader { return &eventReader{bufio.NewReaderSize(in, 64<<10)} }

// header returns the first line with its end.
func (r *eventReader) header() ([]byte, error) {
	line, err := r.lines.ReadBytes('\n')
	if errors.Is(err, io.EOF) {
		return nil, errors.New("no header")
	}
	return line, err
}

func (r *eventReader) next() (e recordedEvent, err error) {
	line, err := r.lines.ReadBytes('\n')
	if err != nil {
		return e, err
	}
	var seconds float64
	if err := json.Unmarshal(line, &[]any{&seconds, &e.code, &e.data}); err != nil || e.code == "" {
		return e, errors.New("a line that is no event")
	}
	e.at = time.Duration(seconds * float64(time.Second))
	return e, nil
}

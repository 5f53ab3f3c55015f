package terminal

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/bytelog"
	"github.com/fairlead/fairlead/sandbox-agent/internal/arbiter"
	"github.com/fairlead/fairlead/sandbox-agent/internal/display"
	"github.com/fairlead/fairlead/sandbox-agent/internal/launch"
	"github.com/fairlead/fairlead/sandbox-agent/internal/recording"
	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
	"github.com/fairlead/fairlead/sandbox-agent/internal/transcript"
)

const (
	// recordBytes is the most output in one event of a recording.
	recordBytes = 16 << 10
	// flushEvery is how long output may wait before a recording's file has it.
	flushEvery = time.Second
)

// A recorder writes a terminal's output to a recording, as one of those who set
// its pace.
//
// The log has no times, so output is stamped when it is taken from the log,
// with the time of the newest output there. That is exact for as long as the
// recorder keeps up, and with a list of times it would be no better: who is
// behind holds the program back, whose times are wrong then anyway.
type recorder struct {
	// Static after construction.
	*transcript.Follower
	terminal *Terminal
	pacer    *arbiter.Pacer
	done     chan struct{} // closed when the recording has ended

	// Owned by run.
	to      *recording.Recording
	tainted bool // what is recorded can't be discarded, and must be

	// Guarded by recordings.mu.
	tape     *recording.Recording // nil: it is about to begin
	stopping bool
	until    uint64        // where it stops
	jumps    int           // over output that was lost
	restart  bool          // what is recorded must be discarded
	check    []*redact.Set // or if one of these is in it; nil: there is nothing to check
}

// recordings are those of one terminal: one at a time. Its lock comes before that
// of the arbiter.
type recordings struct {
	mu      sync.Mutex
	running *recorder // guarded by mu; nil: none
}

// forget has what is recorded discarded, see [recorder.forget].
func (s *recordings) forget(secrets []*redact.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil {
		s.running.forget(secrets)
	}
}

// A recorded is what is to be recorded next.
type recorded struct {
	transcript.Item
	check   []*redact.Set // the recording is to be looked through for these
	restart bool          // what was recorded before is to be discarded
}

// StartRecording records the terminal id of session from now on, beginning with
// its screen and the lines above it, and returns the recording's id. It fails
// with KindConflict while another recording runs, with KindEnded when the
// program has ended, and with KindUnsupported where nothing is recorded.
func (h *Host) StartRecording(session protocol.SessionID, id protocol.PTYID) (string, error) {
	t, err := h.Get(session, id)
	if err != nil {
		return "", err
	}
	if h.config.Recordings == nil {
		return "", errNoRecordings
	}
	return t.startRecording(h.config.Recordings)
}

var errNoRecordings = protocol.Errorf(protocol.KindUnsupported, "nothing is recorded here")

// StopRecording ends the recording that runs and returns its id. Everything
// printed before is in it. It fails with KindNotFound when none runs.
func (h *Host) StopRecording(session protocol.SessionID, id protocol.PTYID) (string, error) {
	t, err := h.Get(session, id)
	if err != nil {
		return "", err
	}
	return t.stopRecording()
}

// tapeParams says what a recording that begins now is of.
func tapeParams(session protocol.SessionID, info protocol.PTYInfo, now time.Time) recording.Params {
	return recording.Params{
		Session: session, PTY: info.ID, Command: info.Command,
		Cols: info.Cols, Rows: info.Rows, Term: launch.TermName, Start: now,
	}
}

func (t *Terminal) startRecording(store *recording.Store) (string, error) {
	r, params, first, err := t.beginRecording()
	if err != nil {
		return "", err
	}
	tape, err := store.Create(params)
	if err == nil && len(first) > 0 {
		if err = tape.Output(params.Start, first); err != nil {
			err = errors.Join(err, tape.Discard())
		}
	}
	t.recordings.mu.Lock()
	defer t.recordings.mu.Unlock()
	if err != nil {
		t.recordingOver(r)
		t.life.followers.Done()
		return "", fmt.Errorf("terminal: %w", err)
	}
	r.tape = tape
	t.arbiter.Record(tape.ID())
	go func() { // finish waits for it
		defer t.life.followers.Done()
		r.run(tape)
	}()
	return tape.ID(), nil
}

// beginRecording takes the place of the one recorder, from where on the log is
// recorded, and returns what comes before: a keyframe. Without one it begins
// where a viewer would.
func (t *Terminal) beginRecording() (*recorder, recording.Params, []byte, error) {
	t.view.mu.Lock()
	defer t.view.mu.Unlock()
	cursor, first := t.transcript.End(), []byte(nil)
	if cursor.Offset() > 0 {
		if k := t.view.display.Keyframe(display.WishHistory); k != nil {
			first = k.Bytes
		} else {
			cursor = t.transcript.Newcomer()
		}
	}
	t.recordings.mu.Lock()
	defer t.recordings.mu.Unlock()
	switch {
	case t.hasEnded():
		return nil, recording.Params{}, nil, protocol.Errorf(protocol.KindEnded, "the program has ended")
	case t.recordings.running != nil:
		return nil, recording.Params{}, nil, protocol.Errorf(protocol.KindConflict, "the terminal is being recorded")
	}
	r := t.newRecorder(cursor)
	t.life.followers.Add(1)
	info := t.Info()
	info.Cols, info.Rows = t.transcript.SizeAt(cursor.Offset())
	return r, tapeParams(t.session, info, time.Now()), first, nil
}

// newRecorder returns one that follows the log from cursor on. The caller holds
// recordings.mu.
func (t *Terminal) newRecorder(cursor bytelog.Cursor) *recorder {
	f := t.transcript.Follow(cursor)
	r := &recorder{Follower: f, terminal: t, pacer: t.arbiter.NewPacer(f.Offset()), done: make(chan struct{})}
	t.recordings.running = r
	return r
}

// recordTo records the terminal from its first byte. It is called before the
// terminal is read.
func (t *Terminal) recordTo(tape *recording.Recording) {
	t.recordings.mu.Lock()
	defer t.recordings.mu.Unlock()
	r := t.newRecorder(t.transcript.End())
	r.tape = tape
	t.arbiter.Record(tape.ID())
	t.life.followers.Go(func() { r.run(tape) })
}

func (t *Terminal) stopRecording() (string, error) {
	r, id := t.endRecording()
	if r == nil {
		return "", protocol.Errorf(protocol.KindNotFound, "the terminal is not being recorded")
	}
	<-r.done
	return id, nil
}

// endRecording has the recording that runs end with what is printed so far, and
// returns its id; nil when there is none.
func (t *Terminal) endRecording() (r *recorder, id string) {
	t.recordings.mu.Lock()
	defer t.recordings.mu.Unlock()
	r = t.recordings.running
	if r == nil || r.tape == nil || r.stopping {
		return nil, ""
	}
	r.stopping, r.until = true, t.transcript.Head()
	r.Notify()
	return r, r.tape.ID()
}

// recordingOver makes room for another recorder. The caller holds recordings.mu.
func (t *Terminal) recordingOver(r *recorder) {
	r.Close()
	t.recordings.running = nil
	r.pacer.Gone()
}

// run records until the program ends, somebody stops it, or the disk fails.
func (r *recorder) run(to *recording.Recording) {
	t := r.terminal
	r.to = to
	err := r.record()
	end := to.End
	if r.tainted { // nobody may read it
		end = func(time.Time, error) error { return to.Discard() }
	}
	if end := end(time.Now(), err); err == nil {
		err = end
	}
	if err != nil {
		t.log.Warn("a recording ended early", "recording", to.ID(), "error", err)
	}
	t.recordings.mu.Lock()
	t.recordingOver(r)
	t.arbiter.Record("")
	t.recordings.mu.Unlock()
	close(r.done)
}

// record writes what is printed until there will be no more, or the disk fails.
func (r *recorder) record() error {
	flush := time.NewTicker(flushEvery)
	defer flush.Stop()
	for {
		item, ok := r.take()
		if item.Exited != nil {
			return nil
		}
		if item.check != nil {
			if err := r.lookThrough(item.check); err != nil {
				return err
			}
			continue
		}
		if err := r.write(item); err != nil {
			return err
		}
		due := flush.C
		if !r.to.Buffered() {
			due = nil
		}
		var err error
		switch {
		case ok:
			select {
			case <-due:
				err = r.to.Flush()
			default:
			}
		default:
			select {
			case <-r.Wake:
			case <-due:
				err = r.to.Flush()
			}
		}
		if err != nil {
			return err
		}
	}
}

func (r *recorder) write(item recorded) error {
	if m := item.Resized; item.restart {
		r.tainted = true
		if err := r.to.Restart(m.Cols, m.Rows, r.terminal.Info().Command); err != nil {
			return err
		}
		r.tainted = false
	} else if m != nil {
		if err := r.to.Resize(item.At, m.Cols, m.Rows); err != nil {
			return err
		}
	}
	return r.to.Output(item.At, item.Bytes)
}

// forget has the recorder discard what is recorded, if secrets isn't nil only
// when one of these is in it. The caller holds recordings.mu.
func (r *recorder) forget(secrets []*redact.Set) {
	if secrets == nil {
		r.restart = true
	} else {
		r.check = secrets
	}
	if r.tape != nil {
		r.tape.Suspect()
	}
	r.Notify()
}

// lookThrough has what is recorded discarded if one of secrets is in it.
func (r *recorder) lookThrough(secrets []*redact.Set) error {
	found, err := r.to.Check(secrets...)
	if err != nil {
		return err
	}
	r.terminal.recordings.mu.Lock()
	defer r.terminal.recordings.mu.Unlock()
	switch {
	case found:
		r.restart = true
	case !r.restart && r.check == nil:
		r.to.Clear()
	}
	return nil
}

// take returns what is to be recorded next, false when there is nothing now.
// What it returned before is recorded. Where it stops, the log has ended.
func (r *recorder) take() (item recorded, ok bool) {
	item, ok, skip := r.takeNext()
	if skip != display.WishNone {
		return r.ahead(skip), true
	}
	return item, ok
}

// takeNext is take, unless the recording goes on with the present screen: then
// it says with how much of that.
func (r *recorder) takeNext() (item recorded, ok bool, skip display.Wish) {
	t := r.terminal
	t.recordings.mu.Lock()
	defer t.recordings.mu.Unlock()
	r.pacer.At(r.Offset())
	switch sets := r.check; {
	case r.restart:
		return recorded{}, false, display.WishHistory
	case sets != nil:
		r.check = nil
		return recorded{check: sets}, true, display.WishNone
	}
	limit := recordBytes
	if r.stopping {
		left := r.until - min(r.until, r.Offset())
		if left == 0 {
			return recorded{Item: transcript.Item{Exited: &protocol.Exited{}}}, true, display.WishNone
		}
		limit = int(min(left, recordBytes))
	}
	next, ok, err := r.Next(limit)
	if err != nil {
		// Output was lost, because the disk was slower for longer than the program
		// may be held back.
		if r.jumps++; r.jumps == 1 {
			t.log.Warn("a recording lacks output: the disk is too slow", "recording", r.to.ID())
		}
		return recorded{}, false, display.WishScreen
	}
	return recorded{Item: next}, ok, display.WishNone
}

// ahead moves to the end of the log and returns the present screen. With
// display.WishHistory what is recorded is to be discarded.
func (r *recorder) ahead(w display.Wish) recorded {
	t := r.terminal
	t.view.mu.Lock()
	defer t.view.mu.Unlock()
	cursor := t.transcript.End()
	item := recorded{Item: transcript.Item{Offset: cursor.Offset(), At: time.Now()}}
	if k := t.view.display.Keyframe(w); k != nil {
		item.Bytes = k.Bytes
	} else {
		cursor = t.transcript.Newcomer()
	}
	cols, rows := r.Move(cursor)
	item.Resized = &protocol.Resized{Offset: cursor.Offset(), Cols: cols, Rows: rows}
	t.recordings.mu.Lock()
	defer t.recordings.mu.Unlock()
	if w == display.WishHistory {
		item.restart, r.restart, r.check = true, false, nil
	}
	return item
}

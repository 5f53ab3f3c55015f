package terminal

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/pace"
)

const (
	// readBytes is the most output taken at once. Linux hands out 4 KiB.
	readBytes = 32 << 10
	// recordingPacer is the name under which a recording sets the pace. No
	// viewer gets it.
	recordingPacer = "recording"
)

// flow is who holds the terminal back, and whether read waits for them. The
// terminal's mutex guards it.
type flow struct {
	gate       pace.Gate
	lastStream pace.Stream
	waiting    bool          // read waits for proceed
	proceed    chan struct{} // 1 element
	lifted     bool          // the program has ended: nobody holds back what is left
	refused    int           // PACE that were not taken
}

// newStream returns a name for another reader of the terminal. It is called
// with mu held.
func (f *flow) newStream() pace.Stream {
	f.lastStream++
	return f.lastStream
}

// read moves output from the PTY to the log until there is no more.
func (t *Terminal) read() {
	buf := make([]byte, readBytes)
	var out, answers []byte
	for {
		n, err := t.dev.Read(buf)
		t.mu.Lock()
		out, answers = t.keyframes.grid.Write(out[:0], answers[:0], buf[:n])
		if err != nil {
			out = t.keyframes.grid.Flush(out)
		}
		if len(out)+len(answers) > 0 {
			t.append(out)
			t.input.answer(answers)
			t.pump()
		}
		wait := t.holdBack()
		t.mu.Unlock()
		switch {
		case err != nil && (errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed)):
			return
		case err != nil:
			t.log.Warn("reading a terminal failed", "error", err)
			return
		case wait:
			<-t.flow.proceed
		}
	}
}

// append adds what the grid let out to the log. It is called with mu held.
func (t *Terminal) append(out []byte) {
	if len(out) == 0 {
		return
	}
	t.printed = time.Now()
	t.keyframes.moved()
	t.output.Append(out)
	t.wakeAll()
}

// wakeAll tells everybody who reads the log that there is something. It is
// called with mu held.
func (t *Terminal) wakeAll() {
	for a := range t.attachments {
		a.notify()
	}
	for f := range t.following {
		f.notify()
	}
}

// holdBack reports whether read has to wait for proceed. It is called with mu
// held.
func (t *Terminal) holdBack() bool {
	f := &t.flow
	f.waiting = !f.lifted && !f.gate.MayRead(t.output.Head(), time.Now())
	if f.waiting {
		t.poke()
	}
	return f.waiting
}

// letGo has read go on if it waits and nobody holds it back any more, and
// returns how long to wait before that has to be looked at again. It is called
// with mu held.
func (t *Terminal) letGo(now time.Time) time.Duration {
	f := &t.flow
	if !f.waiting {
		return noDeadline
	}
	if f.lifted || f.gate.MayRead(t.output.Head(), now) {
		f.waiting = false
		f.proceed <- struct{}{} // has room: read takes it before it waits again
		return noDeadline
	}
	if deadline, ok := f.gate.Deadline(t.output.Head()); ok {
		return deadline.Sub(now)
	}
	return noDeadline
}

// paced is called with mu held when who holds the terminal back has changed.
func (t *Terminal) paced() {
	t.letGo(time.Now())
	if t.flow.waiting {
		t.poke()
	}
}

// lift lets the terminal be read from now on, whoever is behind. It is called
// with mu held.
func (t *Terminal) lift() {
	t.flow.lifted = true
	t.paced()
}

// Pace notes where a pace-setter is that the relay of this attachment reports,
// or that it is none any more. Beyond protocol.MaxPacers others are ignored.
func (a *Attachment) Pace(p protocol.Pace) {
	t := a.terminal
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.err != nil {
		return
	}
	gate := &t.flow.gate
	switch {
	case p.ID == recordingPacer:
		t.refusePace("the name is taken")
		return
	case p.Gone:
		gate.Gone(a.stream, p.ID)
	case !gate.Set(a.stream, p.ID, p.Offset, t.output.Head(), time.Now()):
		t.refusePace("too many pace-setters")
		return
	}
	t.paced()
}

// refusePace counts a PACE that was not taken, and tells of the first.
func (t *Terminal) refusePace(why string) {
	t.flow.refused++
	if t.flow.refused == 1 {
		t.log.Warn("a viewer can't set the pace", "reason", why)
	}
}

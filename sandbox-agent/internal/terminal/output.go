package terminal

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/pace"
)

const (
	// readBytes is the most output taken at once. Linux hands out 4 KiB.
	readBytes = 32 << 10
	// recordingPacer is the name under which a recording sets the pace. No
	// viewer gets it.
	recordingPacer = "recording"
)

// flow is who holds the terminal back. The arbiter's mu guards it.
type flow struct {
	gate       pace.Gate
	lastStream pace.Stream
	refused    int  // PACE that were not taken
	due        bool // a new epoch of the log is, for which the program waits
}

// newStream returns a name for another reader of the terminal. The caller
// holds mu.
func (f *flow) newStream() pace.Stream {
	f.lastStream++
	return f.lastStream
}

// read moves output from the PTY of p to the log until there is no more. What it
// takes while p is not in front stays with it until p is.
func (t *Terminal) read(p *program) {
	buf := make([]byte, readBytes)
	var answers []byte
	for {
		n, err := p.dev.Read(buf)
		t.view.mu.Lock()
		for !t.view.display.Shows(&p.out) {
			t.standBy(p)
			t.view.mu.Unlock()
			<-p.proceed
			t.view.mu.Lock()
		}
		var some bool
		answers, some = t.view.display.Write(answers[:0], buf[:n], err != nil && p == t.own)
		t.beginAnewIfDue(time.Now())
		wait := t.printed(p, some, answers)
		t.view.mu.Unlock()
		switch {
		case err != nil && (errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed)):
			return
		case err != nil:
			t.log.Warn("reading a terminal failed", "error", err)
			return
		case wait:
			<-p.proceed
		}
	}
}

// standBy notes that the reader of p, which is not in front, waits for proceed.
// The caller holds view.mu.
func (b *arbiter) standBy(p *program) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p.waiting = true
}

// printed does what output of p, which is in front, asks of others than the
// display: it queues the answers to queries, and reports whether the reader of p
// has to wait for proceed. The caller holds view.mu.
func (t *Terminal) printed(p *program, some bool, answers []byte) (wait bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(answers) > 0 {
		p.answer(answers)
		t.pump()
	}
	t.displayed(some)
	return t.holdBack(p)
}

// displayed notes how the display stands after output, some of which was printed
// or none. The caller holds view.mu and arbiter.mu.
func (t *Terminal) displayed(some bool) {
	t.noteHeld(t.view.display.HoldsBack(), some)
	if t.flow.due = t.view.display.Due(); t.flow.due {
		t.poke() // for when the new epoch has to wait
	}
}

// holdBack reports whether the reader of p, which is in front, has to wait for
// proceed. The caller holds mu.
func (b *arbiter) holdBack(p *program) bool {
	p.waiting = !p.lifted && (b.flow.due || !b.flow.gate.MayRead(b.transcript.Head(), time.Now()))
	if p.waiting {
		b.poke()
	}
	return p.waiting
}

// letGo has the reader of the program in front go on if it waits and nobody
// holds it back any more, and returns how long to wait before that has to be
// looked at again. The caller holds mu.
func (b *arbiter) letGo(now time.Time) time.Duration {
	p, gate := b.stage.front, &b.flow.gate
	if !p.waiting {
		return noDeadline
	}
	if b.flow.due && !p.lifted {
		return noDeadline // the new epoch lets it go
	}
	if p.lifted || gate.MayRead(b.transcript.Head(), now) {
		p.waiting = false
		p.proceed <- struct{}{} // has room: the reader takes it before it waits again
		return noDeadline
	}
	if deadline, ok := gate.Deadline(b.transcript.Head()); ok {
		return deadline.Sub(now)
	}
	return noDeadline
}

// paced is called when who holds the terminal back has changed. The
// caller holds mu.
func (b *arbiter) paced() {
	b.letGo(time.Now())
	if b.stage.front.waiting {
		b.poke()
	}
}

// lift lets p be read from now on, whoever is behind: it has ended, what its PTY
// still holds is little, and the end has to be known.
func (b *arbiter) lift(p *program) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p.lifted = true
	b.paced()
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
		t.flow.refusePace("the name is taken", t.log)
		return
	case p.Gone:
		gate.Gone(a.stream, p.ID)
	case !gate.Set(a.stream, p.ID, p.Offset, t.transcript.Head(), time.Now()):
		t.flow.refusePace("too many pace-setters", t.log)
		return
	}
	t.paced()
}

// refusePace counts a PACE that was not taken, and tells of the first. The
// caller holds mu.
func (f *flow) refusePace(why string, log *slog.Logger) {
	f.refused++
	if f.refused == 1 {
		log.Warn("a viewer can't set the pace", "reason", why)
	}
}

package arbiter

import (
	"log/slog"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/pace"
	"github.com/fairlead/fairlead/sandbox-agent/internal/transcript"
)

// flow is who holds the terminal back.
type flow struct {
	// Static after construction.
	transcript *transcript.Transcript
	log        *slog.Logger
	changed    wakeup

	// Guarded by Arbiter.mu.
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

// recordingPacer is the name under which a recording sets the pace. No viewer gets
// it.
const recordingPacer = "recording"

// A Pacer is a recording, which sets the pace as viewers do.
type Pacer struct {
	arbiter *Arbiter
	stream  pace.Stream
}

// NewPacer returns a Pacer that is at offset of the log.
func (b *Arbiter) NewPacer(offset uint64) *Pacer {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := &Pacer{arbiter: b, stream: b.flow.newStream()}
	p.at(offset)
	return p
}

// At notes how far p is.
func (p *Pacer) At(offset uint64) {
	p.arbiter.mu.Lock()
	defer p.arbiter.mu.Unlock()
	p.at(offset)
}

// at is At with Arbiter.mu held.
func (p *Pacer) at(offset uint64) {
	f := &p.arbiter.flow
	if !f.gate.Set(p.stream, recordingPacer, offset, f.transcript.Head(), time.Now()) {
		f.refusePace("too many pace-setters")
	}
	f.paced(p.arbiter.stage.front)
}

// Gone notes that p sets the pace no more.
func (p *Pacer) Gone() {
	b := p.arbiter
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flow.gate.Gone(p.stream, recordingPacer)
	b.flow.paced(b.stage.front)
}

// Shown says how a terminal's display stands.
type Shown struct {
	HoldsBack bool // output may be the beginning of a secret
	Due       bool // the log must begin anew before it gets output
}

// Printed does what output of p, which is in front, asks for beside its display,
// which stands as shown says: answers to queries are queued. some says that
// anything but queries was printed. It reports whether the reader of p has to
// wait, see [Program.AwaitTurn].
func (b *Arbiter) Printed(p *Program, shown Shown, some bool, answers []byte) (wait bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(answers) > 0 {
		p.answer(answers)
		b.pump()
	}
	b.shows(shown, some)
	return b.flow.holdBack(p)
}

// Show notes how the display stands, after something was printed or not.
func (b *Arbiter) Show(shown Shown, some bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shows(shown, some)
}

// shows is Show with mu held.
func (b *Arbiter) shows(shown Shown, some bool) {
	b.held.note(shown.HoldsBack, some)
	if b.flow.due = shown.Due; b.flow.due {
		b.Poke() // for when the new epoch has to wait
	}
}

// StandBy notes that the reader of p, which is not in front, waits until it is.
func (b *Arbiter) StandBy(p *Program) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p.waiting = true
}

// holdBack reports whether the reader of p, which is in front, has to wait for
// proceed. The caller holds mu.
func (f *flow) holdBack(p *Program) bool {
	p.waiting = !p.lifted && (f.due || !f.gate.MayRead(f.transcript.Head(), time.Now()))
	if p.waiting {
		f.changed.raise()
	}
	return p.waiting
}

// letGo has the reader of p, the program in front, go on if it waits and nobody
// holds it back any more, and returns how long to wait before that has to be
// looked at again. The caller holds mu.
func (f *flow) letGo(p *Program, now time.Time) time.Duration {
	if !p.waiting {
		return NoDeadline
	}
	if f.due && !p.lifted {
		return NoDeadline // the new epoch lets it go
	}
	if p.lifted || f.gate.MayRead(f.transcript.Head(), now) {
		p.waiting = false
		p.proceed <- struct{}{} // has room: the reader takes it before it waits again
		return NoDeadline
	}
	if deadline, ok := f.gate.Deadline(f.transcript.Head()); ok {
		return deadline.Sub(now)
	}
	return NoDeadline
}

// paced is called when who holds back p, the program in front, has changed. The
// caller holds mu.
func (f *flow) paced(p *Program) {
	f.letGo(p, time.Now())
	if p.waiting {
		f.changed.raise()
	}
}

// Lift lets p be read from now on, whoever is behind: it has ended, what its PTY
// still holds is little, and the end has to be known.
func (b *Arbiter) Lift(p *Program) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p.lifted = true
	b.flow.paced(b.stage.front)
}

// Pace notes where a pace-setter is that the relay of this stream reports,
// or that it is none any more. Beyond protocol.MaxPacers others are ignored.
func (a *Stream) Pace(p protocol.Pace) {
	b := a.arbiter
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.err != nil {
		return
	}
	gate := &b.flow.gate
	switch {
	case p.ID == recordingPacer:
		b.flow.refusePace("the name is taken")
		return
	case p.Gone:
		gate.Gone(a.pacer, p.ID)
	case !gate.Set(a.pacer, p.ID, p.Offset, b.o.Transcript.Head(), time.Now()):
		b.flow.refusePace("too many pace-setters")
		return
	}
	b.flow.paced(b.stage.front)
}

// refusePace counts a PACE that was not taken, and tells of the first. The
// caller holds mu.
func (f *flow) refusePace(why string) {
	f.refused++
	if f.refused == 1 {
		f.log.Warn("a viewer can't set the pace", "reason", why)
	}
}

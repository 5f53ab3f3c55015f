// Package arbiter decides who may type into a terminal, queues what is typed,
// and tells relays what they are to know.
//
// An [Arbiter] belongs to one terminal. Input is written to the PTY with its lock
// held. So a change of control is a clean cut: once it is announced, not one byte
// of the former holder reaches the program. Nothing is parsed, masked or drawn
// under that lock, and nobody waits for anything else while holding it: writes to
// a PTY are offers that never block.
package arbiter

import (
	"log/slog"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/lease"
	"github.com/fairlead/fairlead/sandbox-agent/internal/lifespan"
	"github.com/fairlead/fairlead/sandbox-agent/internal/pty"
	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
	"github.com/fairlead/fairlead/sandbox-agent/internal/transcript"
)

// NoDeadline is how long to wait when nothing is due.
const NoDeadline = 24 * time.Hour

// Options say what an Arbiter is of.
type Options struct {
	Session    protocol.SessionID
	Info       protocol.PTYInfo // as the terminal was made
	Transcript *transcript.Transcript
	Counts     *Counts
	Log        *slog.Logger
	Revoked    *jws.RevocationSet // grants that are void; nil: none is
	// Leased, if any, is told of each change of the lease, in order. It is called
	// with the arbiter's lock held and must not wait.
	Leased func(protocol.Lease)
	// ReportEvery is how often hooks may report about a terminal in the long run;
	// default: every 200 ms; less than 0: there is no limit.
	ReportEvery time.Duration
}

// An Arbiter owns who may type into a terminal, what waits to be typed, and what
// relays are told. It is safe for concurrent use.
type Arbiter struct {
	// Static after construction.
	o       Options
	own     *Program
	changed wakeup         // [Arbiter.Tick] should be called
	writers sync.WaitGroup // flush; only added to before the end
	typing  chan struct{}  // 1 element: somebody types for a tool

	mu sync.Mutex
	// Guarded by mu.
	stage     stage
	control   control
	sharing   sharing
	streams   streams
	audience  lifespan.Audience
	input     inputQueue
	size      sizeLimiter
	flow      flow
	held      holding
	secrets   *redact.Set // for what is told beside the log
	hooks     hooks
	addresses addresses
	recording string    // the id of the one that runs
	ended     time.Time // zero while the program runs
}

// New returns the Arbiter of a terminal whose own program is own.
func New(o Options, own *Program) *Arbiter {
	if o.ReportEvery == 0 {
		o.ReportEvery = ReportEvery
	}
	all, changed := make(streams), make(wakeup, 1)
	return &Arbiter{
		o: o, own: own,
		changed:  changed,
		typing:   make(chan struct{}, 1),
		stage:    stage{front: own},
		control:  control{lease: lease.New()},
		streams:  all,
		held:     holding{streams: all, changed: changed},
		audience: lifespan.NewAudience(time.Now()),
		flow:     flow{transcript: o.Transcript, log: o.Log, changed: changed},
		input:    newInputQueue(),
	}
}

// A Program runs on a PTY. A terminal has one of its own, and perhaps a coding
// agent's in front of it.
type Program struct {
	// Static after construction.
	Device  pty.Device
	Process pty.Child
	proceed chan struct{} // 1 element: the reader may go on

	// Guarded by Arbiter.mu.
	waiting  bool   // its reader waits for proceed
	lifted   bool   // it has ended: nobody holds back what is left
	answers  []byte // to terminal queries, at most MaxAnswerBytes
	flushing bool   // flush runs
}

// NewProgram returns process, which runs on device.
func NewProgram(device pty.Device, process pty.Child) *Program {
	return &Program{Device: device, Process: process, proceed: make(chan struct{}, 1)}
}

// AwaitTurn waits until the reader of the program's output may go on, after
// [Arbiter.StandBy] or [Arbiter.Printed] has said that it has to wait.
func (p *Program) AwaitTurn() { <-p.proceed }

// Changed has an element when [Arbiter.Tick] should be called again.
func (b *Arbiter) Changed() <-chan struct{} { return b.changed }

// Poke has Changed say so.
func (b *Arbiter) Poke() { b.changed.raise() }

// A wakeup says that there is something to look at. It has room for 1 element.
type wakeup chan struct{}

func (w wakeup) raise() {
	select {
	case w <- struct{}{}:
	default: // it is to be looked at already
	}
}

// Tick does what is due, and returns how long until something is again. Sizes
// are not its business, see [Arbiter.TakeSize].
func (b *Arbiter) Tick(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.control.lease.Expire(now) || b.control.lease.Rest(now) {
		b.leaseChanged(nil, 0)
	}
	next := NoDeadline
	if deadline, ok := b.control.lease.Deadline(); ok {
		next = min(next, deadline.Sub(now))
	}
	if due, ok := b.control.lease.Rests(); ok {
		next = min(next, due.Sub(now))
	}
	return min(next, b.flow.letGo(b.stage.front, now), b.checkGrants(now), b.held.check(now), b.stage.awaitPromptIfDue(now))
}

// Info returns the terminal as a list shows it.
func (b *Arbiter) Info() protocol.PTYInfo {
	b.mu.Lock()
	defer b.mu.Unlock()
	info := b.o.Info
	info.Command = masked(b.secrets, info.Command)
	info.Cols, info.Rows = b.o.Transcript.Size()
	info.Recording = b.recording
	info.Agent = b.stage.report()
	if with := b.sharing.shared(); with != protocol.ShareNone {
		info.Shared = with
	}
	info.Exited = b.o.Transcript.Exited()
	return info
}

// Lease returns the lease as it stands.
func (b *Arbiter) Lease() protocol.Lease {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.control.lease.Lease(time.Now())
}

// EndedAt returns when the terminal has ended: zero while it runs.
func (b *Arbiter) EndedAt() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended
}

// End notes that the terminal's own program has ended, and writes that to the
// transcript. Tick and sizes are not needed any more.
func (b *Arbiter) End(now time.Time, code int, signal string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = now
	b.o.Transcript.Exit(code, signal)
	b.refuseAll()
}

// Wait returns when nothing is written to programs any more. It is called after
// End, when their PTYs are closed.
func (b *Arbiter) Wait() { b.writers.Wait() }

// UseSecrets has the secrets of set masked in what is told beside the log. The
// display masks them already, and stands as now says.
func (b *Arbiter) UseSecrets(set *redact.Set, now Shown) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.secrets = set
	b.addresses.mask(set)
	b.shows(now, false)
	if b.hooks.turn == nil {
		return
	}
	turn := *b.hooks.turn
	turn.Agent = shown(set, turn.Agent, protocol.MaxAgentNameBytes)
	turn.LastMessage = shown(set, turn.LastMessage, protocol.MaxLastMessage)
	if turn != *b.hooks.turn {
		b.hooks.turn = &turn
		b.streams.tellNewest(turn)
	}
}

// masked returns text without the secrets of set.
func masked(set *redact.Set, text string) string {
	if set.Empty() {
		return text
	}
	return string(set.Mask([]byte(text)))
}

// Record notes which recording runs, "" for none, and tells everybody.
func (b *Arbiter) Record(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.recording = id
	b.streams.tell(protocol.Recording{ID: id})
}

// Note tells everybody of a change beside the log, in place of an earlier one of its
// type that waits.
func (b *Arbiter) Note(m protocol.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended.IsZero() { // nothing follows EXITED
		b.streams.tellNewest(m)
	}
}

// NoteAddress tells everybody of an address that the terminal's program has
// printed, also who comes later.
func (b *Arbiter) NoteAddress(m protocol.Address) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.addresses.add(m, b.secrets) {
		b.streams.tell(m)
	}
}

package arbiter

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

const (
	// EnterDelay is how long after its text an Enter comes, so that the program
	// doesn't take both for a paste.
	EnterDelay = 50 * time.Millisecond
	// GivenBackAfter bounds how long a typist who isn't there may hold a lease
	// that it took, whatever the program in front reads.
	GivenBackAfter = 10 * time.Second
)

// A Typist is on whose behalf a tool types.
type Typist struct {
	Grant *jws.Grant     // of a person, verified; nil: a program of the sandbox types
	PTY   protocol.PTYID // the terminal that the program runs in
}

// Holder returns who a typist is where leases are concerned.
func (by Typist) Holder() protocol.LeaseNext {
	if by.Grant == nil {
		return protocol.LeaseNext{Holder: protocol.AgentHolder}
	}
	return protocol.LeaseNext{Holder: by.Grant.Subject, GrantID: by.Grant.ID}
}

// errEnded is told to who asks for what only a program that runs can do.
var errEnded = protocol.Errorf(protocol.KindEnded, "the program has ended")

// TypeFor types text on behalf of by, and returns when the program in front was
// given all of it. An Enter that it ends with comes a moment later, as a person's
// would. It has control of the terminal meanwhile. Errors are those of
// [Seat.Take] and [Seat.Type].
func (b *Arbiter) TypeFor(ctx context.Context, by Typist, text []byte) error {
	open, leave, err := b.WhileOpen(ctx, by)
	if err != nil {
		return err
	}
	defer leave()
	s, err := b.Sit(open, by)
	if err == nil {
		defer s.Leave()
		if err = s.Take(nil); err == nil {
			err = s.typeText(open, text)
		}
	}
	if err != nil && ShutOut(open) {
		return ErrNotOpen
	}
	return err
}

// A Seat is the place of the one who types for a tool.
type Seat struct {
	// Owned by who types.
	arbiter *Arbiter
	by      Typist
	term    uint64 // under which they type; 0: they haven't control yet
}

// Sit waits for the place of the one who types for a tool. [Seat.Leave] must
// follow. It fails with KindUnavailable when ctx ends before.
func (b *Arbiter) Sit(ctx context.Context, by Typist) (*Seat, error) {
	select {
	case b.typing <- struct{}{}:
		return &Seat{arbiter: b, by: by}, nil
	case <-ctx.Done():
		return nil, protocol.Errorf(protocol.KindUnavailable, "others were typing into the terminal all the time")
	}
}

// Leave gives the place back, and control if that was taken to type.
func (s *Seat) Leave() {
	b := s.arbiter
	b.mu.Lock()
	if s.term != 0 && b.control.isLent() && b.ended.IsZero() {
		b.assign(protocol.LeaseNext{}, nil)
		b.leaseChanged(nil, 0)
	}
	b.mu.Unlock()
	<-b.typing
}

// A Prompt is what the arbiter knows of where a command would be typed.
type Prompt struct {
	Agent   string    // that is in front; "": none is
	Queued  bool      // input waits
	Last    time.Time // when the terminal's own program was given input, by [account.FileClock]
	Entered bool      // that was nothing, or ended with Enter
}

// Take has who types control the terminal: nobody does, or the same person does
// already. ready, if any, says last what is against it. ready is called with
// Arbiter.mu held. Errors are KindConflict, which names who has control, KindForbidden,
// [ErrNotOpen], KindUnauthenticated for a revoked grant, and KindEnded.
func (s *Seat) Take(ready func(Prompt) error) error {
	b := s.arbiter
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.control.lease.Expire(now) {
		b.leaseChanged(nil, 0)
	}
	if err := s.may(now); err != nil {
		return err
	}
	if ready != nil {
		at := Prompt{Queued: len(b.input.items) > 0, Last: b.input.last, Entered: b.input.entered}
		if b.stage.front != b.own {
			at.Agent = b.stage.agent.name
		}
		if err := ready(at); err != nil {
			return err
		}
	}
	held := b.control.lease.Lease(now)
	if held.Holder == "" {
		var err error
		p := protocol.LeaseProposal{ExpectRevision: held.Revision, Next: s.by.Holder()}
		if held, err = b.control.lease.Propose(p, 1, now); err != nil {
			return protocol.Fault(protocol.KindInternal, err) // its revision is the present one
		}
		b.control.heldUnder(s.by.Grant)
		b.control.lent = held.Term
		b.leaseChanged(nil, 0)
	}
	s.term = held.Term
	return nil
}

// may says why they may not type now. The caller holds Arbiter.mu.
func (s *Seat) may(now time.Time) error {
	b, by := s.arbiter, s.by
	next, held := by.Holder(), b.control.lease.Lease(now)
	switch g := by.Grant; {
	case !b.ended.IsZero():
		return errEnded
	case g == nil && !b.sharing.with.Opens(by.PTY):
		return ErrNotOpen
	case g != nil && (next.Holder == protocol.AgentHolder || !b.o.controls(g, g.Subject, now)):
		return protocol.Errorf(protocol.KindForbidden, "the grant does not allow to control this terminal")
	case g != nil && b.o.void(g):
		return protocol.Errorf(protocol.KindUnauthenticated, "the grant was revoked")
	case b.stage.locked():
		return protocol.Errorf(protocol.KindConflict, "%s has control until it is paused, waits or is done", b.stage.agent.name)
	case held.Holder == "", held.Holder == next.Holder && g != nil:
		return nil
	case held.Holder == protocol.AgentHolder:
		return protocol.Errorf(protocol.KindConflict, "a program of the sandbox has control of the terminal")
	}
	return protocol.Errorf(protocol.KindConflict, "%s has control of the terminal", held.Holder)
}

// typeText types text and returns when all of it is written.
func (s *Seat) typeText(ctx context.Context, text []byte) error {
	ctx, cancel := context.WithTimeout(ctx, GivenBackAfter)
	defer cancel()
	body, enter := text, []byte(nil)
	if last := len(text) - 1; last > 0 && text[last] == '\r' {
		body, enter = text[:last], text[last:]
	}
	if err := s.Type(ctx, body); err != nil || enter == nil {
		return err
	}
	delay := time.NewTimer(EnterDelay)
	defer delay.Stop()
	select {
	case <-delay.C:
		return s.Type(ctx, enter)
	case <-ctx.Done():
		return errNotTyped
	}
}

var errNotTyped = protocol.Errorf(protocol.KindUnavailable, "the program in the terminal didn't read all that was typed")

// Type types p, after Take, and returns when it is written. What isn't written when
// ctx ends isn't later, either. Errors are KindConflict when somebody else has got
// control, KindEnded, and KindUnavailable when ctx ends before all is written or
// too much input waits already.
func (s *Seat) Type(ctx context.Context, p []byte) error {
	b, item := s.arbiter, &typed{ctx: ctx, outcome: make(chan error, 1)}
	b.mu.Lock()
	reason, ok := b.mayType(s.term)
	q := &b.input
	switch {
	case !ok:
	case ShutOut(ctx):
		reason, ok = protocol.RefusedNotController, false
	case len(q.items) == MaxQueuedItems || q.bytes+len(p) > protocol.MaxInputQueued:
		reason, ok = protocol.RefusedBusy, false
	default:
		q.items = append(q.items, queuedInput{from: item, term: s.term, rest: p})
		q.bytes += len(p)
		b.pump()
	}
	b.mu.Unlock()
	if !ok {
		return notTyped(reason)
	}
	select {
	case err := <-item.outcome:
		return err
	case <-ctx.Done():
	}
	b.mu.Lock()
	b.input.refuseWhere(func(queued queuedInput) (protocol.RefusalReason, bool) {
		return protocol.RefusedBusy, queued.from == source(item)
	})
	b.mu.Unlock()
	return <-item.outcome // refused just now, or decided before
}

// typed is input for a tool that waits in the queue.
type typed struct {
	ctx     context.Context // of who waits
	outcome chan error      // 1 element
}

func (s *typed) ack(string, uint64) { s.outcome <- nil }

func (s *typed) refuseInput(_ string, _ uint64, reason protocol.RefusalReason) {
	s.outcome <- notTyped(reason)
}

// notTyped is the error of input that was refused.
func notTyped(reason protocol.RefusalReason) error {
	switch reason {
	case protocol.RefusedEnded:
		return errEnded
	case protocol.RefusedBusy:
		return errNotTyped
	case protocol.RefusedAgentRunning:
		return protocol.Errorf(protocol.KindConflict, "a coding agent has taken control of the terminal")
	}
	return protocol.Errorf(protocol.KindConflict, "somebody else has taken control of the terminal")
}

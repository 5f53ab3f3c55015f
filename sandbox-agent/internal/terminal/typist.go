package terminal

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

const (
	// maxTypedBytes bounds what is typed at once for a tool.
	maxTypedBytes = 64 << 10
	// enterDelay is how long after its text an Enter comes, so that the program
	// doesn't take both for a paste.
	enterDelay = 50 * time.Millisecond
	// givenBackAfter bounds how long a typist who isn't there may hold a lease
	// that it took, whatever the program in front reads.
	givenBackAfter = 10 * time.Second
)

// A Typist is on whose behalf a tool types.
type Typist struct {
	Grant *jws.Grant     // of a person, verified; nil: a program of the sandbox types
	PTY   protocol.PTYID // the terminal that the program runs in
}

// holder returns who a typist is where leases are concerned.
func (by Typist) holder() protocol.LeaseNext {
	if by.Grant == nil {
		return protocol.LeaseNext{Holder: protocol.AgentHolder}
	}
	return protocol.LeaseNext{Holder: by.Grant.Subject, GrantID: by.Grant.ID}
}

// TypeFor types text into the terminal id of session and returns when the
// program in front was given all of it. An Enter that it ends with comes a
// moment later, as a person's would. Control is taken if nobody has it, and
// given back then; a person types also under control that they have already.
//
// It fails with KindConflict, which names who has control or the coding agent
// that works, also when control goes to somebody else in the middle; with
// KindForbidden when a person's grant doesn't allow to control the terminal,
// for a program whose terminal it is not open to, see [Host.Share], or no longer,
// and for one that would type into its own; with KindInvalid and
// KindTooLarge for a text of no or over 64 KiB; with KindEnded, and with
// KindUnavailable when ctx ends, or the program doesn't read for 10 seconds,
// before all was typed: then some of it may have been.
func (h *Host) TypeFor(ctx context.Context, session protocol.SessionID, id protocol.PTYID, by Typist, text []byte) error {
	switch {
	case len(text) == 0:
		return protocol.Errorf(protocol.KindInvalid, "nothing to type")
	case len(text) > maxTypedBytes:
		return protocol.Errorf(protocol.KindTooLarge, "over %d bytes to type", maxTypedBytes)
	}
	t, err := h.typable(session, id, by)
	if err != nil {
		return err
	}
	open, leave, err := t.whileOpen(ctx, by)
	if err != nil {
		return err
	}
	defer leave()
	if err = t.typeFor(open, by, text); err != nil && shutOut(open) {
		return errNotOpen
	}
	return err
}

// typeFor is TypeFor once it is known who may.
func (t *Terminal) typeFor(ctx context.Context, by Typist, text []byte) error {
	if err := t.seat(ctx); err != nil {
		return err
	}
	defer t.leave()
	term, err := t.takeFor(by, nil)
	if err != nil {
		return err
	}
	defer t.giveBack()
	ctx, cancel := context.WithTimeout(ctx, givenBackAfter)
	defer cancel()
	return t.typeText(ctx, term, text)
}

// typable returns a terminal that by may type into as far as that doesn't depend
// on who has control.
func (h *Host) typable(session protocol.SessionID, id protocol.PTYID, by Typist) (*Terminal, error) {
	t, err := h.Get(session, id)
	if err != nil {
		return nil, err
	}
	if by.Grant == nil && by.PTY == id {
		return nil, protocol.Errorf(protocol.KindForbidden, "a program can't type into its own terminal")
	}
	return t, nil
}

// seat waits for the place of the one who types for a tool. leave must follow.
func (t *Terminal) seat(ctx context.Context) error {
	select {
	case t.typing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return protocol.Errorf(protocol.KindUnavailable, "others were typing into the terminal all the time")
	}
}

func (t *Terminal) leave() { <-t.typing }

// takeFor has by control the terminal, and returns under which term. giveBack
// must follow. ready, if any, says last what is against it.
func (b *arbiter) takeFor(by Typist, ready func() error) (term uint64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.control.lease.Expire(now) {
		b.leaseChanged(nil, 0)
	}
	if err := b.mayTypeFor(by, now); err != nil {
		return 0, err
	}
	if ready != nil {
		if err := ready(); err != nil {
			return 0, err
		}
	}
	next := by.holder()
	held := b.control.lease.Lease(now)
	if held.Holder == "" {
		p := protocol.LeaseProposal{ExpectRevision: held.Revision, Next: next}
		if held, err = b.control.lease.Propose(p, 1, now); err != nil {
			return 0, protocol.Fault(protocol.KindInternal, err) // its revision is the present one
		}
		b.control.heldUnder(by.Grant)
		b.control.lent = held.Term
		b.leaseChanged(nil, 0)
	}
	return held.Term, nil
}

// isLent reports whether somebody has control only as long as they type for a
// tool. The caller holds mu.
func (c *control) isLent() bool {
	held := c.lease.Lease(time.Now())
	return held.Holder != "" && held.Term == c.lent
}

// mayTypeFor says why by may not type now. The caller holds mu.
func (b *arbiter) mayTypeFor(by Typist, now time.Time) error {
	next, held := by.holder(), b.control.lease.Lease(now)
	switch g := by.Grant; {
	case !b.ended.IsZero():
		return protocol.Errorf(protocol.KindEnded, "the program has ended")
	case g == nil && !b.sharing.with.Opens(by.PTY):
		return errNotOpen
	case g != nil && (next.Holder == protocol.AgentHolder || !b.controls(g, g.Subject, now)):
		return protocol.Errorf(protocol.KindForbidden, "the grant does not allow to control this terminal")
	case g != nil && b.void(g):
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

// giveBack frees the lease if somebody has it only to type for a tool.
func (b *arbiter) giveBack() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.control.isLent() && b.ended.IsZero() {
		b.assign(protocol.LeaseNext{}, nil)
		b.leaseChanged(nil, 0)
	}
}

// typeText types text under term and returns when all of it is written.
func (b *arbiter) typeText(ctx context.Context, term uint64, text []byte) error {
	body, enter := text, []byte(nil)
	if last := len(text) - 1; last > 0 && text[last] == '\r' {
		body, enter = text[:last], text[last:]
	}
	if err := b.typeAll(ctx, term, body); err != nil || enter == nil {
		return err
	}
	delay := time.NewTimer(enterDelay)
	defer delay.Stop()
	select {
	case <-delay.C:
		return b.typeAll(ctx, term, enter)
	case <-ctx.Done():
		return errNotTyped
	}
}

var errNotTyped = protocol.Errorf(protocol.KindUnavailable, "the program in the terminal didn't read all that was typed")

// typeAll types p under term and returns when it is written, or refused. What
// isn't written when ctx ends isn't later, either.
func (b *arbiter) typeAll(ctx context.Context, term uint64, p []byte) error {
	s := &typed{ctx: ctx, outcome: make(chan error, 1)}
	b.mu.Lock()
	reason, ok := b.mayType(term)
	q := &b.input
	switch {
	case !ok:
	case shutOut(ctx):
		reason, ok = protocol.RefusedNotController, false
	case len(q.items) == maxQueuedItems || q.bytes+len(p) > protocol.MaxInputQueued:
		reason, ok = protocol.RefusedBusy, false
	default:
		q.items = append(q.items, queuedInput{from: s, term: term, rest: p})
		q.bytes += len(p)
		b.pump()
	}
	b.mu.Unlock()
	if !ok {
		return notTyped(reason)
	}
	select {
	case err := <-s.outcome:
		return err
	case <-ctx.Done():
	}
	b.mu.Lock()
	b.input.refuseWhere(func(item queuedInput) (protocol.RefusalReason, bool) {
		return protocol.RefusedBusy, item.from == source(s)
	})
	b.mu.Unlock()
	return <-s.outcome // refused just now, or decided before
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
		return protocol.Errorf(protocol.KindEnded, "the program has ended")
	case protocol.RefusedBusy:
		return errNotTyped
	case protocol.RefusedAgentRunning:
		return protocol.Errorf(protocol.KindConflict, "a coding agent has taken control of the terminal")
	}
	return protocol.Errorf(protocol.KindConflict, "somebody else has taken control of the terminal")
}

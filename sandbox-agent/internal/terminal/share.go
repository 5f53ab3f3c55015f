package terminal

import (
	"context"

	"github.com/fairlead/fairlead/protocol"
)

// errNotOpen is told to programs of other terminals.
var errNotOpen = protocol.Errorf(protocol.KindForbidden,
	"the terminal is not open to your programs: who may control it can open it to them")

// A sharing says to which programs of other terminals a terminal is open.
type sharing struct {
	with   protocol.Share // empty: to none
	guests map[*guest]struct{}
}

// A guest is a program of another terminal that is typing, or waits for a
// command of its own.
type guest struct {
	of   protocol.PTYID
	stop context.CancelCauseFunc
}

// Share opens the terminal id of session to programs of other terminals, instead
// of those that it was open to before. Everybody who watches it is told. Whoever
// types into it and no longer may is cut off: when Share returns, nothing more of
// that gets through. It fails with KindInvalid for a terminal that would be open
// to itself, with KindNotFound where there is none of either name, and with
// KindEnded for programs that have ended.
func (h *Host) Share(session protocol.SessionID, id protocol.PTYID, with protocol.Share) error {
	other := with.Terminal()
	switch {
	case !with.Valid():
		return protocol.Errorf(protocol.KindInvalid, "neither a terminal's id, nor %q or %q", protocol.ShareSession, protocol.ShareNone)
	case other == id:
		return protocol.Errorf(protocol.KindInvalid, "the terminal's own programs need no leave")
	}
	t, err := h.Get(session, id)
	if err != nil {
		return err
	}
	if other == "" {
		t.share(with)
		return nil
	}
	friend, err := h.Get(session, other)
	if err != nil {
		return err
	}
	t.share(with)
	// Asked last: if it ended before, closeTo may have come too early for us.
	if friend.hasEnded() {
		t.share(protocol.ShareNone)
		return protocol.Errorf(protocol.KindEnded, "nothing runs in terminal %s any more", other)
	}
	return nil
}

// OpenTo reports whether the programs of a terminal may read the terminal id of
// session, and type into it if that is another one.
func (h *Host) OpenTo(session protocol.SessionID, id, programs protocol.PTYID) bool {
	if id == programs {
		return true
	}
	t, err := h.Get(session, id)
	if err != nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sharing.with.Opens(programs)
}

// closeTo closes what is open to the programs of the terminal id of session alone:
// it has ended, and another terminal may get its name.
func (h *Host) closeTo(session protocol.SessionID, id protocol.PTYID) {
	h.mu.Lock()
	var open []*Terminal
	for _, t := range h.listed {
		if t.session == session {
			open = append(open, t)
		}
	}
	h.mu.Unlock()
	for _, t := range open {
		t.mu.Lock()
		if t.sharing.with.Terminal() == id {
			t.shareLocked(protocol.ShareNone)
		}
		t.mu.Unlock()
	}
}

func (b *arbiter) share(with protocol.Share) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shareLocked(with)
}

// shareLocked is share with mu held.
func (b *arbiter) shareLocked(with protocol.Share) {
	if with == b.sharing.shared() {
		return
	}
	b.sharing.with = with
	for g := range b.sharing.guests {
		if !with.Opens(g.of) {
			g.stop(errNotOpen)
		}
	}
	b.input.refuseWhere(func(item queuedInput) (protocol.RefusalReason, bool) {
		s, ok := item.from.(*typed)
		return protocol.RefusedNotController, ok && shutOut(s.ctx)
	})
	for a := range b.attachments {
		a.post(protocol.Shared{With: with})
	}
	b.log.Info("terminal shared", "with", with)
}

// shared returns to which programs the terminal is open. The caller holds mu.
func (s *sharing) shared() protocol.Share {
	if s.with == "" {
		return protocol.ShareNone
	}
	return s.with
}

// whileOpen returns a context that ends with ctx and, for a program, with the
// leave that it has now. It ends then with mu held, and its cause is errNotOpen.
// leave must be called.
func (b *arbiter) whileOpen(ctx context.Context, by Typist) (open context.Context, leave func(), err error) {
	if by.Grant != nil {
		return ctx, func() {}, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.sharing.with.Opens(by.PTY) {
		return nil, nil, errNotOpen
	}
	open, stop := context.WithCancelCause(ctx)
	g := &guest{of: by.PTY, stop: stop}
	if b.sharing.guests == nil {
		b.sharing.guests = make(map[*guest]struct{})
	}
	b.sharing.guests[g] = struct{}{}
	return open, func() {
		stop(nil)
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.sharing.guests, g)
	}, nil
}

// shutOut reports whether ctx, which whileOpen made, has ended with a program's
// leave.
func shutOut(ctx context.Context) bool { return context.Cause(ctx) == errNotOpen }

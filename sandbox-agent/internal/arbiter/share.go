package arbiter

import (
	"context"

	"github.com/fairlead/fairlead/protocol"
)

// ErrNotOpen is told to programs of other terminals.
var ErrNotOpen = protocol.Errorf(protocol.KindForbidden,
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

// Share opens the terminal to programs of other terminals, instead of those that
// it was open to before, and tells everybody. Whoever types into it and no longer
// may is cut off: when Share returns, nothing more of that gets through.
func (b *Arbiter) Share(with protocol.Share) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.share(with)
}

// CloseTo closes the terminal if it is open to the programs of terminal id alone.
func (b *Arbiter) CloseTo(id protocol.PTYID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sharing.with.Terminal() == id {
		b.share(protocol.ShareNone)
	}
}

// OpenTo reports whether the terminal is open to the programs of terminal id.
func (b *Arbiter) OpenTo(id protocol.PTYID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sharing.with.Opens(id)
}

// share is Share with mu held.
func (b *Arbiter) share(with protocol.Share) {
	if with == b.sharing.shared() {
		return
	}
	b.sharing.with = with
	for g := range b.sharing.guests {
		if !with.Opens(g.of) {
			g.stop(ErrNotOpen)
		}
	}
	b.input.refuseWhere(func(item queuedInput) (protocol.RefusalReason, bool) {
		s, ok := item.from.(*typed)
		return protocol.RefusedNotController, ok && ShutOut(s.ctx)
	})
	b.streams.tell(protocol.Shared{With: with})
	b.o.Log.Info("terminal shared", "with", with)
}

// shared returns to which programs the terminal is open. The caller holds mu.
func (s *sharing) shared() protocol.Share {
	if s.with == "" {
		return protocol.ShareNone
	}
	return s.with
}

// WhileOpen returns a context that ends with ctx and, for a program, with the
// leave that it has now. It ends then with mu held, and its cause is ErrNotOpen.
// leave must be called.
func (b *Arbiter) WhileOpen(ctx context.Context, by Typist) (open context.Context, leave func(), err error) {
	if by.Grant != nil {
		return ctx, func() {}, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.sharing.with.Opens(by.PTY) {
		return nil, nil, ErrNotOpen
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

// ShutOut reports whether ctx, which WhileOpen made, has ended with a program's
// leave.
func ShutOut(ctx context.Context) bool { return context.Cause(ctx) == ErrNotOpen }

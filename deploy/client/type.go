package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// Type sends keystrokes, at most 8 KiB. It waits for control, and while too
// many are unacknowledged. written, if not nil, is called when they were
// written to the terminal; it must not call the viewer.
func (v *Viewer) Type(ctx context.Context, keys string, written func(at time.Time)) error {
	if v.opts.URL != "" {
		return v.typeBare(ctx, keys)
	}
	_, err := v.typeUnder(ctx, keys, written, func() (uint64, bool) { return v.control.Term, v.controls() })
	return err
}

// TypeAnyway sends keystrokes whoever controls the terminal, and returns their
// sequence number. They take a free terminal, and are refused if somebody else
// has control.
func (v *Viewer) TypeAnyway(ctx context.Context, keys string) (uint64, error) {
	return v.typeUnder(ctx, keys, nil, func() (uint64, bool) {
		term := v.control.Term
		if v.control.Controller == "" {
			return protocol.FreeTerm(term), term != 0
		}
		return term, term != 0
	})
}

// typeUnder queues keys once may returns a term. may is called with mu held.
func (v *Viewer) typeUnder(ctx context.Context, keys string, written func(at time.Time), may func() (term uint64, ok bool)) (seq uint64, err error) {
	if len(keys) == 0 || len(keys) > maxKeys {
		return 0, fmt.Errorf("%d bytes of input are not from 1 to %d", len(keys), maxKeys)
	}
	err = v.Await(ctx, "room for input", func() bool {
		term, ok := may()
		if !ok || !v.outbox.room(len(keys)) {
			return false
		}
		seq = v.outbox.add(keys, term, written)
		if v.socket != nil {
			_ = v.socket.sendInput() // otherwise the next socket sends it
		}
		return true
	})
	return seq, err
}

// controls reports whether the viewer controls the terminal. The caller holds
// mu.
func (v *Viewer) controls() bool {
	return v.control.Term != 0 && v.control.Controller == v.control.You
}

// typeBare sends keystrokes to a terminal that acknowledges nothing.
func (v *Viewer) typeBare(ctx context.Context, keys string) error {
	return v.write(ctx, opBinary, []byte(keys))
}

// Say sends a message without members over a greeted socket, such as
// [protocol.ClientTakeControl].
func (v *Viewer) Say(ctx context.Context, typ string) error {
	return v.write(ctx, opText, fmt.Appendf(nil, `{"type":%q}`, typ))
}

// write sends a message over the next greeted socket.
func (v *Viewer) write(ctx context.Context, opcode byte, payload []byte) error {
	failed := error(nil)
	err := v.Await(ctx, "a socket", func() bool {
		if v.socket == nil || !v.socket.live {
			return false
		}
		failed = v.socket.write(opcode, payload)
		return true
	})
	return errors.Join(err, failed)
}

// AwaitWritten waits until all input is acknowledged. It returns a
// [RefusedError] if any was refused for good.
func (v *Viewer) AwaitWritten(ctx context.Context) error {
	var dropped []protocol.InputDropped
	err := v.Await(ctx, "acknowledged input", func() bool {
		dropped = v.outbox.dropped
		return len(v.outbox.queue) == 0
	})
	if err == nil && len(dropped) > 0 {
		err = &RefusedError{dropped[0]}
	}
	return err
}

// Refused returns the input refused for good so far.
func (v *Viewer) Refused() []protocol.InputDropped {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.outbox.dropped)
}

// AwaitControl waits until the viewer controls the terminal.
func (v *Viewer) AwaitControl(ctx context.Context) error {
	return v.Await(ctx, "control of the terminal", v.controls)
}

// Control returns the last control state that the viewer got.
func (v *Viewer) Control() protocol.ControlState {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.control
}

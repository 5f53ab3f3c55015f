package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// A client keeps well below MaxInputUnacked, which counts what a relay needs
// for each message beside its bytes.
const (
	mostTyped     = protocol.MaxInputUnacked / 4 // bytes on their way
	mostTypedKeys = 128                          // messages on their way
)

// typed is input on its way.
type typed struct {
	in      protocol.BrowserInput
	written func(at time.Time) // called with the viewer locked; may be nil
}

// typing is the input of one client, across its sockets.
type typing struct {
	last    uint64  // sequence
	queue   []typed // not acknowledged, in order
	bytes   int     // of queue
	sent    int     // how many of queue the present socket was given
	held    bool    // wait a moment: there was no room, or no sandbox
	dropped []protocol.InputDropped
}

// acknowledged takes everything up to seq for written.
func (t *typing) acknowledged(seq uint64, at time.Time) {
	n := 0
	for ; n < len(t.queue) && t.queue[n].in.Seq <= seq; n++ {
		t.bytes -= len(t.queue[n].in.Bytes)
		if t.queue[n].written != nil {
			t.queue[n].written(at)
		}
	}
	t.queue, t.sent = slices.Delete(t.queue, 0, n), max(0, t.sent-n)
}

// refused notes that input was not written. What holds for the moment only is
// sent again, with everything behind it.
func (t *typing) refused(m protocol.InputDropped) {
	i := slices.IndexFunc(t.queue, func(k typed) bool { return k.in.Seq == m.Seq })
	switch {
	case i < 0:
	case m.Reason == protocol.RefusedBusy || m.Reason == protocol.RefusedWaiting:
		t.sent, t.held = min(t.sent, i), true
	default:
		t.bytes -= len(t.queue[i].in.Bytes)
		t.queue = slices.Delete(t.queue, i, i+1)
		if i < t.sent {
			t.sent--
		}
		t.dropped = append(t.dropped, m)
	}
}

// maxKeys bounds one message of input, in bytes.
const maxKeys = 8 << 10

// Type sends keystrokes, at most 8 KiB. It waits while too many are on their
// way, and for control. written, if not nil, is called when they were written to
// the terminal; it must not call the viewer.
func (v *Viewer) Type(ctx context.Context, keys string, written func(at time.Time)) error {
	if len(keys) == 0 || len(keys) > maxKeys {
		return fmt.Errorf("%d bytes of input are not from 1 to %d", len(keys), maxKeys)
	}
	if v.opts.URL != "" {
		return v.typeBare(ctx, keys)
	}
	return v.await(ctx, "room for input", func() bool {
		t := &v.typing
		if v.control.Term == 0 || v.control.Controller != v.control.You || len(t.queue) >= mostTypedKeys || t.bytes+len(keys) > mostTyped {
			return false
		}
		t.last++
		t.bytes += len(keys)
		t.queue = append(t.queue, typed{protocol.BrowserInput{Seq: t.last, Term: v.control.Term, Bytes: []byte(keys)}, written})
		if v.socket != nil {
			_ = v.socket.sendInput() // else the next socket does
		}
		return true
	})
}

// typeBare sends keystrokes as they are, to a terminal that acknowledges nothing.
func (v *Viewer) typeBare(ctx context.Context, keys string) error {
	failed := error(nil)
	err := v.await(ctx, "a socket", func() bool {
		if v.socket == nil || !v.socket.live {
			return false
		}
		failed = v.socket.link.write(appendFrame(nil, opBinary, []byte(keys)))
		return true
	})
	return errors.Join(err, failed)
}

// AwaitWritten waits until nothing that was typed is unacknowledged. Input that
// was refused for good is an error.
func (v *Viewer) AwaitWritten(ctx context.Context) error {
	var dropped []protocol.InputDropped
	err := v.await(ctx, "acknowledged input", func() bool {
		dropped = v.typing.dropped
		return len(v.typing.queue) == 0
	})
	if err == nil && len(dropped) > 0 {
		err = fmt.Errorf("input %d was refused: %s", dropped[0].Seq, dropped[0].Reason)
	}
	return err
}

// AwaitControl waits until the viewer controls the terminal.
func (v *Viewer) AwaitControl(ctx context.Context) error {
	return v.await(ctx, "control of the terminal", func() bool {
		return v.control.Term != 0 && v.control.Controller == v.control.You
	})
}

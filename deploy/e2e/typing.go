package e2e

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
)

// randomName returns a client name.
func randomName() string { return strings.ToLower(rand.Text()) }

// acks knows what a terminal.v2 client still has to acknowledge of one socket.
type acks struct {
	done  uint64 // rendered before
	said  uint64 // acknowledged
	owed  bool   // something is to be said
	frame bool   // at once: a keyframe was rendered
}

func (a *acks) began(offset uint64) { a.done, a.said = offset, offset }

func (a *acks) rendered(position uint64, keyframe bool) {
	a.done, a.owed = position, true
	a.frame = a.frame || keyframe
}

// Acknowledgements come this often at most, unless half of AckBytes is
// waiting for one.
const ackPause = 10 * time.Millisecond

func (a *acks) due() bool { return a.frame || a.done-a.said >= protocol.AckBytes/2 }

// typing is the input of one client, across its sockets.
type typing struct {
	last  uint64                  // sequence
	queue []protocol.BrowserInput // not acknowledged
	sent  int                     // how many of queue the present socket was given
	held  bool                    // wait a moment: there was no room, or no sandbox
}

func (t *typing) acknowledged(seq uint64) {
	n := 0
	for n < len(t.queue) && t.queue[n].Seq <= seq {
		n++
	}
	t.queue, t.sent = t.queue[n:], max(0, t.sent-n)
}

// refused notes that seq was not written. What holds for the moment only is
// sent again, with everything behind it; then refused reports true.
func (t *typing) refused(seq uint64, reason protocol.RefusalReason) (again bool) {
	i := slices.IndexFunc(t.queue, func(in protocol.BrowserInput) bool { return in.Seq == seq })
	if reason == protocol.RefusedBusy || reason == protocol.RefusedWaiting {
		if i >= 0 {
			t.sent, t.held = min(t.sent, i), true
		}
		return true
	}
	if i >= 0 {
		t.queue = slices.Delete(slices.Clone(t.queue), i, i+1)
		if i < t.sent {
			t.sent--
		}
	}
	return false
}

// A terminal.v2 client keeps well below MaxInputUnacked, which counts what a
// relay needs for each message besides its bytes: what it has no room for, it
// refuses.
const (
	mostTyped     = protocol.MaxInputUnacked / 4 // bytes on their way
	mostTypedKeys = 128                          // messages on their way
)

// Type queues keystrokes of a terminal.v2 client and returns their sequence.
// It waits while too many are on their way, and for the first term.
func (v *Viewer) Type(ctx context.Context, keys string) (uint64, error) {
	var seq uint64
	err := v.Await(ctx, "room for input", func() bool {
		waiting := 0
		for _, in := range v.typing.queue {
			waiting += len(in.Bytes)
		}
		if v.control.Term == 0 || waiting+len(keys) > mostTyped || len(v.typing.queue) >= mostTypedKeys {
			return false
		}
		v.typing.last++
		seq = v.typing.last
		term := v.control.Term
		if v.control.Controller == "" { // and so it takes the terminal
			term = protocol.FreeTerm(term)
		}
		v.typing.queue = append(v.typing.queue, protocol.BrowserInput{Seq: seq, Term: term, Bytes: []byte(keys)})
		return true
	})
	v.signal()
	return seq, err
}

// AwaitWritten waits until nothing that was typed is unacknowledged, and
// returns what was refused.
func (v *Viewer) AwaitWritten(ctx context.Context) ([]protocol.InputDropped, error) {
	var refused []protocol.InputDropped
	err := v.Await(ctx, "input_ack", func() bool {
		refused = append(refused[:0], v.refused...)
		return len(v.typing.queue) == 0
	})
	return refused, err
}

// Say sends a message without members by the socket that is attached.
func (v *Viewer) Say(ctx context.Context, typ string) error {
	err := v.Await(ctx, "a socket to say "+typ, func() bool {
		if v.live {
			v.words = append(v.words, fmt.Appendf(nil, `{"type":%q}`, typ))
		}
		return v.live
	})
	v.signal()
	return err
}

// Control returns who controls the terminal, as the viewer was told.
func (v *Viewer) Control() protocol.ControlState {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.control
}

// write sends acknowledgements and input until ctx ends or the socket does.
func (v *Viewer) write(ctx context.Context, conn *websocket.Conn) {
	if v.opts.Plain {
		return
	}
	timer := time.NewTimer(ackPause)
	defer timer.Stop()
	armed, all := true, false
	for {
		texts, input := v.next(all)
		all = false
		if len(texts)+len(input) == 0 {
			select {
			case <-ctx.Done():
				return
			case <-v.wake:
				if !armed {
					timer.Reset(ackPause)
					armed = true
				}
			case <-timer.C:
				armed, all = false, true
			}
			continue
		}
		for _, in := range input {
			if conn.Write(ctx, websocket.MessageBinary, protocol.AppendBrowserInput(nil, in)) != nil {
				return // the reading side hears of it
			}
		}
		for _, text := range texts {
			if conn.Write(ctx, websocket.MessageText, text) != nil {
				return
			}
		}
	}
}

// next returns what is to be written: what is to be said, an acknowledgement
// when one is due (or, if all, owed), and input that this socket hasn't been
// given.
func (v *Viewer) next(all bool) (texts [][]byte, input []protocol.BrowserInput) {
	v.mu.Lock()
	defer v.mu.Unlock()
	texts, v.words = v.words, nil
	if v.live && (v.acks.due() || all && v.acks.owed) {
		texts = append(texts, fmt.Appendf(nil, `{"type":%q,"offset":%d}`, protocol.ClientAck, v.acks.done))
		v.acks.said, v.acks.owed, v.acks.frame = v.acks.done, false, false
	}
	v.typing.held = v.typing.held && !all
	if v.live && v.control.Term != 0 && !v.typing.held {
		input = append(input, v.typing.queue[v.typing.sent:]...)
		v.typing.sent = len(v.typing.queue)
	}
	return texts, input
}

package client

import (
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// Well below MaxInputUnacked, which also counts a relay's overhead per
	// message.
	mostTyped     = protocol.MaxInputUnacked / 4 // unacknowledged bytes
	mostTypedKeys = 128                          // unacknowledged messages
	// maxKeys bounds one message of input, in bytes.
	maxKeys = 8 << 10
)

// typed is unacknowledged input.
type typed struct {
	in      protocol.BrowserInput
	written func(at time.Time) // called with the viewer locked; may be nil
}

// outbox is the input of one client across its sockets: numbered, bounded, and
// repeated on the next socket until it is acknowledged. It is pure.
type outbox struct {
	last    uint64  // sequence number
	queue   []typed // not acknowledged, in order
	bytes   int     // of queue
	sent    int     // how many of queue the present socket has got
	held    bool    // pause: there was no room, or no sandbox
	dropped []protocol.InputDropped
}

// room reports whether n more bytes may be queued.
func (o *outbox) room(n int) bool { return len(o.queue) < mostTypedKeys && o.bytes+n <= mostTyped }

// add queues keys and returns their sequence number.
func (o *outbox) add(keys string, term uint64, written func(at time.Time)) uint64 {
	o.last++
	o.bytes += len(keys)
	o.queue = append(o.queue, typed{protocol.BrowserInput{Seq: o.last, Term: term, Bytes: []byte(keys)}, written})
	return o.last
}

// unsent returns the next input for the present socket.
func (o *outbox) unsent() (in protocol.BrowserInput, ok bool) {
	if o.held || o.sent == len(o.queue) {
		return in, false
	}
	return o.queue[o.sent].in, true
}

// again makes the next socket repeat everything.
func (o *outbox) again() { o.sent = 0 }

// acknowledged drops everything up to seq, as it is written.
func (o *outbox) acknowledged(seq uint64, at time.Time) {
	n := 0
	for ; n < len(o.queue) && o.queue[n].in.Seq <= seq; n++ {
		o.bytes -= len(o.queue[n].in.Bytes)
		if o.queue[n].written != nil {
			o.queue[n].written(at)
		}
	}
	o.queue, o.sent = slices.Delete(o.queue, 0, n), max(0, o.sent-n)
}

// refused notes that input was not written. After a momentary refusal it is
// sent again, with everything behind it.
func (o *outbox) refused(m protocol.InputDropped) {
	i := slices.IndexFunc(o.queue, func(k typed) bool { return k.in.Seq == m.Seq })
	if m.Reason == protocol.RefusedBusy || m.Reason == protocol.RefusedWaiting {
		if i >= 0 {
			o.sent, o.held = min(o.sent, i), true
		}
		return
	}
	o.dropped = append(o.dropped, m)
	if i < 0 {
		return
	}
	o.bytes -= len(o.queue[i].in.Bytes)
	o.queue = slices.Delete(o.queue, i, i+1)
	if i < o.sent {
		o.sent--
	}
}

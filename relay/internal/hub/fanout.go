package hub

import (
	"net"
	"slices"
	"unsafe"

	"github.com/fairlead/fairlead/deploy/program/hops"
	"github.com/fairlead/fairlead/relay/internal/batchsend"
	"github.com/fairlead/fairlead/relay/internal/feed"
	"github.com/fairlead/fairlead/tunnel/quiet"
)

// A fanout offers new output to a terminal's sockets, many at a time: one look at
// the feed and one call to the kernel serve all that keep up. Owned by the reader of
// the stream.
type fanout struct {
	// Static after construction.
	feed    *feed.Feed
	sender  *batchsend.Sender
	metrics *Metrics

	begun bool // the present delivery has

	// Of the present batch: the sockets that are lent, and what each gets.
	sockets []*socket
	takes   []feed.Take

	// Of those that are sent to together.
	pieces   []batchsend.Piece
	of       []int    // the socket of each piece
	arena    []byte   // TLS records
	gathered gathered // what all get that are up to date, where it is in several buffers
}

// gathered is what several buffers hold, in one.
type gathered struct {
	buffers net.Buffers // whose bytes these are
	bytes   []byte
}

// join returns what buffers hold. The bytes never change. Whoever is up to date gets
// the same buffers as the one before, so they are joined once for all of those.
func (g *gathered) join(buffers net.Buffers) []byte {
	if !slices.EqualFunc(g.buffers, buffers, sameBytes) {
		g.buffers, g.bytes = slices.Clone(buffers), slices.Concat(buffers...)
	}
	return g.bytes
}

// sameBytes reports whether a and b are the same memory.
func sameBytes(a, b []byte) bool {
	return len(a) == len(b) && unsafe.SliceData(a) == unsafe.SliceData(b)
}

// fanout returns one for the hub's feed.
func (h *Hub) fanout() *fanout {
	return &fanout{feed: h.feed, sender: h.common.sender(), metrics: h.metrics}
}

// deliver offers what the feed has got.
func (f *fanout) deliver() {
	f.begun = false
	f.feed.Deliver(f.offer)
	f.gathered = gathered{} // nobody needs that again
}

// offer offers output to some readers.
func (f *fanout) offer(readers []*feed.Reader) {
	if f.begun {
		quiet.Yield() // somebody's key may wait
	}
	f.begun = true
	for _, r := range readers {
		s := r.Consumer().(*socket)
		if frames, lent := s.push(); lent {
			f.sockets = append(f.sockets, s)
			f.takes = append(f.takes, feed.Take{Reader: r, Frames: frames})
		}
	}
	f.feed.NextAll(f.takes)
	f.prepare()
	hops.Pass(hops.SocketOut)
	f.sender.Send(f.pieces)
	f.settle()
}

// prepare makes a piece of what each socket gets. One that gets nothing is given back
// at once.
func (f *fanout) prepare() {
	bytes := 0
	for i, s := range f.sockets {
		frames := f.takes[i].Frames
		for _, b := range frames {
			bytes += len(b)
		}
		if len(frames) == 0 {
			f.giveBack(i, s.many.Sent(nil, 0), nil)
			continue
		}
		frame := frames[0]
		if len(frames) > 1 {
			frame = f.gathered.join(frames)
		}
		wire, arena, err := s.many.Seal(frame, f.arena)
		f.arena = arena
		if err != nil {
			f.giveBack(i, s.many.Sent(nil, 0), err)
			continue
		}
		f.pieces, f.of = append(f.pieces, batchsend.Piece{FD: s.many.FD(), Bytes: wire}), append(f.of, i)
	}
	f.metrics.OutputBytes.Add(float64(bytes))
}

// settle handles what came of the pieces.
func (f *fanout) settle() {
	for n, p := range f.pieces {
		i := f.of[n]
		f.giveBack(i, f.sockets[i].many.Sent(p.Bytes, p.Sent), p.Err)
	}
	clear(f.pieces)
	clear(f.sockets)
	clear(f.takes)
	f.pieces, f.of, f.sockets, f.takes, f.arena = f.pieces[:0], f.of[:0], f.sockets[:0], f.takes[:0], f.arena[:0]
}

// giveBack ends a socket's part in the batch.
func (f *fanout) giveBack(i int, drained bool, err error) {
	t := &f.takes[i]
	f.sockets[i].giveBack(t.Frames, t.Outcome, drained, err)
}

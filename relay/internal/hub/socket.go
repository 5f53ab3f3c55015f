package hub

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/feed"
)

const (
	// pingInterval is how often a quiet socket is pinged, so that intermediaries
	// keep it open; pongTimeout is when we consider it dead.
	pingInterval = 25 * time.Second
	pongTimeout  = 60 * time.Second
)

// A Sink is the socket of one viewer.
type Sink interface {
	// WriteFrames writes complete WebSocket frames, after what Offer kept. Without
	// frames it writes only that.
	WriteFrames(frames net.Buffers) error
	// Ping sends a ping.
	Ping() error
	// LastHeard returns when the peer was last heard.
	LastHeard() time.Time
	// Close ends the socket with a close code of protocol.Kind.
	Close(code int, reason string)
}

// An Offerer is a Sink that can write without blocking. The stream's reader
// then writes to all sockets that keep up, like a plain loop, and no goroutine
// has to wake for each of them.
type Offerer interface {
	Sink
	// Begin reports whether the socket is idle, and if so reserves it for one
	// Offer, which must follow.
	Begin() bool
	// Offer writes what the kernel takes at once and keeps the rest, to be written
	// first. drained: nothing is kept.
	Offer(frames net.Buffers) (drained bool, err error)
}

// A Batcher is an Offerer to which somebody else can send: many at once cost less
// than one after the other. After Begin comes Offer, or Seal and Sent.
type Batcher interface {
	Offerer
	// FD returns the descriptor to send to, which is the socket's until Sent; −1 if
	// it isn't known.
	FD() int
	// Seal returns the bytes with which frame goes to the socket: itself or, under
	// TLS, records appended to arena.
	Seal(frame, arena []byte) (wire, after []byte, err error)
	// Sent says that n bytes of wire were sent. The rest is kept, to be written
	// first. drained: nothing is kept.
	Sent(wire []byte, n int) (drained bool)
}

// A socket writes what a viewer gets: its outbox's messages, then output. The
// viewer's writer does that, or the stream's reader instead, as long as the
// socket takes it at once. The writer is a goroutine that there is only while
// something waits: most viewers of most terminals have none.
type socket struct {
	// Static after construction.
	v      *Viewer
	sink   Sink
	offer  Offerer // sink, if it is one
	many   Batcher // the same; nil if its descriptor isn't known
	writer writer

	// Guarded by writing, which is held while the socket is written to.
	writing sync.Mutex
	frames  net.Buffers    // buffer, reused for batches
	sending *feed.Keyframe // in the batch that is being written
	lent    bool           // to a fan-out, which writes now
	missed  bool           // the writer was to write meanwhile
}

// Wake has what waits written. It implements [feed.Consumer].
func (s *socket) Wake() { s.writer.wake() }

// start begins to write, until stop, which must be called, or until the socket is over:
// then it calls over, once. The sink must be about to end when stop is called, as that
// waits for the writer, and for what fills the viewer's gaps.
func (s *socket) start(over func()) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	unhub := context.AfterFunc(s.v.hub.life.over, func() { // the hub may have ended before it saw this viewer
		s.v.outbox.close(protocol.KindUnavailable, protocol.KindUnavailable.Text())
	})
	alive := &keepalive{sink: s.sink}
	alive.timer = time.AfterFunc(pingInterval, func() {
		alive.due.Store(true)
		s.Wake()
	})
	var filling sync.WaitGroup
	s.writer.begin(turnFunc(func() bool {
		fill, ok := s.drain()
		if !ok || !alive.check() {
			over()
			return false
		}
		if fill && s.v.reader.ClaimBackfill() {
			filling.Go(func() { s.v.backfill(ctx) })
		}
		return true
	}))
	return func() {
		alive.timer.Stop()
		unhub()
		cancel()
		s.writer.end()
		filling.Wait()
	}
}

// drain writes until nothing waits. fill: the agent's log must be read for the
// viewer; !ok: the socket is over.
func (s *socket) drain() (fill, ok bool) {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.lent {
		s.missed = true
		return false, true
	}
	for {
		out, ok := s.flush()
		if !ok || !out.More {
			return out.Fill, ok
		}
	}
}

// push offers new output to the socket, from the stream's reader. What would block
// is left to the writer. A socket that somebody else can send to is lent to the caller
// instead, who appends output to frames, offers them, and gives it back.
func (s *socket) push() (frames net.Buffers, lent bool) {
	if s.offer == nil || !s.writing.TryLock() {
		s.postpone()
		return nil, false
	}
	defer s.writing.Unlock()
	if s.lent || !s.offer.Begin() {
		s.postpone()
		return nil, false
	}
	if s.many != nil && s.v.outbox.clear() {
		s.lent = true
		return s.frames[:0], true
	}
	batch, out, closing := s.collect(true)
	drained, err := s.offer.Offer(batch)
	s.recycle(batch)
	out.More = out.More || closing
	s.settle(out, drained, err)
	return nil, false
}

// giveBack ends what push has lent, once the batch was offered.
func (s *socket) giveBack(batch net.Buffers, out feed.Outcome, drained bool, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.lent = false
	s.note(out)
	s.recycle(batch)
	s.settle(out, drained, err)
	if s.missed {
		s.missed = false
		s.Wake()
	}
}

// settle handles what came of an offer. What is left is the writer's: it gets the
// error, too. The caller holds writing.
func (s *socket) settle(out feed.Outcome, drained bool, err error) {
	switch {
	case !drained:
		s.postpone()
	case err != nil || out.More || out.Done || out.Fill:
		s.Wake()
	default:
		s.wrote()
	}
}

// postpone leaves new output to the writer, as the socket doesn't take it now.
func (s *socket) postpone() {
	s.v.hub.metrics.Deferred.Inc()
	s.Wake()
}

// flush writes what waits: messages first, then one piece of output. !ok: the
// socket is over. The caller holds writing.
func (s *socket) flush() (out feed.Outcome, ok bool) {
	batch, out, closing := s.collect(false)
	err := s.sink.WriteFrames(batch)
	s.recycle(batch)
	switch {
	case err != nil:
		return out, false
	case closing:
		s.sink.Close(s.v.outbox.end())
		return out, false
	case out.Done:
		s.sink.Close(protocol.KindEnded.CloseCode(), protocol.KindEnded.Text())
		return out, false
	}
	s.wrote()
	return out, true
}

// collect takes what waits: messages, then one piece of output. offering: the
// batch is only offered. The caller holds writing.
func (s *socket) collect(offering bool) (batch net.Buffers, out feed.Outcome, closing bool) {
	notices, live, closing := s.v.outbox.take()
	batch = s.frames[:0]
	if len(notices) > 0 {
		batch = append(batch, notices)
	}
	if live && !closing {
		batch, out = s.v.reader.Next(batch, offering)
		s.note(out)
	}
	n := 0
	for _, b := range batch {
		n += len(b)
	}
	s.v.hub.metrics.OutputBytes.Add(float64(n))
	return batch, out, closing
}

// note handles what else a piece of output says. The caller holds writing.
func (s *socket) note(out feed.Outcome) {
	s.sending = out.Keyframe
	if out.Resynced {
		s.v.hub.post(resynced{s.v})
	}
	if out.Lost != "" {
		s.v.hub.post(fellBehind{s.v, out.Lost})
	}
}

// recycle keeps the written batch's memory for reuse, without the ring's
// chunks. The caller holds writing.
func (s *socket) recycle(batch net.Buffers) {
	clear(batch)
	s.frames = batch[:0]
	if s.sending != nil {
		s.sending.Release()
		s.sending = nil
	}
}

// wrote handles a write after which nothing waits. It posts progress for
// pace-setters that don't acknowledge; for others it does nothing.
func (s *socket) wrote() {
	if s.v.reader.Wrote() {
		s.v.hub.post(paced{s.v})
	}
}

// A keepalive pings a viewer's socket. It pings only while nothing waits to be
// written: behind a long write a ping would measure the line's speed rather
// than the peer's presence. Owned by the viewer's writer.
type keepalive struct {
	sink  Sink
	timer *time.Timer
	due   atomic.Bool // set by timer
	asked time.Time   // time of the last ping
}

// check pings when it is due. It returns false if the peer is gone.
func (k *keepalive) check() bool {
	if !k.due.CompareAndSwap(true, false) {
		return true
	}
	k.timer.Reset(pingInterval)
	if k.sink.LastHeard().Before(k.asked) { // the last ping is unanswered
		return time.Since(k.asked) <= pongTimeout
	}
	k.asked = time.Now()
	return k.sink.Ping() == nil
}

package chathub

import (
	"context"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/agentstream"
)

// oneBatch is about how much one write to a socket takes, in bytes.
const oneBatch = 64 << 10

// errClosed says that the socket was closed as it should be.
var errClosed = protocol.Fault(protocol.KindEnded, nil)

// A writer writes to one socket what its queue holds.
type writer struct {
	// Static after construction.
	conn    Conn
	queue   *queue
	metrics *Metrics
	filler  *filler

	// Owned by serve.
	frames net.Buffers // reused
}

// serve writes until the socket or ctx ends.
func (w *writer) serve(ctx context.Context) error {
	life := agentstream.NewLife(ctx)
	defer life.End()
	defer context.AfterFunc(life, w.queue.rouse)()
	alive := keepalive{conn: w.conn}
	alive.timer = time.AfterFunc(pingInterval, func() {
		alive.due.Store(true)
		w.queue.rouse()
	})
	defer alive.timer.Stop()
	for range w.queue.wake {
		if err := ctx.Err(); err != nil {
			return err
		}
		for more := true; more; {
			var err error
			if more, err = w.write(); err != nil {
				return err
			}
		}
		if err := alive.check(); err != nil {
			return err
		}
	}
	return nil
}

// write writes one batch. more: something else waits.
func (w *writer) write() (more bool, err error) {
	w.frames = w.frames[:0]
	size, read := 0, 0
	for size < oneBatch {
		it, ok := w.queue.pop()
		if !ok {
			break
		}
		if it.of != nil && it.frame != nil {
			read += len(it.frame)
		}
		size += w.take(it)
	}
	if len(w.frames) > 0 {
		w.metrics.Bytes.Add(float64(size))
		batch := w.frames
		err = w.conn.WriteFrames(batch)
		clear(batch)
	}
	w.queue.free(read)
	if cap(w.frames) > 256 {
		w.frames = nil
	}
	if err != nil {
		return false, err
	}
	waits, closing, code, cause := w.queue.waits()
	if closing && !waits {
		w.conn.Close(code, cause)
		return false, errClosed
	}
	return waits, nil
}

// take puts what an item stands for into the batch, and returns its bytes.
func (w *writer) take(it item) (size int) {
	switch {
	case it.of == nil, it.frame != nil && it.of.cursor.Stands(it.attempt):
		w.frames = append(w.frames, it.frame)
		return len(it.frame)
	case it.frame != nil: // its follower goes on elsewhere
		return 0
	}
	at := len(w.frames)
	frames, b := it.of.cursor.Collect(append(w.frames, nil)) // with a place for the ack
	if b.Ack != nil {                                        // encoded here, as it may be large
		ack := it.of.ack(b.Ack)
		frames[at] = ack
		frames = slices.Insert(frames, at, slices.Repeat([][]byte{ack}, b.Owed)...)
		b.Bytes += len(ack) * (1 + b.Owed)
	} else {
		frames = slices.Delete(frames, at, at+1)
	}
	w.frames = frames
	if b.More {
		w.queue.stir(it.of)
	}
	if b.Fill {
		w.filler.fill(it.of)
	}
	return b.Bytes
}

// A keepalive pings a socket. It pings only while nothing waits to be written:
// behind a long write a ping would measure the line's speed rather than the peer's
// presence. Owned by the socket's writer.
type keepalive struct {
	conn  Conn
	timer *time.Timer
	due   atomic.Bool // set by timer
	asked time.Time   // time of the last ping
}

// check pings when it is due. It fails if the peer is gone.
func (k *keepalive) check() error {
	if !k.due.CompareAndSwap(true, false) {
		return nil
	}
	k.timer.Reset(pingInterval)
	if k.conn.LastHeard().Before(k.asked) {
		return protocol.Errorf(protocol.KindEnded, "the client doesn't answer")
	}
	k.asked = time.Now()
	return k.conn.Ping()
}

package chathub

import (
	"sync"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/chatring"
)

// A queue holds what is to be written to one socket, in order: messages of its
// own, parts of agents' logs, and which cursors have moved. Use newQueue.
type queue struct {
	// Static after construction.
	metrics *Metrics
	wake    chan struct{} // 1 element: something waits
	room    chan struct{} // 1 element: ahead has fallen

	// Guarded by mu.
	mu         sync.Mutex
	items      []item
	own        int // bytes of the socket's own messages
	ahead      int // bytes read of agents' logs that are not written
	closing    bool
	closeCode  int
	closeCause string
	left       bool // nobody writes any more
}

// An item is one of the three.
type item struct {
	frame   []byte // the first two
	of      *spot  // the last two
	attempt uint64 // of a part of a log
}

// A spot is a cursor's place in its socket's queue.
type spot struct {
	conversation protocol.ConversationID
	cursor       chatring.Cursor
	queued       bool // guarded by the queue's mu
}

// ack returns chat_subscribed.
func (s *spot) ack(a *chatring.Ack) []byte {
	return subscribed{
		Kind: protocol.ChatSubscribedKind, SessionID: s.conversation, LastSeq: a.LastSeq, Epoch: &a.Epoch, FirstSeq: a.FirstSeq,
		Gap: a.Gap, Processing: a.State.Run != protocol.RunIdle, Pending: a.State.Pending,
	}.frame()
}

func newQueue(m *Metrics) queue {
	return queue{metrics: m, wake: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// rouse wakes the writer.
func (q *queue) rouse() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// tell queues a frame. Beyond most bytes that wait: what has less than maxOwn is
// dropped, otherwise the socket is closed.
func (q *queue) tell(frame []byte, most int) { q.tellAll([][]byte{frame}, most) }

// tellAll is tell for frames that are written together.
func (q *queue) tellAll(frames [][]byte, most int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, frame := range frames {
		q.tellLocked(frame, most)
	}
}

// tellLocked is tell for one who holds the lock. It is called with mu held.
func (q *queue) tellLocked(frame []byte, most int) {
	switch {
	case q.closing || q.left:
	case q.own+len(frame) <= most:
		q.own += len(frame)
		q.items = append(q.items, item{frame: frame})
		q.rouse()
	case most < maxOwn:
		q.metrics.NewsDropped.Inc()
	default:
		q.metrics.SocketsCut.WithLabelValues(cutOwn).Inc()
		q.items, q.own = nil, 0
		q.closeLocked(protocol.KindTooMany, "too far behind")
	}
}

// stir queues a cursor, so that the writer looks what it is behind.
func (q *queue) stir(s *spot) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s.queued || q.left {
		return
	}
	s.queued = true
	q.items = append(q.items, item{of: s})
	q.rouse()
}

// read queues a frame that was read of a log. It reports false if nobody writes
// any more.
func (q *queue) read(s *spot, attempt uint64, frame []byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.left {
		return false
	}
	q.items = append(q.items, item{frame: frame, of: s, attempt: attempt})
	q.rouse()
	return true
}

// reserve takes room for n bytes read ahead, if there is any. One event always
// finds some.
func (q *queue) reserve(n int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ahead > 0 && q.ahead+n > maxReplay {
		return false
	}
	q.ahead += n
	return true
}

// free gives back n bytes of what reserve took.
func (q *queue) free(n int) {
	if n == 0 {
		return
	}
	q.mu.Lock()
	q.ahead -= n
	q.mu.Unlock()
	select {
	case q.room <- struct{}{}:
	default:
	}
}

// pop removes the first item. A closing socket gets its own messages only.
func (q *queue) pop() (item, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.items) > 0 {
		it := q.items[0]
		q.items[0] = item{}
		if q.items = q.items[1:]; len(q.items) == 0 {
			q.items = nil
		}
		switch {
		case it.of == nil:
			q.own -= len(it.frame)
		case it.frame == nil:
			it.of.queued = false
		}
		if !q.closing || it.of == nil {
			return it, true
		}
	}
	return item{}, false
}

// waits reports whether there is something to write, and how the socket is to be
// closed if there isn't.
func (q *queue) waits() (waits, closing bool, code int, cause string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items) > 0, q.closing, q.closeCode, q.closeCause
}

// close ends the socket after what it was told so far. It reports whether nobody
// else has.
func (q *queue) close(kind protocol.Kind, cause string) (first bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closeLocked(kind, cause)
}

// closeLocked is close without the lock. The caller holds mu.
func (q *queue) closeLocked(kind protocol.Kind, cause string) (first bool) {
	if first = !q.closing; first {
		q.closing, q.closeCode, q.closeCause = true, kind.CloseCode(), cause
	}
	q.rouse()
	return first
}

// leave drops everything: nobody writes any more.
func (q *queue) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.left, q.items, q.own = true, nil, 0
}

// over reports whether nothing more is to be followed.
func (q *queue) over() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.left || q.closing
}

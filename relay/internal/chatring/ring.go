// Package chatring keeps the latest events of a conversation at a relay, framed for
// sockets, with its state and everybody's place in it.
package chatring

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/protocol"
)

// Why a cursor missed events: labels of a metric.
const (
	GapMark    = "mark"    // its mark is not in the log
	GapSlow    = "slow"    // its socket didn't take them while the ring had them
	GapReset   = "reset"   // the log was rewritten
	GapResumed = "resumed" // the stream doesn't go on where the last one ended
	GapLog     = "log"     // the agent's log could not be read
)

const (
	// eventOverhead is charged for each event in a ring besides its frame, in bytes.
	eventOverhead = 64
	// turnBytes bounds what one cursor takes of a write while others wait, in bytes.
	// One event may be more.
	turnBytes = 16 << 10
	// maxRounds bounds how often a log is read for one mark: each time the ring may
	// have moved on.
	maxRounds = 16
	// maxOwed bounds the Acks of one cursor that wait.
	maxOwed = protocol.MaxChatFollowed
)

// ErrVoid says that nobody wants what is read of a log any more.
var ErrVoid = errors.New("chatring: the cursor goes on elsewhere")

// A Follower has a cursor. Its methods are called while the ring is locked; they
// don't block and don't call the ring.
type Follower interface {
	// Stir says that Collect has something.
	Stir()
	// Expects reports whether the follower isn't sent the text of a command.
	Expects(id protocol.CommandID) bool
	// Ends returns a frame to send before the last event of a run, nil: none.
	Ends() (frame []byte)
	// Queue takes a frame that was read of the log for an attempt, see Part. It
	// reports whether it could.
	Queue(attempt uint64, frame []byte) bool
}

// A Ring is what a relay has of a conversation. The stream's reader writes it,
// writers of sockets read it.
type Ring struct {
	// Static after Init.
	window *atomic.Int64          // its limit, in bytes
	gaps   *prometheus.CounterVec // by reason

	// Guarded by mu.
	mu        sync.Mutex
	epoch     protocol.Epoch
	firstSeq  uint64              // of the oldest event that the agent's log has
	head      uint64              // of the newest event, 0: none
	base      uint64              // the ring has every event from this number on
	events    []Event             // ascending
	bytes     int                 // of events
	state     *protocol.ChatState // replaced, never changed; nil: not known yet
	lease     protocol.Lease
	connected bool // there is a stream
	cursors   []*Cursor
}

// Init sets the ring's limit in bytes, which may change, and where gaps are
// counted.
func (r *Ring) Init(window *atomic.Int64, gaps *prometheus.CounterVec) {
	r.window, r.gaps = window, gaps
}

// Opened begins with a new stream. Unless it goes on where the ring ends, those
// who follow are told of a gap.
func (r *Ring) Opened(o protocol.ChatOpened) {
	r.mu.Lock()
	defer r.mu.Unlock()
	from, first := max(o.From, 1), r.state == nil
	goesOn := !first && o.Epoch == r.epoch && !o.Gap && from == r.head+1
	r.epoch, r.firstSeq, r.connected = o.Epoch, max(o.FirstSeq, 1), true
	r.state, r.lease = new(o.State), o.Lease
	if !goesOn {
		r.drop(from - 1)
	}
	if !goesOn && !first {
		r.skipAll(GapResumed)
	}
}

// Lost notes that there is no stream.
func (r *Ring) Lost() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.connected = false
}

// Reset drops what the ring has, as the log was rewritten. It fails if numbers
// fall.
func (r *Ring) Reset(m protocol.ChatReset) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.LastSeq < r.head {
		return fmt.Errorf("chatring: a reset to %d after event %d", m.LastSeq, r.head)
	}
	r.epoch, r.firstSeq = m.Epoch, max(m.FirstSeq, 1)
	r.drop(m.LastSeq)
	r.skipAll(GapReset)
	return nil
}

// drop empties the ring. The caller holds mu.
func (r *Ring) drop(head uint64) {
	r.events, r.bytes, r.head, r.base = nil, 0, head, head+1
}

// skipAll moves all cursors to the head and has their followers told of a gap. The
// caller holds mu.
func (r *Ring) skipAll(why string) {
	for _, c := range r.cursors {
		c.skip(why)
		c.of.Stir()
	}
}

// Append adds an event; Deliver must follow. It fails if its number doesn't rise.
func (r *Ring) Append(e Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Seq <= r.head {
		return fmt.Errorf("chatring: event %d after %d", e.Seq, r.head)
	}
	r.events, r.head = append(r.events, e), e.Seq
	r.bytes += len(e.Frame) + eventOverhead
	r.trim()
	return nil
}

// Pass counts an event that nobody is to see. It fails as Append does.
func (r *Ring) Pass(seq uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if seq <= r.head {
		return fmt.Errorf("chatring: event %d after %d", seq, r.head)
	}
	r.head = seq
	return nil
}

// trim keeps the ring within its window, but for the newest event. The caller
// holds mu.
func (r *Ring) trim() {
	limit, n := int(r.window.Load()), 0
	for n < len(r.events)-1 && r.bytes > limit {
		r.bytes -= len(r.events[n].Frame) + eventOverhead
		r.base = r.events[n].Seq + 1
		r.events[n] = Event{}
		n++
	}
	if r.events = r.events[n:]; cap(r.events) > 64 && len(r.events) < cap(r.events)/4 {
		r.events = slices.Clone(r.events)
	}
}

// Shrink applies a smaller window at once.
func (r *Ring) Shrink() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trim()
}

// Held returns the size of the ring's events, in bytes.
func (r *Ring) Held() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes
}

// Deliver stirs all followers.
func (r *Ring) Deliver() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.cursors {
		c.of.Stir()
	}
}

// Become replaces the state, before the event that results in it is appended.
// changed: the conversation runs another way, or elsewhere.
func (r *Ring) Become(s protocol.ChatState) (changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed = r.state == nil || r.state.Run != s.Run || r.state.CommandID != s.CommandID || r.state.Terminal != s.Terminal
	r.state = &s
	return changed
}

// Leased notes the lease, unless it is older than the known one.
func (r *Ring) Leased(l protocol.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.Revision > r.lease.Revision {
		r.lease = l
	}
}

// A View is a ring at one moment.
type View struct {
	Connected bool // there is a stream to the agent
	Epoch     protocol.Epoch
	Head      uint64              // of the newest event, 0: none
	State     *protocol.ChatState // not to be changed; nil: not known yet
	Lease     protocol.Lease
}

// View returns the ring as it is.
func (r *Ring) View() View {
	r.mu.Lock()
	defer r.mu.Unlock()
	return View{r.connected, r.epoch, r.head, r.state, r.lease}
}

// Followers returns those who follow.
func (r *Ring) Followers() []Follower {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Follower, len(r.cursors))
	for i, c := range r.cursors {
		all[i] = c.of
	}
	return all
}

// from returns the events from number next on. The caller holds mu.
func (r *Ring) from(next uint64) []Event {
	i, _ := slices.BinarySearchFunc(r.events, next, func(e Event, seq uint64) int { return cmp.Compare(e.Seq, seq) })
	return r.events[i:]
}

// A Cursor is a follower's place in a ring.
type Cursor struct {
	// Static after Init.
	ring *Ring
	of   Follower

	// Guarded by the ring's mu.
	follows bool
	gone    bool   // it never follows again
	since   uint64 // number of the first event that was to be sent, with all behind it up to next
	next    uint64 // number of the next event to be sent
	live    bool   // the ring had next
	ackDue  bool   // an Ack comes first
	owed    int    // how many more of it: Begin was called as often before it was sent
	gap     bool   // with Gap
	filling bool   // the agent's log is being read for it
	rounds  int    // times it was, since it began to follow
	attempt uint64 // raised whenever next is moved; what was read for an older one is void
}

// An Ack says where a cursor begins.
type Ack struct {
	Epoch    protocol.Epoch
	FirstSeq uint64
	LastSeq  uint64
	Gap      bool                // events are missing
	State    *protocol.ChatState // not to be changed
}

// Init says whose cursor c is. It doesn't follow yet.
func (c *Cursor) Init(r *Ring, of Follower) { c.ring, c.of = r, of }

// Begin begins after mark, with an Ack; 0: with the running run. fresh: the cursor
// hasn't followed before. It may be called again; then whole says that what was sent
// since the first time comes again.
func (c *Cursor) Begin(mark uint64, whole bool) (fresh bool) {
	r := c.ring
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.gone || r.state == nil {
		return false
	}
	fresh = c.enlist()
	if next, gap := c.place(mark); fresh || whole || gap || next < c.since || next > c.next {
		c.move(next, gap)
	}
	if c.ackDue {
		c.owed = min(c.owed+1, maxOwed)
	}
	c.ackDue, c.rounds = true, 0
	c.of.Stir()
	return fresh
}

// Idle reports whether no run is under way, and all of the last one was collected.
func (c *Cursor) Idle() bool {
	r := c.ring
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state != nil && r.state.Run == protocol.RunIdle && c.next > r.head
}

// GoOn follows from the head on, without an Ack, unless c follows already.
func (c *Cursor) GoOn() (fresh bool) {
	c.ring.mu.Lock()
	defer c.ring.mu.Unlock()
	if c.gone || c.ring.state == nil || c.follows {
		return false
	}
	c.move(c.ring.head+1, false)
	return c.enlist()
}

// enlist makes c one of the ring's. The caller holds the ring's mu.
func (c *Cursor) enlist() (fresh bool) {
	if !c.follows {
		c.follows, fresh = true, true
		c.ring.cursors = append(c.ring.cursors, c)
	}
	return fresh
}

// End ends c for good. followed: it did.
func (c *Cursor) End() (followed bool) {
	r := c.ring
	r.mu.Lock()
	defer r.mu.Unlock()
	followed, c.follows, c.gone = c.follows, false, true
	c.attempt++
	if i := slices.Index(r.cursors, c); i >= 0 {
		r.cursors = slices.Delete(r.cursors, i, i+1)
	}
	return followed
}

// Follows reports whether c follows.
func (c *Cursor) Follows() bool {
	c.ring.mu.Lock()
	defer c.ring.mu.Unlock()
	return c.follows
}

// place returns where a cursor with a mark begins. The caller holds the ring's mu.
func (c *Cursor) place(mark uint64) (next uint64, gap bool) {
	r := c.ring
	next = mark + 1
	if mark == 0 || mark > r.head {
		next, gap = r.head+1, mark > 0
		if r.state.Run != protocol.RunIdle && r.state.BeganAt > 0 {
			next = min(r.state.BeganAt, next)
		}
	}
	if next < r.firstSeq {
		return min(r.firstSeq, r.head+1), true
	}
	return next, gap
}

// move sets the cursor. The caller holds the ring's mu.
func (c *Cursor) move(next uint64, gap bool) {
	c.since, c.next, c.gap, c.live, c.filling = next, next, gap, false, false
	c.attempt++
	if gap {
		c.ring.gaps.WithLabelValues(GapMark).Inc()
	}
}

// skip moves c to the head, with an Ack that tells of the gap. The caller holds the
// ring's mu.
func (c *Cursor) skip(why string) {
	c.ring.gaps.WithLabelValues(why).Inc()
	c.since, c.next, c.gap, c.ackDue, c.live, c.filling = c.ring.head+1, c.ring.head+1, true, true, true, false
	c.attempt++
}

// Batch is what a follower is to be sent now: an Ack, if there is one, and then
// what Collect has appended.
type Batch struct {
	Ack   *Ack
	Owed  int  // how often the Ack comes once more
	Bytes int  // of the events
	More  bool // there is more in the ring
	Fill  bool // the agent's log must be read first, see Lacks
}

// Collect takes what c's follower is to be sent now, not much more than turnBytes,
// and appends its frames to out.
func (c *Cursor) Collect(out net.Buffers) (net.Buffers, Batch) {
	r := c.ring
	r.mu.Lock()
	defer r.mu.Unlock()
	var b Batch
	if !c.follows {
		return out, b
	}
	if c.live && c.next < r.base {
		c.skip(GapSlow)
	}
	if c.ackDue {
		b.Ack = &Ack{Epoch: r.epoch, FirstSeq: r.firstSeq, LastSeq: r.head, Gap: c.gap, State: r.state}
		b.Owed = c.owed
		c.ackDue, c.gap, c.owed = false, false, 0
	}
	switch {
	case c.filling:
	case c.next < r.base:
		c.filling, b.Fill = true, true
	default:
		out = c.take(out, &b)
	}
	return out, b
}

// take appends events from the cursor on. The caller holds the ring's mu.
func (c *Cursor) take(out net.Buffers, b *Batch) net.Buffers {
	c.live = true
	for _, e := range c.ring.from(c.next) {
		if b.Bytes >= turnBytes {
			b.More = true
			return out
		}
		c.next = e.Seq + 1
		if e.Origin != "" && c.of.Expects(e.Origin) {
			continue
		}
		if e.Ends {
			if frame := c.of.Ends(); frame != nil {
				out = append(out, frame)
			}
		}
		out = append(out, e.Frame)
		b.Bytes += len(e.Frame)
	}
	c.next = c.ring.head + 1
	return out
}

package feed

import (
	"net"
	"sync/atomic"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/replay"
)

// A Consumer writes a reader's output to a socket.
type Consumer interface {
	// Wake makes the consumer's own goroutine call Next soon. It doesn't block.
	Wake()
}

// A source says where a reader's output comes from.
type source uint8

const (
	fromRing source = iota // the feed's ring
	fromLog                // the agent's log, until it reaches the ring
	nowhere                // none, until the hub moves the reader ahead
)

// Reasons for moving a reader ahead: labels of a metric.
const (
	ResyncRing    = "ring"    // the ring dropped what the reader needs next
	ResyncUnacked = "unacked" // it reached the limit of unacknowledged output
	ResyncLog     = "log_gap" // the agent's log no longer has what it misses
	ResyncReset   = "reset"   // the log began anew
)

// A Reader is one viewer's position in a feed.
type Reader struct {
	// Static after Init.
	feed     *Feed
	consumer Consumer
	start    Start
	acks     bool          // it acknowledges output
	taken    chan struct{} // the piece of a backfill was sent or dropped

	// Guarded by feed.mu.
	pos      position
	backfill backfill
	pace     pacing
	exact    bool // it gets every byte
	listed   bool // it is among the feed's readers and hasn't left

	blocked atomic.Bool // new output is not for it now; set under feed.mu
	gone    atomic.Bool // it has left for good; set under feed.mu
	paced   atomic.Bool // pace.on
}

// Init makes r a reader of f. It gets nothing until Attach.
func (r *Reader) Init(f *Feed, consumer Consumer, start Start, acks, exact bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.feed, r.consumer, r.start, r.acks, r.exact = f, consumer, start, acks, exact
	r.taken = make(chan struct{}, 1)
}

// A Standing is a reader's state at one moment.
type Standing struct {
	Sent    uint64 // the offset behind the last byte that it was sent
	Exact   bool   // it gets every byte
	Paces   bool   // it holds the terminal back
	Blocked bool   // new output is not for it now
}

// Standing returns the reader's state.
func (r *Reader) Standing() Standing {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	return Standing{Sent: r.pos.sent(), Exact: r.exact, Paces: r.pace.on, Blocked: r.blocked.Load()}
}

// SetExact says whether the reader gets every byte.
func (r *Reader) SetExact(on bool) {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	r.exact = on
}

// Detach ends the reader.
func (r *Reader) Detach() {
	f := r.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	r.pos.dropPrefix()
	f.remove(r)
}

// A position is where a reader is in the output. Next advances it; the hub sets
// it when the reader attaches or is moved ahead.
type position struct {
	generation uint64 // of the ring; a position of another generation is void
	epoch      protocol.Epoch
	source     source

	cursor replay.Cursor // fromRing
	offset uint64        // fromLog, nowhere: of the next byte for the reader
	why    string        // nowhere: the reason
	told   bool          // nowhere: the hub knows

	prefix net.Buffers // sent before anything else: a resync, a keyframe, a size
	kept   *Keyframe   // the one in prefix
	resync bool        // prefix begins with a resync
	waits  bool        // nothing follows the keyframe until it is shown

	flow flow
}

// sent returns the offset behind the last byte that the reader was sent.
func (p *position) sent() uint64 {
	if p.source == fromRing {
		return p.cursor.Offset()
	}
	return p.offset
}

// dropPrefix drops the prefix.
func (p *position) dropPrefix() {
	if p.kept != nil {
		p.kept.charge.release()
	}
	p.prefix, p.kept, p.resync = nil, nil, false
}

// An Outcome says what the caller has to do besides writing what Next returned.
type Outcome struct {
	More     bool      // there may be further output
	Done     bool      // nothing will ever follow
	Resynced bool      // the frames begin with a resync
	Lost     string    // the hub must move the reader ahead, for this reason
	Fill     bool      // a goroutine must read the agent's log for the reader
	Keyframe *Keyframe // part of the frames; release it once they are written
}

// Next appends to dst the frames between the reader's position and the head, at
// most MaxBatch bytes, and advances the position. A caller that only offers
// them to a socket gets no keyframe: what the socket doesn't take at once would
// be copied.
func (r *Reader) Next(dst net.Buffers, offering bool) (net.Buffers, Outcome) {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	return r.next(dst, offering)
}

// A Take is what a reader gets of new output.
type Take struct {
	Reader  *Reader
	Frames  net.Buffers // what Next appends to, and returns
	Outcome Outcome
}

// NextAll is Next for many readers of f, with one look at the ring. They are
// offered what they get.
func (f *Feed) NextAll(takes []Take) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range takes {
		t := &takes[i]
		t.Frames, t.Outcome = t.Reader.next(t.Frames, true)
	}
}

// Consumer returns who writes the reader's output.
func (r *Reader) Consumer() Consumer { return r.consumer }

// next is Next. The caller holds feed.mu.
func (r *Reader) next(dst net.Buffers, offering bool) (net.Buffers, Outcome) {
	f, p := r.feed, &r.pos
	var out Outcome
	if p.generation != f.generation {
		r.ringReplaced()
	}
	if p.kept != nil && offering {
		out.More = true
		return dst, out
	}
	if p.prefix != nil {
		dst = append(dst, p.prefix...)
		out.Resynced, out.Keyframe = p.resync, p.kept
		p.prefix, p.kept, p.resync = nil, nil, false
		r.blocked.Store(p.source != fromRing)
	}
	switch p.source {
	case fromLog:
		return r.nextFromLog(dst, out)
	case nowhere:
		out.Lost = r.report()
		return dst, out
	}
	return r.nextFromRing(dst, out)
}

// nextFromRing is Next for a reader whose position is in the ring. The caller
// holds feed.mu.
func (r *Reader) nextFromRing(dst net.Buffers, out Outcome) (net.Buffers, Outcome) {
	ring, p := r.feed.ring, &r.pos
	limit := MaxBatch
	if r.acks {
		limit = min(limit, p.room())
		if p.waits {
			r.block()
			return dst, out
		}
		if limit < protocol.MaxDataBytes && p.cursor.Offset() < ring.Head() && ring.Holds(p.cursor) {
			r.block()
			return dst, out
		}
	}
	dst, err := ring.Next(&p.cursor, limit, dst)
	if err != nil {
		r.fellBehind()
		out.Lost = r.report()
		out.Fill = p.source == fromLog
		return dst, out
	}
	out.More = p.cursor.Offset() < ring.Head()
	out.Done = r.feed.ended && !out.More
	if r.acks && !out.More {
		p.flow.stall = stall{} // it keeps up
	}
	return dst, out
}

// ringReplaced moves the reader to a new ring. A reader that gets every byte
// continues in the agent's log if it is the same log; any other is moved ahead.
// The caller holds feed.mu.
func (r *Reader) ringReplaced() {
	f, p := r.feed, &r.pos
	at := p.sent()
	known := p.source == nowhere && p.told // the hub will move it into the new ring
	p.generation = f.generation
	if r.exact && p.epoch == f.ring.Epoch() && at <= f.ring.Head() && !known {
		r.fillFrom(at)
		return
	}
	r.lose(ResyncReset)
	p.told = known
}

// fellBehind handles a ring that dropped what the reader needs. A pace-setter
// that is not far behind, and any reader that gets every byte, gets the missing
// output from the agent's log. The caller holds feed.mu.
func (r *Reader) fellBehind() {
	behind := r.feed.ring.Head() - r.pos.cursor.Offset()
	if r.exact || r.pace.on && behind <= 2*protocol.MaxPaceLag {
		r.fillFrom(r.pos.cursor.Offset())
		return
	}
	r.lose(ResyncRing)
}

// fillFrom makes the agent's log the reader's source from offset on. The viewer
// notices nothing. The caller holds feed.mu.
func (r *Reader) fillFrom(offset uint64) {
	r.pos.source, r.pos.offset = fromLog, offset
	r.beginBackfill(0, 0) // the ring no longer knows the size
	r.blocked.Store(true)
}

// lose stops the reader's output until the hub moves it ahead. The caller holds
// feed.mu.
func (r *Reader) lose(why string) {
	p := &r.pos
	at := p.sent()
	r.stopBackfill()
	p.source, p.offset, p.why, p.told = nowhere, at, why, false
	p.dropPrefix()
	r.blocked.Store(true)
}

// report returns why the hub must move the reader ahead, "" if the hub knows or
// must wait: a reader with unacknowledged output is moved by its next ack. The
// caller holds feed.mu.
func (r *Reader) report() string {
	p := &r.pos
	if p.source != nowhere || p.told || r.acks && p.why == ResyncRing && p.unacked() > 0 {
		return ""
	}
	p.told = true
	return p.why
}

package feed

import (
	"net"
	"slices"
	"sync/atomic"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/replay"
)

// A Consumer is whoever writes a reader's output to a socket.
type Consumer interface {
	// Push writes what is new if that doesn't wait. The stream's reader calls it
	// for each chunk.
	Push()
	// Wake has the consumer's own goroutine call Next soon. It doesn't wait.
	Wake()
}

// A source says where a reader's output comes from.
type source uint8

const (
	fromRing source = iota // the ring
	fromLog                // the agent's log, until it reaches the ring
	nowhere                // the hub has to move the reader ahead
)

// Why a reader is moved ahead: labels of a metric.
const (
	ResyncRing    = "ring"    // the ring went on without it
	ResyncUnacked = "unacked" // it stood at what it may leave unacknowledged
	ResyncLog     = "log_gap" // the agent's log no longer has what it misses
	ResyncReset   = "reset"   // the log itself began anew
)

// A Reader is one viewer's way through a feed.
type Reader struct {
	// Static after Init.
	feed     *Feed
	consumer Consumer
	start    Start
	acks     bool          // it acknowledges output
	taken    chan struct{} // the piece of a backfill was sent, or nobody wants any more

	// Guarded by feed.mu.
	pos      position
	backfill backfill
	pace     pacing
	exact    bool // it gets every byte

	blocked atomic.Bool // new output is of no use to it now; set under feed.mu
	paced   atomic.Bool // pace.on
}

// Init makes r a reader of f. Until Attach it is offered nothing.
func (r *Reader) Init(f *Feed, consumer Consumer, start Start, acks, exact bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.feed, r.consumer, r.start, r.acks, r.exact = f, consumer, start, acks, exact
	r.taken = make(chan struct{}, 1)
}

// A Standing is how a reader stands at one moment.
type Standing struct {
	Sent    uint64 // the offset behind the last byte that it was sent
	Exact   bool   // it gets every byte
	Paces   bool   // it holds the terminal back
	Blocked bool   // new output is of no use to it now
}

// Standing returns how the reader stands.
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
	if i := slices.Index(f.readers, r); i >= 0 {
		f.readers = slices.Delete(slices.Clone(f.readers), i, i+1)
	}
}

// A position is where a reader is in the output. Next moves it on; the hub sets
// it when the reader attaches and when it is moved ahead.
type position struct {
	generation uint64 // of the ring; a position of another generation is void
	epoch      protocol.Epoch
	source     source

	cursor replay.Cursor // fromRing
	offset uint64        // fromLog, nowhere: of the next byte that the reader misses
	why    string        // nowhere: for what reason
	told   bool          // nowhere: the hub knows

	prefix net.Buffers // goes before anything else: a resync, a keyframe, a size
	kept   *Keyframe   // the one in prefix
	resync bool        // prefix begins with a resync
	waits  bool        // nothing goes behind the keyframe until it is shown

	flow flow
}

// sent returns the offset behind the last byte that the reader was sent.
func (p *position) sent() uint64 {
	if p.source == fromRing {
		return p.cursor.Offset()
	}
	return p.offset
}

// dropPrefix gives up what goes before anything else.
func (p *position) dropPrefix() {
	if p.kept != nil {
		p.kept.charge.release()
	}
	p.prefix, p.kept, p.resync = nil, nil, false
}

// An Outcome says what is to be done beside writing what Next returned.
type Outcome struct {
	More     bool      // there may be further output
	Done     bool      // nothing will ever follow
	Resynced bool      // the frames begin with a resync
	Lost     string    // the hub must move the reader ahead, for this reason
	Fill     bool      // a goroutine must read the agent's log for the reader
	Keyframe *Keyframe // it is in the frames; to be released when they are written
}

// Next appends to dst the frames between the reader's position and the head, at
// most MaxBatch bytes, and moves the position behind them. A caller that only
// offers them to a socket gets no keyframe: what the socket doesn't take at once
// would be copied.
func (r *Reader) Next(dst net.Buffers, offering bool) (net.Buffers, Outcome) {
	f := r.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	p := &r.pos
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

// ringReplaced follows a new ring. A reader that gets every byte goes on in the
// agent's log if it is the same one; any other is moved ahead. The caller holds
// feed.mu.
func (r *Reader) ringReplaced() {
	f, p := r.feed, &r.pos
	at := p.sent()
	known := p.source == nowhere && p.told // the hub will put it into the new ring
	p.generation = f.generation
	if r.exact && p.epoch == f.ring.Epoch() && at <= f.ring.Head() && !known {
		r.fillFrom(at)
		return
	}
	r.lose(ResyncReset)
	p.told = known
}

// fellBehind follows a ring that went on without the reader. A pace-setter is not
// far behind and gets what it misses from the agent's log, as does in any case a
// reader that gets every byte. The caller holds feed.mu.
func (r *Reader) fellBehind() {
	behind := r.feed.ring.Head() - r.pos.cursor.Offset()
	if r.exact || r.pace.on && behind <= 2*protocol.MaxPaceLag {
		r.fillFrom(r.pos.cursor.Offset())
		return
	}
	r.lose(ResyncRing)
}

// fillFrom has the reader get its output from the agent's log, from offset on.
// What it sees of the terminal doesn't change by that. The caller holds feed.mu.
func (r *Reader) fillFrom(offset uint64) {
	r.pos.source, r.pos.offset = fromLog, offset
	r.beginBackfill(0, 0) // the ring no longer knows the size
	r.blocked.Store(true)
}

// lose takes the reader's output away until the hub moves it ahead. The caller
// holds feed.mu.
func (r *Reader) lose(why string) {
	p := &r.pos
	at := p.sent()
	r.stopBackfill()
	p.source, p.offset, p.why, p.told = nowhere, at, why, false
	p.dropPrefix()
	r.blocked.Store(true)
}

// report returns why the hub must move the reader ahead, "" when it knows or must
// wait: a reader that acknowledges is moved by its next ack, when there is one to
// come. The caller holds feed.mu.
func (r *Reader) report() string {
	p := &r.pos
	if p.source != nowhere || p.told || r.acks && p.why == ResyncRing && p.unacked() > 0 {
		return ""
	}
	p.told = true
	return p.why
}

package feed

import (
	"net"

	"github.com/fairlead/fairlead/protocol"
)

// readBytes bounds a part of the log that is read at a time. It is less than
// a stream's window, so that the agent is never left writing what nobody
// reads.
const readBytes = 192 << 10

// A Piece is output from the agent's log, framed for the viewer.
type Piece struct {
	Frames     []byte
	End        uint64 // offset behind it
	Cols, Rows int    // in force there
}

// A backfill is a reader's way through the agent's log: a goroutine of the hub
// reads, the reader's consumer sends one piece after another.
type backfill struct {
	running    bool // the goroutine is there
	waiting    bool // piece is to be sent
	piece      Piece
	cols, rows int    // the size that the viewer knows of, 0 for none
	lag        uint64 // how far it was from the ring at first
}

// beginBackfill starts a backfill for a viewer that knows the size, 0 for none.
// The caller holds feed.mu.
func (r *Reader) beginBackfill(cols, rows int) {
	r.stopBackfill()
	r.backfill.cols, r.backfill.rows, r.backfill.lag = cols, rows, 0
}

// stopBackfill gives up what waits. The caller holds feed.mu.
func (r *Reader) stopBackfill() {
	r.backfill.waiting, r.backfill.piece = false, Piece{}
	select {
	case r.taken <- struct{}{}:
	default:
	}
}

// nextFromLog is Next for a reader whose output comes from the agent's log. The
// caller holds feed.mu.
func (r *Reader) nextFromLog(dst net.Buffers, out Outcome) (net.Buffers, Outcome) {
	p, b := &r.pos, &r.backfill
	switch {
	case !b.waiting:
		out.Fill = !b.running
	case r.acks && p.room() < protocol.MaxDataBytes:
		r.block()
	default:
		dst = append(dst, b.piece.Frames)
		p.offset, b.cols, b.rows = b.piece.End, b.piece.Cols, b.piece.Rows
		out.More = r.enterRing()
		r.stopBackfill()
	}
	return dst, out
}

// enterRing has a reader that has come so far in the agent's log read the ring, as
// soon as that holds what it needs next. The caller holds feed.mu.
func (r *Reader) enterRing() bool {
	ring, p := r.feed.ring, &r.pos
	cursor, err := ring.CursorAt(p.offset)
	if err != nil {
		return false
	}
	p.source, p.cursor = fromRing, cursor
	if cols, rows := ring.SizeAt(p.offset); cols != r.backfill.cols || rows != r.backfill.rows {
		p.prefix = net.Buffers{sizeFrame(p.offset, cols, rows)} // it would be behind the cursor
	}
	r.blocked.Store(p.prefix != nil)
	return true
}

// ClaimBackfill makes the caller the goroutine that reads the agent's log for r,
// unless there is one or none is needed.
func (r *Reader) ClaimBackfill() bool {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	if r.pos.source != fromLog || r.backfill.running {
		return false
	}
	r.backfill.running = true
	return true
}

// A Gap is what a viewer misses between its position and the ring.
type Gap struct {
	Generation uint64
	Pos        protocol.Position
	To         uint64 // a good part of the way to the ring
	Cols, Rows int    // the size that the viewer knows of, 0 for none
}

// Missing returns what the reader misses. When it needs no backfill any more, the
// caller has ceased to be the goroutine that fills it. A reader that falls behind
// further than it was is too slow for this, unless it gets every byte.
func (r *Reader) Missing() (g Gap, ok bool) {
	f := r.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	p, b := &r.pos, &r.backfill
	if p.generation != f.generation || p.source != fromLog {
		b.running = false
		return g, false
	}
	lag := f.ring.Oldest() - p.offset
	if b.lag == 0 {
		b.lag = lag
	}
	if !r.exact && lag > b.lag+protocol.RingBytes {
		b.running = false
		r.lose(ResyncRing)
		return g, false
	}
	return Gap{
		Generation: f.generation, Pos: protocol.Position{Epoch: f.ring.Epoch(), Offset: p.offset},
		To: min(f.ring.Head(), p.offset+readBytes), Cols: b.cols, Rows: b.rows,
	}, true
}

// Backfill has p, which is of a generation, sent to the reader next. It reports
// whether that is still wanted.
func (r *Reader) Backfill(generation uint64, p Piece) bool {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	if r.feed.generation != generation || r.pos.source != fromLog {
		return false
	}
	select { // of an earlier piece
	case <-r.taken:
	default:
	}
	r.backfill.piece, r.backfill.waiting = p, true
	return true
}

// Taken says that the piece was sent, or that nobody wants any more.
func (r *Reader) Taken() <-chan struct{} { return r.taken }

// AbandonBackfill has the reader moved ahead, for the log can't be had.
func (r *Reader) AbandonBackfill(generation uint64, why string) {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	if r.feed.generation == generation && r.pos.source == fromLog {
		r.lose(why)
	}
}

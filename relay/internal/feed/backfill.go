package feed

import (
	"net"

	"github.com/fairlead/fairlead/protocol"
)

// readBytes bounds one read of the agent's log. It is less than a stream's
// window, so that the agent never blocks on a reader that waits.
const readBytes = 192 << 10

// A Piece is output from the agent's log, framed for the viewer.
type Piece struct {
	Frames     []byte
	End        uint64 // offset behind it
	Cols, Rows int    // in force there
}

// A backfill moves a reader through the agent's log: a goroutine of the hub
// reads pieces, and the reader's consumer sends them one by one.
type backfill struct {
	running    bool // the goroutine is there
	waiting    bool // piece is to be sent
	piece      Piece
	cols, rows int    // the size that the viewer knows, 0 for none
	lag        uint64 // its distance from the ring at the beginning
}

// beginBackfill starts a backfill for a viewer that knows the size, 0 for none.
// The caller holds feed.mu.
func (r *Reader) beginBackfill(cols, rows int) {
	r.stopBackfill()
	r.backfill.cols, r.backfill.rows, r.backfill.lag = cols, rows, 0
}

// stopBackfill drops the piece that waits. The caller holds feed.mu.
func (r *Reader) stopBackfill() {
	r.backfill.waiting, r.backfill.piece = false, Piece{}
	select {
	case r.taken <- struct{}{}:
	default:
	}
}

// nextFromLog is Next for a reader whose source is the agent's log. The caller
// holds feed.mu.
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

// enterRing switches the reader from the agent's log to the ring once the ring
// holds its next byte. The caller holds feed.mu.
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

// ClaimBackfill makes the caller the goroutine that reads the agent's log for
// r, unless there is one or r needs none.
func (r *Reader) ClaimBackfill() bool {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	if r.pos.source != fromLog || r.backfill.running {
		return false
	}
	r.backfill.running = true
	return true
}

// A Gap is the output between a viewer's position and the ring.
type Gap struct {
	Generation uint64
	Pos        protocol.Position
	To         uint64 // the end of the next part to read
	Cols, Rows int    // the size that the viewer knows, 0 for none
}

// Missing returns the next part that the reader needs. If it reports false, the
// caller is no longer the goroutine of the backfill. A reader whose lag has
// grown too much is too slow for a backfill, unless it gets every byte.
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

// Backfill hands the reader its next piece. It reports false if the piece, of
// that generation, is no longer wanted.
func (r *Reader) Backfill(generation uint64, p Piece) bool {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	if r.feed.generation != generation || r.pos.source != fromLog {
		return false
	}
	select { // discard the signal of an earlier piece
	case <-r.taken:
	default:
	}
	r.backfill.piece, r.backfill.waiting = p, true
	return true
}

// Taken receives when the piece was sent or dropped.
func (r *Reader) Taken() <-chan struct{} { return r.taken }

// AbandonBackfill moves the reader ahead, as the log can't be read.
func (r *Reader) AbandonBackfill(generation uint64, why string) {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	if r.feed.generation == generation && r.pos.source == fromLog {
		r.lose(why)
	}
}

package feed

import (
	"net"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/replay"
)

// WholeBytes bounds a log that new viewers get as a whole.
const WholeBytes = 64 << 10

// A Start says from where a viewer wants output.
type Start struct {
	Since  *protocol.Position // nil: the default for a new viewer
	Astray bool               // it named an invalid position
}

func (s Start) newcomer() bool { return s.Since == nil && !s.Astray }

// Attach gives the reader its first position: where it wants to begin if the
// ring or the agent's log holds that; else behind a keyframe; else, unless wait
// is set, at the start of a line. It returns the message for the viewer, and
// false if it should wait for a keyframe.
func (r *Reader) Attach(wait bool) (m protocol.Attached, ok bool) {
	f := r.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	m = protocol.Attached{Epoch: f.ring.Epoch(), Head: f.ring.Head(), Mode: protocol.ModeResume}
	start, kf := r.start, f.fresh(WithHistory, 0)
	switch {
	case f.holds(start.Since):
		m.Offset = start.Since.Offset
		m.Cols, m.Rows = r.moveToOffset(m.Offset)
	case f.precedes(start.Since):
		m.Offset = start.Since.Offset
		m.Cols, m.Rows = f.ring.SizeAt(m.Offset)
		r.move(position{source: fromLog, offset: m.Offset})
		r.beginBackfill(m.Cols, m.Rows)
	case start.newcomer() && f.whole():
		m.Cols, m.Rows = r.moveToOffset(0)
	case kf != nil:
		m = r.attachBehind(kf)
	case wait:
		return m, false
	default:
		m.Offset = f.firstLine()
		m.Cols, m.Rows = r.moveToOffset(m.Offset)
		if !start.newcomer() || m.Offset > 0 {
			m.Mode = protocol.ModeGap
		}
	}
	f.add(r)
	return m, true
}

// AttachBehind is Attach for a reader that has waited for kf. It reports false
// if kf belongs to another ring.
func (r *Reader) AttachBehind(kf *Keyframe) (protocol.Attached, bool) {
	f := r.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	if kf.generation != f.generation {
		return protocol.Attached{}, false
	}
	m := r.attachBehind(kf)
	f.add(r)
	return m, true
}

// attachBehind attaches a reader behind kf. The caller holds feed.mu.
func (r *Reader) attachBehind(kf *Keyframe) protocol.Attached {
	f := r.feed
	r.moveBehind(kf)
	m := protocol.Attached{
		Epoch: f.ring.Epoch(), Offset: kf.offset, Head: f.ring.Head(), Cols: kf.cols, Rows: kf.rows,
		Mode: protocol.ModeKeyframe, KeyframeBytes: kf.bytes,
	}
	if !r.start.newcomer() {
		m.Mode = protocol.ModeGap
	}
	return m
}

// Precedes reports whether pos is in the same log, before the ring.
func (f *Feed) Precedes(pos *protocol.Position) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.precedes(pos)
}

// Ahead reports whether pos is beyond the head of the same log.
func (f *Feed) Ahead(pos *protocol.Position) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return pos != nil && pos.Epoch == f.ring.Epoch() && pos.Offset > f.ring.Head()
}

// Start returns where the reader wants output to begin.
func (r *Reader) Start() Start { return r.start }

// Restart sets another start for a reader that isn't attached yet.
func (r *Reader) Restart(s Start) { r.start = s }

// holds reports whether pos is in the ring. The caller holds mu.
func (f *Feed) holds(pos *protocol.Position) bool {
	if pos == nil || pos.Epoch != f.ring.Epoch() {
		return false
	}
	_, err := f.ring.CursorAt(pos.Offset)
	return err == nil
}

// precedes is Precedes without the lock. The caller holds mu.
func (f *Feed) precedes(pos *protocol.Position) bool {
	return pos != nil && pos.Epoch == f.ring.Epoch() && pos.Offset < f.ring.Oldest()
}

// whole reports whether the ring has all output, and that is at most
// WholeBytes. The caller holds mu.
func (f *Feed) whole() bool {
	return f.begin == 0 && f.ring.Oldest() == 0 && f.ring.Head() <= WholeBytes
}

// SkipBehind moves the reader ahead to the end of kf and returns how many bytes
// it skips. It reports false if kf belongs to another ring.
func (r *Reader) SkipBehind(kf *Keyframe) (skipped uint64, ok bool) {
	f := r.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	if kf.generation != f.generation {
		return 0, false
	}
	skipped = r.skips(kf.offset)
	r.moveBehind(kf, resyncFrame(protocol.Resync{
		Epoch: f.ring.Epoch(), Offset: kf.offset, Head: f.ring.Head(), Cols: kf.cols, Rows: kf.rows, KeyframeBytes: kf.bytes,
	}))
	return skipped, true
}

// SkipToLine moves the reader ahead to the start of a line, without a keyframe,
// and returns how many bytes it skips. A reader that is further than that stays
// where it is: nobody is moved back.
func (r *Reader) SkipToLine() (skipped uint64) {
	f := r.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	offset := f.firstLine()
	if at := r.pos.sent(); r.pos.epoch == f.ring.Epoch() && at <= f.ring.Head() {
		offset = max(offset, at)
	}
	skipped = r.skips(offset)
	cols, rows := f.ring.SizeAt(offset)
	r.moveToOffset(offset, resyncFrame(protocol.Resync{
		Epoch: f.ring.Epoch(), Offset: offset, Head: f.ring.Head(), Cols: cols, Rows: rows,
	}))
	return skipped
}

// skips returns how many bytes the reader misses if it continues at offset, 0
// in another log, where that isn't known. The caller holds feed.mu.
func (r *Reader) skips(offset uint64) uint64 {
	if at := r.pos.sent(); r.pos.epoch == r.feed.ring.Epoch() && at < offset {
		return offset - at
	}
	return 0
}

func resyncFrame(m protocol.Resync) []byte {
	return replay.AppendTextFrame(nil, protocol.EncodeServerMessage(m))
}

func sizeFrame(offset uint64, cols, rows int) []byte {
	return replay.AppendTextFrame(nil, protocol.EncodeServerMessage(protocol.SizeChanged{Offset: offset, Cols: cols, Rows: rows}))
}

// move sets the reader's position. What it was sent before a keyframe, and has
// not acknowledged, still counts as unacknowledged. The caller holds feed.mu.
func (r *Reader) move(to position) {
	f, old := r.feed, r.pos
	to.generation, to.epoch = f.generation, f.ring.Epoch()
	to.flow.acked = to.sent()
	if to.flow.debt > 0 {
		to.flow.debt += old.unacked()
	}
	r.pos.dropPrefix()
	r.pos = to
	r.stopBackfill()
	r.pace.moved(to.sent(), old.epoch != to.epoch)
	r.blocked.Store(to.source != fromRing || to.prefix != nil)
}

// moveToOffset moves the reader before the byte at offset, which the ring
// holds, and returns the size there. The caller holds feed.mu.
func (r *Reader) moveToOffset(offset uint64, prefix ...[]byte) (cols, rows int) {
	ring := r.feed.ring
	cursor, err := ring.CursorAt(offset)
	if err != nil {
		cursor = ring.End()
	}
	r.move(position{cursor: cursor, prefix: prefix, resync: len(prefix) > 0})
	return ring.SizeAt(offset)
}

// moveBehind moves the reader behind kf, which is of this ring, and sends it
// prefix and kf first. A reader that was too slow gets no more until it has
// shown kf: if much output follows by then, another keyframe is better. If the
// ring no longer has the output behind kf, a reader that gets every byte
// continues from the agent's log. The caller holds feed.mu.
func (r *Reader) moveBehind(kf *Keyframe, prefix ...[]byte) {
	why := r.pos.why
	to := position{
		cursor: kf.cursor, prefix: append(net.Buffers(prefix), kf.frames...), kept: kf, resync: len(prefix) > 0,
		waits: r.acks && !r.exact && (why == ResyncRing || why == ResyncUnacked),
		flow:  flow{debt: kf.bytes, debtAt: kf.offset},
	}
	switch {
	case r.feed.ring.Holds(kf.cursor):
	case r.exact:
		to.source, to.offset = fromLog, kf.offset
	default: // it shows kf all the same, and then the next one
		to.source, to.offset, to.why = nowhere, kf.offset, ResyncRing
	}
	kf.charge.hold()
	r.move(to)
	if to.source == fromLog {
		r.beginBackfill(kf.cols, kf.rows)
	}
}

package mux

import (
	"encoding/binary"
	"sync"
	"time"
)

const (
	// maxUnread bounds what has come on all streams of a session and is unread, in
	// bytes: 64 full windows. Beyond it a stream that holds over half a window and
	// receives more is reset. At hardUnread the session ends.
	maxUnread  = 64 * Window
	hardUnread = 4 * maxUnread
	// maxGrant bounds a peer's window, in bytes. It is far above any real one, and
	// far below where yamux's counter would wrap.
	maxGrant = 64 << 20
	// maxUnacked bounds the streams of ours that ended without the peer's ACK,
	// over the session's life: yamux keeps some memory for each.
	maxUnacked = 1000
	// The budget for frames that still come for streams that have ended: a window
	// after our reset, and a frame or two after both ends closed. firstStray is
	// the initial budget. Each frame costs frameCost bytes plus its body.
	firstStray  = 1 << 20
	frameCost   = 256
	strayReset  = Window
	strayClosed = 32 << 10
)

// flows track the streams of a session by their frames, both ways.
type flows struct {
	ours parity // of the streams that this end opens

	// Guarded by mu.
	mu      sync.Mutex
	open    map[uint32]*flow
	unread  int // in all streams
	unacked int // streams of ours that ended without an ACK
	stray   int // remaining budget for frames of ended streams, in bytes

	first    int     // window of a new stream
	growth   growth  // of windows; zero: none
	granting []grant // that the peer must be told of
	telling  bool    // somebody tells
}

// A flow is the state of one stream.
type flow struct {
	id uint32 // static

	// Guarded by flows.mu.
	stream  *Stream // nil until taken
	window  window
	sent    int64 // bytes to the peer
	granted int64 // bytes beyond the first window that the peer has granted
	unread  int   // bytes from the peer that are unread
	acked   bool  // the peer knows the stream
	finIn   bool  // the peer has ended its output
	finOut  bool  // this end has ended its output
	abort   bool  // this end closes it with RST, so that it isn't taken for complete
	over    bool  // removed from open
	dropped bool  // no longer read here
}

func newFlows(peer parity) *flows {
	return &flows{ours: 1 - peer, open: map[uint32]*flow{}, stray: firstStray, first: Window}
}

// begin notes a new stream. The caller holds mu.
func (f *flows) begin(id uint32, acked bool) {
	f.open[id] = &flow{id: id, acked: acked, window: window{size: f.first, credit: firstWindow}}
}

// A frame is a parsed frame header.
type frame struct {
	data   bool // otherwise a window update
	flags  uint16
	stream uint32
	length uint32
}

func parseFrame(header []byte) frame {
	return frame{
		data: header[1] == typeData, flags: binary.BigEndian.Uint16(header[2:]),
		stream: binary.BigEndian.Uint32(header[4:]), length: binary.BigEndian.Uint32(header[8:]),
	}
}

// in notes a received frame. spill is an unread stream that must be reset
// because all together hold too much.
func (f *flows) in(fr frame) (spill *Stream, bad *Objection) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fr.flags&flagSYN != 0 {
		if f.open[fr.stream] != nil {
			return nil, object(ReasonStreamID, "opened stream %d, which is open", fr.stream)
		}
		f.begin(fr.stream, true)
	}
	one := f.open[fr.stream]
	if one == nil {
		return nil, f.astray(fr)
	}
	if fr.flags&flagACK != 0 {
		if one.acked {
			return nil, object(ReasonMalformed, "acknowledged stream %d for nothing", fr.stream)
		}
		one.acked = true
	}
	if fr.data {
		if spill, bad = f.arrived(one, int(fr.length)); bad != nil {
			return nil, bad
		}
	} else if one.granted += int64(fr.length); one.granted-one.sent > maxGrant {
		return nil, object(ReasonWindow, "opened the window of stream %d to %d bytes", fr.stream, one.granted-one.sent)
	}
	if fr.flags&flagFIN != 0 {
		if one.finIn {
			return nil, object(ReasonMalformed, "closed stream %d twice", fr.stream)
		}
		one.finIn = true
	}
	if fr.flags&flagRST != 0 {
		one.dropped = true // earlier data can't be read either
	}
	if fr.flags&flagRST != 0 || one.finIn && one.finOut {
		return nil, f.end(fr.stream, one, strayClosed)
	}
	return spill, nil
}

// astray checks a frame for a stream that has ended, or never existed. The
// caller holds mu.
func (f *flows) astray(fr frame) *Objection {
	f.stray -= frameCost
	if fr.data {
		f.stray -= int(fr.length)
	}
	if f.stray < 0 {
		return object(ReasonStray, "floods with frames for no stream")
	}
	return nil
}

// arrived counts bytes received for a stream, and returns the stream if it must
// be reset. The caller holds mu.
func (f *flows) arrived(one *flow, n int) (spill *Stream, bad *Objection) {
	one.unread += n
	f.unread += n
	one.window.credit -= n
	switch {
	case one.unread > max(one.window.size, Window):
		return nil, object(ReasonWindow, "sent %d bytes into a window of %d", one.unread, one.window.size)
	case f.unread > hardUnread:
		return nil, object(ReasonUnread, "sent %d bytes that nobody has read yet", f.unread)
	case f.unread > maxUnread && one.unread > Window/2 && !one.abort:
		return one.stream, nil
	}
	return nil, nil
}

// out notes a frame that is about to be sent, and turns the FIN of an aborted
// stream into a RST.
func (f *flows) out(header []byte) {
	fr := parseFrame(header)
	f.mu.Lock()
	defer f.mu.Unlock()
	if fr.flags&flagSYN != 0 {
		f.begin(fr.stream, false)
	}
	one := f.open[fr.stream]
	if one == nil {
		if !fr.data { // it has no window any more
			binary.BigEndian.PutUint32(header[8:], 0)
		}
		return
	}
	if fr.data {
		one.sent += int64(fr.length)
	} else {
		f.trim(one, header, fr.length)
	}
	if fr.flags&flagFIN != 0 && one.abort {
		fr.flags = fr.flags&^flagFIN | flagRST
		binary.BigEndian.PutUint16(header[2:], fr.flags)
	}
	if fr.flags&flagFIN != 0 {
		one.finOut = true
	}
	switch {
	case fr.flags&flagRST != 0:
		one.dropped = true
		_ = f.end(fr.stream, one, max(strayReset, one.window.size)) // the next incoming frame reports the objection
	case one.finIn && one.finOut:
		_ = f.end(fr.stream, one, strayClosed)
	}
}

// end removes a stream. The caller holds mu.
func (f *flows) end(id uint32, one *flow, stray int) *Objection {
	delete(f.open, id)
	one.over = true
	f.growth.sum -= one.window.grown
	f.release(one)
	f.stray = min(f.stray+stray+4*frameCost, maxUnread)
	if id&1 == uint32(f.ours) && !one.acked {
		if f.unacked++; f.unacked > maxUnacked {
			return object(ReasonUnacked, "acknowledges no stream")
		}
	}
	return nil
}

// take returns the flow of a stream that is in use from now on.
func (f *flows) take(id uint32, s *Stream) *flow {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.open[id]
	if one == nil {
		one = &flow{over: true} // the peer has already reset it
	}
	one.stream = s
	return one
}

// read counts bytes read. It reports whether somebody must tell the peer, see grants.
func (f *flows) read(one *flow, n int) (tell bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n = min(n, one.unread)
	one.unread -= n
	f.unread -= n
	return f.report(one, n)
}

// wake interrupts waiting reads and writes, as nothing more comes.
func (f *flows) wake() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.open {
		if one.stream != nil {
			one.stream.raw.SetDeadline(past)
		}
	}
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// drop notes that a stream is no longer read. With abort the peer gets a RST.
// It reports whether that is new.
func (f *flows) drop(one *flow, abort bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := abort && !one.abort
	one.abort = one.abort || abort
	one.dropped, one.stream = true, nil
	f.release(one)
	return first
}

// release frees what a stream holds once it has ended and nobody reads it:
// yamux keeps the data until then. The caller holds mu.
func (f *flows) release(one *flow) {
	if one.over && one.dropped {
		f.unread -= one.unread
		one.unread = 0
	}
}

// A grant is credit that the peer isn't told of yet.
type grant struct {
	stream uint32
	bytes  int
}

// grants returns what is to be told, nil if there is nothing: whoever asked tells no
// more then.
func (f *flows) grants() []grant {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.granting
	f.granting = nil
	f.telling = len(all) > 0
	return all
}

// report notes that bytes of a stream were read. It returns whether somebody must
// tell the peer, see grants. The caller holds mu.
func (f *flows) report(one *flow, n int) (tell bool) {
	if one.over || one.finIn {
		return false // nothing more comes
	}
	w := &one.window
	if w.taken += n; f.growth.most > 0 && w.taken >= w.size && w.isSmall(time.Now(), f.growth.path.Trip()) {
		f.growth.grow(w)
	}
	due := w.due(one.unread)
	if due < min(w.size/reportPart, reportBytes) {
		return false
	}
	w.credit += due
	f.granting = append(f.granting, grant{one.id, due})
	tell = !f.telling
	f.telling = true
	return tell
}

// trim makes the window update that yamux sends one of our windows. The caller holds
// mu.
func (f *flows) trim(one *flow, header []byte, length uint32) {
	if length == 0 {
		return
	}
	due := max(one.window.due(one.unread), 0)
	one.window.credit += due
	binary.BigEndian.PutUint32(header[8:], uint32(due))
}

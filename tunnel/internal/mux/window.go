package mux

import (
	"encoding/binary"
	"time"
)

const (
	// firstWindow is what yamux lets a peer send on a new stream, in bytes.
	firstWindow = 256 << 10
	// MaxWindow bounds a window that grows.
	MaxWindow = 8 << 20
	// yamuxWindow is what yamux takes for its window. It reports halves of it, of
	// which the guard makes its own smaller windows.
	yamuxWindow = 2 * MaxWindow
	// reportPart is the part of a window that is read before its peer is told, and
	// reportBytes the most of it, so that a slow reader is no stalled one.
	reportPart, reportBytes = 4, 256 << 10
	// growTrips is how many round trips a window must last, and growTime how long at
	// the least: a window that was read sooner is too small for its path, one that
	// lasts longer only fills the queue of a thin line. So much is also what a busy
	// processor needs to come back to a stream.
	growTrips = 2
	growTime  = 20 * time.Millisecond
	// maxGrown bounds by how much all windows of a session together may grow.
	maxGrown = 32 << 20
)

// A window is what a peer may send on one stream before it is read.
type window struct {
	size   int       // bytes, of which some may be unread
	credit int       // that the peer may send
	began  time.Time // when taken was 0
	taken  int       // bytes read since then
	grown  int       // by which it is larger than at first
}

// due returns by how much to raise the credit, for the bytes that are unread.
func (w *window) due(unread int) int { return w.size - w.credit - unread }

// isSmall reports whether a window, all of which was read, was read so soon that it
// ought to be larger.
func (w *window) isSmall(now time.Time, trip time.Duration) (small bool) {
	small = !w.began.IsZero() && now.Sub(w.began) < max(growTrips*trip, growTime)
	w.began, w.taken = now, 0
	return small
}

// A growth says how large windows may become, and by what.
type growth struct {
	most int                  // bytes
	trip func() time.Duration // the path's shortest round trip
	sum  int                  // by which windows have grown
}

// Grow has windows of streams begin small and grow with what is read in some round
// trips of the path, of which trip tells the shortest. It is called before there are
// streams.
func (s *Session) Grow(trip func() time.Duration) {
	f := s.guard.flows
	f.mu.Lock()
	defer f.mu.Unlock()
	f.growth = growth{most: MaxWindow, trip: trip}
	f.first = firstWindow
}

// grow doubles a window, if there is room. The caller holds flows.mu.
func (g *growth) grow(w *window) {
	if 2*w.size <= g.most && g.sum+w.size <= maxGrown {
		g.sum += w.size
		w.grown += w.size
		w.size *= 2
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
	if w.taken += n; f.growth.most > 0 && w.taken >= w.size && w.isSmall(time.Now(), f.growth.trip()) {
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

// tell tells the peer of grants until there are none. It doesn't hold up whoever
// reads, and ends with the carrier at the latest.
func (g *guard) tell() {
	var frames []byte
	for {
		all := g.flows.grants()
		if len(all) == 0 {
			return
		}
		frames = frames[:0]
		for _, one := range all {
			frames = append(frames, 0, typeWindow, 0, 0)
			frames = binary.BigEndian.AppendUint32(frames, one.stream)
			frames = binary.BigEndian.AppendUint32(frames, uint32(one.bytes))
		}
		stuck := time.AfterFunc(g.patience, func() { g.Close() })
		err := g.send(frames, nil)
		stuck.Stop()
		if err != nil {
			return // so does everything else that is sent
		}
	}
}

// trim makes the window update that yamux sends one of our windows.
func (f *flows) trim(one *flow, header []byte, length uint32) {
	if length == 0 {
		return
	}
	due := max(one.window.due(one.unread), 0)
	one.window.credit += due
	binary.BigEndian.PutUint32(header[8:], uint32(due))
}

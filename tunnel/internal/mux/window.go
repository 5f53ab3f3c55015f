package mux

import "time"

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
	most int  // bytes
	path Path // nil: no window grows
	sum  int  // by which windows have grown
}

// A Path knows its shortest round trip.
type Path interface{ Trip() time.Duration }

// grow doubles a window, if there is room. The caller holds flows.mu.
func (g *growth) grow(w *window) {
	if 2*w.size <= g.most && g.sum+w.size <= maxGrown {
		g.sum += w.size
		w.grown += w.size
		w.size *= 2
	}
}

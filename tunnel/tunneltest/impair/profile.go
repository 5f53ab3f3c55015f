package impair

import "time"

// Bounds of a Profile's values.
const (
	MaxDelay = 10 * time.Second
	MinRate  = 1_000           // bit/s
	MaxRate  = 100_000_000_000 // bit/s
	MaxQueue = 64 << 20        // bytes

	// DefaultQueue is what a link with a rate lets wait, in bytes, where the
	// profile doesn't say.
	DefaultQueue = 256 << 10
	// DefaultHold is how much longer a reordered datagram takes at most, where
	// the profile doesn't say.
	DefaultHold = 10 * time.Millisecond
)

// A Profile says what both directions of a link do. The zero Profile does
// nothing.
type Profile struct {
	Up   Path // from those who dial to the target
	Down Path // back to them
}

// A Path says what one direction of a link does. The zero Path does nothing.
type Path struct {
	Delay  time.Duration // of everything, 0 … MaxDelay
	Jitter time.Duration // the delay wanders by so much to either side, without reordering; at most Delay
	Rate   int64         // bits per second, 0: as many as come
	Queue  int64         // bytes that wait for their turn at the rate; 0: DefaultQueue

	// Parts of all datagrams, 0 … 1. They make no sense for TCP.
	Loss      float64
	Duplicate float64
	Reorder   float64
	Hold      time.Duration // a reordered one comes up to so much later; 0: DefaultHold
}

// Both returns the profile of a link whose directions are alike.
func Both(p Path) Profile { return Profile{Up: p, Down: p} }

package op

import "time"

// A Spawn says when a terminal's program starts.
type Spawn string

const (
	SpawnEager Spawn = "eager" // with the terminal: the default
	SpawnLazy  Spawn = "lazy"  // with the first byte that is typed
)

// Valid reports whether s is one of the constants, or empty.
func (s Spawn) Valid() bool { return s == "" || s == SpawnEager || s == SpawnLazy }

// An OnDetach says what becomes of a terminal that nobody watches any more: one of
// the constants, or a duration, such as "30m", after which it ends.
type OnDetach string

const (
	DetachKeep  OnDetach = "keep"  // nothing: the default
	DetachClose OnDetach = "close" // it ends at once
)

const (
	// MinOnDetach and MaxOnDetach bound how long a terminal that nobody watches may
	// be told to go on.
	MinOnDetach = time.Second
	MaxOnDetach = 24 * time.Hour
	// maxOnDetachBytes bounds how that is written.
	maxOnDetachBytes = 32
)

// Valid reports whether d is one of the constants, empty, or a duration in bounds.
func (d OnDetach) Valid() bool {
	if d == "" || d == DetachKeep {
		return true
	}
	_, ends := d.After()
	return ends
}

// After returns how long a terminal that nobody watches goes on, and whether it
// ends then at all.
func (d OnDetach) After() (after time.Duration, ends bool) {
	if d == DetachClose {
		return 0, true
	}
	if len(d) > maxOnDetachBytes {
		return 0, false
	}
	after, err := time.ParseDuration(string(d))
	if err != nil || after < MinOnDetach || after > MaxOnDetach {
		return 0, false
	}
	return after, true
}

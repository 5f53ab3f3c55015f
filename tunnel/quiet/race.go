//go:build race

package quiet

// raced is whether the race detector must see what a call reads and writes.
const raced = true

package pattern

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// The lines of a [Flood]: their number in so many digits, a space, words, "\r\n".
const (
	floodDigits = 12
	floodLine   = 80
	floodLines  = 800 // whose words differ; then they come again
	floodPage   = floodLines * floodLine
	floodWords  = floodDigits + 1
)

// MaxFlood bounds [Flood.Bytes].
const MaxFlood = 1 << 40

// A Flood is a stream of numbered lines that costs next to nothing to make and to
// compare, for a source that prints as fast as it is read: what comes again every
// 800 lines differs by its numbers alone.
type Flood struct {
	Seed  uint64
	Bytes int64 // in all
}

var errFlood = errors.New("want: flood SEED BYTES")

// Order returns f as a line for the source, without the line end.
func (f Flood) Order() string { return fmt.Sprintf("flood %d %d", f.Seed, f.Bytes) }

// ParseFlood is the reverse of [Flood.Order].
func ParseFlood(line string) (f Flood, err error) {
	if n, err := fmt.Sscanf(line, "flood %d %d", &f.Seed, &f.Bytes); n != 2 || err != nil {
		return Flood{}, errFlood
	}
	if f.Bytes < 0 || f.Bytes > MaxFlood {
		return Flood{}, fmt.Errorf("a flood of %d bytes is not from 0 to %d", f.Bytes, MaxFlood)
	}
	return f, nil
}

// A FloodReader yields the bytes of a flood, a page after the other. Its zero value
// is not ready.
type FloodReader struct {
	left int64
	next int64 // the number of the next page's first line
	page []byte
}

// Reader returns a reader of f from its beginning on.
func (f Flood) Reader() *FloodReader {
	r := &FloodReader{left: f.Bytes, page: make([]byte, floodPage)}
	random := rand.New(rand.NewPCG(f.Seed, 0))
	for line := range floodLines {
		text := r.page[line*floodLine:][:floodLine]
		text[floodDigits] = ' '
		for i := floodWords; i < floodLine-len("\r\n"); i++ {
			text[i] = letters[random.Uint32()&31]
		}
		copy(text[floodLine-len("\r\n"):], "\r\n")
	}
	return r
}

// Next returns the next bytes, none at the end. They are valid until the next call.
func (r *FloodReader) Next() []byte {
	for at := 0; at < floodPage; at += floodLine {
		for i, n := at+floodDigits-1, r.next; i >= at; i, n = i-1, n/10 {
			r.page[i] = byte('0' + n%10)
		}
		r.next++
	}
	n := min(r.left, floodPage)
	r.left -= n
	return r.page[:n]
}

// A FloodChecker follows what comes of a flood. From the first byte on that is
// another than it should be it counts all as wrong. It is not safe for concurrent use.
type FloodChecker struct {
	flood       Flood
	pages       *FloodReader
	want        []byte // what comes next, of the present page
	right       int64
	wrong       int64
	first, last time.Time // when the first and the last right bytes came
	begun       int64     // how many came first
}

// NewFloodChecker returns a checker of f.
func NewFloodChecker(f Flood) *FloodChecker { return &FloodChecker{flood: f, pages: f.Reader()} }

// Write takes the next bytes that were received.
func (c *FloodChecker) Write(p []byte, at time.Time) {
	for len(p) > 0 && c.wrong == 0 {
		if len(c.want) == 0 {
			if c.want = c.pages.Next(); len(c.want) == 0 {
				break
			}
		}
		n := min(len(p), len(c.want))
		if !bytes.Equal(p[:n], c.want[:n]) {
			break
		}
		if c.right == 0 {
			c.first, c.begun = at, int64(n)
		}
		c.right, c.last = c.right+int64(n), at
		p, c.want = p[n:], c.want[n:]
	}
	c.wrong += int64(len(p))
}

// Done reports whether all has come.
func (c *FloodChecker) Done() bool { return c.right == c.flood.Bytes }

// Lost returns how many bytes have not come as they should.
func (c *FloodChecker) Lost() int64 { return c.flood.Bytes - c.right }

// Wrong returns how many bytes came that should not have.
func (c *FloodChecker) Wrong() int64 { return c.wrong }

// Rate returns how many bytes came per second, from the first ones on; 0 when it
// can't be told.
func (c *FloodChecker) Rate() float64 {
	if !c.last.After(c.first) {
		return 0
	}
	return float64(c.right-c.begun) / c.last.Sub(c.first).Seconds()
}

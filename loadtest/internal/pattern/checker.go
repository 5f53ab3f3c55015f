package pattern

import (
	"bytes"
	"crypto/sha256"
	"hash"
	"slices"
	"time"
)

// A Checker follows what one viewer receives of a stream, cut anywhere. What
// comes before the first chunk (a prompt, a greeting) is none of its business.
// It is not safe for concurrent use; checkers of the same stream share what
// they compute, across goroutines.
type Checker struct {
	// Static after construction.
	shared *stream
	spec   Spec
	on     func(k int, at time.Time)

	// Owned by the caller.
	joined    bool       // pos is known
	lost      bool       // what came last is not what stands at pos
	begin     int64      // the stream was joined here
	pos       int64      // what comes next should be the byte here
	high      int64      // what is before it is accounted for
	unbroken  int64      // all in [unbroken, pos) came in one piece
	called    int        // chunks before it have been reported
	announced int64      // bytes that were announced as skipped while lost
	gone      [][2]int64 // announced parts, rising
	stray     []byte     // what came and has no place yet: its end
	dumped    int64      // how much of it is no longer held
	sum       hash.Hash  // of everything that came in its place; nil without
	report    Report
}

// NewChecker returns a Checker of the stream s, which must be valid. It calls
// on, if that is not nil, with each chunk that has come whole, once and in
// rising order, and with the time given to the Write that completed it.
func NewChecker(s Spec, on func(k int, at time.Time)) *Checker {
	return &Checker{
		shared: shared(s), spec: s, on: on, sum: sha256.New(),
		report: Report{First: -1, Last: -1},
	}
}

// NoSum leaves out the SHA-256, which costs more than all else: every byte is
// compared with the stream as it comes, and no more. It is called before anything
// is written.
func (c *Checker) NoSum() { c.sum = nil }

// Expect says that the first chunk to come should be k: what is missing before
// the one that does come is lost. Without it a Checker begins where the stream
// does for it. It does nothing once a chunk came.
func (c *Checker) Expect(k int) {
	if !c.joined {
		c.join(int64(k) * int64(c.spec.Chunk))
		c.lost = true // a greeting may come before it
	}
}

func (c *Checker) join(o int64) {
	c.joined = true
	c.begin, c.pos, c.high, c.unbroken = o, o, o, o
	c.called = int(o / int64(c.spec.Chunk))
}

// Write takes the next bytes that were received. It keeps nothing of p.
func (c *Checker) Write(p []byte, at time.Time) {
	for len(p) > 0 {
		if !c.joined || c.lost || c.ended() {
			p = c.search(p)
		} else {
			p = c.follow(p, at)
		}
	}
}

// Skip says that of the terminal's output the bytes from offset from to offset
// to will not come, and that what comes next stands behind them.
func (c *Checker) Skip(from, to uint64) {
	if to <= from || !c.joined || c.ended() {
		return
	}
	n := int64(to - from)
	if c.lost {
		c.announced += n
		return
	}
	c.announced = n
	if next := c.pos + n; c.spec.Chunks > 0 && next > c.spec.Size() {
		c.jump(c.spec.Size())
	} else {
		c.jump(next)
	}
}

// ended says that the stream has nothing at pos.
func (c *Checker) ended() bool { return c.spec.Chunks > 0 && c.pos >= c.spec.Size() }

// follow takes from p what stands at pos and returns the rest.
func (c *Checker) follow(p []byte, at time.Time) []byte {
	want := c.shared.at(c.pos)
	n := min(len(p), len(want))
	if !bytes.Equal(p[:n], want[:n]) {
		n, c.lost = 0, true
		for p[n] == want[n] {
			n++
		}
	}
	if n == 0 {
		return p
	}
	c.take(p[:n])
	if n < len(want) {
		return p[n:]
	}
	size := int64(c.spec.Chunk)
	if k := int(c.pos/size) - 1; k >= c.called && c.unbroken <= int64(k)*size {
		c.called = k + 1
		c.report.Chunks++
		if c.on != nil {
			c.on(k, at)
		}
	}
	return p[n:]
}

// take accounts for p, which is what stands at pos.
func (c *Checker) take(p []byte) {
	if len(p) == 0 {
		return
	}
	if c.sum != nil {
		c.sum.Write(p)
	}
	size := int64(c.spec.Chunk)
	if c.report.First < 0 {
		c.report.First = int(c.pos / size)
	}
	c.pos += int64(len(p))
	c.report.Last = max(c.report.Last, int((c.pos-1)/size))
	again := min(max(c.high-(c.pos-int64(len(p))), 0), int64(len(p)))
	c.report.DuplicateBytes += again
	c.report.Bytes += int64(len(p)) - again
	c.high = max(c.high, c.pos)
}

// jump makes the stream go on at offset o. What was neither received nor
// announced before it is lost.
func (c *Checker) jump(o int64) {
	if gap := o - c.high; gap > 0 {
		skipped := min(gap, c.announced)
		c.report.SkippedBytes += skipped
		c.report.LostBytes += gap - skipped
		c.gone = append(c.gone, [2]int64{c.high, o})
		c.high = o
	}
	c.announced = 0
	if o != c.pos {
		c.pos, c.unbroken = o, o
	}
}

// settle goes on at the offset next, the beginning of a chunk or the end of the
// stream, before which the bytes stray came without a place. Their end may be
// that of the chunk before it.
func (c *Checker) settle(next int64, stray []byte) {
	placed := c.suffix(stray, next)
	if c.report.First >= 0 { // else it was a greeting
		c.report.CorruptBytes += int64(len(stray)-placed) + c.dumped
	} else if placed < minTwice || next-int64(placed) < c.pos {
		placed = 0
	}
	c.dumped, c.lost = 0, false
	c.jump(next - int64(placed))
	c.take(stray[len(stray)-placed:])
}

// search looks for the beginning of a chunk in the stray bytes and p. It
// returns what begins with it, or nothing.
func (c *Checker) search(p []byte) []byte {
	c.stray = append(c.stray, p...)
	from := 0
	for {
		i := bytes.IndexByte(c.stray[from:], mark)
		if i < 0 {
			c.forget(len(c.stray))
			return nil
		}
		from += i
		if len(c.stray)-from < syncLen {
			c.forget(from)
			return nil
		}
		if k, ok := c.chunkAt(c.stray[from:]); ok {
			stray := c.stray
			c.stray = nil
			if !c.joined {
				c.join(int64(k) * int64(c.spec.Chunk))
				c.dumped = 0
			} else {
				c.settle(int64(k)*int64(c.spec.Chunk), stray[:from])
			}
			return stray[from:]
		}
		from++
	}
}

// chunkAt returns the number of the chunk that p begins with.
func (c *Checker) chunkAt(p []byte) (int, bool) {
	k := 0
	for _, d := range p[1:header] {
		if d < '0' || d > '9' {
			return 0, false
		}
		k = k*10 + int(d-'0')
	}
	if k >= c.spec.limit() || !bytes.Equal(p[:syncLen], c.shared.chunk(k)[:syncLen]) {
		return 0, false
	}
	return k, true
}

// forget drops of the first n stray bytes, which begin no chunk, those that
// can't be the end of one either.
func (c *Checker) forget(n int) {
	keep := c.spec.Chunk
	if !c.joined {
		keep = 0
	}
	// Now and then, rather than with each byte.
	if drop := n - keep; drop > 0 && (drop >= keep || drop == n) {
		c.stray = slices.Delete(c.stray, 0, drop)
		c.dumped += int64(drop)
	}
}

// suffix returns how many bytes at the end of p are those of the stream before
// offset next.
func (c *Checker) suffix(p []byte, next int64) int {
	n := 0
	for n < len(p) && int64(n) < next && p[len(p)-1-n] == c.shared.at(next - 1 - int64(n))[0] {
		n++
	}
	return n
}

// minTwice is how many bytes at least must come again behind the end to be
// taken for the end's. A line end alone may be a prompt's.
const minTwice = 8

// prefix returns how many bytes at the beginning of p are the last ones of the
// stream before offset end.
func (c *Checker) prefix(p []byte, end int64) int {
	for n := int(min(int64(len(p)), int64(c.spec.Chunk), end)); n >= minTwice; n-- {
		if c.shared.isAt(p[:n], end-int64(n)) {
			return n
		}
	}
	return 0
}

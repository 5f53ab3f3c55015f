package pattern

import "crypto/sha256"

// A Report says what a Checker has seen. Bytes are those of the stream.
type Report struct {
	// Chunks came whole.
	Chunks int `json:"chunks"`
	// Bytes came, each counted once.
	Bytes int64 `json:"bytes"`
	// LostBytes did not come in their place, though later ones did or
	// [Checker.Finish] said that nothing comes any more. Those that come after
	// later ones are duplicates.
	LostBytes int64 `json:"lost_bytes"`
	// SkippedBytes did not come, and that was announced.
	SkippedBytes int64 `json:"skipped_bytes"`
	// DuplicateBytes came once more.
	DuplicateBytes int64 `json:"duplicate_bytes"`
	// CorruptBytes came between those of the stream and are none of it.
	CorruptBytes int64 `json:"corrupt_bytes"`
	// AfterBytes came after the last chunk and are none of the stream, as a
	// shell's prompt is. A source that says nothing then has none.
	AfterBytes int64 `json:"after_bytes"`
	// SumOK says that the SHA-256 of everything that came is that of the same
	// part of the stream, and that nothing of it was lost, doubled or corrupt. It
	// is false where nothing came. Without a sum ([Checker.NoSum]) it says that all
	// that came was compared byte for byte.
	SumOK bool `json:"sum_ok"`
	// First and Last are the first and the last chunk of which something came;
	// -1 if nothing did.
	First int `json:"first"`
	Last  int `json:"last"`
}

// Clean says that every byte came in its place, once and unchanged, or was
// announced as skipped.
func (r Report) Clean() bool {
	return r.LostBytes == 0 && r.DuplicateBytes == 0 && r.CorruptBytes == 0
}

// Done says that the last byte of the stream came or was skipped; never of a
// stream without end.
func (c *Checker) Done() bool { return c.joined && c.ended() }

// Report returns the whole report. Its SumOK is computed from all that the
// viewer should have got, once for all viewers that got the same part.
func (c *Checker) Report() Report {
	r := c.report
	if r.First < 0 || !r.Clean() {
		return r
	}
	if c.sum == nil {
		r.SumOK = true
		return r
	}
	var got, want [sha256.Size]byte
	c.sum.Sum(got[:0])
	if len(c.gone) == 0 {
		want = c.shared.sum(c.begin, c.pos)
	} else {
		h, from := sha256.New(), c.begin
		for _, gone := range c.gone {
			c.shared.hash(h, from, gone[0])
			from = gone[1]
		}
		c.shared.hash(h, from, c.pos)
		h.Sum(want[:0])
	}
	r.SumOK = got == want
	return r
}

// Finish says that nothing comes any more: what is missing up to the stream's
// end is lost. It returns the [Checker.Report]. The Checker can't be used
// afterwards.
func (c *Checker) Finish() Report {
	stray := c.stray
	c.stray = nil
	switch {
	case c.joined && c.ended():
		// A relay that sent the end twice.
		twice := c.prefix(stray, c.pos)
		c.report.DuplicateBytes += int64(twice)
		c.report.AfterBytes += int64(len(stray)-twice) + c.dumped
	case c.spec.Chunks == 0:
		if c.report.First >= 0 {
			c.report.CorruptBytes += int64(len(stray)) + c.dumped
		}
	default:
		if !c.joined {
			c.join(0)
		}
		c.settle(c.spec.Size(), stray)
	}
	c.dumped = 0
	return c.Report()
}

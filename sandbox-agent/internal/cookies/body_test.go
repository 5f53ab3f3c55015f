package cookies

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/fairlead/fairlead/protocol"
)

// TestBodies: they are read whole or not at all, and their room is given back.
func TestBodies(t *testing.T) {
	const limit = 1 << 20
	for name, c := range map[string]struct {
		n, said int64
		kind    protocol.Kind
		ok      bool
	}{
		"none":                {0, 0, 0, true},
		"one of no length":    {0, -1, 0, true},
		"one byte":            {1, 1, 0, true},
		"the first room":      {firstBytes, firstBytes, 0, true},
		"a byte more":         {firstBytes + 1, firstBytes + 1, 0, true},
		"the limit":           {limit, limit, 0, true},
		"the limit, unsaid":   {limit, -1, 0, true},
		"beyond it":           {limit + 1, limit + 1, protocol.KindTooLarge, false},
		"beyond it, unsaid":   {limit + 1, -1, protocol.KindTooLarge, false},
		"cut":                 {limit - 1, limit, protocol.KindInvalid, false},
		"cut at once":         {0, limit, protocol.KindInvalid, false},
		"longer than it says": {10, 5, 0, true},
	} {
		for _, one := range []bool{false, true} {
			text := strings.Repeat("x", int(c.n))
			var r io.Reader = strings.NewReader(text)
			if one {
				r = iotest.HalfReader(iotest.DataErrReader(r))
			}
			b := &budget{total: 4 * limit, each: 2 * limit, under: map[string]int64{}}
			read := body{budget: b, address: "a"}
			err := read.read(r, c.said, limit)
			if (err == nil) != c.ok || err != nil && protocol.KindOf(err) != c.kind {
				t.Errorf("%s: %v", name, err)
			}
			if err == nil && c.said <= c.n && string(read.bytes) != text[:max(c.said, c.n*(1-min(1, c.said+1)))] {
				t.Errorf("%s: %d bytes", name, len(read.bytes))
			}
			if b.used != read.taken || int64(cap(read.bytes)) > max(limit+1, firstBytes) {
				t.Errorf("%s: %d taken, %d in use", name, read.taken, b.used)
			}
			if c.said == limit && c.n == 0 && read.taken > firstBytes {
				t.Errorf("%s: room for %d bytes", name, read.taken)
			}
			read.release()
			if b.used != 0 || len(b.under) != 0 {
				t.Errorf("%s: %d is still in use", name, b.used)
			}
		}
	}
	broken := body{budget: &budget{total: limit, each: limit, under: map[string]int64{}}, address: "a"}
	if err := broken.read(io.MultiReader(bytes.NewReader(make([]byte, 10)), iotest.ErrReader(io.ErrUnexpectedEOF)), -1, limit); protocol.KindOf(err) != protocol.KindInvalid {
		t.Error(err)
	}
}

// TestBudget: bodies for one address leave room for those for others.
func TestBudget(t *testing.T) {
	b := &budget{total: 3, each: 2, under: map[string]int64{}}
	must(t, b.take("a", 2))
	if err := b.take("a", 1); protocol.KindOf(err) != protocol.KindTooMany {
		t.Error(err)
	}
	must(t, b.take("b", 1))
	if err := b.take("c", 1); protocol.KindOf(err) != protocol.KindTooMany {
		t.Error(err)
	}
	b.give("a", 2)
	must(t, b.take("c", 1))
}

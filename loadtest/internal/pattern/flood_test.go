package pattern

import (
	"bytes"
	"testing"
	"time"
)

// all returns the bytes of a flood.
func (f Flood) all() (all []byte) {
	r := f.Reader()
	for p := r.Next(); len(p) > 0; p = r.Next() {
		all = append(all, p...)
	}
	return all
}

// A flood has as many bytes as it should, and no line twice.
func TestFlood(t *testing.T) {
	f := Flood{Seed: 7, Bytes: 3*floodPage + 1000}
	all := f.all()
	if int64(len(all)) != f.Bytes {
		t.Fatalf("%d bytes", len(all))
	}
	seen := make(map[string]bool)
	for line := range bytes.Lines(all) {
		if len(line) == floodLine && seen[string(line)] {
			t.Fatalf("%q comes twice", line)
		}
		seen[string(line)] = true
	}
	if bytes.Equal(all, Flood{8, f.Bytes}.all()) {
		t.Error("the seed doesn't matter")
	}
}

func TestFloodOrder(t *testing.T) {
	f := Flood{Seed: 1 << 60, Bytes: 12345}
	if got, err := ParseFlood(f.Order()); got != f || err != nil {
		t.Errorf("%+v %v", got, err)
	}
	for _, bad := range []string{"flood", "flood 1", "flood x 1", "flood 1 -1", "flood 1 99999999999999999", "go 1 2"} {
		if got, err := ParseFlood(bad); err == nil {
			t.Errorf("%q: %+v", bad, got)
		}
	}
}

// However the bytes are cut, a checker tells what is lost, doubled or changed.
func TestFloodChecker(t *testing.T) {
	f := Flood{Seed: 3, Bytes: 2*floodPage + 77}
	all := f.all()
	start := time.Unix(1000, 0)
	check := func(p []byte, cut int) *FloodChecker {
		c := NewFloodChecker(f)
		for at := start; len(p) > 0; at = at.Add(time.Second) {
			n := min(cut, len(p))
			c.Write(p[:n], at)
			p = p[n:]
		}
		return c
	}
	for _, cut := range []int{1000, 4095, len(all)} {
		c := check(all, cut)
		if !c.Done() || c.Lost() != 0 || c.Wrong() != 0 {
			t.Errorf("by %d: %d lost, %d wrong", cut, c.Lost(), c.Wrong())
		}
		if rate := c.Rate(); cut == 1000 && (rate < 990 || rate > 1000) || cut == len(all) && rate != 0 {
			t.Errorf("by %d: %v a second", cut, rate)
		}
	}
	without := append(bytes.Clone(all[:5000]), all[5000+floodPage:]...) // exactly a page
	twice := append(bytes.Clone(all[:5000+floodPage]), all[5000:]...)
	changed := bytes.Clone(all)
	changed[9000] ^= 1
	for name, p := range map[string][]byte{"lost": without, "doubled": twice, "changed": changed, "longer": append(bytes.Clone(all), 'x'), "cut off": all[:len(all)-1]} {
		c := check(p, 4095)
		if c.Lost() == 0 && c.Wrong() == 0 {
			t.Errorf("%s: nothing is noticed", name)
		}
	}
}

// BenchmarkFlood makes a flood and compares it with itself.
func BenchmarkFlood(b *testing.B) {
	f := Flood{Seed: 1, Bytes: MaxFlood}
	r, c := f.Reader(), NewFloodChecker(f)
	b.SetBytes(floodPage)
	for b.Loop() {
		c.Write(r.Next(), time.Time{})
	}
}

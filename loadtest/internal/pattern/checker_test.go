package pattern

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var epoch = time.UnixMicro(1_700_000_000_000_000)

// feed writes p in pieces of at most most bytes.
func feed(c *Checker, r *rand.Rand, p []byte, most int) {
	for len(p) > 0 {
		n := min(1+r.IntN(most), len(p))
		c.Write(p[:n], epoch)
		p = p[n:]
	}
}

func TestCleanStreamCutAnywhere(t *testing.T) {
	s := Spec{Seed: 4, Chunk: 97, Chunks: 300}
	for most := range 12 {
		r := rand.New(rand.NewPCG(1, uint64(most)))
		var got []int
		c := NewChecker(s, func(k int, at time.Time) {
			if !at.Equal(epoch) {
				t.Fatalf("chunk %d came at %v", k, at)
			}
			got = append(got, k)
		})
		feed(c, r, []byte("user@host ~ % source\r\n~00000000 ready\r\n"), 3)
		feed(c, r, text(s), 1<<most)
		if !c.Done() {
			t.Fatal("not done")
		}
		want := Report{Chunks: 300, Bytes: s.Size(), SumOK: true, First: 0, Last: 299}
		if report := c.Finish(); report != want {
			t.Fatalf("pieces up to %d: %+v, want %+v", 1<<most, report, want)
		}
		if len(got) != 300 || !slices.IsSorted(got) {
			t.Fatalf("called with %v", got)
		}
	}
}

func TestLateJoinBeginsAtTheFirstWholeChunk(t *testing.T) {
	s := Spec{Seed: 4, Chunk: 97, Chunks: 30}
	c := NewChecker(s, nil)
	c.Write(text(s)[97*10+50:], epoch)
	want := Report{Chunks: 19, Bytes: 19 * 97, SumOK: true, First: 11, Last: 29}
	if got := c.Finish(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestExpectedBeginningIsLost(t *testing.T) {
	s := Spec{Seed: 4, Chunk: 97, Chunks: 30}
	for _, expected := range []int{0, 5} {
		c := NewChecker(s, nil)
		c.Expect(expected)
		c.Write([]byte("ready\r\n"), epoch)
		c.Write(text(s)[97*7:], epoch)
		want := Report{Chunks: 23, Bytes: 23 * 97, LostBytes: int64(7-expected) * 97, First: 7, Last: 29}
		if got := c.Finish(); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

func TestNothingCame(t *testing.T) {
	s := Spec{Seed: 4, Chunk: 97, Chunks: 30}
	c := NewChecker(s, nil)
	c.Write([]byte("ready\r\n"), epoch)
	want := Report{LostBytes: s.Size(), First: -1, Last: -1}
	if got := c.Finish(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// A mutation is what a bad relay may do with [from, to) of the stream.
type mutation int

const (
	passed mutation = iota
	dropped
	announced
	doubled
	changed
	inserted
)

// TestEveryFaultIsCounted gives a Checker streams in which parts are missing,
// announced as skipped, doubled, changed and added, and knows how many.
func TestEveryFaultIsCounted(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for round := range 150 {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		if err := faulty(r); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
}

func faulty(r *rand.Rand) error {
	s := Spec{Seed: r.Uint64(), Chunk: MinChunk + r.IntN(100), Chunks: 60 + r.IntN(60)}
	all, most := text(s), 1<<r.IntN(12)
	c := NewChecker(s, nil)
	want := Report{First: 0, Last: s.Chunks - 1}
	var history string
	c.Write(all[:s.Chunk], epoch) // the beginning is clean, or it would be a greeting
	at := s.Chunk
	for at < len(all) {
		// What follows a fault is clean for two chunks, so that it can be told
		// where things stand.
		n := min(2*s.Chunk+r.IntN(4*s.Chunk), len(all)-at)
		feed(c, r, all[at:at+n], most)
		if at += n; len(all)-at < 4*s.Chunk {
			feed(c, r, all[at:], most)
			break
		}
		n = 1 + r.IntN(3*s.Chunk)
		what := mutation(r.IntN(6))
		history += fmt.Sprintf(" %d:%d@%d", what, n, at)
		switch what {
		case passed:
			feed(c, r, all[at:at+n], most)
			at += n
		case dropped:
			want.LostBytes += int64(n)
			at += n
		case announced:
			c.Skip(uint64(at), uint64(at+n))
			want.SkippedBytes += int64(n)
			at += n
		case doubled:
			n = min(n, at)
			want.DuplicateBytes += int64(n)
			feed(c, r, all[at-n:at], most)
		case changed:
			n = 1 + r.IntN(5)
			feed(c, r, bytes.Repeat([]byte("#"), n), most)
			want.LostBytes += int64(n)
			want.CorruptBytes += int64(n)
			at += n
		case inserted:
			feed(c, r, bytes.Repeat([]byte("#"), n), most)
			want.CorruptBytes += int64(n)
		}
	}
	want.Bytes = s.Size() - want.LostBytes - want.SkippedBytes
	want.SumOK = want.Clean()
	got := c.Finish()
	got.Chunks = 0 // depends on where the parts end
	if got != want {
		return fmt.Errorf("%+v\ngot  %+v\nwant %+v\nafter%s", s, got, want, history)
	}
	return nil
}

func TestEndOfTheStream(t *testing.T) {
	s := Spec{Seed: 4, Chunk: 97, Chunks: 30}
	all := text(s)
	for _, c := range []struct {
		name string
		sent []byte
		want Report
	}{
		{"cut", all[:len(all)-10], Report{Chunks: 29, Bytes: s.Size() - 10, LostBytes: 10, Last: 29}},
		{"a hole, then the end", slices.Concat(all[:97*29+20], all[97*29+30:]), Report{Chunks: 29, Bytes: s.Size() - 10, LostBytes: 10, Last: 29}},
		{"its end again", append(bytes.Clone(all), all[len(all)-60:]...), Report{Chunks: 30, Bytes: s.Size(), DuplicateBytes: 60, Last: 29}},
		{"its last chunks again", append(bytes.Clone(all), all[len(all)-250:]...), Report{Chunks: 30, Bytes: s.Size(), DuplicateBytes: 250, Last: 29}},
		{"a prompt", append(bytes.Clone(all), "\r\n~/work $ "...), Report{Chunks: 30, Bytes: s.Size(), AfterBytes: 11, SumOK: true, Last: 29}},
	} {
		checker := NewChecker(s, nil)
		checker.Write(c.sent, epoch)
		if got := checker.Finish(); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

// A stream that was cut for one chunk is told from one that was delivered: the
// chunk that was cut is not reported as arrived.
func TestCutChunkIsNotReported(t *testing.T) {
	s := Spec{Seed: 4, Chunk: 97, Chunks: 10}
	all := text(s)
	var got []int
	c := NewChecker(s, func(k int, _ time.Time) { got = append(got, k) })
	c.Write(all[:97*3+10], epoch)
	c.Skip(97*3+10, 97*3+12)
	c.Write(all[97*3+12:97*6+1], epoch)
	c.Write(all[97*6+2:], epoch)
	if want := []int{0, 1, 2, 4, 5, 7, 8, 9}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A Checker never needs more than a chunk of what it can't place.
func TestStrayBytesAreBounded(t *testing.T) {
	s := Spec{Seed: 4, Chunk: 97, Chunks: 10}
	for _, c := range []*Checker{NewChecker(s, nil), NewChecker(s, nil), NewChecker(s, nil)} {
		c.Write(text(s)[:97], epoch)
		for range 1000 {
			c.Write([]byte("~0000000001 nothing ~~~~ of the kind"), epoch)
		}
		if len(c.stray) > 4*s.Chunk {
			t.Errorf("holds %d bytes", len(c.stray))
		}
	}
}

func FuzzChecker(f *testing.F) {
	s := Spec{Seed: 1, Chunk: 64, Chunks: 8}
	f.Add(text(s), uint16(3))
	f.Add(append([]byte("~~0000000001"), text(s)[100:]...), uint16(64))
	f.Fuzz(func(t *testing.T, p []byte, cut uint16) {
		n := min(int(cut), len(p))
		c := NewChecker(s, nil)
		c.Write(p[:n], epoch)
		c.Skip(5, 5+uint64(cut%512))
		c.Write(p[n:], epoch)
		r := c.Finish()
		if r.Bytes < 0 || r.LostBytes < 0 || r.SkippedBytes < 0 || r.CorruptBytes < 0 || r.Bytes+r.LostBytes+r.SkippedBytes > s.Size() {
			t.Fatalf("%+v of %q", r, p)
		}
	})
}

// BenchmarkChecker is what one viewer's check costs, with many viewers of the
// same stream.
func BenchmarkChecker(b *testing.B) {
	for _, size := range []int{64, 256, 4096} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := Spec{Seed: 1, Chunk: size}
			viewers := make([]*Checker, 100)
			for i := range viewers {
				viewers[i] = NewChecker(s, nil)
			}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for k := range b.N {
				p := viewers[0].shared.chunk(k / len(viewers))
				viewers[k%len(viewers)].Write(p, epoch)
			}
		})
	}
}

// Without a sum all but the sum is said as with it.
func TestNoSumSeesTheSame(t *testing.T) {
	s := Spec{Seed: 4, Chunk: 100, Chunks: 6}
	all := text(s)
	for name, came := range map[string][]byte{
		"everything":            all,
		"nothing":               nil,
		"a byte is missing":     append(bytes.Clone(all[:250]), all[251:]...),
		"a byte is another":     append(append(bytes.Clone(all[:250]), 'X'), all[251:]...),
		"two bytes are swapped": append(append(bytes.Clone(all[:250]), all[251], all[250]), all[252:]...),
		"a chunk is doubled":    append(bytes.Clone(all[:300]), all[200:]...),
		"the end is missing":    all[:450],
	} {
		full, quick := NewChecker(s, nil), NewChecker(s, nil)
		quick.NoSum()
		var got [2]Report
		for i, c := range []*Checker{full, quick} {
			c.Expect(0)
			for p := came; len(p) > 0; { // cut anywhere
				n := min(len(p), 37)
				c.Write(p[:n], time.Time{})
				p = p[n:]
			}
			got[i] = c.Finish()
		}
		if got[0] != got[1] {
			t.Errorf("%s: %+v with a sum, %+v without", name, got[0], got[1])
		}
	}
}

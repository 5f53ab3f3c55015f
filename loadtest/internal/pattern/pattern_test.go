package pattern

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func text(s Spec) []byte {
	var p []byte
	for k := range s.Chunks {
		p = s.Append(p, k)
	}
	return p
}

func TestChunksAreNumberedPrintableLines(t *testing.T) {
	for _, size := range []int{MinChunk, 65, 71, 256, 5000} {
		s := Spec{Seed: 7, Chunk: size, Chunks: 50}
		for k := range s.Chunks {
			p := s.Append(nil, k)
			if len(p) != size {
				t.Fatalf("chunk %d has %d bytes, want %d", k, len(p), size)
			}
			if !bytes.HasSuffix(p, []byte("\r\n")) || bytes.LastIndexByte(p, mark) != 0 {
				t.Fatalf("chunk %d is %q", k, p)
			}
			for _, b := range p[:size-2] {
				if b < ' ' || b > '~' {
					t.Fatalf("chunk %d holds %q", k, b)
				}
			}
			if k > 0 && bytes.Equal(p[header:], s.Append(nil, k-1)[header:]) {
				t.Fatalf("chunk %d is the one before", k)
			}
		}
	}
}

// The bytes are part of what programs of different versions agree on.
func TestChunkIsTheSameEverywhere(t *testing.T) {
	got := string(Spec{Seed: 1, Chunk: 64}.Append(nil, 42))
	const want = "~0000000042"
	if !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want it to begin with %q", got, want)
	}
	if other := string(Spec{Seed: 2, Chunk: 64}.Append(nil, 42)); other == got {
		t.Error("another seed makes the same chunk")
	}
	if sum := sha256.Sum256(text(Spec{Seed: 1, Chunk: 64, Chunks: 100})); sum != (Spec{Seed: 1, Chunk: 64, Chunks: 100}).Sum() {
		t.Error("the sum is not that of the text")
	}
}

func TestSumGrowsFromShorterOnes(t *testing.T) {
	follower := NewChecker(Spec{Seed: 9, Chunk: 100}, nil) // keeps what is memoised
	for _, n := range []int{0, 3, 3, 50, 7} {
		s := Spec{Seed: 9, Chunk: 100, Chunks: n}
		if got, want := s.Sum(), sha256.Sum256(text(s)); got != want {
			t.Errorf("the sum of %d chunks is %x, want %x", n, got, want)
		}
	}
	if follower.shared.hashed != 5000 {
		t.Errorf("hashed %d bytes, want 5000 kept", follower.shared.hashed)
	}
}

func TestDueIsOpenLoop(t *testing.T) {
	start := time.UnixMicro(1_700_000_000_000_000)
	s := Spec{Chunk: 64, Rate: 20, Burst: 5, Start: start, Chunks: 1000}
	for _, c := range []struct {
		k    int
		want time.Duration
	}{{0, 0}, {4, 0}, {5, 250 * time.Millisecond}, {9, 250 * time.Millisecond}, {10, 500 * time.Millisecond}} {
		if got := s.Due(c.k).Sub(start); got != c.want {
			t.Errorf("chunk %d is due after %v, want %v", c.k, got, c.want)
		}
	}
	if end, ok := s.End(); !ok || end.Sub(start) != 995*time.Second/20 {
		t.Errorf("the end is due after %v, %v", end.Sub(start), ok)
	}
	for _, s := range []Spec{{Chunk: 64, Start: start, Chunks: 5}, {Chunk: 64, Rate: 1, Start: start}} {
		if _, ok := s.End(); ok || s.Rate == 0 && s.Due(3) != start {
			t.Errorf("%+v has an end", s)
		}
	}
}

func TestOrderRoundTrips(t *testing.T) {
	for _, s := range []Spec{
		{Seed: 1<<64 - 1, Chunk: 64, Rate: 0.1, Burst: 1, Start: time.UnixMicro(1_700_000_000_123_456), Chunks: 5},
		{Seed: 0, Chunk: MaxChunk, Burst: 9, Start: time.UnixMicro(0), Chunks: 0},
	} {
		got, err := ParseOrder(s.Order() + "\r")
		if err != nil || got != s {
			t.Errorf("%q is %+v, %v; want %+v", s.Order(), got, err, s)
		}
		p, err := json.Marshal(s)
		var again Spec
		if err != nil || json.Unmarshal(p, &again) != nil || !again.Start.Equal(s.Start) || again.Seed != s.Seed {
			t.Errorf("JSON %s is %+v, %v", p, again, err)
		}
	}
	for _, bad := range []string{
		"", "go", "stop 1 64 1 1 0 1", "go 1 63 1 1 0 1", "go 1 64 -1 1 0 1", "go 1 64 NaN 1 0 1",
		"go 1 64 1 1 0 99999999999", "go 1 64 1 -1 0 1", "go x 64 1 1 0 1", "go 1 64 1 1 0 1 2",
	} {
		if s, err := ParseOrder(bad); err == nil {
			t.Errorf("%q is %+v", bad, s)
		}
	}
}

func FuzzParseOrder(f *testing.F) {
	f.Add(Spec{Seed: 3, Chunk: 64, Rate: 1e-3, Chunks: 2}.Order())
	f.Add("go 1 64 1e308 1 0 1")
	f.Fuzz(func(t *testing.T, line string) {
		s, err := ParseOrder(line)
		if err != nil {
			return
		}
		if again, err := ParseOrder(s.Order()); err != nil || again.Order() != s.Order() {
			t.Fatalf("%q is %+v, and that %+v, %v", line, s, again, err)
		}
		if n := len(s.Append(nil, 0)); n != s.Chunk {
			t.Fatalf("%q: a chunk has %d bytes", line, n)
		}
	})
}

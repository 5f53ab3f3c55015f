package source

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

func TestStream(t *testing.T) {
	const pages = 3*templates + 2
	s, again := New(7), New(7)
	var whole []byte
	for i := range uint64(pages) {
		p := s.From(i * PageBytes)
		if len(p) != PageBytes || !bytes.HasPrefix(p, []byte("\x1bc")) {
			t.Fatalf("page %d of %d bytes begins with %q", i, len(p), p[:8])
		}
		whole = append(whole, p...)
	}
	if !bytes.Equal(again.Range(0, uint64(len(whole))), whole) {
		t.Fatal("the same seed makes another output")
	}
	if New(8).Mismatch(0, whole[:PageBytes]) < 0 {
		t.Error("another seed makes the same output")
	}
	for i := range pages - templates {
		if bytes.Equal(whole[i*PageBytes:][:PageBytes], whole[(i+templates)*PageBytes:][:PageBytes]) {
			t.Errorf("page %d comes again", i)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		from := rng.Uint64N(uint64(len(whole)))
		to := from + rng.Uint64N(min(3*PageBytes, uint64(len(whole))-from)+1)
		part := bytes.Clone(whole[from:to])
		if got := s.Range(from, to); !bytes.Equal(got, part) {
			t.Fatalf("[%d, %d) differs", from, to)
		}
		if s.Digest(from, to) != sha256.Sum256(part) {
			t.Fatalf("digest of [%d, %d) differs", from, to)
		}
		if i := s.Mismatch(from, part); i != -1 {
			t.Fatalf("mismatch at %d", i)
		}
		if len(part) > 0 {
			at := rng.IntN(len(part))
			part[at] ^= 1
			if i := s.Mismatch(from, part); i != at {
				t.Fatalf("mismatch at %d, want %d", i, at)
			}
		}
	}
}

func TestPrint(t *testing.T) {
	near, far := net.Pipe()
	s := New(3)
	var out bytes.Buffer
	ended := make(chan error)
	go func() { ended <- s.Print(&out, far) }()
	replies := bufio.NewReader(near)
	ask := func(orders string, want uint64) {
		t.Helper()
		if _, err := near.Write([]byte(orders)); err != nil {
			t.Fatal(err)
		}
		var at uint64
		if _, err := fmt.Fscanf(replies, "at %d\n", &at); err != nil || at != want {
			t.Fatalf("after %q it is at %d, want %d: %v", orders, at, want, err)
		}
		if uint64(out.Len()) != want || s.Mismatch(0, out.Bytes()) >= 0 {
			t.Fatalf("after %q: %d bytes, or other ones", orders, out.Len())
		}
	}
	ask("stop\n", 0)
	ask("burst 100000\nstop\n", 100_000)
	ask("finish\n", 2*PageBytes)
	ask("finish\n", 2*PageBytes)
	near.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func BenchmarkMismatch(b *testing.B) {
	s := New(1)
	p := s.Range(0, 1<<20)
	b.SetBytes(1 << 20)
	for b.Loop() {
		s.Mismatch(0, p)
	}
}

// Package source is a terminal program whose output anyone can compute: pages
// of text and control sequences, any part of them by its offset.
package source

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
)

// PageBytes is the length of every page. A page begins with a full reset of
// the terminal, and no character or sequence crosses its end, so what a screen
// shows depends on its own page and, for the title, the one before.
const PageBytes = 64 << 10

const (
	// templates is how many pages differ in more than their numbers.
	templates = 16
	// cached is how many numbered pages are kept: readers of one terminal are
	// close together.
	cached = 128
)

// A Stream is an endless output. It is safe for concurrent use.
type Stream struct {
	templates [templates]template // static after construction
	pages     [cached]atomic.Pointer[page]
}

// A template is a page without its number.
type template struct {
	bytes  []byte
	stamps []int // where the number goes
}

type page struct {
	number uint64
	bytes  []byte
}

// New returns the output that seed stands for.
func New(seed uint64) *Stream {
	s := &Stream{}
	for i := range s.templates {
		s.templates[i] = newTemplate(rand.New(rand.NewPCG(seed, uint64(i))))
	}
	return s
}

// page returns the page of a number. The bytes are shared.
func (s *Stream) page(number uint64) []byte {
	slot := &s.pages[number%cached]
	if p := slot.Load(); p != nil && p.number == number {
		return p.bytes
	}
	from := s.templates[number%templates]
	p := &page{number, bytes.Clone(from.bytes)}
	stamp := fmt.Sprintf(stampFormat, number)
	for _, at := range from.stamps {
		copy(p.bytes[at:], stamp)
	}
	slot.Store(p)
	return p.bytes
}

// From returns the output from offset to the end of its page. The bytes are
// shared: they must not be written to.
func (s *Stream) From(offset uint64) []byte {
	return s.page(offset / PageBytes)[offset%PageBytes:]
}

// Range returns a copy of the output in [from, to).
func (s *Stream) Range(from, to uint64) []byte {
	out := make([]byte, 0, to-from)
	for from < to {
		p := s.From(from)
		p = p[:min(uint64(len(p)), to-from)]
		out = append(out, p...)
		from += uint64(len(p))
	}
	return out
}

// Mismatch returns the index of the first byte of p that isn't the output at
// offset and after, or −1.
func (s *Stream) Mismatch(offset uint64, p []byte) int {
	for done := 0; done < len(p); {
		want := s.From(offset + uint64(done))
		n := min(len(want), len(p)-done)
		if !bytes.Equal(want[:n], p[done:done+n]) {
			for i := range n {
				if want[i] != p[done+i] {
					return done + i
				}
			}
		}
		done += n
	}
	return -1
}

// Digest returns the SHA-256 of the output in [from, to).
func (s *Stream) Digest(from, to uint64) [sha256.Size]byte {
	sum := sha256.New()
	for from < to {
		p := s.From(from)
		p = p[:min(uint64(len(p)), to-from)]
		sum.Write(p)
		from += uint64(len(p))
	}
	return [sha256.Size]byte(sum.Sum(nil))
}

// PageStart returns where the page of offset begins.
func PageStart(offset uint64) uint64 { return offset - offset%PageBytes }

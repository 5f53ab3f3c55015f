package pattern

import (
	"bytes"
	"crypto/sha256"
	"hash"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"weak"
)

const (
	// cacheBytes bounds the chunks of one stream that are kept computed.
	cacheBytes = 1 << 20
	// maxCached bounds their number.
	maxCached = 1024
	// maxSums bounds the hashes of parts of a stream that are kept.
	maxSums = 256
)

// key is what the bytes of a stream depend on.
type key struct {
	seed  uint64
	chunk int
}

// A stream holds what all that follow the same one compute together. It is safe
// for concurrent use.
type stream struct {
	// Static after construction.
	spec  Spec
	slots []atomic.Pointer[computed] // chunk k in k%len

	mu sync.Mutex
	// Guarded by mu.
	prefix hash.Hash // of the first hashed bytes
	hashed int64
	sums   map[[2]int64][sha256.Size]byte // by [from, to)
}

// computed is one chunk, never changed.
type computed struct {
	k    int
	text []byte
}

// streams are those that somebody follows. An entry goes when its stream does.
var streams = struct {
	mu sync.Mutex
	by map[key]weak.Pointer[stream]
}{by: make(map[key]weak.Pointer[stream])}

// shared returns the stream of s, the same one to everybody who asks while it
// is in use.
func shared(s Spec) *stream {
	k := key{s.Seed, s.Chunk}
	streams.mu.Lock()
	defer streams.mu.Unlock()
	if known := streams.by[k].Value(); known != nil {
		return known
	}
	made := &stream{
		spec:   Spec{Seed: s.Seed, Chunk: s.Chunk},
		slots:  make([]atomic.Pointer[computed], min(max(cacheBytes/s.Chunk, 4), maxCached)),
		prefix: sha256.New(),
		sums:   make(map[[2]int64][sha256.Size]byte),
	}
	held := weak.Make(made)
	streams.by[k] = held
	runtime.AddCleanup(made, func(k key) {
		streams.mu.Lock()
		defer streams.mu.Unlock()
		if streams.by[k] == held {
			delete(streams.by, k)
		}
	}, k)
	return made
}

// chunk returns chunk k, which must not be changed.
func (s *stream) chunk(k int) []byte {
	slot := &s.slots[k%len(s.slots)]
	if have := slot.Load(); have != nil && have.k == k {
		return have.text
	}
	made := &computed{k: k, text: s.spec.Append(make([]byte, 0, s.spec.Chunk), k)}
	slot.Store(made)
	return made.text
}

// at returns the bytes of the stream from offset o to the end of its chunk.
func (s *stream) at(o int64) []byte {
	size := int64(s.spec.Chunk)
	return s.chunk(int(o / size))[o%size:]
}

// isAt says whether the stream has the bytes p at offset o.
func (s *stream) isAt(p []byte, o int64) bool {
	for len(p) > 0 {
		want := s.at(o)
		n := min(len(p), len(want))
		if !bytes.Equal(p[:n], want[:n]) {
			return false
		}
		p, o = p[n:], o+int64(n)
	}
	return true
}

// sum returns the SHA-256 of the bytes [from, to).
func (s *stream) sum(from, to int64) [sha256.Size]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	part := [2]int64{from, to}
	if known, ok := s.sums[part]; ok {
		return known
	}
	var sum [sha256.Size]byte
	if from == 0 && to >= s.hashed {
		s.hash(s.prefix, s.hashed, to)
		s.hashed = to
		s.prefix.Sum(sum[:0])
	} else {
		h := sha256.New()
		s.hash(h, from, to)
		h.Sum(sum[:0])
	}
	if len(s.sums) >= maxSums {
		clear(s.sums)
	}
	s.sums[part] = sum
	return sum
}

// hash adds the bytes [from, to) to h. It leaves the cache to those who follow
// the stream where it is now.
func (s *stream) hash(h hash.Hash, from, to int64) {
	size := int64(s.spec.Chunk)
	var text []byte
	for from < to {
		k := from / size
		text = s.spec.Append(text[:0], int(k))
		part := text[from-k*size : min(to-k*size, size)]
		h.Write(part)
		from += int64(len(part))
	}
}

// Sum returns the SHA-256 of the whole stream. It is computed once, and for
// one of which a shorter one was computed before only the rest is. A stream
// without end has the sum of nothing.
func (s Spec) Sum() [sha256.Size]byte {
	return shared(s).sum(0, s.Size())
}

// Noise returns n bytes that don't compress, the same ones for the same seed.
func Noise(seed uint64, n int) []byte {
	random := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24)})
	b := make([]byte, n)
	_, _ = random.Read(b) // never fails
	return b
}

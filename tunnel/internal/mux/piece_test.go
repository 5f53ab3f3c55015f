package mux

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// TestPiecing: frames grow while they are taken at once, and shrink where others
// would have to wait for them.
func TestPiecing(t *testing.T) {
	const fast, slow = pieceTime / 10, 2 * pieceTime
	for _, c := range []struct {
		name string
		bulk bool
		took []time.Duration // by frames of the full size
		want int
	}{
		{"at first", true, nil, minPiece},
		{"fast", true, []time.Duration{fast, fast, fast, fast, fast}, maxPiece},
		{"neither", true, []time.Duration{fast, pieceTime * 3 / 4}, 2 * minPiece},
		{"slow again", true, []time.Duration{fast, fast, slow, slow, slow}, minPiece},
		{"not for bulk", false, []time.Duration{fast, fast}, minPiece},
	} {
		p := newPiecing()
		p.bulk = c.bulk
		for _, d := range c.took {
			p.took(p.size, d)
			p.took(p.size-1, 0) // a short one says nothing
		}
		if p.size != c.want {
			t.Errorf("%s: %d bytes, want %d", c.name, p.size, c.want)
		}
	}
}

// A ruler notes the longest data frame that is written.
type ruler struct {
	net.Conn
	mu      sync.Mutex
	longest uint32 // guarded by mu
	rest    int    // of the frame's body; guarded by mu
}

func (r *ruler) Write(p []byte) (int, error) {
	r.mu.Lock()
	if r.rest == 0 && len(p) >= headerBytes && p[1] == typeData {
		length := binary.BigEndian.Uint32(p[8:])
		r.longest = max(r.longest, length)
		r.rest = int(length) + headerBytes
	}
	r.rest = max(0, r.rest-len(p))
	r.mu.Unlock()
	return r.Conn.Write(p)
}

// TestBulkFrames: a stream for bulk is written in larger frames, any other isn't, and
// all of it arrives.
func TestBulkFrames(t *testing.T) {
	const size = 8 << 20
	for _, bulk := range []bool{false, true} {
		near, far := net.Pipe()
		r := &ruler{Conn: far}
		client, err := Client(near)
		must(t, err)
		server, err := Server(r)
		must(t, err)
		reads, writes := streams(t, client, server)
		if bulk {
			writes.SetBulk()
		}
		go func() { // ends with the session
			writes.Write(make([]byte, size))
			writes.CloseWrite()
		}()
		if n, err := io.Copy(io.Discard, reads); n != size || err != nil {
			t.Errorf("bulk %t: %d bytes, %v", bulk, n, err)
		}
		r.mu.Lock()
		if longest := r.longest; bulk != (longest > minPiece) || longest > maxPiece {
			t.Errorf("bulk %t: a frame of %d bytes", bulk, longest)
		}
		r.mu.Unlock()
		client.Close()
		server.Close()
	}
}

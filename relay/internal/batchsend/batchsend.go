// Package batchsend sends to many sockets at once, without waiting for any: by
// io_uring, with one system call for all of them, or, where the kernel refuses
// that, with one for each.
package batchsend

import (
	"log/slog"
	"runtime"
	"sync"

	"github.com/fairlead/fairlead/tunnel/quiet"
)

const (
	// fewest is the least number of pieces for which a ring is worth its call.
	fewest = 4
	// longest bounds a piece that a ring sends, in bytes. With longer ones the
	// copying counts, not the calls.
	longest = 16 << 10
)

// Options say how a Sender works.
type Options struct {
	// Direct has it make a call for each socket, as where there is no io_uring.
	Direct bool
	// Calls counts the system calls that were made; nil: nobody does.
	Calls Counter
	// Log is told when there is no ring any more; nil: nobody is. The sender goes on
	// without.
	Log *slog.Logger
}

// A Counter counts. One of Prometheus is.
type Counter interface{ Add(float64) }

type nobody struct{}

func (nobody) Add(float64) {}

// A Sender sends batches. It is safe for concurrent use.
type Sender struct {
	// Static after construction.
	log   *slog.Logger
	calls Counter

	mu sync.Mutex
	// Guarded by mu.
	idle   []*ring
	made   int  // rings that exist
	direct bool // no rings
}

// New returns a Sender. It makes rings as they are needed, at most one for each
// processor.
func New(o Options) *Sender {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Calls == nil {
		o.Calls = nobody{}
	}
	return &Sender{direct: o.Direct, log: o.Log, calls: o.Calls}
}

// Close gives the rings back that aren't in use. A later Send makes a call for
// each socket.
func (s *Sender) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.direct = true
	for _, r := range s.idle {
		r.close()
	}
	s.made -= len(s.idle)
	s.idle = nil
}

// Rings returns how many rings there are.
func (s *Sender) Rings() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made
}

// Send sends each piece to its socket, none of it twice, and says in the pieces what
// came of it.
func (s *Sender) Send(pieces []Piece) {
	for len(pieces) > Most {
		s.send(pieces[:Most])
		pieces = pieces[Most:]
		quiet.Yield() // somebody's key may wait
	}
	s.send(pieces)
}

func (s *Sender) send(pieces []Piece) {
	calls := 0
	if r := s.take(pieces); r != nil {
		left, err := r.send(pieces)
		calls = r.calls
		s.give(r, err)
		pieces = left
	}
	for i := range pieces {
		sendOne(&pieces[i])
	}
	s.calls.Add(float64(calls + len(pieces)))
}

// take returns an idle ring that is good for pieces; nil: there is none.
func (s *Sender) take(pieces []Piece) *ring {
	if len(pieces) < fewest {
		return nil
	}
	for i := range pieces {
		if len(pieces[i].Bytes) > longest {
			return nil
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.idle); n > 0 {
		r := s.idle[n-1]
		s.idle = s.idle[:n-1]
		return r
	}
	if s.direct || s.made >= runtime.GOMAXPROCS(0) {
		return nil
	}
	r, err := newRing()
	if err != nil {
		s.lose(err)
		return nil
	}
	s.made++
	return r
}

// give takes a ring back, unless it is of no more use.
func (s *Sender) give(r *ring, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && !s.direct {
		s.idle = append(s.idle, r)
		return
	}
	r.close()
	s.made--
	if err != nil {
		s.lose(err)
	}
}

// lose goes on without rings. The caller holds mu.
func (s *Sender) lose(err error) {
	s.direct = true
	s.log.Info("each socket is sent to by a call of its own: io_uring doesn't work", "err", err)
}

// sendOne sends one piece by a call of its own.
func sendOne(p *Piece) {
	n, err := quiet.Write(uintptr(p.FD), p.Bytes)
	p.settle(n, err)
}

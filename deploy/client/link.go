package client

import (
	"errors"
	"net"
	"sync"
	"time"
)

// SweepEvery is how often a Receiver is asked whether something is overdue.
const SweepEvery = 50 * time.Millisecond

// MaxKept bounds what waits for a peer that takes nothing, in bytes.
const MaxKept = 256 << 10

// ErrDeaf says that a peer takes nothing.
var ErrDeaf = errors.New("the server takes nothing")

// A Link is the sending side of a connection, and its end.
type Link interface {
	// Begin lets the Receiver be called, first with early. It is called once. When
	// it fails the Receiver was told the end.
	Begin(early []byte) error
	// Write sends p without waiting for the peer. Nothing of p is kept. It fails
	// with [ErrDeaf] when over [MaxKept] bytes wait, and with [net.ErrClosed].
	Write(p []byte) error
	// Close ends it; the Receiver is told [net.ErrClosed]. The Receiver itself
	// must not call it.
	Close()
}

// A Receiver gets what comes over a connection. Its methods are called one at a
// time, never by two goroutines at once.
type Receiver interface {
	// Received takes bytes; p is valid during the call only. An error ends the
	// connection.
	Received(p []byte, at time.Time) error
	// Swept is called every [SweepEvery].
	Swept(at time.Time)
	// Ended is the last call, once. why is [io.EOF] after a plain end.
	Ended(why error)
}

// A Transport serves connections in another way than a goroutine for each does.
type Transport interface {
	// Adopt takes a connection over, which is its own from then on unless it
	// fails.
	Adopt(conn *net.TCPConn, to Receiver) (Link, error)
}

const (
	// pumpBytes is the buffer of a pumped connection.
	pumpBytes = 4 << 10
	// linger bounds the writing of what waits when the peer has ended.
	linger = time.Second
)

// A pumped Link is read by a goroutine of its own, and swept by another. A third
// one runs while something waits to be written.
type pumped struct {
	conn net.Conn
	to   Receiver

	reading sync.Mutex // held while to is called
	over    bool       // guarded by reading

	mu      sync.Mutex
	closed  bool   // guarded by mu
	given   bool   // guarded by mu: Close was called
	waiting []byte // guarded by mu: what is to be written
	writing bool   // guarded by mu: drain runs
}

// Begin implements [Link].
func (s *pumped) Begin(early []byte) error {
	if len(early) > 0 {
		s.reading.Lock()
		err := s.to.Received(early, time.Now())
		s.reading.Unlock()
		if err != nil {
			s.end(err)
			return err
		}
	}
	go s.pump() // ends with the connection, which Close closes
	return nil
}

// pump reads until the connection ends.
func (s *pumped) pump() {
	quit := make(chan struct{})
	var sweeping sync.WaitGroup
	sweeping.Go(func() { s.sweep(quit) })
	buf := make([]byte, pumpBytes)
	for {
		n, err := s.conn.Read(buf)
		if n > 0 {
			s.reading.Lock()
			failed := s.to.Received(buf[:n], time.Now())
			s.reading.Unlock()
			if failed != nil {
				err = failed
			}
		}
		if err != nil {
			close(quit)
			sweeping.Wait()
			s.end(err)
			return
		}
	}
}

func (s *pumped) sweep(quit <-chan struct{}) {
	ticker := time.NewTicker(SweepEvery)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			s.reading.Lock()
			if !s.over {
				s.to.Swept(now)
			}
			s.reading.Unlock()
		case <-quit:
			return
		}
	}
}

// Write implements [Link].
func (s *pumped) Write(p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return net.ErrClosed
	case len(s.waiting)+len(p) > MaxKept:
		return ErrDeaf
	}
	s.waiting = append(s.waiting, p...)
	if !s.writing {
		s.writing = true
		go s.drain() // ends with the connection, or when nothing waits
	}
	return nil
}

// drain writes what waits until there is nothing.
func (s *pumped) drain() {
	for {
		s.mu.Lock()
		p := s.waiting
		s.waiting = nil
		s.writing = len(p) > 0
		closed := s.closed
		s.mu.Unlock()
		if len(p) == 0 {
			if closed {
				s.conn.Close()
			}
			return
		}
		if _, err := s.conn.Write(p); err != nil {
			s.conn.Close() // the reading side tells
			return
		}
	}
}

// Close implements [Link].
func (s *pumped) Close() {
	s.mu.Lock()
	s.given = true
	s.mu.Unlock()
	s.conn.Close()
	s.end(net.ErrClosed)
}

// end closes the connection and tells the Receiver, once. What waits, as the
// answer to a close frame, has a moment to be written.
func (s *pumped) end(why error) {
	s.mu.Lock()
	if s.closed = true; s.given {
		why = net.ErrClosed // whatever reading says of it
	}
	s.conn.SetWriteDeadline(time.Now().Add(linger))
	if !s.writing {
		s.conn.Close()
	}
	s.mu.Unlock()
	s.reading.Lock()
	defer s.reading.Unlock()
	if !s.over {
		s.over = true
		s.to.Ended(why)
	}
}

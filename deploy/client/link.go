package client

import (
	"errors"
	"net"
	"sync"
	"time"
)

// SweepEvery is how often Receivers are asked whether something is overdue.
const SweepEvery = 50 * time.Millisecond

// MaxKept bounds the bytes that wait for a peer that doesn't read.
const MaxKept = 256 << 10

// ErrDeaf says that a peer doesn't read.
var ErrDeaf = errors.New("the server takes nothing")

// A Link is the sending side of a connection.
type Link interface {
	// Begin starts the calls of the Receiver, first with early. It is called once.
	// If it fails, the Receiver's Ended was called.
	Begin(early []byte) error
	// Write sends p without blocking and keeps no reference to p. It fails with
	// [ErrDeaf] if over [MaxKept] bytes wait, and with [net.ErrClosed].
	Write(p []byte) error
	// Close ends the connection; the Receiver's Ended gets [net.ErrClosed]. The
	// Receiver itself must not call it.
	Close()
}

// A Receiver gets what comes over a connection. Its methods are called one at a
// time.
type Receiver interface {
	// Received takes bytes; p is valid only during the call. An error ends the
	// connection.
	Received(p []byte, at time.Time) error
	// Swept is called every [SweepEvery].
	Swept(at time.Time)
	// Ended is the last call, made once. why is [io.EOF] after a plain end.
	Ended(why error)
}

// A Transport serves connections without a goroutine for each.
type Transport interface {
	// Adopt takes over a connection, and owns it unless it fails.
	Adopt(conn *net.TCPConn, to Receiver) (Link, error)
}

const (
	// pumpBytes is the buffer of a pumped connection.
	pumpBytes = 4 << 10
	// linger bounds the final write after the peer has ended.
	linger = time.Second
)

// A pumped Link has one goroutine that reads, another that sweeps, and a third
// while something waits to be written.
type pumped struct {
	conn net.Conn
	to   Receiver

	reading sync.Mutex // held while to is called
	over    bool       // guarded by reading

	mu      sync.Mutex
	closed  bool   // guarded by mu
	given   bool   // guarded by mu: Close was called
	waiting []byte // guarded by mu: to be written
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

// drain writes until nothing waits.
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
			s.conn.Close() // the reading side reports the error
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

// end closes the connection and calls the Receiver's Ended, once. What waits,
// such as the answer to a close frame, gets a moment to be written.
func (s *pumped) end(why error) {
	s.mu.Lock()
	if s.closed = true; s.given {
		why = net.ErrClosed // whatever error the read returned
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

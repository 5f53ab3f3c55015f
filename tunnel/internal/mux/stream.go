package mux

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/fairlead/fairlead/protocol"
)

var (
	// ErrStalled is returned to a writer whose reader took nothing for too long.
	// The stream is reset.
	ErrStalled = errors.New("mux: the reader took nothing for too long: the stream was reset")
	// ErrStuck is returned to a writer if the carrier takes nothing for too long.
	// The data may still arrive, so it must not be sent again on this session,
	// which is useless.
	ErrStuck = errors.New("mux: the carrier takes nothing")

	errClosed = errors.New("mux: the stream is closed")
)

// A ResetReason says why this end reset a stream.
type ResetReason string

const (
	ResetStalled ResetReason = "stalled"  // the peer read nothing of it for too long
	ResetUnread  ResetReason = "unread"   // unread here, while too much had come in all
	ResetGivenUp ResetReason = "given_up" // its owner said so
)

// ResetReasons returns all reasons.
func ResetReasons() []ResetReason { return []ResetReason{ResetStalled, ResetUnread, ResetGivenUp} }

// A Stream is a stream of a Session.
type Stream struct {
	raw     *yamux.Stream
	session *Session
	flow    *flow

	// Guarded by mu.
	mu       sync.Mutex
	deadline time.Time // of writes
	patience time.Duration
	piecing  piecing
	onReset  func(ResetReason)
	closed   bool
	stuck    bool // a write failed with ErrStuck
}

func (s *Session) stream(raw *yamux.Stream) *Stream {
	one := &Stream{raw: raw, session: s, patience: protocol.StreamStall, piecing: newPiecing()}
	one.flow = s.guard.flows.take(raw.StreamID(), one)
	return one
}

// SetPatience sets how long the peer may read nothing while the window is full;
// default protocol.StreamStall.
func (s *Stream) SetPatience(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.patience = d
}

// SetBulk says that the stream's session carries nothing that must not wait for
// some milliseconds, so that a fast peer gets larger frames.
func (s *Stream) SetBulk() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.piecing.bulk = true
}

// OnReset has f called when this end resets the stream. It must not block.
func (s *Stream) OnReset(f func(ResetReason)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onReset = f
}

// Read reads the peer's data.
func (s *Stream) Read(p []byte) (int, error) {
	n, err := s.raw.Read(p)
	if errors.Is(err, yamux.ErrTimeout) && s.session.ending() {
		n, err = s.raw.Read(p) // returns how the stream ended
	}
	if n > 0 && s.session.guard.flows.read(s.flow, n) {
		go s.session.guard.tell() // ends when all is told, or with the carrier
	}
	return n, stuck(err)
}

// Shrink gives back the buffer of what has come, if all of it was read. What comes next
// takes a new one.
func (s *Stream) Shrink() { s.raw.Shrink() }

// stuck turns yamux's error for a blocked carrier into ErrStuck.
func stuck(err error) error {
	if errors.Is(err, yamux.ErrConnectionWriteTimeout) {
		return ErrStuck
	}
	return err
}

// Write writes p in pieces. It fails with [ErrStalled] if the peer reads
// nothing for the stream's patience, and with [ErrStuck] if the carrier blocks;
// then more than written may arrive.
func (s *Stream) Write(p []byte) (written int, err error) {
	for len(p) > 0 && err == nil {
		piece := p[:min(len(p), s.piece())]
		began := time.Now()
		var n int
		n, err = s.writePiece(piece)
		s.took(n, time.Since(began))
		written += n
		p = p[n:]
	}
	return written, err
}

// piece returns the size of the next data frame.
func (s *Stream) piece() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.piecing.size
}

// took notes how long a data frame took.
func (s *Stream) took(n int, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.piecing.took(n, d)
}

func (s *Stream) writePiece(p []byte) (written int, err error) {
	for {
		stalls, err := s.arm()
		if err != nil {
			return written, err
		}
		n, err := s.raw.Write(p)
		written += n
		if err == nil {
			return written, nil
		}
		p = p[n:]
		if errors.Is(err, yamux.ErrTimeout) && s.session.ending() {
			continue // the retry returns how the stream ended
		}
		if !errors.Is(err, yamux.ErrTimeout) || s.overdue() {
			return written, s.broke(err)
		}
		if n == 0 && !time.Now().Before(stalls) {
			s.reset(ResetStalled)
			return written, ErrStalled
		}
	}
}

// arm sets the deadline of a write that waits for the peer: the end of its
// patience or the caller's deadline. It returns the former.
func (s *Stream) arm() (stalls time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return stalls, errClosed
	case s.stuck:
		return stalls, ErrStuck
	}
	stalls = time.Now().Add(s.patience)
	s.raw.SetWriteDeadline(earlier(s.deadline, stalls))
	return stalls, nil
}

// broke is stuck for a write: the piece is in yamux's queue and may still go
// out, so none may follow.
func (s *Stream) broke(err error) error {
	err = stuck(err)
	if errors.Is(err, ErrStuck) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stuck = true
	}
	return err
}

// earlier returns the earlier of two times; a zero a is infinity.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// overdue reports whether the caller's deadline has passed.
func (s *Stream) overdue() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.deadline.IsZero() && !time.Now().Before(s.deadline)
}

// LocalAddr and RemoteAddr are those of the carrier, if it has any.
func (s *Stream) LocalAddr() net.Addr  { return s.raw.LocalAddr() }
func (s *Stream) RemoteAddr() net.Addr { return s.raw.RemoteAddr() }

// SetDeadline is SetReadDeadline and SetWriteDeadline.
func (s *Stream) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// SetReadDeadline is for reads, including one that waits.
func (s *Stream) SetReadDeadline(t time.Time) error { return s.raw.SetReadDeadline(t) }

// SetWriteDeadline is for writes, including one that waits for the peer's
// window. It doesn't end the wait for the carrier.
func (s *Stream) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = t
	return s.raw.SetWriteDeadline(earlier(t, time.Now().Add(s.patience)))
}

// CloseWrite ends the output. The peer has closeTimeout to end its direction
// too; reading continues until then.
func (s *Stream) CloseWrite() error { return stuck(s.raw.Close()) }

// Close ends both directions and interrupts reads and writes. It doesn't wait
// for the carrier.
func (s *Stream) Close() error {
	s.close(false)
	return nil
}

// Reset is Close, but the peer reads an error instead of an end.
func (s *Stream) Reset() { s.reset(ResetGivenUp) }

func (s *Stream) reset(why ResetReason) {
	if !s.close(true) {
		return
	}
	s.mu.Lock()
	told := s.onReset
	s.mu.Unlock()
	if told != nil {
		told(why)
	}
}

// close reports whether abort is new.
func (s *Stream) close(abort bool) bool {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	news := s.session.guard.flows.drop(s.flow, abort) && first
	s.SetDeadline(past) // yamux's own Close doesn't interrupt readers
	if first {
		go s.raw.Close() // ends when the carrier has taken the FIN, or with the session
	}
	return news
}

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel/internal/mux"
)

// refuseTimeout bounds writing an answer to OPEN.
const refuseTimeout = 5 * time.Second

// How long a reader may read nothing while the window is full. pipedStall is
// for streams whose reader forwards at somebody else's pace, with a limit of
// its own: reads are reported by 256 KiB at the most, which take that time at
// 0.9 KiB/s. They are variables so that a test can lower them.
var (
	streamStall = protocol.StreamStall
	pipedStall  = 5 * time.Minute
)

// A Stream is one opened stream, as a net.Conn.
type Stream struct {
	*mux.Stream
	session *Session
	lane    *lane
	served  atomic.Bool // the peer opened it, and it isn't closed here
}

func newStream(s *Session, l *lane, raw *mux.Stream) *Stream {
	raw.OnReset(s.wasReset)
	raw.SetPatience(streamStall)
	if l.name == protocol.LaneBulk {
		raw.SetBulk()
	}
	return &Stream{Stream: raw, session: s, lane: l}
}

// serves sets the patience for the stream's kind.
func (s *Stream) serves(kind protocol.StreamKind) {
	if kind == protocol.StreamHTTP || kind == protocol.StreamSync || kind == protocol.StreamConnect {
		s.SetPatience(pipedStall)
	}
}

// Read reads the peer's data. io.EOF means that the peer has closed the stream.
// yamux also returns it if the lane is lost, which is an error here, or half
// an answer would pass for a whole one.
func (s *Stream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	if err == nil {
		return n, nil
	}
	s.session.stuck(s.lane, err)
	if err == io.EOF {
		select {
		case <-s.lane.mux.Done():
			return n, s.session.errOver()
		default:
		}
	}
	return n, err
}

// Lane returns the lane that carries the stream.
func (s *Stream) Lane() protocol.Lane { return s.lane.name }

// Write writes p in pieces of at most [protocol.MaxStreamWrite] bytes, on a bulk
// lane of four times that while it is fast. Each is one yamux frame, which nothing
// else on the lane can overtake. If the window
// is full and the peer reads nothing for [protocol.StreamStall], the stream is
// reset; a stream that the peer forwards gets longer.
//
// An error may come late: earlier data, and a piece more, may have arrived.
func (s *Stream) Write(p []byte) (written int, err error) {
	written, err = s.Stream.Write(p)
	s.session.stuck(s.lane, err)
	return written, err
}

// stuck ends the session if err says that a lane is blocked, or the lane only, if it
// is loose. Whether its data still arrives is unknown, so nothing may be repeated on
// it: everybody resumes by offset on the next tunnel.
func (s *Session) stuck(l *lane, err error) {
	switch {
	case !errors.Is(err, mux.ErrStuck):
	case l.loose != nil:
		s.drop(l)
	default:
		s.end(protocol.Fault(protocol.KindUpstream, fmt.Errorf("tunnel: %w", err)))
	}
}

// Close ends both directions and interrupts reads and writes. The peer reads
// the end after the data; Close doesn't wait for that.
func (s *Stream) Close() error {
	s.release()
	return s.Stream.Close()
}

// Reset is Close for a stream that broke off: the peer reads an error, so that
// it takes nothing for complete.
func (s *Stream) Reset() {
	s.release()
	s.Stream.Reset()
}

func (s *Stream) release() {
	if s.served.CompareAndSwap(true, false) {
		s.session.served.Add(-1)
	}
}

// ErrUnanswered is in the chain of an error of [Session.Open] if the peer may
// have got OPEN and acted on it.
var ErrUnanswered = errors.New("tunnel: OPEN was not answered")

// Open opens a stream on a lane and waits for the peer's answer until ctx ends.
// A refusal is a *protocol.Error of the peer's kind. An error without
// [ErrUnanswered] means that the peer has not acted.
func (s *Session) Open(ctx context.Context, name protocol.Lane, open protocol.Open) (*Stream, protocol.Opened, error) {
	l, err := s.lane(ctx, name)
	if err != nil {
		return nil, protocol.Opened{}, err
	}
	select {
	case s.opening <- struct{}{}:
	case <-s.done:
		return nil, protocol.Opened{}, s.errOver()
	case <-ctx.Done():
		return nil, protocol.Opened{}, tooLate(ctx, open)
	}
	// yamux has no contexts and may wait for a blocked peer, so this runs on
	// another goroutine; it ends with yamux's write timeout at the latest.
	answers := make(chan answer)
	if !s.spawn(func() {
		defer func() { <-s.opening }()
		a := s.open(ctx, l, open)
		select {
		case answers <- a:
		case <-ctx.Done():
			if a.err == nil {
				a.stream.Close()
			}
		}
	}) {
		return nil, protocol.Opened{}, s.errOver()
	}
	select {
	case a := <-answers:
		return a.stream, a.opened, a.err
	case <-ctx.Done():
		return nil, protocol.Opened{}, unanswered(open, ctx.Err())
	}
}

// unanswered marks an error after which the peer may have got open.
func unanswered(open protocol.Open, err error) error {
	return protocol.Fault(protocol.KindUnavailable, fmt.Errorf("%w: %s: %w", ErrUnanswered, open.Kind, err))
}

func tooLate(ctx context.Context, open protocol.Open) error {
	return protocol.Fault(protocol.KindUnavailable, fmt.Errorf("tunnel: open %s: %w", open.Kind, ctx.Err()))
}

// answer is the result of an OPEN.
type answer struct {
	stream *Stream
	opened protocol.Opened
	err    error
}

func (s *Session) open(ctx context.Context, l *lane, open protocol.Open) answer {
	raw, err := l.mux.Open()
	if err != nil {
		s.stuck(l, err)
		return answer{err: protocol.Fault(protocol.KindUnavailable, fmt.Errorf("tunnel: open: %w", err))}
	}
	stream := newStream(s, l, raw)
	stream.serves(open.Kind)
	opened, err := stream.negotiate(ctx, open)
	if err != nil {
		stream.Close()
		return answer{err: err}
	}
	return answer{stream: stream, opened: opened}
}

// negotiate sends OPEN and reads the answer.
func (s *Stream) negotiate(ctx context.Context, open protocol.Open) (protocol.Opened, error) {
	interrupt := context.AfterFunc(ctx, func() { s.Close() })
	defer interrupt()
	if err := protocol.Write(s, open); err != nil { // a timed-out write may still be delivered
		return protocol.Opened{}, unanswered(open, err)
	}
	m, err := readOne(s)
	if err == nil && !interrupt() && ctx.Err() != nil {
		err = ctx.Err() // the answer came too late: the stream is closed
	}
	if err != nil {
		return protocol.Opened{}, unanswered(open, err)
	}
	switch m := m.(type) {
	case protocol.Opened:
		return m, nil
	case protocol.Refused:
		return protocol.Opened{}, m.Err()
	}
	return protocol.Opened{}, protocol.Fault(protocol.KindUpstream, fmt.Errorf("%w: with %s", ErrUnanswered, m.FrameType()))
}

// An Incoming is a stream that the peer wants to open. Call exactly one of
// Accept and Refuse.
type Incoming struct {
	Open protocol.Open
	Lane protocol.Lane

	stream *Stream
}

// Accept returns the next stream that the peer opens.
func (s *Session) Accept(ctx context.Context) (*Incoming, error) {
	select {
	case in := <-s.incoming:
		return in, nil
	case <-s.done:
		return nil, s.errOver()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept opens the stream.
func (in *Incoming) Accept(opened protocol.Opened) (*Stream, error) {
	if err := in.answer(opened); err != nil {
		in.stream.Close()
		return nil, err
	}
	in.stream.serves(in.Open.Kind)
	return in.stream, nil
}

// Refuse refuses the stream. The peer gets the kind and message of err, without
// what err wraps.
func (in *Incoming) Refuse(err error) error {
	e := protocol.AsError(err)
	defer in.stream.Close()
	return in.answer(protocol.Refused{Kind: e.Kind, Message: e.Error()})
}

func (in *Incoming) answer(m protocol.Message) error {
	in.stream.SetWriteDeadline(time.Now().Add(refuseTimeout))
	defer in.stream.SetWriteDeadline(time.Time{})
	return protocol.Write(in.stream, m)
}

package tunnel

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel/internal/carrier"
	"github.com/fairlead/fairlead/tunnel/internal/mux"
)

// lane returns a lane, once it is open. Only the agent opens lanes; the relay asks
// for a missing one.
func (s *Session) lane(ctx context.Context, name protocol.Lane) (*lane, error) {
	select {
	case <-s.started:
	case <-s.done:
		return nil, s.errOver()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	l, first := s.laneEntry(name)
	if l == nil {
		return nil, s.errOver()
	}
	if first {
		if s.agent {
			s.settle(l, s.openLane(ctx, name))
		} else if err := s.write(protocol.LaneRequest{Lane: name}); err != nil {
			return nil, s.errOver()
		}
	}
	select {
	case <-l.ready:
		return l, l.err
	case <-s.done:
		return nil, s.errOver()
	case <-ctx.Done():
		return nil, protocol.Fault(protocol.KindUnavailable, fmt.Errorf("tunnel: lane %s: %w", name, ctx.Err()))
	}
}

// claim returns a lane that the agent has opened, for its one caller to settle;
// nil if the session is over or the lane was claimed before. A loose lane gives way:
// the agent has noticed before us that it is lost.
func (s *Session) claim(name protocol.Lane) *lane {
	l, _ := s.laneEntry(name)
	if l.replaceable() {
		s.drop(l)
		l, _ = s.laneEntry(name)
	}
	if l == nil || !l.claimed.CompareAndSwap(false, true) {
		return nil
	}
	return l
}

// laneEntry returns a lane's entry, nil if the session is over. first is true
// for the caller that made it.
func (s *Session) laneEntry(name protocol.Lane) (l *lane, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lanes == nil {
		return nil, false
	}
	l, known := s.lanes[name]
	if !known {
		l = &lane{name: name, ready: make(chan struct{})}
		s.lanes[name] = l
	}
	return l, !known
}

// opening is a carrier stream, or an error.
type opening struct {
	stream carrier.Stream
	err    error
}

// openLane opens a lane's carrier stream, with loss recovery of its own if the
// carrier can, so that typing doesn't wait for packets lost by a download or
// another terminal's output. The control lane is rarely used, and every idle
// tunnel has it, so it is a cheap stream.
func (s *Session) openLane(ctx context.Context, name protocol.Lane) opening {
	preface := protocol.AppendPreface(nil, protocol.Preface{Version: uint8(s.welcome.Version), Lane: name})
	if name == protocol.LaneBulk && s.beside != nil {
		stream, err := s.beside.open(ctx, preface)
		if err == nil {
			return opening{stream: stream}
		}
		s.log.Debug("no connection beside the tunnel's", "lane", name, "err", err)
	}
	open := s.conn.Open
	if parting, ok := s.conn.(carrier.Parting); ok && name != protocol.LaneControl {
		open = parting.OpenApart
	}
	stream, err := open(ctx)
	if err != nil {
		return opening{err: err}
	}
	_, err = stream.Write(preface)
	return opening{stream, err}
}

// settle starts yamux on a lane's stream and makes the lane ready. A failed
// lane is removed, so that the next use tries again.
func (s *Session) settle(l *lane, o opening) {
	name := l.name
	if o.err == nil {
		start := mux.Server
		if s.agent {
			start = mux.Client
		}
		l.mux, o.err = start(o.stream)
	}
	if o.err != nil {
		l.err = protocol.Fault(protocol.KindUnavailable, fmt.Errorf("tunnel: lane %s: %w", name, o.err))
		s.mu.Lock()
		if s.lanes[name] == l {
			delete(s.lanes, name)
		}
		s.mu.Unlock()
		close(l.ready)
		return
	}
	if name == protocol.LaneBulk {
		l.mux.Grow(path{s})
	}
	l.loose, _ = o.stream.(carrier.Loose)
	close(l.ready)
	s.running.Go(func() { s.acceptStreams(l) })
	s.mu.Lock()
	over := s.lanes == nil
	s.mu.Unlock()
	if over {
		l.mux.Close()
	}
}

// replaceable reports whether another connection may take the lane over.
func (l *lane) replaceable() bool {
	if l == nil {
		return false
	}
	select {
	case <-l.ready:
		return l.loose != nil
	default:
		return false
	}
}

// drop forgets a loose lane that is lost. Its streams fail, and the next one makes
// another.
func (s *Session) drop(l *lane) {
	s.mu.Lock()
	if s.lanes[l.name] == l {
		delete(s.lanes, l.name)
		s.past.Add(l.carried())
	}
	s.mu.Unlock()
	if !s.spawn(func() { l.mux.Close() }) { // it may wait for a moment
		l.mux.Close()
	}
}

// carried returns what a loose lane's own connection has carried.
func (l *lane) carried() carrier.Stats {
	if counting, ok := l.loose.(carrier.Counting); ok {
		return counting.Stats()
	}
	return carrier.Stats{}
}

// longTrip is taken for the round trip of a path of which nothing is known.
const longTrip = 100 * time.Millisecond

// A path is a session's as its lanes see it.
type path struct{ session *Session }

// Trip returns the shortest round trip.
func (p path) Trip() time.Duration {
	if timed, ok := p.session.conn.(carrier.Timed); ok {
		return timed.Trip()
	}
	if rtt := p.session.RTT(); rtt > 0 {
		return rtt
	}
	return longTrip
}

// acceptLanes accepts the agent's lanes.
func (s *Session) acceptLanes() {
	for {
		stream, err := s.conn.Accept(s.ctx)
		if err != nil {
			return
		}
		s.running.Go(func() { s.adopt(stream) })
	}
}

// adopt makes a lane of an accepted stream.
func (s *Session) adopt(stream carrier.Stream) {
	stream.SetDeadline(time.Now().Add(openTimeout))
	preface, err := protocol.ReadPreface(stream)
	if err == nil && !preface.Lane.Known() {
		err = fmt.Errorf("tunnel: %q is no lane", preface.Lane)
	}
	if err != nil {
		stream.Close()
		if _, loose := stream.(carrier.Loose); !loose { // else it may be lost, as any connection
			s.end(s.because(protocol.Errorf(protocol.KindInvalid, "bad lane: %v", err)))
		}
		return
	}
	stream.SetDeadline(time.Time{})
	l := s.claim(preface.Lane)
	if l == nil {
		stream.Close()
		s.end(protocol.Errorf(protocol.KindInvalid, "lane %s is opened twice", preface.Lane))
		return
	}
	s.settle(l, opening{stream: stream})
}

// acceptStreams reads the OPEN of each stream that the peer opens on a lane.
// The end of a lane ends the tunnel, unless it is loose: what it carried can't
// continue.
func (s *Session) acceptStreams(l *lane) {
	defer l.mux.Close()
	for {
		raw, err := l.mux.Accept(s.ctx)
		if err != nil {
			objection := l.mux.Err()
			switch {
			case objection != nil:
				err = objection
			case l.loose != nil:
				s.drop(l)
				return
			default:
				err = s.because(err)
			}
			s.end(fmt.Errorf("tunnel: lane %s: %w", l.name, err))
			return
		}
		stream := newStream(s, l, raw)
		if s.unopened.Add(1) > maxIncoming {
			s.unopened.Add(-1)
			stream.Reset()
			continue
		}
		s.running.Go(func() { s.receive(stream) })
	}
}

// receive reads a stream's OPEN and passes it to Accept.
func (s *Session) receive(stream *Stream) {
	name := stream.Lane()
	stream.served.Store(true)
	s.served.Add(1)
	stream.SetDeadline(time.Now().Add(openTimeout))
	m, err := readOne(stream)
	s.unopened.Add(-1)
	open, ok := m.(protocol.Open)
	if err != nil || !ok {
		s.log.Debug("stream without OPEN", "lane", name, "err", err)
		stream.Reset()
		return
	}
	stream.SetDeadline(time.Time{})
	s.noteFleeting(open.Kind, stream)
	in := &Incoming{Open: open, Lane: name, stream: stream}
	select {
	case s.incoming <- in:
	case <-s.done:
		stream.Close()
	default:
		in.Refuse(protocol.Errorf(protocol.KindTooMany, "over %d streams wait", maxIncoming))
	}
}

// readOne reads one message from r without reading ahead.
func readOne(r io.Reader) (protocol.Message, error) {
	frame, err := protocol.ReadFrame(r)
	if err != nil {
		return nil, err
	}
	return protocol.Decode(frame)
}

// Package tunnel joins an agent and a relay: one connection that the agent
// dials, registered by a signed HELLO, with lanes of yamux streams that either
// end opens and that don't hold each other up.
package tunnel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel/internal/carrier"
	"github.com/fairlead/fairlead/tunnel/internal/mux"
)

const (
	// maxIncoming bounds the streams whose OPEN has come and that nobody has
	// accepted yet; more are refused. As many may wait for their OPEN; more are
	// reset.
	maxIncoming = 256
	// openTimeout bounds the time a stream gets for its OPEN.
	openTimeout = 10 * time.Second
	// maxOutgoing bounds the control frames that wait to be written; a peer
	// that lets more pile up is given up.
	maxOutgoing = 64
	// A tunnel that said GOAWAY waits for the peer to leave first, so that the
	// words arrive: a few round trips, but not long, since whoever dials again
	// after losing its network waits for the end of its old tunnel.
	lingerTrips          = 4
	minLinger, maxLinger = 100 * time.Millisecond, time.Second
	// maxOpening bounds the streams that Open is opening at the same time.
	maxOpening = 200
)

// A Session is a registered tunnel, at either end.
type Session struct {
	// Static after the handshake.
	conn    carrier.Conn
	control carrier.Stream
	agent   bool // this end is the agent
	hello   protocol.Hello
	welcome protocol.Welcome
	events  *Events // not nil
	log     *slog.Logger

	started  chan struct{}   // closed when the session may be used
	done     chan struct{}   // closed when it is over
	ctx      context.Context // ends with it
	cancel   context.CancelFunc
	incoming chan *Incoming
	goAways  chan protocol.GoAway
	running  sync.WaitGroup // everything that the session started
	opening  chan struct{}  // one for each stream that Open is opening
	pinger   pinger
	role     role
	status   status

	outgoing chan []byte  // control frames that wait to be written
	saidBye  atomic.Bool  // GOAWAY was sent
	leaving  atomic.Bool  // CloseWith waits for the peer to leave
	served   atomic.Int64 // streams of the peer's that are not closed here
	unopened atomic.Int64 // those of them whose OPEN hasn't come

	// Guarded by mu.
	mu       sync.Mutex
	lanes    map[protocol.Lane]*lane
	fleeting fleeting
	err      error // why the session is over
}

// A lane is one yamux session, or the wait for it.
type lane struct {
	claimed atomic.Bool   // at the relay: the agent has opened it
	ready   chan struct{} // closed when mux or err is set
	mux     *mux.Session
	err     error
}

func newSession(conn carrier.Conn, agent bool, events *Events, log *slog.Logger) *Session {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if events == nil {
		events = &Events{}
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Session{
		conn: conn, agent: agent, events: events, log: log, ctx: ctx, cancel: cancel,
		started:  make(chan struct{}),
		done:     make(chan struct{}),
		incoming: make(chan *Incoming, maxIncoming),
		goAways:  make(chan protocol.GoAway, 4),
		outgoing: make(chan []byte, maxOutgoing),
		opening:  make(chan struct{}, maxOpening),
		pinger:   newPinger(),
		role:     newRole(),
		status:   newStatus(),
		lanes:    map[protocol.Lane]*lane{},
	}
}

// start begins service once the handshake is done.
func (s *Session) start() {
	s.control.SetDeadline(time.Time{})
	close(s.started)
	s.running.Go(s.readControl)
	s.running.Go(s.writeControl)
	s.running.Go(s.ping)
	if !s.agent {
		s.running.Go(s.acceptLanes)
	}
}

// Hello returns what the agent registered with.
func (s *Session) Hello() protocol.Hello { return s.hello }

// Welcome returns what the relay answered.
func (s *Session) Welcome() protocol.Welcome { return s.welcome }

// Carrier returns what the tunnel runs over.
func (s *Session) Carrier() Carrier { return carrierOf(s.conn) }

// RemoteAddr returns the peer's address as it was at the handshake.
func (s *Session) RemoteAddr() net.Addr { return s.conn.RemoteAddr() }

// Done is closed when the session is over; Err then says why.
func (s *Session) Done() <-chan struct{} { return s.done }

// Context returns a context that ends with the session.
func (s *Session) Context() context.Context { return s.ctx }

// Err returns why the session is over, nil while it isn't.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends the session and waits until all its goroutines have.
func (s *Session) Close() error {
	s.CloseWith(protocol.Errorf(protocol.KindUnavailable, "closed"))
	<-s.done
	s.running.Wait()
	return nil
}

// CloseWith ends the session; the peer's Err has e's kind and message. After
// a GOAWAY it first gives the peer a moment to leave by itself. It doesn't
// wait.
func (s *Session) CloseWith(e *protocol.Error) {
	if !s.saidBye.Load() {
		s.end(e)
		return
	}
	if !s.leaving.CompareAndSwap(false, true) {
		return // the first reason counts
	}
	s.spawn(func() {
		linger := time.NewTimer(s.linger())
		defer linger.Stop()
		select {
		case <-linger.C:
			s.end(e)
		case <-s.done:
		}
	})
}

// linger returns how long the words of a GOAWAY get to arrive.
func (s *Session) linger() time.Duration {
	rtt := s.RTT()
	if rtt == 0 { // nothing is known of this path yet
		return maxLinger
	}
	return min(max(lingerTrips*rtt, minLinger), maxLinger)
}

// spawn runs f, which Close waits for. It does nothing once the session is
// over, since Close may have finished waiting.
func (s *Session) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return false
	}
	s.running.Go(f)
	return true
}

// end makes the session over, once.
func (s *Session) end(err error) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	s.err = err
	lanes := s.lanes
	s.lanes = nil
	s.mu.Unlock()
	if objection, ok := errors.AsType[*mux.Objection](err); ok {
		s.events.objected(string(objection.Reason))
	}
	s.conn.Close(protocol.AsError(err)) // before a lane closes, so that the peer hears why
	close(s.done)
	s.cancel()
	for _, l := range lanes {
		select {
		case <-l.ready:
			if l.mux != nil {
				l.mux.Close()
			}
		default: // whoever makes it ready sees that the session is over
		}
	}
}

// GoAways delivers the peer's GOAWAY frames.
func (s *Session) GoAways() <-chan protocol.GoAway { return s.goAways }

// GoAway announces that this end will close the tunnel.
func (s *Session) GoAway(m protocol.GoAway) error {
	s.saidBye.Store(true)
	return s.write(m)
}

// write queues one control frame. It waits for nothing but the handshake: a
// reader that answers must not wait for the peer's reader.
func (s *Session) write(m protocol.Message) error {
	select {
	case <-s.started:
	case <-s.done:
		return s.errOver()
	}
	frame, err := protocol.Append(nil, m)
	if err != nil {
		return err
	}
	select {
	case s.outgoing <- frame:
		return nil
	default:
		s.end(protocol.Errorf(protocol.KindUpstream, "tunnel: the peer takes no control frames"))
		return s.errOver()
	}
}

// writeControl writes what write queues until the session is over, which it is
// when its connection ends by itself.
func (s *Session) writeControl() {
	for {
		select {
		case frame := <-s.outgoing:
			if _, err := s.control.Write(frame); err != nil {
				s.endControl(err)
				return
			}
		case <-s.conn.Done():
			s.end(fmt.Errorf("tunnel: connection lost: %w", s.conn.Err()))
			return
		case <-s.done:
			return
		}
	}
}

// endControl ends the session, whose control stream has failed. The connection
// knows better why, if it is over.
func (s *Session) endControl(err error) {
	s.end(fmt.Errorf("tunnel: control stream: %w", s.because(err)))
}

// because returns why a stream of the carrier ended with err: for the reason that
// the carrier gives, if it is over.
func (s *Session) because(err error) error {
	select {
	case <-s.conn.Done():
		return s.conn.Err()
	default:
		return err
	}
}

// readControl obeys the peer's control frames until the stream ends. They are
// few, and a buffer for them would be the largest thing that an idle tunnel has.
func (s *Session) readControl() {
	for {
		m, err := readOne(s.control)
		if err != nil {
			s.endControl(err)
			return
		}
		if err := s.obey(m); err != nil {
			s.end(err)
			return
		}
	}
}

func (s *Session) obey(m protocol.Message) error {
	switch m := m.(type) {
	case protocol.Ping:
		if s.agent {
			s.pinger.asked(time.Now())
		} else {
			s.pinger.spared(time.Now())
		}
		return s.write(protocol.Pong(m))
	case protocol.Pong:
		s.pinger.heard(m.ID)
	case protocol.GoAway:
		select {
		case s.goAways <- m:
		default: // the first ones say enough
		}
	case protocol.LaneRequest:
		if !s.agent {
			return protocol.Errorf(protocol.KindInvalid, "tunnel: only a relay asks for lanes")
		}
		l, first := s.laneEntry(m.Lane)
		if !first { // it is open or opening: asking often starts nothing
			return nil
		}
		s.running.Go(func() { // ends with the lane's handshake
			ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
			defer cancel()
			s.settle(l, m.Lane, s.openLane(ctx, m.Lane))
		})
	case protocol.Role:
		if s.agent {
			return protocol.Errorf(protocol.KindInvalid, "tunnel: only an agent has a role")
		}
		s.role.hear(m)
	case protocol.Status:
		if s.agent {
			return protocol.Errorf(protocol.KindInvalid, "tunnel: only an agent has a status")
		}
		s.status.hear(m)
	default:
		return protocol.Errorf(protocol.KindInvalid, "tunnel: %s on the control stream", m.FrameType())
	}
	return nil
}

// Serving returns how many streams the peer has opened that this end has not
// closed yet.
func (s *Session) Serving() int { return int(s.served.Load()) }

// errOver is the answer to every use of a session that is over.
func (s *Session) errOver() error {
	if err := s.Err(); err != nil {
		return protocol.Fault(protocol.KindUnavailable, err)
	}
	return protocol.Fault(protocol.KindUnavailable, errors.New("tunnel: session over"))
}

// Package tunnel connects an agent and a relay: one connection, dialled by the
// agent and registered by a signed HELLO, with lanes of yamux streams. Either
// end opens streams, and lanes don't delay each other.
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
	// maxIncoming bounds the streams with an OPEN that nobody has accepted yet;
	// more are refused. As many may wait for their OPEN; more are reset.
	maxIncoming = 256
	// openTimeout bounds the wait for a stream's OPEN.
	openTimeout = 10 * time.Second
	// maxOutgoing bounds the queued control frames; a peer that lets more pile up
	// loses the session.
	maxOutgoing = 64
	// After GOAWAY a tunnel first waits for the peer to leave, so that its frames
	// arrive: a few round trips, but not long, since an agent that redials after
	// losing its network waits for the end of its old tunnel.
	lingerTrips          = 4
	minLinger, maxLinger = 100 * time.Millisecond, time.Second
	// maxOpening bounds the concurrent calls of Open.
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

	started  chan struct{}   // closed when the session is usable
	done     chan struct{}   // closed at its end
	ctx      context.Context // ends with it
	cancel   context.CancelFunc
	incoming chan *Incoming
	goAways  chan protocol.GoAway
	running  sync.WaitGroup // all goroutines of the session
	opening  chan struct{}  // a semaphore of Open calls
	pinger   pinger
	role     role
	status   status
	beside   *beside // at the agent; nil: no lane has a connection beside the tunnel's

	outgoing chan []byte  // queued control frames
	saidBye  atomic.Bool  // GOAWAY was sent
	leaving  atomic.Bool  // CloseWith waits for the peer to leave
	served   atomic.Int64 // streams from the peer that aren't closed here
	unopened atomic.Int64 // those of them without an OPEN so far

	// Guarded by mu.
	mu       sync.Mutex
	lanes    map[protocol.Lane]*lane
	fleeting fleeting
	past     carrier.Stats // of lanes that are lost
	err      error         // why the session is over
}

// A lane is one yamux session, or a pending one.
type lane struct {
	name    protocol.Lane // static
	claimed atomic.Bool   // at the relay: the agent has opened it
	ready   chan struct{} // closed once the others are set

	mux   *mux.Session
	loose carrier.Loose // below mux, if its loss doesn't end the session; nil: it does
	err   error
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

// Hello returns the agent's HELLO.
func (s *Session) Hello() protocol.Hello { return s.hello }

// Welcome returns the relay's WELCOME.
func (s *Session) Welcome() protocol.Welcome { return s.welcome }

// Carrier returns the tunnel's carrier.
func (s *Session) Carrier() Carrier { return carrierOf(s.conn) }

// RemoteAddr returns the peer's address at the time of the handshake.
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

// Close ends the session and waits for all its goroutines.
func (s *Session) Close() error {
	s.CloseWith(protocol.Errorf(protocol.KindUnavailable, "closed"))
	<-s.done
	s.running.Wait()
	return nil
}

// CloseWith ends the session; the peer's Err has e's kind and message. After a
// GOAWAY it first gives the peer a moment to leave. It doesn't block.
func (s *Session) CloseWith(e *protocol.Error) {
	if !s.saidBye.Load() {
		s.end(e)
		return
	}
	if !s.leaving.CompareAndSwap(false, true) {
		return // the first reason wins
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

// linger returns how long the peer gets to leave after GOAWAY.
func (s *Session) linger() time.Duration {
	rtt := s.RTT()
	if rtt == 0 { // the path isn't measured yet
		return maxLinger
	}
	return min(max(lingerTrips*rtt, minLinger), maxLinger)
}

// spawn runs f on a goroutine for which Close waits. It does nothing once the
// session is over, since Close may have finished waiting.
func (s *Session) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return false
	}
	s.running.Go(f)
	return true
}

// end ends the session, once.
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
	s.conn.Close(protocol.AsError(err)) // before the lanes, so that the peer gets the reason
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

// GoAways receives the peer's GOAWAY frames.
func (s *Session) GoAways() <-chan protocol.GoAway { return s.goAways }

// GoAway announces that this end will close the tunnel.
func (s *Session) GoAway(m protocol.GoAway) error {
	s.saidBye.Store(true)
	return s.write(m)
}

// write queues one control frame. It waits only for the handshake: a reader
// that answers must not depend on the peer's reader.
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

// writeControl writes the queued frames until the session ends, which it does
// with its connection.
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

// endControl ends the session after its control stream failed. If the
// connection is over, it knows the reason better.
func (s *Session) endControl(err error) {
	s.end(fmt.Errorf("tunnel: control stream: %w", s.because(err)))
}

// because returns why a carrier stream ended with err: the carrier's reason if
// the carrier is over.
func (s *Session) because(err error) error {
	select {
	case <-s.conn.Done():
		return s.conn.Err()
	default:
		return err
	}
}

// readControl handles the peer's control frames until the stream ends. It has
// no buffer: they are few, and it would be an idle tunnel's largest memory.
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
		if !first && l.replaceable() { // the relay has noticed before us that it is lost
			s.drop(l)
			l, first = s.laneEntry(m.Lane)
		}
		if !first { // it is open or opening, so repeated requests start nothing
			return nil
		}
		s.running.Go(func() { // ends with the lane's handshake
			ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
			defer cancel()
			s.settle(l, s.openLane(ctx, m.Lane))
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

// Serving returns how many streams from the peer aren't closed here.
func (s *Session) Serving() int { return int(s.served.Load()) }

// errOver is the error of every call on a session, or on a lane, that is over.
func (s *Session) errOver() error {
	if err := s.Err(); err != nil {
		return protocol.Fault(protocol.KindUnavailable, err)
	}
	return protocol.Fault(protocol.KindUnavailable, errors.New("tunnel: the connection is lost"))
}

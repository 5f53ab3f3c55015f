package tunnel_test

import (
	"context"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/internal/carrier"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

// handmadeAgent registers by hand, so that it can misbehave afterwards.
func handmadeAgent(t *testing.T) (conn *tunneltest.Conn, relay *tunnel.Session) {
	t.Helper()
	conn, control, relay := registeredByHand(t)
	go answerPings(control) // ends with the tunnel
	t.Cleanup(func() { relay.Close() })
	return conn, relay
}

// registeredByHand is such an agent that doesn't even answer PINGs. The caller
// closes the tunnel.
func registeredByHand(t *testing.T) (conn *tunneltest.Conn, control carrier.Stream, relay *tunnel.Session) {
	t.Helper()
	near, far := tunneltest.Conns()
	admitted := make(chan *tunnel.Session, 1)
	go func() { // ends with the handshake
		s, _ := tunnel.Admit(context.Background(), far, &tunnel.ListenConfig{
			RelayID: "rl_x", Admit: func(context.Context, *tunnel.Registration) error { return nil },
		})
		admitted <- s
	}()
	control, err := near.Open(t.Context())
	must(t, err)
	control.Write(protocol.AppendPreface(nil, protocol.Preface{Version: 1, Lane: protocol.ControlStream}))
	protocol.ReadFrame(control)
	must(t, protocol.Write(control, tunneltest.Hello()))
	protocol.ReadFrame(control)
	return near, control, <-admitted
}

// answerPings answers the PINGs of a control stream until it ends.
func answerPings(control carrier.Stream) {
	for {
		frame, err := protocol.ReadFrame(control)
		if err != nil {
			return
		}
		m, err := protocol.Decode(frame)
		if ping, ok := m.(protocol.Ping); ok && err == nil && protocol.Write(control, protocol.Pong(ping)) != nil {
			return
		}
	}
}

// openLane opens a terminal lane by hand. The rest of it is up to the caller.
func openLane(t *testing.T, conn *tunneltest.Conn) carrier.Stream {
	t.Helper()
	s, err := conn.Open(t.Context())
	must(t, err)
	s.Write(protocol.AppendPreface(nil, protocol.Preface{Version: 1, Lane: protocol.LaneTerminal0}))
	return s
}

// A lane that is opened many times at once ends the tunnel, not the relay.
func TestSameLaneTwiceAtOnce(t *testing.T) {
	for range 50 {
		conn, relay := handmadeAgent(t)
		var opening sync.WaitGroup
		for range 4 {
			s, err := conn.Open(t.Context())
			if err != nil {
				break // the tunnel is over already
			}
			opening.Go(func() {
				s.Write(protocol.AppendPreface(nil, protocol.Preface{Version: 1, Lane: protocol.LaneTerminal0}))
				io.Copy(io.Discard, s)
			})
		}
		<-relay.Done()
		opening.Wait()
		if kind := protocol.KindOf(relay.Err()); kind != protocol.KindInvalid && kind != protocol.KindInternal {
			t.Fatalf("ended with %v", relay.Err())
		}
	}
}

// A relay that asks for a lane again and again starts one goroutine.
func TestLaneRequestFlood(t *testing.T) {
	near, far := tunneltest.Conns()
	before := runtime.NumGoroutine()
	most := make(chan int, 1)
	go func() { // ends with the flood
		control, err := far.Accept(context.Background())
		if err != nil {
			return
		}
		protocol.ReadPreface(control)
		protocol.Write(control, protocol.Challenge{Nonce: make([]byte, protocol.NonceBytes), RelayID: "rl_x"})
		protocol.ReadFrame(control)
		protocol.Write(control, protocol.Welcome{Version: 1, RelayID: "rl_x"})
		go io.Copy(io.Discard, control) // ends with the tunnel
		for range 2000 {
			if protocol.Write(control, protocol.LaneRequest{Lane: protocol.LaneTerminal0}) != nil {
				break
			}
		}
		most <- runtime.NumGoroutine()
	}()
	agent, err := tunnel.Register(within(t), near, tunnel.DialConfig{
		Hello: func(protocol.Challenge, []byte) (protocol.Hello, error) { return tunneltest.Hello(), nil },
	})
	must(t, err)
	defer agent.Close()
	if n := <-most; n > before+50 {
		t.Errorf("%d goroutines, %d before", n, before)
	}
}

// Open keeps to its context whatever the agent leaves undone: it reads nothing
// of the lane, or it reads and never acknowledges a stream.
func TestOpenKeepsToItsContext(t *testing.T) {
	for _, reads := range []bool{false, true} {
		conn, relay := handmadeAgent(t)
		lane := openLane(t, conn)
		if reads {
			go io.Copy(io.Discard, lane) // ends with the tunnel
		}
		began := time.Now()
		for range 300 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if _, _, err := relay.Open(ctx, protocol.LaneTerminal0, protocol.Open{Kind: protocol.StreamTerminal}); err == nil {
				t.Error("opened")
			}
			cancel()
		}
		if took := time.Since(began); took > 2*time.Minute { // each of them waits for ever, or for 10 s
			t.Errorf("reads=%v: 300 times 1 ms took %v", reads, took)
		}
		relay.Close()
	}
}

// The peer hears the kind of a close, also of one with a long message, and
// reads no clean end from a stream that was cut off.
func TestQUICCloseTellsWhy(t *testing.T) {
	listener, pool := listen(t, nil)
	for _, message := range []string{"short", strings.Repeat("é", 4000)} {
		agent, err := dial(t, listener, pool)
		must(t, err)
		relay, err := listener.Accept(within(t))
		must(t, err)
		answer(t, relay, echo)
		stream, _, err := agent.Open(within(t), protocol.LaneControl, protocol.Open{Kind: protocol.StreamConnect})
		must(t, err)
		must(t, pingPong(stream))
		relay.CloseWith(protocol.Errorf(protocol.KindSuperseded, "%s", message))
		if _, err := stream.Read(make([]byte, 1)); err == nil || err == io.EOF {
			t.Errorf("a cut stream reads as %v", err)
		}
		<-agent.Done()
		if kind := protocol.KindOf(agent.Err()); kind != protocol.KindSuperseded { // silence has another one
			t.Errorf("%v: %v", kind, agent.Err())
		}
		agent.Close()
	}
}

// A listener that closes tells its agents so.
func TestQUICListenerCloseIsHeard(t *testing.T) {
	listener, pool := listen(t, nil)
	agent, err := dial(t, listener, pool)
	must(t, err)
	defer agent.Close()
	relay, err := listener.Accept(within(t))
	must(t, err)
	must(t, relay.GoAway(protocol.GoAway{Reason: protocol.KindRestarting}))
	listener.Close()
	<-agent.Done()
	select {
	case <-agent.GoAways():
	default:
		t.Error("no GOAWAY")
	}
	if protocol.KindOf(agent.Err()) != protocol.KindRestarting {
		t.Errorf("ended with %v", agent.Err())
	}
}

// An agent whose relay pings often, because somebody watches, notices a dead
// path as soon as the relay would.
func TestAgentMatchesFrequentPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := tunneltest.Conns()
		var quiet atomic.Bool
		silent := make(chan time.Time, 1)
		go func() { // ends with the tunnel
			control, err := far.Accept(context.Background())
			if err != nil {
				return
			}
			protocol.ReadPreface(control)
			protocol.Write(control, protocol.Challenge{Nonce: make([]byte, protocol.NonceBytes), RelayID: "rl_x"})
			protocol.ReadFrame(control)
			protocol.Write(control, protocol.Welcome{Version: 1, RelayID: "rl_x"})
			go func() { // ends with the tunnel
				for {
					frame, err := protocol.ReadFrame(control)
					if err != nil {
						return
					}
					m, err := protocol.Decode(frame)
					if ping, ok := m.(protocol.Ping); ok && err == nil && !quiet.Load() {
						protocol.Write(control, protocol.Pong(ping))
					}
				}
			}()
			for id := range uint64(20) {
				protocol.Write(control, protocol.Ping{ID: id})
				time.Sleep(protocol.PingWatched)
			}
			quiet.Store(true)
			silent <- time.Now()
		}()
		agent, err := tunnel.Register(within(t), near, tunnel.DialConfig{
			Hello: func(protocol.Challenge, []byte) (protocol.Hello, error) { return tunneltest.Hello(), nil },
		})
		must(t, err)
		<-agent.Done()
		if took := time.Since(<-silent); took > 2*time.Second {
			t.Errorf("noticed after %v", took)
		}
		agent.Close()
	})
}

// A relay spares itself PINGs while nobody watches and the agent's come; when they
// don't any more it asks, and ends the tunnel within 6 s of the last.
func TestIdleRelayLeavesPingsToTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, control, relay := registeredByHand(t)
		defer relay.Close()
		var asked atomic.Int32
		var quiet atomic.Bool
		go func() { // ends with the tunnel
			for {
				frame, err := protocol.ReadFrame(control)
				if err != nil {
					return
				}
				if m, err := protocol.Decode(frame); err == nil {
					if ping, ok := m.(protocol.Ping); ok {
						asked.Add(1)
						if !quiet.Load() {
							protocol.Write(control, protocol.Pong(ping))
						}
					}
				}
			}
		}()
		for id := range uint64(20) {
			must(t, protocol.Write(control, protocol.Ping{ID: id}))
			time.Sleep(protocol.PingIdle)
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("%d PINGs of the relay, want the first one only", n)
		}
		must(t, protocol.Write(control, protocol.Ping{ID: 20}))
		quiet.Store(true)
		last := time.Now()
		<-relay.Done()
		if took := time.Since(last); took > 6*time.Second {
			t.Errorf("noticed after %v", took)
		}
		if n := asked.Load(); n != 2 {
			t.Errorf("%d PINGs, want one more when the agent's was late", n)
		}
	})
}

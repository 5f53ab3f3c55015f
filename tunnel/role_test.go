package tunnel_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

func TestRole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agent, relay := tunneltest.Pair(t)
		role, said, changed := relay.Role()
		if said || role != (protocol.Role{}) {
			t.Errorf("before the agent said anything: %+v, %v", role, said)
		}
		for _, want := range []protocol.Role{
			{Primary: true, Generation: 3},
			{Primary: false, Generation: 4, Origin: "https://two.example"},
		} {
			must(t, agent.SendRole(want))
			<-changed
			if role, said, changed = relay.Role(); !said || role != want {
				t.Errorf("role %+v, %v; want %+v", role, said, want)
			}
		}
		must(t, agent.SendRole(protocol.Role{Primary: true, Generation: 4})) // not newer
		synctest.Wait()
		select {
		case <-changed:
			t.Error("an old role counts")
		default:
		}
	})
}

// What a relay tells of itself and the others, and whose origins it believes.
func TestWelcomeAndTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := tunneltest.Conns()
		admitted := make(chan *tunnel.Session, 1)
		go func() { // received below
			s, _ := tunnel.Admit(context.Background(), far, &tunnel.ListenConfig{
				RelayID: "rl_x", Origin: "https://one.example", Alternates: func() []string { return []string{"two.example:4433"} },
				Admit: func(context.Context, *tunnel.Registration) error { return nil },
			})
			admitted <- s
		}()
		agent, err := tunnel.Register(within(t), near, tunnel.DialConfig{
			Hello: func(protocol.Challenge, []byte) (protocol.Hello, error) { return tunneltest.Hello(), nil },
		})
		must(t, err)
		defer agent.Close()
		relay := <-admitted
		defer relay.Close()
		if w := agent.Welcome(); w.Origin != "https://one.example" || !slices.Equal(w.Alternates, []string{"two.example:4433"}) {
			t.Errorf("WELCOME %+v", w)
		}
		_, _, changed := relay.Role()
		must(t, agent.SendRole(protocol.Role{Generation: 1, Origin: "https://evil.example"}))
		<-changed
		if role, said, _ := relay.Role(); !said || role.Origin != "" {
			t.Errorf("role %+v: nobody said that its origin may be trusted", role)
		}
	})
}

func TestServing(t *testing.T) {
	agent, relay := tunneltest.Pair(t)
	opened := make(chan *tunnel.Stream)
	answer(t, agent, func(_ *tunnel.Incoming, s *tunnel.Stream) { opened <- s })
	if agent.Serving() != 0 {
		t.Error("something is served before anything was opened")
	}
	_, _, err := relay.Open(within(t), protocol.LaneControl, protocol.Open{Kind: protocol.StreamHTTP})
	must(t, err)
	s := <-opened
	if agent.Serving() != 1 || relay.Serving() != 0 {
		t.Errorf("the agent serves %d, the relay %d", agent.Serving(), relay.Serving())
	}
	s.Close()
	s.Close()
	if agent.Serving() != 0 {
		t.Errorf("%d are served after the end", agent.Serving())
	}
}

// A watchedRelay welcomes an agent and pings as one whose terminal is watched,
// until it dies at a time of the test's choice, and then swallows everything.
func watchedRelay(conn *tunneltest.Conn, dies time.Duration, pings chan<- time.Duration) {
	control, err := conn.Accept(context.Background())
	if err != nil {
		return
	}
	protocol.ReadPreface(control)
	protocol.Write(control, protocol.Challenge{Nonce: make([]byte, protocol.NonceBytes), RelayID: "rl_x"})
	protocol.ReadFrame(control)
	protocol.Write(control, protocol.Welcome{Version: 1, RelayID: "rl_x"})
	began := time.Now()
	go func() { // ends with the relay's death
		tick := time.NewTicker(protocol.PingWatched)
		defer tick.Stop()
		for range tick.C {
			if time.Since(began) >= dies {
				return
			}
			protocol.Write(control, protocol.Ping{ID: uint64(time.Since(began))})
		}
	}()
	for {
		m, err := readOne(control)
		if err != nil {
			return
		}
		ping, ok := m.(protocol.Ping)
		switch {
		case !ok:
		case time.Since(began) < dies:
			go protocol.Write(control, protocol.Pong(ping)) // ends with the tunnel
		default:
			select {
			case pings <- time.Since(began) - dies:
			default:
			}
		}
	}
}

func readOne(r io.Reader) (protocol.Message, error) {
	frame, err := protocol.ReadFrame(r)
	if err != nil {
		return nil, err
	}
	return protocol.Decode(frame)
}

// Whenever a relay dies while somebody watches, a packet of the agent's finds
// out within 300 ms, and silence alone is noticed within 1.5 s.
func TestDeathWhileWatched(t *testing.T) {
	for dies := 5 * time.Second; dies < 6*time.Second; dies += 37 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			near, far := tunneltest.Conns()
			pings := make(chan time.Duration, 1)
			go watchedRelay(far, dies, pings) // ends with the tunnel
			agent, err := tunnel.Register(within(t), near, tunnel.DialConfig{
				Hello: func(protocol.Challenge, []byte) (protocol.Hello, error) { return tunneltest.Hello(), nil },
			})
			must(t, err)
			began := time.Now()
			if late := <-pings; late > 300*time.Millisecond {
				t.Errorf("death at %v: the next packet comes %v later", dies, late)
			}
			<-agent.Done()
			if took := time.Since(began) - dies; took > 1500*time.Millisecond {
				t.Errorf("death at %v: noticed %v later", dies, took)
			}
			agent.Close()
		})
	}
}

// Probe finds out soon about a peer that nobody has watched.
func TestProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := tunneltest.Conns()
		go watchedRelay(far, 0, nil) // dead from the beginning; ends with the tunnel
		agent, err := tunnel.Register(within(t), near, tunnel.DialConfig{
			Hello: func(protocol.Challenge, []byte) (protocol.Hello, error) { return tunneltest.Hello(), nil },
		})
		must(t, err)
		defer agent.Close()
		began := time.Now()
		agent.Probe()
		<-agent.Done()
		if took := time.Since(began); took > 1200*time.Millisecond {
			t.Errorf("noticed after %v", took)
		}
	})
}

func TestHurryEndsAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hurry := make(chan struct{}, 1)
		fatal := errors.New("fatal")
		dials := 0
		began := time.Now()
		err := tunnel.Run(t.Context(), tunnel.RunConfig{
			Logger: discard(),
			Hurry:  hurry,
			Keeper: dialling{fatal, func(context.Context, string) (*tunnel.Session, error) {
				if dials++; dials == 50 {
					return nil, fatal
				}
				select {
				case hurry <- struct{}{}:
				default:
				}
				return nil, errors.New("no relay")
			}},
		})
		// A pause may end by itself at the same moment, then the next is short.
		if !errors.Is(err, fatal) || time.Since(began) > time.Second {
			t.Errorf("ended after %v with %v", time.Since(began), err)
		}
	})
}

package tunnel_test

import (
	"context"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

// Stalled readers on one lane, such as of a READ that nobody takes, don't hold
// up another lane.
func TestLanesDoNotBlockEachOther(t *testing.T) {
	for _, c := range []struct {
		name string
		pair func(testing.TB) (agent, relay *tunnel.Session)
	}{{"in memory", tunneltest.Pair}, {"over QUIC", quicPair}} {
		t.Run(c.name, func(t *testing.T) {
			agent, relay := c.pair(t)
			stuck := make(chan error, 4)
			answer(t, agent, func(in *tunnel.Incoming, s *tunnel.Stream) {
				if in.Lane == protocol.LaneTerminal0 {
					echo(in, s)
					return
				}
				s.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
				_, err := s.Write(make([]byte, 1<<20))
				stuck <- err
			})
			for range cap(stuck) {
				_, _, err := relay.Open(within(t), protocol.LaneBulk, protocol.Open{Kind: protocol.StreamRead})
				must(t, err)
			}
			live, _, err := relay.Open(within(t), protocol.LaneTerminal0, protocol.Open{Kind: protocol.StreamTerminal})
			must(t, err)
			for stalled := 0; stalled < cap(stuck); {
				must(t, pingPong(live))
				select {
				case err := <-stuck:
					if err == nil {
						t.Fatal("a stalled reader took 1 MiB")
					}
					stalled++
				default:
				}
			}
			must(t, pingPong(live))
		})
	}
}

// A lane that nobody uses is never opened.
func TestLanesOpenOnFirstUse(t *testing.T) {
	near, far := tunneltest.Conns()
	admitted := make(chan *tunnel.Session, 1)
	go func() { // received below
		s, _ := tunnel.Admit(context.Background(), far, &tunnel.ListenConfig{
			RelayID: "rl_x", Admit: func(context.Context, *tunnel.Registration) error { return nil },
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
	answer(t, agent, echo)
	for want, lane := range []protocol.Lane{"", protocol.LaneTerminal0, protocol.LaneTerminal0, protocol.LaneBulk} {
		if lane != "" {
			_, _, err := relay.Open(within(t), lane, protocol.Open{Kind: protocol.StreamTerminal})
			must(t, err)
		}
		if want > 1 {
			want-- // the second use of a lane opens nothing
		}
		if got := near.Streams(); got != 1+want {
			t.Errorf("%d streams after the use of %q, want the control stream and %d lanes", got, lane, want)
		}
	}
}

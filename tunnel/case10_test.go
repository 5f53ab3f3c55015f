package tunnel_test

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest/impair"
)

// TestCase10UDPBlackhole: when nothing gets through any more, in one direction
// or both, both ends know soon, whatever the tunnel was doing. How soon exactly,
// TestCase10ShortPath says: here the machine may be late itself.
func TestCase10UDPBlackhole(t *testing.T) {
	const lateness = 5 * time.Second
	var waiting []func()
	for _, c := range []struct {
		name   string
		side   impair.Side
		before func(t *testing.T, agent, relay *tunnel.Session)
		within time.Duration
	}{
		{name: "idle", side: impair.Duplex, within: 6 * time.Second},
		{name: "idle, up", side: impair.Up, within: 6 * time.Second},
		{name: "idle, down", side: impair.Down, within: 6 * time.Second},
		{name: "watched", side: impair.Duplex, before: watch, within: 2 * time.Second},
		{name: "in a burst", side: impair.Duplex, before: flood, within: 6 * time.Second},
	} {
		agent, relay, network := impaired(t, 1)
		if c.before != nil {
			c.before(t, agent, relay)
		}
		// A PING was just answered, so the next is as far off as it can be.
		awaitTrip(t, agent)
		awaitTrip(t, relay)
		network.Blackhole(c.side, true)
		began := time.Now()
		for _, s := range []*tunnel.Session{agent, relay} {
			knew := make(chan time.Duration, 1)
			go func() { // ends with the session
				<-s.Done()
				knew <- time.Since(began)
			}()
			waiting = append(waiting, func() {
				select {
				case took := <-knew:
					t.Logf("%s: %v: %v", c.name, took.Round(time.Millisecond), s.Err())
					if took > c.within+lateness {
						t.Errorf("%s: an end knows only after %v", c.name, took)
					}
				case <-within(t).Done():
					t.Errorf("%s: an end doesn't know after %v", c.name, time.Since(began))
				}
			})
		}
	}
	for _, wait := range waiting {
		wait()
	}
}

// awaitTrip waits until a PING has been answered.
func awaitTrip(t *testing.T, s *tunnel.Session) {
	t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for end := within(t); s.RTT() == 0; {
		select {
		case <-ticker.C:
		case <-end.Done():
			t.Fatal("no PING was answered")
		}
	}
}

// watch has the relay ping often, and waits until the agent does so as well,
// which takes two of the relay's PINGs.
func watch(_ *testing.T, _, relay *tunnel.Session) {
	relay.SetWatched(true)
	<-time.After(3 * protocol.PingWatched)
}

// flood has the agent send as much as it can, until the tunnel's end.
func flood(t *testing.T, agent, relay *tunnel.Session) {
	t.Helper()
	done := make(chan struct{})
	answer(t, agent, func(_ *tunnel.Incoming, s *tunnel.Stream) {
		defer close(done)
		for data := make([]byte, 4096); ; {
			if _, err := s.Write(data); err != nil {
				return
			}
		}
	})
	stream, _, err := relay.Open(within(t), protocol.LaneTerminal0, protocol.Open{Kind: protocol.StreamTerminal})
	must(t, err)
	seen := make(chan struct{})
	go func() {
		defer close(seen)
		buf := make([]byte, 64<<10)
		for {
			if _, err := stream.Read(buf); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		agent.Close()
		relay.Close()
		<-done
		<-seen
	})
}

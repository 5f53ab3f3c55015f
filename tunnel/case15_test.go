package tunnel_test

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest/impair"
)

// TestCase15SourcePortChanges: an agent whose address changes again and again,
// as behind a router that forgets, keeps its tunnel and loses nothing.
func TestCase15SourcePortChanges(t *testing.T) {
	seed := chance(t)
	agent, relay, network := impaired(t, seed)
	list := flows(t, agent, relay, seed)
	var probes []func() error
	for _, lane := range flowLanes {
		far, near := streamPair(t, agent, relay, lane)
		probes = append(probes, func() error { return errors.Join(pass(far, near), pass(near, far)) })
	}
	must(t, network.SetProfile(impair.Both(impair.Path{Delay: 5 * time.Millisecond, Rate: 40_000_000})))
	const changes = 4
	n := runAll(t, list, func() {
		ticker := time.NewTicker(200 * time.Millisecond)
		defer ticker.Stop()
		for range changes {
			<-ticker.C
			peers, err := network.Rebind()
			if err != nil || peers < len(flowLanes) { // the tunnel's connection is control's
				t.Errorf("the network has %d peers: %v", peers, err)
			}
			// Both directions of every connection work again. A peer need not
			// follow one who moves on before that (RFC 9000 §9.3), and quic-go
			// follows three such moves within 5 s.
			for _, probe := range probes {
				if err := probe(); err != nil {
					t.Error(err)
				}
			}
		}
		<-ticker.C
	})
	if agent.Err() != nil || relay.Err() != nil {
		t.Errorf("agent: %v, relay: %v", agent.Err(), relay.Err())
	}
	t.Logf("%d KiB over %d addresses", n>>10, changes+1)
}

// TestCase15RelaySpeaksFirst: a key that is typed right after the agent's
// address has changed arrives once the agent has sent anything.
func TestCase15RelaySpeaksFirst(t *testing.T) {
	agent, relay, network := impaired(t, 1)
	far, near := streamPair(t, agent, relay, protocol.LaneTerminal0)
	must(t, pass(near, far))
	must(t, pass(far, near))
	for range 3 {
		_, err := network.Rebind()
		must(t, err)
		_, err = near.Write([]byte("k"))
		must(t, err)
		must(t, pass(far, near))
		_, err = io.ReadFull(far, make([]byte, 1))
		must(t, err)
	}
}

// pass moves a few bytes from one end of a stream to the other.
func pass(from, to *tunnel.Stream) error {
	if _, err := from.Write([]byte("0123456789")); err != nil {
		return err
	}
	_, err := io.ReadFull(to, make([]byte, 10))
	return err
}

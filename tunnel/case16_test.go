package tunnel_test

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/tunnel/tunneltest/impair"
)

// TestCase16LossReorderingDuplication: nothing that a bad network does to
// datagrams changes the bytes of a stream, and the tunnel stays.
func TestCase16LossReorderingDuplication(t *testing.T) {
	seed := chance(t)
	agent, relay, network := impaired(t, seed)
	list := flows(t, agent, relay, seed)
	must(t, network.SetProfile(impair.Both(impair.Path{
		Delay: 5 * time.Millisecond, Jitter: 2 * time.Millisecond,
		Loss: 0.1, Duplicate: 0.05, Reorder: 0.1, Hold: 5 * time.Millisecond,
	})))
	began := time.Now()
	n := runAll(t, list, func() { <-time.After(*lossyFor) })
	if agent.Err() != nil || relay.Err() != nil {
		t.Errorf("agent: %v, relay: %v", agent.Err(), relay.Err())
	}
	c := network.Counts()
	t.Logf("%d KiB in %v; up %+v; down %+v", n>>10, time.Since(began).Round(time.Millisecond), c.Up, c.Down)
	for _, d := range []impair.DirectionCounts{c.Up, c.Down} {
		if d.Lost == 0 || d.Duplicated == 0 || d.Reordered == 0 {
			t.Errorf("the network did nothing: %+v", d)
		}
	}
}

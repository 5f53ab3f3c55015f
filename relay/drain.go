package relay

import (
	"context"
	"net/http"
	"time"
)

// handoverTime bounds the wait for agents to make another relay's tunnel their
// primary one.
const handoverTime = time.Second

// deregisterTimeout bounds the last words to the control plane. A test has more
// patience.
var deregisterTimeout = 500 * time.Millisecond

// drain ends what runs within the drain timeout. Sandboxes are asked to go and
// make another relay theirs first, so that their viewers can follow at once;
// then the other viewers are told to come back, and requests and commands under
// way may end.
func (r *Relay) drain(servers ...*http.Server) {
	// The rest is for the words that end the tunnels.
	left := r.cfg.DrainTimeout - min(r.cfg.DrainTimeout/5, time.Second)
	ctx, cancel := context.WithTimeout(context.Background(), left)
	defer cancel()
	r.deregister(ctx)
	alternates, origin := r.alternates(), r.elsewhere()
	r.log.Info("draining", "sandboxes", len(r.fleet.List()), "within", left, "alternates", alternates)
	r.fleet.Drain(alternates, left)
	if len(alternates) > 0 {
		handover, cancel := context.WithTimeout(ctx, handoverTime)
		r.fleet.AwaitHandover(handover)
		cancel()
	}
	r.hubs.Drain(ctx, origin)
	r.pages.Close()    // its streams would hold the servers up,
	r.requests.Drain() // and so would those of events
	for _, server := range servers {
		if server.Shutdown(ctx) != nil {
			server.Close()
		}
	}
	r.fleet.AwaitEmpty(ctx) // agents leave when their commands are done
	r.dispatcher.Close()
}

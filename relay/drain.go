package relay

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// handoverTime bounds the wait for agents to make another relay's tunnel their
// primary one.
const handoverTime = time.Second

// drain ends what runs, within the drain timeout. It first asks sandboxes to
// make another relay's tunnel their primary, so that their viewers can follow
// at once. Then it tells the other viewers to reconnect, and lets requests and
// commands that are in progress finish.
func (r *Relay) drain(servers ...*http.Server) {
	// The rest is for the messages that end the tunnels.
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
	var sockets sync.WaitGroup
	sockets.Go(func() { r.chats.Drain(ctx, origin) })
	r.hubs.Drain(ctx, origin)
	sockets.Wait()
	r.chat.Close(ctx)
	r.panel.Close(ctx)
	r.shell.Close(ctx)
	r.pages.Close()    // open streams would delay the servers' shutdown,
	r.requests.Drain() // and so would event streams
	r.plugins.Close(ctx)
	for _, server := range servers {
		if server.Shutdown(ctx) != nil {
			server.Close()
		}
	}
	r.fleet.AwaitEmpty(ctx) // agents leave when their commands are done
	r.dispatcher.Close()
}

package agent

import (
	"context"
	"testing"
	"time"

	"github.com/fairlead/fairlead/tunnel"
)

// TestNewestRelays: a relay that comes along with a renewed certificate is
// connected at once, and after a restart it is one of those that are known.
func TestNewestRelays(t *testing.T) {
	w := newWorld(t)
	one, two := w.listenAs("rl_1", "https://one.example", welcome), w.listenAs("rl_2", "https://two.example", welcome)
	w.List(one.Addr().String())
	w.enrolFor(time.Now().Add(-50*time.Minute), time.Hour)
	a, err := New(w.cfg) // Run closes it
	must(t, err)
	w.List(one.Addr().String(), two.Addr().String())
	asked := w.Renews(a.identity.Device.PublicJWK(), "crt_new", time.Hour)
	accept := func(l *tunnel.Listener) {
		t.Helper()
		session, err := l.Accept(within(t))
		must(t, err)
		w.Connect(session) // renewals may go through it
	}
	ctx, cancel := context.WithCancel(within(t))
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }() // received below
	accept(one)
	accept(two)
	cancel()
	must(t, <-ended)
	if len(asked) != 1 {
		t.Errorf("renewed %d times", len(asked))
	}

	again, err := New(w.cfg)
	must(t, err)
	w.runUntilEnd(again)
	accept(one)
	accept(two)
	if len(asked) != 1 {
		t.Error("it was told again, so this doesn't show what it knew")
	}
}

package hub

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
)

func TestOpenTellsTheAgentsAnswer(t *testing.T) {
	for _, kind := range []protocol.Kind{
		protocol.KindNotFound, protocol.KindForbidden, protocol.KindUnauthenticated, protocol.KindEnded, protocol.KindInvalid,
	} {
		t.Run(kind.String(), func(t *testing.T) {
			w := newWorld(t, protocol.TerminalOpened{})
			w.opens(protocol.TerminalOpened{}, protocol.Errorf(kind, "because"))
			grant, token := w.authority.Grant(nil)
			_, err := w.set.Open(t.Context(), testKey, grant, token)
			if err == nil || protocol.KindOf(err) != kind || err.Error() != "because" {
				t.Errorf("Open = %v", err)
			}
			w.opens(protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)}, nil)
			w.join(alice, nil).greeted() // it is asked anew
		})
	}
}

// A grant that the agent refuses is its bearer's misfortune alone.
func TestAnothersRefusedGrant(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{})
	voided, bad := w.authority.Grant(bob)
	grant, good := w.authority.Grant(alice)
	asked, answer := make(chan struct{}), make(chan struct{})
	w.opensWith(func(o protocol.Open, _ protocol.TerminalParams) (protocol.TerminalOpened, error) {
		if o.Grant == bad {
			close(asked)
			<-answer
			return protocol.TerminalOpened{}, protocol.Errorf(protocol.KindForbidden, "revoked")
		}
		return protocol.TerminalOpened{Epoch: 7, Cols: 80, Rows: 24, Lease: free(1)}, nil
	})
	results := make(chan error, 2)
	open := func(grant *jws.Grant, token string) {
		handle, err := w.set.Open(t.Context(), testKey, grant, token)
		if err == nil {
			handle.Release()
		}
		results <- err
	}
	go open(voided, bad) // received below
	<-asked
	w.set.mu.Lock()
	hub := w.set.hubs[testKey]
	w.set.mu.Unlock()
	go open(grant, good) // received below
	for waiting := 0; waiting < 2; {
		w.set.mu.Lock()
		waiting = hub.refs
		w.set.mu.Unlock()
	}
	close(answer)
	failed := 0
	for range 2 {
		if err := <-results; err != nil {
			failed++
		}
	}
	if failed != 1 {
		t.Errorf("%d of 2 were refused", failed)
	}
}

func TestOneHubForATerminal(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	x, y := w.join(alice, nil), w.join(bob, nil)
	if x.v.hub != y.v.hub {
		t.Error("two hubs")
	}
	x.greeted()
	y.greeted()
	if n := testutil.ToFloat64(w.set.metrics.Viewers); n != 2 {
		t.Errorf("%v viewers", n)
	}
	if n := testutil.ToFloat64(w.set.metrics.Hubs); n != 1 {
		t.Errorf("%v hubs", n)
	}
}

func TestClose(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	x, y := w.join(alice, nil), w.join(bob, nil)
	x.greeted()
	y.greeted()
	grant, token := w.authority.Grant(carol)
	handle, err := w.set.Open(t.Context(), testKey, grant, token)
	if err != nil {
		t.Fatal(err)
	}
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	w.set.Close(impatient) // doesn't wait for the handle
	for _, x := range []*watcher{x, y} {
		if it := x.ends(); it.code != 1012 {
			t.Errorf("%s", it)
		}
	}
	late := w.sit(handle, grant, token, nil) // its hub is over
	if it := late.ends(); it.code != 1013 {
		t.Errorf("%s", it)
	}
	if _, err := w.set.Open(t.Context(), testKey, grant, token); err == nil || protocol.KindOf(err) != protocol.KindRestarting {
		t.Errorf("Open = %v", err)
	}
	for _, x := range []*watcher{x, y, late} {
		<-x.served // and so has released its handle
	}
	w.set.Close(t.Context())
	if n := testutil.ToFloat64(w.set.metrics.Viewers); n != 0 {
		t.Errorf("%v viewers", n)
	}
}

func TestAnIdleHubEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSet(&relaytest.Tunnels{}, slog.New(slog.DiscardHandler), NewMetrics(prometheus.NewRegistry()))
		began := time.Now()
		_, err := s.Open(t.Context(), testKey, &jws.Grant{ID: "gr_1"}, "grant")
		if err == nil || protocol.KindOf(err) != protocol.KindUnavailable || time.Since(began) != openTimeout {
			t.Errorf("Open without a sandbox = %v after %v", err, time.Since(began))
		}
		hubs := func() int {
			synctest.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.hubs)
		}
		time.Sleep(idleTime - 1) // virtual, as all time here
		if hubs() != 1 {
			t.Error("the hub ended early")
		}
		_, err = s.Open(t.Context(), testKey, &jws.Grant{ID: "gr_1"}, "grant") // keeps it
		if err == nil || hubs() != 1 {
			t.Errorf("Open = %v, %d hubs", err, hubs())
		}
		time.Sleep(idleTime)
		if hubs() != 0 {
			t.Error("an idle hub stays")
		}
		s.Close(t.Context())
	})
}

func TestWatchersMakePingsFrequent(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	x := w.join(alice, nil)
	x.greeted()
	session, err := w.tunnels.Session(relaytest.Sandbox)
	if err != nil {
		t.Fatal(err)
	}
	watched := session.Watchers
	a := w.attached()
	synced(a, x, 0) // the stream is read, so it is counted
	if watched() != 1 {
		t.Errorf("%d hubs watch", watched())
	}
	x.leave()
	w.set.Close(t.Context())
	if watched() != 0 {
		t.Errorf("%d hubs watch after the end", watched())
	}
}

func TestManyOpenAtOnce(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	results := make(chan error, 50)
	for range cap(results) {
		grant, token := w.authority.Grant(func(g *jws.Grant) { bob(g); g.ID = protocol.NewGrantID() })
		go func() { // received below
			handle, err := w.set.Open(t.Context(), testKey, grant, token)
			if err == nil {
				defer handle.Release()
			}
			results <- err
		}()
	}
	for range cap(results) {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if len(w.attaches) != 1 {
		t.Errorf("%d streams", len(w.attaches))
	}
}

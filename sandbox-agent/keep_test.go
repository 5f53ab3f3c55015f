package agent

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
)

func welcome(*tunnel.Registration) error { return nil }

// run runs an agent until the test ends.
func (w *world) run() {
	w.t.Helper()
	a, err := New(w.cfg) // Run closes it
	must(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }() // received below
	w.t.Cleanup(func() {
		cancel()
		must(w.t, <-ended)
	})
}

// accept returns a relay's end of the next tunnel.
func accept(t *testing.T, l *tunnel.Listener) *fakeRelay {
	t.Helper()
	session, err := l.Accept(within(t))
	must(t, err)
	return &fakeRelay{t: t, session: session}
}

// TestTwoRelays: the agent keeps a tunnel to each; when the primary's is lost
// the other is promoted, and the lost one is dialled again and stands by.
func TestTwoRelays(t *testing.T) {
	w := newWorld(t)
	one, two := w.listenAs("rl_1", originOne, welcome), w.listenAs("rl_2", originTwo, welcome)
	w.cfg.Relays = []string{one.Addr().String(), two.Addr().String()}
	w.run()
	first, second := accept(t, one), accept(t, two)
	last := first.hears(true, "")
	second.hears(false, originOne)
	first.session.CloseWith(protocol.Errorf(protocol.KindInternal, "a fault"))
	if g := second.hears(true, ""); g <= last {
		t.Errorf("promoted with generation %d after %d", g, last)
	}
	accept(t, one).hears(false, originTwo)
}

// TestAlternates: an agent that knows one relay learns of the other by WELCOME
// or GOAWAY.
func TestAlternates(t *testing.T) {
	w := newWorld(t)
	one, two := w.listen(welcome), w.listenAs("rl_2", originTwo, welcome)
	w.run()
	first := accept(t, one)
	first.hears(true, "")
	stream := w.openHTTP(first.session) // keeps the tunnel, however slow the machine; see TestHandover
	must(t, first.session.GoAway(protocol.GoAway{
		Reason: protocol.KindRestarting, Alternates: []string{two.Addr().String()}, DeadlineMS: patience.Milliseconds(),
	}))
	accept(t, two).hears(true, "") // before the first is given up
	first.hears(false, originTwo)
	stream.Close()
	<-first.session.Done()
	accept(t, one).hears(false, originTwo) // it stands by when it is back
}

// TestOneRelayByTwoNames: one tunnel is enough, and isn't disturbed.
func TestOneRelayByTwoNames(t *testing.T) {
	w := newWorld(t)
	l := w.listen(welcome)
	asked := make(chan struct{}, 10)
	alias := w.listenAs("rl_1", originOne, func(*tunnel.Registration) error {
		asked <- struct{}{}
		return nil
	})
	w.cfg.Relays = append(w.cfg.Relays, alias.Addr().String())
	w.run()
	only := accept(t, l)
	only.hears(true, "")
	awaitLog(t, w, errSameRelay.Error())
	select {
	case <-asked:
		t.Error("registered twice at one relay")
	case <-only.session.Done():
		t.Errorf("the tunnel has ended: %v", only.session.Err())
	default:
	}
}

// TestFarewell: after GOAWAY a tunnel is kept until its streams are over, or
// the relay's time is up.
func TestFarewell(t *testing.T) {
	for _, c := range []struct {
		what     string
		deadline time.Duration
		finish   bool
	}{{"its stream ends", time.Minute, true}, {"time is up", 300 * time.Millisecond, false}} {
		t.Run(c.what, func(t *testing.T) {
			w := newWorld(t)
			l := w.listen(welcome)
			w.run()
			relay := accept(t, l).session
			w.answerConnect(relay, certify(t, &w.ca, serverName))
			stream := w.openHTTP(relay)
			defer stream.Close()
			began := time.Now()
			must(t, relay.GoAway(protocol.GoAway{Reason: protocol.KindRestarting, DeadlineMS: c.deadline.Milliseconds()}))
			if c.finish {
				select {
				case <-relay.Done():
					t.Errorf("the agent left its stream: %v", relay.Err())
				case <-time.After(5 * streamsInterval):
				}
				stream.Close()
			}
			<-relay.Done()
			if took := time.Since(began); !c.finish && took < c.deadline {
				t.Errorf("left after %v", took)
			}
		})
	}
}

// openHTTP opens a stream as the relay of a tunnel, which is in use by that.
func (w *world) openHTTP(relay *tunnel.Session) *tunnel.Stream {
	w.t.Helper()
	stream, _, err := relay.Open(within(w.t), protocol.LaneBulk, protocol.Open{
		Kind: protocol.StreamHTTP, Grant: signGrant(w.t, w.signer),
	})
	must(w.t, err)
	return stream
}

func awaitLog(t *testing.T, w *world, text string) {
	t.Helper()
	ctx := within(t)
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for !strings.Contains(w.log.String(), text) {
		select {
		case <-poll.C:
		case <-ctx.Done():
			t.Fatalf("the log doesn't say %q:\n%s", text, w.log)
		}
	}
}

package uplink

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
)

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
	w.options.Relays = []string{one.Addr().String(), two.Addr().String()}
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
	w.options.Relays = append(w.options.Relays, alias.Addr().String())
	w.run()
	only := accept(t, l)
	only.hears(true, "")
	waitFor(t, "a second dial", func() bool { return strings.Contains(w.log.String(), errSameRelay.Error()) })
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
	stream, _, err := relay.Open(within(w.t), protocol.LaneBulk, protocol.Open{Kind: protocol.StreamHTTP})
	must(w.t, err)
	return stream
}

// TestAnotherCopy: the older of two copies ends, and names the newer one.
func TestAnotherCopy(t *testing.T) {
	w := newWorld(t)
	l := w.listen(func(*tunnel.Registration) error { return nil })
	ended := make(chan error, 1)
	go func() { ended <- New(w.options).Run(within(t), anybody{}, host{}) }() // received below
	session, err := l.Accept(within(t))
	must(t, err)
	must(t, session.GoAway(protocol.GoAway{Reason: protocol.KindSuperseded, InstanceID: "another"}))
	err = <-ended // by itself: the words could be lost in the relay's own end of it
	if protocol.KindOf(err) != protocol.KindSuperseded {
		t.Fatalf("Run: %v", err)
	}
	for _, word := range []string{"another copy", string(w.options.Hello.SandboxID), "another", w.options.Hello.InstanceID} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q doesn't say %q", err, word)
		}
	}
}

// TestRefusedRegistration: a relay that refuses is asked again.
func TestRefusedRegistration(t *testing.T) {
	w := newWorld(t)
	refusals := 2
	l := w.listen(func(*tunnel.Registration) error {
		if refusals--; refusals >= 0 {
			return protocol.Errorf(protocol.KindForbidden, "the sandbox has another key")
		}
		return nil
	})
	w.run()
	accept(t, l)
	if !strings.Contains(w.log.String(), "the sandbox has another key") {
		t.Errorf("the log doesn't say why:\n%s", w.log)
	}
}

package fleet

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(relaytest.Patient(m)) }

// A world is a fleet and who certifies its sandboxes.
type world struct {
	t         *testing.T
	authority *relaytest.Authority
	revoked   *jws.RevocationSet
	fleet     *Fleet
}

func newWorld(t *testing.T) *world { return newWorldAt(t, time.Now) }

// newWorldAt is newWorld with another clock to judge signed times by.
func newWorldAt(t *testing.T, clock func() time.Time) *world {
	a := relaytest.NewAuthority(t)
	set, err := jws.ParseKeySet(a.JWKS)
	if err != nil {
		t.Fatal(err)
	}
	revoked := jws.NewRevocationSet()
	keys := jws.NewKeys(set, jws.KeysOptions{Revoked: revoked, Now: clock})
	return &world{t, a, revoked, New(keys, revoked, slog.New(slog.DiscardHandler))}
}

// A sandbox is one copy of an agent.
type sandbox struct {
	id          protocol.SandboxID
	key         *jws.DeviceKey
	certificate string
	generation  uint64
	instance    string
}

// sandbox makes a copy with a key of its own.
func (w *world) sandbox(id protocol.SandboxID) *sandbox {
	w.t.Helper()
	key, err := jws.GenerateDeviceKey()
	if err != nil {
		w.t.Fatal(err)
	}
	now := time.Now()
	certificate, err := w.authority.Signer.SignCertificate(jws.Certificate{
		Subject: id, JWK: key.PublicJWK(), IssuedAt: now.Unix(), ExpiresAt: now.Add(time.Hour).Unix(), ID: "cert_1",
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return &sandbox{id: id, key: key, certificate: certificate, generation: 1, instance: "instance1"}
}

// again returns another copy with the same key.
func (s *sandbox) again(generation uint64, instance string) *sandbox {
	next := *s
	next.generation, next.instance = generation, instance
	return &next
}

// dial registers s. Both ends are closed when the test ends.
func (w *world) dial(s *sandbox) (agent, relay *tunnel.Session, err error) {
	near, far := tunneltest.Conns()
	admitted := make(chan *tunnel.Session, 1)
	go func() { // dial waits for it below
		session, err := tunnel.Admit(context.Background(), far, &tunnel.ListenConfig{
			RelayID: tunneltest.RelayID, Admit: w.fleet.Admit,
			TrustOrigin: func(origin string) bool { return origin == elsewhere },
		})
		if err != nil {
			session = nil
		}
		admitted <- session
	}()
	agent, err = tunnel.Register(context.Background(), near, tunnel.DialConfig{
		Hello: func(c protocol.Challenge, exporter []byte) (protocol.Hello, error) {
			signature, err := s.key.Sign(protocol.HelloTranscript(c.RelayID, c.Nonce, exporter))
			return protocol.Hello{
				MinVersion: protocol.MinVersion, MaxVersion: protocol.MaxVersion, SandboxID: s.id, Certificate: s.certificate,
				Generation: s.generation, InstanceID: s.instance, Revision: "r1", Isolation: "none", Signature: signature,
			}, err
		},
	})
	relay = <-admitted
	w.t.Cleanup(func() {
		if agent != nil {
			agent.Close()
		}
		if relay != nil {
			relay.Close()
		}
	})
	return agent, relay, err
}

func (w *world) mustDial(s *sandbox) (agent, relay *tunnel.Session) {
	w.t.Helper()
	agent, relay, err := w.dial(s)
	if err != nil {
		w.t.Fatal(err)
	}
	return agent, relay
}

// refuses checks that s is not let in, and why.
func (w *world) refuses(s *sandbox, kind protocol.Kind, words string) {
	w.t.Helper()
	_, _, err := w.dial(s)
	if err == nil || protocol.KindOf(err) != kind || !strings.Contains(err.Error(), words) {
		w.t.Errorf("registration: %v, want %s with %q", err, kind, words)
	}
}

// A registration is bound to the TLS connection that it came by: one that was
// signed for another, or for none, is worth nothing here.
func TestRegistrationOfAnotherConnection(t *testing.T) {
	w := newWorld(t)
	s := w.sandbox("sb_bound")
	_, relay := tunneltest.Pair(t)
	here := protocol.Challenge{Nonce: make([]byte, protocol.NonceBytes), RelayID: tunneltest.RelayID}
	for _, c := range []struct {
		name          string
		signed, found string // what was signed, and what the relay's end is
		relay         protocol.RelayID
		fine          bool
	}{
		{"of this connection", "this", "this", tunneltest.RelayID, true},
		{"of another connection", "another", "this", tunneltest.RelayID, false},
		{"for a proxy that ends TLS, where there is none", "", "this", tunneltest.RelayID, false},
		{"of a connection, behind a proxy", "another", "", tunneltest.RelayID, false},
		{"for another relay", "this", "this", "rl_another", false},
	} {
		s.generation++
		signature, err := s.key.Sign(protocol.HelloTranscript(c.relay, here.Nonce, []byte(c.signed)))
		if err != nil {
			t.Fatal(err)
		}
		err = w.fleet.Admit(t.Context(), &tunnel.Registration{
			Challenge: here, Exporter: []byte(c.found), Session: relay,
			Hello: protocol.Hello{SandboxID: s.id, Certificate: s.certificate, Generation: s.generation, InstanceID: s.instance, Signature: signature},
		})
		if fine := err == nil; fine != c.fine || !fine && protocol.KindOf(err) != protocol.KindUnauthenticated {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// holds checks whose tunnel is registered, and that it lives.
func (w *world) holds(id protocol.SandboxID, want *tunnel.Session) {
	w.t.Helper()
	got, err := w.fleet.Session(id)
	if err != nil || got != want {
		w.t.Fatalf("the registered tunnel is %p (%v), want %p", got, err, want)
	}
	select {
	case <-want.Done():
		w.t.Errorf("the tunnel has ended: %v", want.Err())
	default:
	}
}

func TestRegistration(t *testing.T) {
	w := newWorld(t)
	b, a := w.sandbox("sb_b"), w.sandbox("sb_a")
	_, relayB := w.mustDial(b)
	agentA, relayA := w.mustDial(a)
	w.holds("sb_a", relayA)
	w.holds("sb_b", relayB)
	list := w.fleet.List()
	if len(list) != 2 || list[1].SandboxID != "sb_b" {
		t.Fatalf("List() = %+v", list)
	}
	if time.Since(time.UnixMilli(list[0].ConnectedAt)) > time.Minute {
		t.Errorf("connected at %d", list[0].ConnectedAt)
	}
	list[0].ConnectedAt = 0
	want := Status{
		SandboxID: "sb_a", InstanceID: "instance1", Generation: 1, Revision: "r1", Isolation: "none",
		Carrier: tunnel.CarrierMemory, Problems: []protocol.Problem{},
	}
	if !reflect.DeepEqual(list[0], want) {
		t.Errorf("List()[0] = %+v, want %+v", list[0], want)
	}

	agentA.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := w.gone(ctx, "sb_a"); err != nil {
		t.Error("a tunnel that ended stays registered")
	}
	if _, err := w.fleet.Session("sb_a"); protocol.KindOf(err) != protocol.KindUnavailable {
		t.Errorf("Session of a sandbox that left: %v", err)
	}
	w.holds("sb_b", relayB)
}

// gone waits until a sandbox is not registered.
func (w *world) gone(ctx context.Context, id protocol.SandboxID) error {
	for {
		w.fleet.mu.Lock()
		_, there := w.fleet.members[id]
		changed := w.fleet.changed
		w.fleet.mu.Unlock()
		if !there {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestWhoIsNotLetIn(t *testing.T) {
	w := newWorld(t)
	incumbent := w.sandbox("sb_a")
	_, relay := w.mustDial(incumbent)
	higher := incumbent.again(9, "instance9")

	other := w.sandbox("sb_other")
	other.id = "sb_a"
	other.generation = 9
	w.refuses(other, protocol.KindForbidden, "another sandbox")

	unsigned := *higher
	unsigned.key = w.sandbox("sb_x").key // the certificate is the incumbent's
	w.refuses(&unsigned, protocol.KindUnauthenticated, "not signed")

	otherKey := w.sandbox("sb_a")
	otherKey.generation = 9
	w.refuses(otherKey, protocol.KindForbidden, "another key")

	forged := *higher
	forged.certificate = newWorld(t).sandbox("sb_a").certificate
	w.refuses(&forged, protocol.KindUnauthenticated, "")

	none := *higher
	none.certificate = "none"
	w.refuses(&none, protocol.KindUnauthenticated, "")

	w.holds("sb_a", relay) // through all of it
}

func TestExpiredCertificate(t *testing.T) {
	w := newWorld(t)
	s := w.sandbox("sb_a")
	var err error
	s.certificate, err = w.authority.Signer.SignCertificate(jws.Certificate{
		Subject: "sb_a", JWK: s.key.PublicJWK(), IssuedAt: time.Now().Add(-2 * time.Hour).Unix(),
		ExpiresAt: time.Now().Add(-time.Hour).Unix(), ID: "cert_1",
	})
	if err != nil {
		t.Fatal(err)
	}
	w.refuses(s, protocol.KindExpired, "expired")
}

// Of two copies the newer one wins. What the older one had open is cut, and
// nothing that it still sends gets in.
func TestCase11SameIDAndKeyTwice(t *testing.T) {
	w := newWorld(t)
	first := w.sandbox("sb_a")
	agent, old := w.mustDial(first)
	stream, far := w.stream(agent, old)
	_, relay := w.mustDial(first.again(2, "instance2"))
	w.holds("sb_a", relay)

	select {
	case m := <-agent.GoAways():
		if m.Reason != protocol.KindSuperseded || m.InstanceID != "instance2" {
			t.Errorf("GOAWAY %+v", m)
		}
	case <-t.Context().Done():
	}
	<-old.Done()
	far.Write([]byte("old"))
	if n, err := stream.Read(make([]byte, 3)); n > 0 || err == nil || errors.Is(err, io.EOF) {
		t.Errorf("of the older copy's stream %d bytes were read, and %v", n, err)
	}
	if _, _, err := old.Open(t.Context(), protocol.LaneControl, protocol.Open{Kind: protocol.StreamCommand}); err == nil {
		t.Error("the older copy gets a command")
	}
	<-agent.Done()
	if kind := protocol.KindOf(agent.Err()); kind != protocol.KindSuperseded {
		t.Errorf("the loser's tunnel ended with %s: %v", kind, agent.Err())
	}
	w.holds("sb_a", relay) // its end doesn't unregister the winner
	w.refuses(first, protocol.KindSuperseded, "instance2")
	w.holds("sb_a", relay)
}

// stream returns both ends of a terminal stream.
func (w *world) stream(agent, relay *tunnel.Session) (near, far *tunnel.Stream) {
	w.t.Helper()
	accepted := make(chan *tunnel.Stream, 1)
	go func() { // received below
		in, err := agent.Accept(w.t.Context())
		if err == nil {
			if s, err := in.Accept(protocol.Opened{}); err == nil {
				accepted <- s
			}
		}
		close(accepted)
	}()
	near, _, err := relay.Open(w.t.Context(), protocol.LaneTerminal0, protocol.Open{Kind: protocol.StreamTerminal})
	if err != nil {
		w.t.Fatal(err)
	}
	return near, <-accepted
}

// Another key never gets a sandbox's id, whatever generation it says, and the
// incumbent's streams don't notice.
func TestCase12SameIDOtherKey(t *testing.T) {
	w := newWorld(t)
	agent, relay := w.mustDial(w.sandbox("sb_a"))
	near, far := w.stream(agent, relay)
	for _, generation := range []uint64{1, 9, 1<<63 - 1} {
		thief := w.sandbox("sb_a")
		thief.generation, thief.instance = generation, "thief"
		w.refuses(thief, protocol.KindForbidden, "another key")
		if _, err := far.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(near, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		w.holds("sb_a", relay)
	}
	select {
	case m := <-agent.GoAways():
		t.Errorf("the incumbent is told %+v", m)
	default:
	}
}

func TestLowerGenerationIsRefused(t *testing.T) {
	w := newWorld(t)
	s := w.sandbox("sb_a")
	_, relay := w.mustDial(s.again(5, "instance5"))
	w.refuses(s.again(4, "instance4"), protocol.KindSuperseded, "instance5")
	w.refuses(s.again(5, "instance6"), protocol.KindSuperseded, "generation 5")
	w.holds("sb_a", relay)
}

func TestALostTunnelProtectsNobody(t *testing.T) {
	w := newWorld(t)
	_, relay := w.mustDial(w.sandbox("sb_a").again(5, "instance5"))
	relay.CloseWith(protocol.Fault(protocol.KindUpstream, nil))
	<-relay.Done()
	_, relay = w.mustDial(w.sandbox("sb_a")) // another key, a lower generation
	w.holds("sb_a", relay)
}

func TestWait(t *testing.T) {
	w := newWorld(t)
	type answer struct {
		session *tunnel.Session
		err     error
	}
	answers := make(chan answer, 2)
	for range cap(answers) {
		go func() { // answered below
			session, err := w.fleet.Wait(t.Context(), "sb_a")
			answers <- answer{session, err}
		}()
	}
	w.mustDial(w.sandbox("sb_b")) // wakes them, for nothing
	agent, relay := w.mustDial(w.sandbox("sb_a"))
	say(t, agent, relay, primary(1))
	for range cap(answers) {
		if a := <-answers; a.err != nil || a.session != relay {
			t.Errorf("Wait = %p, %v; want %p", a.session, a.err, relay)
		}
	}
	if session, err := w.fleet.Wait(t.Context(), "sb_a"); err != nil || session != relay {
		t.Errorf("Wait for one who is there = %p, %v", session, err)
	}
}

func TestWaitGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(nil, jws.NewRevocationSet(), slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := f.Wait(ctx, "sb_a"); err == nil || protocol.KindOf(err) != protocol.KindUnavailable {
			t.Errorf("Wait = %v", err)
		}
	})
}

// A certificate whose maker's clock is off is good within 60 s of difference at
// either end of its life, and no further.
func TestCase14ClockSkew(t *testing.T) {
	const life = 10 * time.Minute
	now := time.Now().Truncate(time.Second) // stands still: what is signed has whole seconds
	for _, c := range []struct {
		issued time.Duration // after now
		want   protocol.Kind // KindInternal: let in
	}{
		{60 * time.Second, protocol.KindInternal},
		{61 * time.Second, protocol.KindUnauthenticated},
		{time.Hour, protocol.KindUnauthenticated},
		{-life - 60*time.Second, protocol.KindInternal},
		{-life - 61*time.Second, protocol.KindExpired},
		{-life - time.Hour, protocol.KindExpired},
	} {
		t.Run(c.issued.String(), func(t *testing.T) {
			w := newWorldAt(t, func() time.Time { return now })
			s := w.sandbox("sb_a")
			issued := now.Add(c.issued)
			var err error
			s.certificate, err = w.authority.Signer.SignCertificate(jws.Certificate{
				Subject: "sb_a", JWK: s.key.PublicJWK(), IssuedAt: issued.Unix(), ExpiresAt: issued.Add(life).Unix(), ID: "cert_1",
			})
			if err != nil {
				t.Fatal(err)
			}
			if c.want != protocol.KindInternal {
				w.refuses(s, c.want, "")
				return
			}
			_, relay := w.mustDial(s)
			w.holds("sb_a", relay)
		})
	}
}

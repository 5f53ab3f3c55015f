package agent

import (
	"context"
	"crypto/ecdsa"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/authority"
	"github.com/fairlead/fairlead/tunnel"
)

// TestRegister: an agent registers over QUIC with what its enrolment says and
// a signature by its device key, and under a higher generation each time.
func TestRegister(t *testing.T) {
	w := newWorld(t)
	hellos := make(chan *tunnel.Registration, 10)
	l := w.listen(func(r *tunnel.Registration) error {
		hellos <- r
		return nil
	})
	a, err := New(w.cfg) // Run closes it
	must(t, err)
	ctx, cancel := context.WithCancel(within(t))
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }() // received below
	public := devicePublic(t, a)
	last := uint64(0)
	for round := 1; round <= 3; round++ {
		r := <-hellos
		h := r.Hello
		if h.SandboxID != sandbox || h.Certificate != "a.b.c" || h.Generation <= last || h.InstanceID != a.instance || h.Revision != "rev1" {
			t.Errorf("hello %+v", h)
		}
		last = h.Generation
		transcript := protocol.HelloTranscript(r.Challenge.RelayID, r.Challenge.Nonce, r.Exporter)
		if len(r.Exporter) == 0 || !jws.VerifyDevice(public, transcript, h.Signature) {
			t.Error("the signature doesn't fit")
		}
		session, err := l.Accept(within(t))
		must(t, err)
		// Its own later tunnel took over, or the relay restarts: it comes back.
		goAway := protocol.GoAway{Reason: protocol.KindSuperseded, InstanceID: a.instance}
		if round == 2 {
			goAway = protocol.GoAway{Reason: protocol.KindRestarting}
		}
		must(t, session.GoAway(goAway))
		session.CloseWith(protocol.Errorf(goAway.Reason, "go away"))
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}

// enrolFor writes an enrolment with a certificate of its own, issued some time
// ago.
func (w *world) enrolFor(issued time.Time, life time.Duration) (certificate string) {
	w.t.Helper()
	device, err := authority.DeviceKey(w.cfg.StateDir)
	must(w.t, err)
	e := w.Certified(device.PublicJWK(), "crt_old", issued, life)
	w.enrol(e)
	return e.Certificate
}

// runUntilEnd runs a, which New has made, until the test ends.
func (w *world) runUntilEnd(a *Agent) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }() // received below
	w.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("Run: %v", err)
		}
	})
}

// TestRenewal: a certificate of which two thirds are over is exchanged through
// connect, and the next registration uses the new one, which is on disk by
// then.
func TestRenewal(t *testing.T) {
	w := newWorld(t)
	old := w.enrolFor(time.Now().Add(-50*time.Minute), time.Hour)
	path := filepath.Join(w.cfg.StateDir, authority.EnrolmentFile)
	hellos := make(chan string, 10)
	l := w.listen(func(r *tunnel.Registration) error {
		onDisk, err := os.ReadFile(path)
		must(t, err)
		if cert := r.Hello.Certificate; cert != old && !strings.Contains(string(onDisk), cert) { // the old one may be under way
			t.Error("a certificate is used that isn't on disk")
		}
		hellos <- r.Hello.Certificate
		return nil
	})
	a, err := New(w.cfg)
	must(t, err)
	asked := w.Renews(a.identity.Device.PublicJWK(), "crt_new", time.Hour)
	w.runUntilEnd(a)
	first, err := l.Accept(within(t))
	must(t, err)
	w.Connect(first) // if it goes through the tunnel
	<-hellos
	if got := <-asked; got != old {
		t.Errorf("renewed %q", got)
	}
	waitFor(t, "the new certificate on disk", func() bool {
		onDisk, err := os.ReadFile(path)
		must(t, err)
		return !strings.Contains(string(onDisk), old)
	})
	first.CloseWith(protocol.Errorf(protocol.KindRestarting, "again"))
	waitFor(t, "a registration with it", func() bool {
		session, err := l.Accept(within(t))
		must(t, err)
		session.CloseWith(protocol.Errorf(protocol.KindRestarting, "again"))
		return <-hellos != old
	})
}

// TestRenewalUnregistered: whose certificate no relay believes any more renews
// it all the same, as an agent that isn't registered.
func TestRenewalUnregistered(t *testing.T) {
	w := newWorld(t)
	old := w.enrolFor(time.Now(), time.Hour)
	l := w.listen(func(r *tunnel.Registration) error {
		if r.Hello.Certificate == old {
			return protocol.Errorf(protocol.KindUnauthenticated, "signed by a key that was revoked")
		}
		return nil
	})
	a, err := New(w.cfg)
	must(t, err)
	asked := w.Renews(a.identity.Device.PublicJWK(), "crt_new", time.Hour)
	w.runUntilEnd(a)
	session, err := l.Accept(within(t))
	must(t, err)
	if session.Hello().Certificate == old || len(asked) != 1 {
		t.Errorf("registered with the old one, %d renewals", len(asked))
	}
}

func devicePublic(t *testing.T, a *Agent) *ecdsa.PublicKey {
	t.Helper()
	public, err := (&jws.Certificate{JWK: a.identity.Device.PublicJWK()}).PublicKey()
	must(t, err)
	return public
}

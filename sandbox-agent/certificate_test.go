package agent

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
)

// renewals has the control plane renew certificates whose bearer proves to
// have the key; those that it makes are called next.
func (w *world) renewals(a *Agent, next string, life time.Duration) (asked <-chan string) {
	requests := make(chan string, 100)
	w.handle("POST /certificate", func(rw http.ResponseWriter, r *http.Request) {
		var req protocol.RenewRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil ||
			!proven(r, a.device.PublicJWK(), req.Signature, protocol.RenewTranscript) {
			refuse(rw, http.StatusUnauthorized, "not the certified key")
			return
		}
		requests <- req.Certificate
		json.NewEncoder(rw).Encode(w.certified(a.device.PublicJWK(), next, time.Now(), life))
	})
	return requests
}

// enrolFor writes an enrolment with a certificate of its own, issued some time
// ago.
func (w *world) enrolFor(issued time.Time, life time.Duration) (certificate string) {
	w.t.Helper()
	device, err := DeviceKey(w.cfg.StateDir)
	must(w.t, err)
	e := w.certified(device.PublicJWK(), "crt_old", issued, life)
	w.enrol(func(to *protocol.Enrolment) { *to = e })
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
	path := filepath.Join(w.cfg.StateDir, enrolmentFile)
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
	asked := w.renewals(a, "crt_new", time.Hour)
	w.runUntilEnd(a)
	first, err := l.Accept(within(t))
	must(t, err)
	w.answerConnect(first, certify(t, &w.ca, serverName)) // if it goes through the tunnel
	<-hellos
	if got := <-asked; got != old {
		t.Errorf("renewed %q", got)
	}
	waitFor(t, "the new certificate", func() bool { return a.holder.credential().token != old })
	first.CloseWith(protocol.Errorf(protocol.KindRestarting, "again"))
	waitFor(t, "a registration with it", func() bool {
		session, err := l.Accept(within(t))
		must(t, err)
		session.CloseWith(protocol.Errorf(protocol.KindRestarting, "again"))
		return <-hellos == a.holder.credential().token
	})
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if at, known := a.holder.credential().renewAt(); !known || time.Until(at) < 39*time.Minute {
		t.Errorf("renewed again at %v", at)
	}
	if len(asked) != 0 {
		t.Errorf("renewed %d times more", len(asked))
	}
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
	asked := w.renewals(a, "crt_new", time.Hour)
	w.runUntilEnd(a)
	session, err := l.Accept(within(t))
	must(t, err)
	if session.Hello().Certificate == old || len(asked) != 1 {
		t.Errorf("registered with the old one, %d renewals", len(asked))
	}
}

// TestRenewalFails: what the control plane refuses is tried again, and becomes
// a problem when the end is near.
func TestRenewalFails(t *testing.T) {
	w := newWorld(t)
	old := w.enrolFor(time.Now().Add(-55*time.Minute), time.Hour)
	l := w.listen(welcome)
	a, err := New(w.cfg)
	must(t, err)
	asked := make(chan struct{}, 100)
	w.handle("POST /certificate", func(rw http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		refuse(rw, http.StatusServiceUnavailable, "later")
	})
	w.runUntilEnd(a)
	session, err := l.Accept(within(t))
	must(t, err)
	w.answerConnect(session, certify(t, &w.ca, serverName))
	for range 2 {
		<-asked
	}
	waitFor(t, "a problem", func() bool {
		status, _, _ := session.Status()
		return slices.ContainsFunc(status.Problems, func(p protocol.Problem) bool { return p.Name == protocol.ProblemCertificate })
	})
	if a.holder.credential().token != old {
		t.Error("another certificate is used")
	}
	w.renewals(a, "crt_new", time.Hour)
	waitFor(t, "no problem", func() bool {
		status, said, _ := session.Status()
		return said && len(status.Problems) == 0
	})
}

// TestRevokedCertificate: whom relays and the control plane refuse says so.
func TestRevokedCertificate(t *testing.T) {
	w := newWorld(t)
	w.enrolFor(time.Now(), time.Hour)
	w.listen(func(*tunnel.Registration) error {
		return protocol.Errorf(protocol.KindUnauthenticated, "certificate: it was revoked")
	})
	a, err := New(w.cfg)
	must(t, err)
	w.handle("POST /certificate", func(rw http.ResponseWriter, _ *http.Request) {
		refuse(rw, http.StatusUnauthorized, "the certificate is not valid")
	})
	w.runUntilEnd(a)
	waitFor(t, "a problem", func() bool { return slices.Contains(problems(a), protocol.ProblemCertificate) })
}

// TestRenewalIsStoredFirst: a certificate that can't be stored isn't used.
func TestRenewalIsStoredFirst(t *testing.T) {
	w := newWorld(t)
	old := w.enrolFor(time.Now(), time.Hour)
	w.listen(welcome)
	a := w.start()
	w.renewals(a, "crt_new", time.Hour)
	a.cfg.Enrolment = filepath.Join(w.cfg.StateDir, "none", enrolmentFile)
	if err := a.holder.renew(within(t)); err == nil || a.holder.credential().token != old {
		t.Errorf("renewed: %v", err)
	}
	a.cfg.Enrolment = filepath.Join(w.cfg.StateDir, enrolmentFile)
	must(t, a.holder.renew(within(t)))
	if a.holder.credential().token == old {
		t.Error("not renewed")
	}
}

func TestCredential(t *testing.T) {
	w := newWorld(t)
	issued := time.Unix(1_700_000_000, 0)
	token := w.enrolFor(issued, 30*time.Hour)
	c := parseCredential(token)
	if at, known := c.renewAt(); !known || !at.Equal(issued.Add(20*time.Hour)) {
		t.Errorf("renewed at %v", at)
	}
	if c.ending(issued.Add(27*time.Hour)) || !c.ending(issued.Add(27*time.Hour+time.Second)) {
		t.Error("the end is near at the wrong time")
	}
	for _, bad := range []string{"", "a.b.c", "..", "a.e30.c", "a.eyJpYXQiOjIsImV4cCI6MX0.c"} {
		c := parseCredential(bad)
		if _, known := c.renewAt(); known || c.ending(issued) {
			t.Errorf("%q has an end", bad)
		}
	}
}

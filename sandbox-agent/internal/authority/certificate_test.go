package authority

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// TestRenewal: a certificate of which two thirds are over is exchanged, and the
// new one is renewed in its own time.
func TestRenewal(t *testing.T) {
	w := newWorld(t)
	old := w.enrolFor(time.Now().Add(-50*time.Minute), time.Hour)
	a := w.open()
	asked := w.Renews(a.Credentials.identity.Device.PublicJWK(), "crt_new", time.Hour)
	run(t, a.Run)
	if got := <-asked; got != old {
		t.Errorf("renewed %q", got)
	}
	waitFor(t, "the new certificate", func() bool { return a.Credentials.certificate().token != old })
	if info, err := os.Stat(w.file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if at, known := a.Credentials.certificate().renewAt(); !known || time.Until(at) < 39*time.Minute {
		t.Errorf("renewed again at %v", at)
	}
	if len(asked) != 0 {
		t.Errorf("renewed %d times more", len(asked))
	}
}

// TestRenewalFails: what the control plane refuses is tried again, and becomes
// a problem when the end is near.
func TestRenewalFails(t *testing.T) {
	w := newWorld(t)
	old := w.enrolFor(time.Now().Add(-55*time.Minute), time.Hour)
	c := w.open().Credentials
	asked := make(chan struct{}, 100)
	w.Handle("POST /certificate", func(rw http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		refuse(rw, http.StatusServiceUnavailable, "later")
	})
	run(t, c.keep)
	for range 2 {
		<-asked
	}
	if c.Problem(time.Now()) == "" || c.certificate().token != old {
		t.Errorf("no problem, or another certificate is used")
	}
	w.Renews(c.identity.Device.PublicJWK(), "crt_new", time.Hour)
	waitFor(t, "no problem", func() bool { return c.Problem(time.Now()) == "" })
	<-w.changed
}

// TestRevokedCertificate: whom relays and the control plane refuse says so. That
// is found out without a tunnel.
func TestRevokedCertificate(t *testing.T) {
	w := newWorld(t)
	w.enrolFor(time.Now(), time.Hour)
	w.registered.Store(false)
	w.unregistered.Store(true)
	c := w.open().Credentials
	w.Handle("POST /certificate", func(rw http.ResponseWriter, _ *http.Request) {
		refuse(rw, http.StatusUnauthorized, "the certificate is not valid")
	})
	run(t, c.keep)
	c.Doubted()
	waitFor(t, "a problem", func() bool { return c.Problem(time.Now()) != "" })
	<-w.changed
}

// TestRenewalIsStoredFirst: a certificate that can't be stored isn't used.
func TestRenewalIsStoredFirst(t *testing.T) {
	w := newWorld(t)
	old := w.enrolFor(time.Now(), time.Hour)
	c := w.open().Credentials
	w.Renews(c.identity.Device.PublicJWK(), "crt_new", time.Hour)
	c.identity.file = filepath.Join(w.dir, "none", EnrolmentFile)
	if err := c.renew(within(t)); err == nil || c.certificate().token != old {
		t.Errorf("renewed: %v", err)
	}
	c.identity.file = w.file
	must(t, c.renew(within(t)))
	if c.certificate().token == old {
		t.Error("not renewed")
	}
}

// TestRenewalBringsRelays: each list is adopted once it is stored, so that the
// newest counts after a restart.
func TestRenewalBringsRelays(t *testing.T) {
	w := newWorld(t)
	w.enrolFor(time.Now(), time.Hour)
	c := w.open().Credentials
	w.Renews(c.identity.Device.PublicJWK(), "crt_new", time.Hour)
	first := []string{"127.0.0.1:1"}
	newer := []string{"relay-2.example:7443", "relay-3.example:7443"}
	for _, want := range [][]string{first, newer, first} {
		w.List(want...)
		must(t, c.renew(within(t)))
		if got := <-w.adopted; !slices.Equal(got, want) {
			t.Errorf("after %q: adopted %q", want, got)
		}
		again, err := Load(w.dir, w.file)
		must(t, err)
		if got := again.Enrolment.Relays; !slices.Equal(got, want) {
			t.Errorf("after %q: a restart knows %q", want, got)
		}
	}
	w.List() // which the control plane never sends
	if err := c.renew(within(t)); err == nil || len(w.adopted) != 0 {
		t.Errorf("adopted an enrolment without relays: %v", err)
	}
	w.List(first...)
	c.identity.file = filepath.Join(w.dir, "none", EnrolmentFile)
	if err := c.renew(within(t)); err == nil || len(w.adopted) != 0 {
		t.Errorf("adopted what isn't stored: %v", err)
	}
}

func TestCertificate(t *testing.T) {
	w := newWorld(t)
	issued := time.Unix(1_700_000_000, 0)
	token := w.enrolFor(issued, 30*time.Hour)
	c := parseCertificate(token)
	if at, known := c.renewAt(); !known || !at.Equal(issued.Add(20*time.Hour)) {
		t.Errorf("renewed at %v", at)
	}
	if c.ending(issued.Add(27*time.Hour)) || !c.ending(issued.Add(27*time.Hour+time.Second)) {
		t.Error("the end is near at the wrong time")
	}
	for _, bad := range []string{"", "a.b.c", "..", "a.e30.c", "a.eyJpYXQiOjIsImV4cCI6MX0.c"} {
		c := parseCertificate(bad)
		if _, known := c.renewAt(); known || c.ending(issued) {
			t.Errorf("%q has an end", bad)
		}
	}
}

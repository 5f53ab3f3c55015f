package agent

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
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

func devicePublic(t *testing.T, a *Agent) *ecdsa.PublicKey {
	t.Helper()
	public, err := (&jws.Certificate{JWK: a.device.PublicJWK()}).PublicKey()
	must(t, err)
	return public
}

// TestAnotherCopy: the older of two copies ends, and names the newer one.
func TestAnotherCopy(t *testing.T) {
	w := newWorld(t)
	l := w.listen(func(*tunnel.Registration) error { return nil })
	a, err := New(w.cfg) // Run closes it
	must(t, err)
	ended := make(chan error, 1)
	go func() { ended <- a.Run(within(t)) }() // received below
	session, err := l.Accept(within(t))
	must(t, err)
	must(t, session.GoAway(protocol.GoAway{Reason: protocol.KindSuperseded, InstanceID: "another"}))
	err = <-ended // by itself: the words could be lost in the relay's own end of it
	if protocol.KindOf(err) != protocol.KindSuperseded {
		t.Fatalf("Run: %v", err)
	}
	for _, word := range []string{"another copy", string(sandbox), "another", a.instance} {
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
	a, err := New(w.cfg) // Run closes it
	must(t, err)
	ctx, cancel := context.WithCancel(within(t))
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }() // received below
	_, err = l.Accept(within(t))
	must(t, err)
	cancel()
	must(t, <-ended)
	if !strings.Contains(w.log.String(), "the sandbox has another key") {
		t.Errorf("the log doesn't say why:\n%s", w.log)
	}
}

// TestKeysAreCached: keys come through a connect stream, from nobody but the
// control plane, and the next agent begins with them.
func TestKeysAreCached(t *testing.T) {
	w := newWorld(t)
	signer, jwks := newKeys(t)
	a := w.start()
	grant := signGrant(t, signer)
	serve := func(server string, until func() bool) {
		near, far := tunneltest.Pair(t)
		authority := &w.ca
		if server == "impostor" {
			authority = nil
		}
		w.answerConnect(far, certify(t, authority, serverName))
		ctx, cancel := context.WithCancel(within(t))
		defer cancel()
		served := make(chan error, 1)
		go func() { // received below
			_, err := a.serve(ctx, "127.0.0.1:1", near)
			served <- err
		}()
		poll := time.NewTicker(5 * time.Millisecond)
		defer poll.Stop()
		for !until() {
			select {
			case <-poll.C:
			case <-ctx.Done():
				t.Fatalf("%s: nothing happened:\n%s", server, w.log)
			}
		}
		cancel()
		must(t, <-served)
	}
	w.mu.Lock()
	w.jwks = jwks
	w.mu.Unlock()
	serve("impostor", func() bool { return strings.Contains(w.log.String(), "keys not refreshed") })
	cache := filepath.Join(w.cfg.StateDir, keysFile)
	if _, err := os.Stat(cache); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an impostor's keys were cached: %v", err)
	}
	serve("control plane", func() bool { _, err := os.Stat(cache); return err == nil })
	if _, err := a.keys.Grant(t.Context(), grant); err != nil {
		t.Errorf("with the new keys: %v", err)
	}
	before, err := os.Stat(cache)
	must(t, err)
	a.storeKeys(jwks)
	if after, err := os.Stat(cache); err != nil || !os.SameFile(before, after) {
		t.Errorf("the same keys were written again: %v", err)
	}
	next := w.start()
	if _, err := next.keys.Grant(t.Context(), grant); err != nil {
		t.Errorf("the next agent: %v", err)
	}
}

func signGrant(t *testing.T, signer *jws.Signer) string {
	t.Helper()
	now := time.Now().Unix()
	token, err := signer.SignGrant(jws.Grant{
		Issuer: jws.Issuer, Audience: jws.AudienceFairlead, Subject: "usr_1", Sandbox: sandbox,
		PTYs: []string{jws.AllPTYs}, Caps: []protocol.Capability{protocol.CapView},
		IssuedAt: now, ExpiresAt: now + 60, ID: "gr_1",
	})
	must(t, err)
	return token
}

// TestKnownKeys: which key set an agent begins with.
func TestKnownKeys(t *testing.T) {
	for _, tt := range []struct {
		what  string
		cache func(jwks []byte) []byte
		later bool // the enrolment is newer than the cache
		want  string
	}{
		{"cached", func(jwks []byte) []byte { return jwks }, false, "cached"},
		{"older than the enrolment", func(jwks []byte) []byte { return jwks }, true, "enrolled"},
		{"garbled", func([]byte) []byte { return []byte("{") }, false, "enrolled"},
		{"empty", func([]byte) []byte { return []byte(`{"keys":[]}`) }, false, "enrolled"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			w := newWorld(t)
			signer, jwks := newKeys(t)
			cache := filepath.Join(w.cfg.StateDir, keysFile)
			must(t, os.WriteFile(cache, tt.cache(jwks), 0o600))
			if tt.later {
				must(t, os.Chtimes(cache, time.Time{}, time.Now().Add(-time.Hour)))
			}
			a := w.start()
			want := signGrant(t, w.signer)
			if tt.want == "cached" {
				want = signGrant(t, signer)
			}
			if _, err := a.keys.Grant(t.Context(), want); err != nil {
				t.Errorf("not the %s keys: %v", tt.want, err)
			}
		})
	}
}

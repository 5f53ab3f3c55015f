package relay

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
	"github.com/fairlead/fairlead/tunnel"
)

// A plane is a control plane that may be away.
type plane struct {
	authority   *relaytest.Authority
	pool        *x509.CertPool // of the relay's tunnel listener
	away        atomic.Bool
	revocations atomic.Pointer[string]
	asked       chan struct{} // for the revocations, as far as there is room
}

func (p *plane) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	list := p.revocations.Load()
	if r.URL.Path == revocationsPath {
		select {
		case p.asked <- struct{}{}:
		default:
		}
	}
	switch {
	case p.away.Load():
		rw.WriteHeader(http.StatusBadGateway)
	case r.URL.Path == keysPath:
		rw.Write(p.authority.JWKS)
	case r.URL.Path == revocationsPath && list == nil:
		io.WriteString(rw, p.authority.Revocations(0))
	case r.URL.Path == revocationsPath:
		io.WriteString(rw, *list)
	default:
		rw.WriteHeader(http.StatusNotFound)
	}
}

// revoke publishes a list that the authority by has signed.
func (p *plane) revoke(t *testing.T, by *relaytest.Authority, number uint64, grants ...protocol.GrantID) {
	t.Helper()
	list := by.Revocations(number, grants...)
	p.revocations.Store(&list)
}

// idle returns a relay that listens and doesn't run, and its control plane.
func idle(t *testing.T, change func(*Config)) (*Relay, *plane) {
	t.Helper()
	p := &plane{authority: relaytest.NewAuthority(t), asked: make(chan struct{}, 2)}
	server := httptest.NewServer(p)
	cfg := complete()
	cfg.ControlPlaneURL = server.URL
	cfg.TunnelCert, cfg.TunnelKey, p.pool = certificate(t)
	change(&cfg)
	r, err := New(cfg)
	must(t, err)
	t.Cleanup(func() {
		r.closeListeners()
		r.client.CloseIdleConnections()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		server.Close()
	})
	return r, p
}

// TestKeysMaxAge: while the control plane is away, keys are believed until they
// are too old, and then nothing is until there is news of them.
func TestKeysMaxAge(t *testing.T) {
	young, p := idle(t, func(*Config) {})
	must(t, young.keys.Refresh(t.Context()))
	p.away.Store(true)
	_, grant := p.authority.Grant(nil)
	if err := young.keys.Refresh(t.Context()); err == nil {
		t.Error("the control plane is there")
	}
	if _, err := young.keys.Grant(t.Context(), grant); err != nil {
		t.Errorf("within their time: %v", err)
	}

	old, p := idle(t, func(c *Config) { c.KeysMaxAge = time.Nanosecond })
	must(t, old.keys.Refresh(t.Context()))
	p.away.Store(true)
	_, grant = p.authority.Grant(nil)
	if _, err := old.keys.Grant(t.Context(), grant); err == nil || protocol.KindOf(err) != protocol.KindUnavailable {
		t.Errorf("too old: %v", err)
	}
}

// TestRevocationsArePolled: what the control plane says is void is; a list that
// is older or that somebody else signed changes nothing, and silence neither.
func TestRevocationsArePolled(t *testing.T) {
	r, p := idle(t, func(*Config) {})
	must(t, r.keys.Refresh(t.Context()))
	g, grant := p.authority.Grant(nil)
	p.revocations.Store(new(string))
	if err := r.refreshRevocations(t.Context()); err == nil || !strings.Contains(err.Error(), "no list") {
		t.Errorf("no list: %v", err)
	}
	void := func() bool {
		_, err := r.keys.Grant(t.Context(), grant)
		return protocol.KindOf(err) == protocol.KindUnauthenticated && err != nil
	}
	if void() {
		t.Error("void already")
	}
	p.revoke(t, p.authority, 2, g.ID)
	must(t, r.refreshRevocations(t.Context()))
	if !void() {
		t.Error("the grant is believed")
	}
	p.revoke(t, relaytest.NewAuthority(t), 3)
	if err := r.refreshRevocations(t.Context()); protocol.KindOf(err) != protocol.KindUnauthenticated {
		t.Errorf("a forged list: %v", err)
	}
	p.revoke(t, p.authority, 1)
	must(t, r.refreshRevocations(t.Context()))
	p.away.Store(true)
	if err := r.refreshRevocations(t.Context()); err == nil {
		t.Error("the control plane is there")
	}
	if !void() {
		t.Error("it is believed again")
	}
}

// TestFound02ListBeforeReady: a relay that was just started believes nobody before
// it knows what is void.
func TestFound02ListBeforeReady(t *testing.T) {
	r, p := idle(t, func(*Config) {})
	g, grant := p.authority.Grant(nil)
	p.revocations.Store(new(string)) // it says nothing of use
	done := make(chan error, 1)
	go func() { done <- r.awaitKeys(t.Context()) }() // received below
	for range 2 {
		select {
		case err := <-done:
			t.Fatalf("without a list it is content: %v", err)
		case <-p.asked:
		}
	}
	p.revoke(t, p.authority, 1, g.ID)
	must(t, <-done)
	if _, err := r.keys.Grant(t.Context(), grant); err == nil {
		t.Error("the grant is believed")
	}
}

// TestUnregisteredConnect: an agent that isn't registered reaches the control
// plane's TLS listener, and nothing else, through a relay that runs.
func TestUnregisteredConnect(t *testing.T) {
	target, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer target.Close()
	served := make(chan struct{})
	go func() { // waited for below
		defer close(served)
		conn, err := target.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		io.CopyN(conn, conn, 4)
	}()
	r, p := idle(t, func(c *Config) { c.ControlPlaneConnect = target.Addr().String() })
	conn, err := tunnel.Connect(t.Context(), tunnel.DialConfig{
		Addr: r.Addresses().Tunnel, TLS: &tls.Config{RootCAs: p.pool},
	})
	must(t, err)
	defer conn.Close()
	if _, err := conn.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); err != nil || string(got) != "ping" {
		t.Errorf("%q, %v", got, err)
	}
	<-served
}

// TestFound19Readiness: a relay is ready once it is registered, until the control
// plane refuses it; that it can't be reached any more changes nothing. Each
// change is logged, once.
func TestFound19Readiness(t *testing.T) {
	var logged bytes.Buffer
	r, _ := idle(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&logged, nil)) })
	must(t, r.keys.Refresh(t.Context()))
	r.ready.Store(true)
	if err := r.notReady(); err == nil || !strings.Contains(err.Error(), "not registered") {
		t.Errorf("before the first answer: %v", err)
	}
	g := &registration{}
	away, refused, other := errors.New("unreachable"), &refusedError{"status 403"}, &refusedError{"status 400"}
	for i, step := range []struct {
		err   error
		want  string // of notReady; empty: it is ready
		first bool
		lines int // of log so far
	}{
		{away, "unreachable", false, 1},
		{away, "unreachable", false, 1},
		{refused, "status 403", false, 2},
		{nil, "", true, 3},
		{away, "", false, 4},
		{nil, "", false, 5},
		{refused, "status 403", false, 6},
		{refused, "status 403", false, 6},
		{other, "status 400", false, 7},
		{away, "status 400", false, 8},
		{nil, "", false, 9},
	} {
		first := r.registration(g, step.err)
		err := r.notReady()
		if (err == nil) != (step.want == "") || err != nil && !strings.Contains(err.Error(), step.want) {
			t.Errorf("step %d: %v", i, err)
		}
		if lines := strings.Count(logged.String(), "registered at"); first != step.first || lines != step.lines {
			t.Errorf("step %d: first %v, %d lines of log", i, first, lines)
		}
	}
}

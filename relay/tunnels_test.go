package relay

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

// Where tunnels over WebSocket are taken: beside UDP by default, elsewhere or
// nowhere if so told, and nowhere if somebody else has the default's port.
func TestTunnelWebSocketListen(t *testing.T) {
	cert, key, _ := certificate(t)
	open := func(change func(*Config)) (*Relay, error) {
		cfg := complete()
		cfg.TunnelCert, cfg.TunnelKey = cert, key
		change(&cfg)
		r, err := New(cfg)
		if err == nil {
			t.Cleanup(r.closeListeners)
		}
		return r, err
	}
	r, err := open(func(*Config) {})
	must(t, err)
	if a := r.Addresses(); a.TunnelWebSocket == "" || a.TunnelWebSocket != a.Tunnel {
		t.Errorf("tunnels at %s and %s", a.Tunnel, a.TunnelWebSocket)
	}
	r, err = open(func(c *Config) { c.TunnelWebSocketListen = WebSocketOff })
	must(t, err)
	if a := r.Addresses(); a.TunnelWebSocket != "" {
		t.Errorf("switched off, and at %s", a.TunnelWebSocket)
	}
	busy := busyPort(t)
	if _, err := open(func(c *Config) { c.TunnelWebSocketListen = busy.Addr().String() }); err == nil || !strings.Contains(err.Error(), "tunnel listener") {
		t.Errorf("a busy port: %v", err)
	}
	r, err = open(func(c *Config) { c.TunnelListen = busy.Addr().String() })
	must(t, err)
	if a := r.Addresses(); a.Tunnel != busy.Addr().String() || a.TunnelWebSocket != "" {
		t.Errorf("a busy default: %s and %q", a.Tunnel, a.TunnelWebSocket)
	}
	r, err = open(func(c *Config) { c.TunnelWebSocketListen = "127.0.0.1:0" })
	must(t, err)
	if a := r.Addresses(); a.TunnelWebSocket == "" || a.TunnelWebSocket == a.Tunnel {
		t.Errorf("at another port: %s and %q", a.Tunnel, a.TunnelWebSocket)
	}
}

// busyPort returns a listener whose port nobody has for UDP.
func busyPort(t *testing.T) net.Listener {
	t.Helper()
	for range portAttempts {
		busy, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		t.Cleanup(func() { busy.Close() })
		udp, err := net.ListenPacket("udp", busy.Addr().String())
		if err == nil {
			udp.Close()
			return busy
		}
	}
	t.Fatal("no port is free for UDP alone")
	return nil
}

func TestSharesPublicPort(t *testing.T) {
	for _, c := range []struct {
		listen, tunnel string
		want           bool
	}{
		{":443", ":443", true}, {"10.0.0.1:443", "10.0.0.2:443", true}, {":443", ":4433", false},
		{"127.0.0.1:0", "127.0.0.1:0", false}, {"nonsense", "nonsense", false},
	} {
		if got := (&Config{Listen: c.listen, TunnelListen: c.tunnel}).sharesPublicPort(); got != c.want {
			t.Errorf("%s and %s: %v", c.listen, c.tunnel, got)
		}
	}
}

// The public listener takes tunnels where TLS leads to it, before it asks for a
// name of its own; browsers are turned away.
func TestTunnelAtThePublicListener(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		there  bool
	}{
		"plain":          {func(*Config) {}, false},
		"behind a proxy": {func(c *Config) { c.BehindProxy = true }, true},
		"switched off":   {func(c *Config) { c.BehindProxy, c.TunnelWebSocketListen = true, WebSocketOff }, false},
	} {
		cfg := complete()
		var refused []string
		cfg.TunnelCert, cfg.TunnelKey, _ = certificate(t)
		c.change(&cfg)
		r, err := New(cfg)
		must(t, err)
		handler := r.withTunnels(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			refused = append(refused, req.URL.Path)
			w.WriteHeader(http.StatusMisdirectedRequest)
		}))
		for _, req := range []struct {
			path, origin string
			want         int // of a tunnel's handler
		}{
			{tunnel.WebSocketPath, "", http.StatusUpgradeRequired},
			{tunnel.WebSocketPath, "https://one.example", http.StatusForbidden},
			{tunnel.WebSocketPath + "/x", "", http.StatusMisdirectedRequest},
		} {
			if !c.there {
				req.want = http.StatusMisdirectedRequest
			}
			request := httptest.NewRequest(http.MethodGet, "http://elsewhere.example"+req.path, nil)
			if req.origin != "" {
				request.Header.Set("Origin", req.origin)
			}
			answer := httptest.NewRecorder()
			if handler.ServeHTTP(answer, request); answer.Code != req.want {
				t.Errorf("%s: GET %s from %q: %d, want %d", name, req.path, req.origin, answer.Code, req.want)
			}
		}
		r.closeListeners()
	}
}

// A proxy that speaks TLS in front of a relay carries tunnels, whose
// registrations aren't bound to its TLS connection.
func TestTunnelThroughAProxy(t *testing.T) {
	cfg := complete()
	cfg.TunnelCert, cfg.TunnelKey, _ = certificate(t)
	cfg.BehindProxy = true
	r, err := New(cfg)
	must(t, err)
	cert, key, pool := certificate(t)
	pair, err := tls.LoadX509KeyPair(cert, key)
	must(t, err)
	front := httptest.NewUnstartedServer(r.withTunnels(http.NotFoundHandler()))
	front.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}
	front.StartTLS()
	defer front.Close()
	defer r.closeListeners()
	ctx, cancel := context.WithTimeout(t.Context(), slowly)
	defer cancel()
	said := false
	_, err = tunnel.Dial(ctx, tunnel.DialConfig{
		Addr: front.Listener.Addr().String(), TLS: &tls.Config{RootCAs: pool},
		Carriers: []tunnel.Carrier{tunnel.CarrierWebSocket},
		Hello: func(c protocol.Challenge, exporter []byte) (protocol.Hello, error) {
			if said = c.RelayID != ""; len(exporter) != 0 {
				t.Errorf("an exporter of %d bytes", len(exporter))
			}
			return tunneltest.Hello(), nil // whose certificate is none
		},
	})
	if !said || err == nil {
		t.Errorf("CHALLENGE came: %v; registered with %v", said, err)
	}
}

package access

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

func TestNewOriginsRefuses(t *testing.T) {
	for _, origin := range []string{
		"", "relay.example", "ftp://relay.example", "https://", "https://relay.example/", "https://relay.example/path",
		"https://relay.example?q", "https://user@relay.example", "https://:8080", "https://relay.example:",
		"https://relay.example:port", "HTTPS://relay.example", "null", "*",
	} {
		if _, err := NewOrigins([]string{"https://good.example", origin}); err == nil || protocol.KindOf(err) != protocol.KindInvalid {
			t.Errorf("%q: %v, want an invalid error", origin, err)
		}
	}
}

func TestHostAndOrigin(t *testing.T) {
	const (
		neither = 0
		host    = 1
		origin  = 2
	)
	for _, c := range []struct {
		name         string
		public       string
		host, origin string
		passes       int
		canonical    string // Public, when the host passes
	}{
		{"exact", "https://relay.example", "relay.example", "https://relay.example", host | origin, "https://relay.example"},
		{"default port is spelled", "https://relay.example", "relay.example:443", "https://relay.example:443", host, "https://relay.example"},
		{"default port is configured", "https://relay.example:443", "relay.example", "https://relay.example", host | origin, "https://relay.example"},
		{"default port of http", "http://relay.example:80", "relay.example:80", "http://relay.example", host | origin, "http://relay.example"},
		{"default port of the other scheme", "http://relay.example", "relay.example:443", "https://relay.example", neither, ""},
		{"another port", "https://relay.example:8443", "relay.example:8443", "https://relay.example:8443", host | origin, "https://relay.example:8443"},
		{"port is missing", "https://relay.example:8443", "relay.example", "https://relay.example", neither, ""},
		{"host in capitals", "https://relay.example", "Relay.EXAMPLE", "https://relay.example", host | origin, "https://relay.example"},
		{"configured in capitals", "https://Relay.Example:8443", "relay.example:8443", "https://relay.example:8443", host | origin, "https://relay.example:8443"},
		{"origin in capitals", "https://relay.example", "relay.example", "https://Relay.example", host, "https://relay.example"},
		{"IPv6", "http://[::1]:8080", "[::1]:8080", "http://[::1]:8080", host | origin, "http://[::1]:8080"},
		{"IPv6, default port", "http://[::1]:80", "[::1]", "http://[::1]", host | origin, "http://[::1]"},
		{"IPv6, default port is spelled", "http://[::1]", "[::1]:80", "http://[::1]", host | origin, "http://[::1]"},
		{"another name of the same address", "http://127.0.0.1:8080", "localhost:8080", "http://localhost:8080", neither, ""},
		{"suffix", "https://relay.example", "relay.example.evil.example", "https://relay.example.evil.example", neither, ""},
		{"prefix", "https://relay.example", "evil.relay.example", "https://evil.relay.example", neither, ""},
		{"final dot", "https://relay.example", "relay.example.", "https://relay.example.", neither, ""},
		{"scheme of the origin", "https://relay.example", "relay.example", "http://relay.example", host, "https://relay.example"},
		{"null", "https://relay.example", "relay.example", "null", host, "https://relay.example"},
		{"no origin", "https://relay.example", "relay.example", "", host, "https://relay.example"},
		{"no host", "https://relay.example", "", "https://relay.example", origin, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, err := NewOrigins([]string{c.public})
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Host = c.host
			if c.origin != "" {
				r.Header.Set("Origin", c.origin)
			}
			passes := neither
			if o.CheckHost(r) == nil {
				passes |= host
			}
			if o.CheckOrigin(r) == nil {
				passes |= origin
			}
			if passes != c.passes || o.Public(r) != c.canonical {
				t.Errorf("passes %d, public %q; want %d, %q", passes, o.Public(r), c.passes, c.canonical)
			}
		})
	}
}

func TestTwoOriginsHeadersAreRefused(t *testing.T) {
	o, err := NewOrigins([]string{"https://a.example", "https://b.example"})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header["Origin"] = []string{"https://a.example", "https://a.example"}
	if o.CheckOrigin(r) == nil {
		t.Error("two Origin headers pass")
	}
	if list := o.List(); !slices.Equal(list, []string{"https://a.example", "https://b.example"}) {
		t.Errorf("List() = %q", list)
	}
}

func TestFirstOfTwoSchemesIsPublic(t *testing.T) {
	o, err := NewOrigins([]string{"https://relay.example", "http://relay.example"})
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]string{
		"relay.example": "https://relay.example", "relay.example:443": "https://relay.example", "relay.example:80": "http://relay.example",
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = host
		if got := o.Public(r); got != want {
			t.Errorf("Public(%s) = %q, want %q", host, got, want)
		}
	}
}

func TestGuard(t *testing.T) {
	o, err := NewOrigins([]string{"https://relay.example"})
	if err != nil {
		t.Fatal(err)
	}
	guarded := o.Guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	for _, c := range []struct {
		name, host string
		origin     []string
		want       int
	}{
		{"no origin", "relay.example", nil, http.StatusNoContent},
		{"ours", "relay.example", []string{"https://relay.example"}, http.StatusNoContent},
		{"foreign host", "rebound.example", nil, http.StatusForbidden},
		{"foreign origin", "relay.example", []string{"https://evil.example"}, http.StatusForbidden},
		{"empty origin", "relay.example", []string{""}, http.StatusForbidden},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.Host = c.host
			if c.origin != nil {
				r.Header["Origin"] = c.origin
			}
			w := httptest.NewRecorder()
			guarded.ServeHTTP(w, r)
			if w.Code != c.want {
				t.Errorf("status %d, want %d", w.Code, c.want)
			}
		})
	}
}

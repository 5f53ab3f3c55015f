package access

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// shared is a handler behind Guard and Share, at the first of two origins. It
// refuses requests without a bearer token and tells which cookies came.
func shared(t *testing.T) http.Handler {
	t.Helper()
	o, err := NewOrigins([]string{"https://one.example", "https://two.example:8443"})
	if err != nil {
		t.Fatal(err)
	}
	return o.Guard(o.Share(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Seen-Cookie", r.Header.Get("Cookie"))
		if _, err := Bearer(r); err != nil {
			WriteError(w, err)
			return
		}
		w.WriteHeader(http.StatusOK)
	})))
}

func ask(h http.Handler, method string, header ...string) *http.Response {
	r := httptest.NewRequest(method, "/grants", nil)
	r.Host = "one.example"
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func TestPreflight(t *testing.T) {
	h := shared(t)
	resp := ask(h, http.MethodOptions, "Origin", "https://two.example:8443",
		"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,content-type")
	if resp.StatusCode != http.StatusNoContent {
		t.Errorf("status %d", resp.StatusCode)
	}
	for name, want := range map[string]string{
		"Access-Control-Allow-Origin":      "https://two.example:8443",
		"Access-Control-Allow-Methods":     allowedMethods,
		"Access-Control-Allow-Headers":     allowedHeaders,
		"Access-Control-Max-Age":           preflightAge,
		"Access-Control-Allow-Credentials": "",
		"Vary":                             "Origin",
	} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestWhoGetsCORS(t *testing.T) {
	h := shared(t)
	for _, c := range []struct {
		name, method string
		header       []string
		status       int
		allowed      string
		cookie       string
	}{
		{"another relay's page", "POST", []string{"Origin", "https://two.example:8443", "Authorization", "Bearer x", "Cookie", "fairlead_pty=1"},
			http.StatusOK, "https://two.example:8443", ""},
		{"another relay's page reads a refusal", "POST", []string{"Origin", "https://two.example:8443"},
			http.StatusUnauthorized, "https://two.example:8443", ""},
		{"our own page", "POST", []string{"Origin", "https://one.example", "Authorization", "Bearer x", "Cookie", "fairlead_pty=1"},
			http.StatusOK, "", "fairlead_pty=1"},
		{"no page", "POST", []string{"Authorization", "Bearer x", "Cookie", "a=b"}, http.StatusOK, "", "a=b"},
		{"a foreign page", "POST", []string{"Origin", "https://evil.example", "Authorization", "Bearer x"}, http.StatusForbidden, "", ""},
		{"a foreign page's preflight", "OPTIONS", []string{"Origin", "https://evil.example", "Access-Control-Request-Method", "POST"},
			http.StatusForbidden, "", ""},
		{"the other scheme", "POST", []string{"Origin", "http://two.example:8443", "Authorization", "Bearer x"}, http.StatusForbidden, "", ""},
		{"OPTIONS that is no preflight", "OPTIONS", []string{"Origin", "https://two.example:8443"},
			http.StatusUnauthorized, "https://two.example:8443", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp := ask(h, c.method, c.header...)
			if resp.StatusCode != c.status {
				t.Errorf("status %d, want %d", resp.StatusCode, c.status)
			}
			if got := resp.Header.Get("Access-Control-Allow-Origin"); got != c.allowed {
				t.Errorf("allowed origin %q, want %q", got, c.allowed)
			}
			if got := resp.Header.Get("Seen-Cookie"); got != c.cookie {
				t.Errorf("the cookies are %q, want %q", got, c.cookie)
			}
			for name := range resp.Header {
				if c.allowed == "" && strings.HasPrefix(name, "Access-Control-") {
					t.Errorf("%s is sent", name)
				}
			}
			if c.status != http.StatusForbidden && !slices.Contains(resp.Header.Values("Vary"), "Origin") {
				t.Error("no Vary: Origin")
			}
		})
	}
}

func TestListKeepsTheOrder(t *testing.T) {
	o, err := NewOrigins([]string{"https://two.example", "https://one.example:443", "https://two.example"})
	if err != nil {
		t.Fatal(err)
	}
	if got := o.List(); !slices.Equal(got, []string{"https://two.example", "https://one.example"}) {
		t.Errorf("List() = %q", got)
	}
	if !o.Listed("https://one.example") || o.Listed("https://three.example") || o.Listed("") {
		t.Error("Listed is wrong")
	}
}

// A route that wants nothing but a bearer token is open to an extension, and
// only it is.
func TestOpenRoutes(t *testing.T) {
	const extension = "chrome-extension://ekklpckfbbjnnmhdbajmjfnjmfblgpcb"
	o, err := NewOrigins([]string{"https://one.example", "https://two.example:8443"})
	if err != nil {
		t.Fatal(err)
	}
	o.Open(http.MethodPost, "/control/callback")
	h := o.Guard(o.Share(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Seen-Cookie", r.Header.Get("Cookie"))
	})))
	ask := func(method, path, host string, header ...string) *http.Response {
		r := httptest.NewRequest(method, path, nil)
		r.Host = host
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result()
	}
	for _, origin := range []string{extension, "null", "https://evil.example"} {
		resp := ask(http.MethodOptions, "/control/callback", "one.example", "Origin", origin,
			"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,content-type")
		h := resp.Header
		if resp.StatusCode != http.StatusNoContent || h.Get("Access-Control-Allow-Origin") != origin ||
			h.Get("Access-Control-Allow-Methods") != "POST" || h.Get("Access-Control-Allow-Headers") != openHeaders ||
			h.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s: preflight %d %v", origin, resp.StatusCode, h)
		}
		resp = ask(http.MethodPost, "/control/callback", "one.example", "Origin", origin, "Cookie", "fairlead_pty=secret")
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Access-Control-Allow-Origin") != origin || resp.Header.Get("Seen-Cookie") != "" {
			t.Errorf("%s: %d %v", origin, resp.StatusCode, resp.Header)
		}
		if resp := ask(http.MethodPost, "/control/commands", "one.example", "Origin", origin); resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s at another route: %d", origin, resp.StatusCode)
		}
		if resp := ask(http.MethodPost, "/control/callback/x", "one.example", "Origin", origin); resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s below the route: %d", origin, resp.StatusCode)
		}
	}
	if resp := ask(http.MethodPost, "/control/callback", "evil.example", "Origin", extension); resp.StatusCode != http.StatusForbidden {
		t.Errorf("a foreign host: %d", resp.StatusCode)
	}
}

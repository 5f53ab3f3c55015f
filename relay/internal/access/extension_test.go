package access

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const (
	listed   = ExtensionScheme + "abcdefghijklmnopabcdefghijklmnop"
	unlisted = ExtensionScheme + "ponmlkjihgfedcbaponmlkjihgfedcba"
)

// withExtension is a handler behind Guard and Share that tells which cookies came.
func withExtension(t *testing.T, ids ...string) http.Handler {
	t.Helper()
	o, err := NewOrigins([]string{"https://one.example"})
	if err == nil {
		err = o.ListExtensions(ids)
	}
	if err != nil {
		t.Fatal(err)
	}
	return o.Guard(o.Share(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Seen-Cookie", r.Header.Get("Cookie"))
	})))
}

// A listed extension may use the panel's routes, push cookies, and nothing else; another one
// nothing; and without a list none anything.
func TestWhatExtensionsMayUse(t *testing.T) {
	with, without := withExtension(t, strings.TrimPrefix(listed, ExtensionScheme)), withExtension(t)
	status := func(h http.Handler, path string, header ...string) int {
		r := httptest.NewRequest(http.MethodPost, path, nil)
		r.Host = "one.example"
		for i := 0; i < len(header); i += 2 {
			r.Header.Add(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for _, path := range []string{
		"/ws", "/pty-session", "/pty-session/reattach", "/pty-restart", "/pty-dispose", "/claude-available", "/health", "/grants",
		"/chat-session", "/sse-session", "/sidebar-command", "/sidebar-chat", "/sidebar-agent/event", "/sidebar-agent/answer", "/sidebar-tabs/switch",
		"/activity/stream", "/activity/history", "/sync/sb_1/aaaaaaaaaaaaaaaaaaaaaaaaaa",
	} {
		if code := status(with, path, "Origin", listed); code != http.StatusOK {
			t.Errorf("%s: %d", path, code)
		}
		for name, code := range map[string]int{
			"not listed": status(with, path, "Origin", unlisted), "nothing listed": status(without, path, "Origin", listed),
			"twice":         status(with, path, "Origin", listed, "Origin", listed),
			"longer":        status(with, path, "Origin", listed+"a"),
			"with a path":   status(with, path, "Origin", listed+"/"),
			"by http":       status(with, path, "Origin", strings.Replace(listed, "chrome-extension", "http", 1)),
			"Firefox's":     status(with, path, "Origin", strings.Replace(listed, "chrome-", "moz-", 1)),
			"in upper case": status(with, path, "Origin", strings.ToUpper(listed)),
		} {
			if code != http.StatusForbidden {
				t.Errorf("%s, %s: %d", path, name, code)
			}
		}
	}
	for _, path := range []string{
		"/", "/ws/", "/wsx", "/pty-sessions", "/health/", "/healthz", "/grants/x", "/commands", "/sidebar", "/activity", "/sync", "/command",
		"/browse.json", "/app-session", "/api/auth/user", "/sessions/ses_1/ptys", "/sessions/ses_1/ptys/pty_1/ws", "/control/commands", "/shell", "/plugin-ws/x",
	} {
		if code := status(with, path, "Origin", listed); code != http.StatusForbidden {
			t.Errorf("%s: %d", path, code)
		}
	}
}

// Of an extension's cookies only the panel's count, whatever the browser adds.
func TestCookiesOfExtensions(t *testing.T) {
	h := withExtension(t, strings.TrimPrefix(listed, ExtensionScheme))
	r := httptest.NewRequest(http.MethodGet, "/ws", nil)
	r.Host = "one.example"
	r.Header.Set("Origin", listed)
	r.Header.Set("Cookie", "fairlead_app=a; gstack_pty=b; fairlead_pty=c; gstack_sse=d; fairlead_control=e; gstack_pty_socket=f")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if got := w.Header().Get("Seen-Cookie"); got != "gstack_pty=b; gstack_pty_socket=f; gstack_sse=d" {
		t.Errorf("%q", got)
	}
	if w.Header().Get("Access-Control-Allow-Origin") != listed || w.Header().Get("Access-Control-Allow-Credentials") != "true" {
		t.Errorf("%v", w.Header())
	}
}

func TestPreflightOfAnExtension(t *testing.T) {
	h := withExtension(t, strings.TrimPrefix(listed, ExtensionScheme))
	for path, want := range map[string]int{"/grants": http.StatusNoContent, "/commands": http.StatusForbidden} {
		r := httptest.NewRequest(http.MethodOptions, path, nil)
		r.Host = "one.example"
		r.Header.Set("Origin", listed)
		r.Header.Set("Access-Control-Request-Method", "POST")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want || want == http.StatusNoContent && (w.Header().Get("Access-Control-Allow-Headers") != extensionHeaders ||
			w.Header().Get("Access-Control-Allow-Methods") != extensionMethods || w.Header().Get("Access-Control-Allow-Credentials") != "true") {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
	}
}

func TestExtensionIDs(t *testing.T) {
	for id, want := range map[string]bool{
		"abcdefghijklmnopabcdefghijklmnop": true, "": false, "abc": false, "abcdefghijklmnopabcdefghijklmnoq": false,
		"ABCDEFGHIJKLMNOPABCDEFGHIJKLMNOP": false, "abcdefghijklmnopabcdefghijklmnopa": false, "chrome-extension://abcdefghijklm": false,
	} {
		o, err := NewOrigins([]string{"https://one.example"})
		if err != nil {
			t.Fatal(err)
		}
		if o.Extensions() {
			t.Error("there are some at first")
		}
		if err := o.ListExtensions([]string{id}); (err == nil) != want || o.Extensions() != want {
			t.Errorf("%q: %v", id, err)
		}
	}
}

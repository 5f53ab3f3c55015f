package egress

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/route"
)

// newGate returns a gate whose terminals share the agent's user.
func newGate(t *testing.T) *Gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	h := newHarness(t, l, nil)
	return NewGate(GateOptions{
		Sandbox: "sb_1", On: true, Rules: h.rules, Proxy: h.Proxy, Static: []string{"mirror.example"}, Log: slog.New(slog.DiscardHandler),
	})
}

// TestGateSendsToTheProxy: terminals whose session goes through it, those that ask
// for it, and browsers; until they are over.
func TestGateSendsToTheProxy(t *testing.T) {
	g := newGate(t)
	off, on := false, true
	if err := g.opts.Rules.SetEnabled("ses_off", &off); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		session protocol.SessionID
		asked   *bool
		sent    bool
	}{{ses, nil, true}, {ses, &off, true}, {"ses_off", nil, false}, {"ses_off", &off, false}, {"ses_off", &on, true}} {
		start := &feature.Start{Terminal: feature.Terminal{Session: tt.session, PTY: "pty_9", UID: -1}, Create: op.PTYCreate{Egress: tt.asked}}
		err := g.TerminalStarts(start)
		has := slices.ContainsFunc(start.Env, func(v string) bool { return strings.HasPrefix(v, "HTTP_PROXY=http://pty_9:") })
		if err != nil || has != tt.sent || (start.Egress == protocol.EgressAdvisory) != tt.sent {
			t.Errorf("%+v: %v %q %q", tt, err, start.Egress, start.Env)
		}
	}
	known := func(pty protocol.PTYID) (n int) {
		g.opts.Proxy.callers.mu.Lock()
		defer g.opts.Proxy.callers.mu.Unlock()
		for _, who := range g.opts.Proxy.callers.byDigest {
			if who.pty == pty {
				n++
			}
		}
		return n
	}
	g.TerminalEnded(feature.Terminal{Session: ses, PTY: "pty_9", UID: -1})
	if n := known("pty_9"); n != 1 {
		t.Errorf("%d callers are left, want that of the other session", n)
	}
	at := g.BrowserProxy(ses)
	if again := g.BrowserProxy(ses); at == nil || again != at || at.User.Username() != string(browserPTY) || known(browserPTY) != 1 {
		t.Errorf("browsers use %v, then %v", at, again)
	}
	if g.BrowserProxy("ses_off") != nil {
		t.Error("a browser of a session without egress has a proxy")
	}
	if err := g.SessionEnded(ses); err != nil || known(browserPTY) != 0 {
		t.Errorf("%v: the browser's credentials outlive the session", err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}

// TestGateShowsRules: a session's rules, and how far they are enforced.
func TestGateShowsRules(t *testing.T) {
	g := newGate(t)
	if err := g.opts.Rules.Decide(ses, "a.example", protocol.AllowAlways); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	g.Routes(mux)
	r := httptest.NewRequest(http.MethodGet, "/sessions/"+string(ses)+"/egress/allowlist", nil)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r.WithContext(route.WithGrant(r.Context(), &jws.Grant{Session: ses, Caps: []protocol.Capability{protocol.CapApprove}})))
	for _, part := range []string{`"state":"advisory"`, `"user":["a.example"]`, `"denied":[]`, "mirror.example"} {
		if !strings.Contains(w.Body.String(), part) {
			t.Errorf("no %s in %s", part, w.Body)
		}
	}
	if state, why := g.Status(); state != protocol.EgressAdvisory || why == "" {
		t.Errorf("%s %q", state, why)
	}
}

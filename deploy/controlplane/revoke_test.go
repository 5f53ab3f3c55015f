package controlplane

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/authority"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/clock"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

func base64URL(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

// text gets a route that answers without JSON.
func (p *plane) text(path string, header ...string) (string, http.Header) {
	p.t.Helper()
	r := httptest.NewRequestWithContext(p.t.Context(), "GET", path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	p.handler.ServeHTTP(w, r)
	if w.Code != http.StatusOK && w.Code != http.StatusNotModified {
		p.t.Errorf("%s: status %d", path, w.Code)
	}
	return w.Body.String(), w.Header()
}

// revocations returns the signed list as others verify it.
func (p *plane) revocations() *jws.Revocations {
	p.t.Helper()
	token, header := p.text("/.well-known/revocations")
	if header.Get("Content-Type") != "application/jose" {
		p.t.Errorf("Content-Type %q", header.Get("Content-Type"))
	}
	list, err := p.keys().Revocations(p.t.Context(), token)
	if err != nil {
		p.t.Fatal(err)
	}
	if etag := fmt.Sprintf(`"%d"`, list.Number); header.Get("ETag") != etag {
		p.t.Errorf("ETag %s, want %s", header.Get("ETag"), etag)
	}
	return list
}

// del deletes a grant and wants an answer of the given status.
func (p *plane) del(token string, id protocol.GrantID, status int) {
	p.t.Helper()
	r := httptest.NewRequestWithContext(p.t.Context(), "DELETE", "/grants/"+string(id), nil)
	r.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	p.handler.ServeHTTP(w, r)
	if w.Code != status {
		p.t.Errorf("DELETE %s: %d %s, want %d", id, w.Code, w.Body, status)
	}
}

func (p *plane) grantID(token string) protocol.GrantID {
	p.t.Helper()
	g, err := p.keys().Grant(p.t.Context(), token)
	if err != nil {
		p.t.Fatal(err)
	}
	return g.ID
}

func TestRevokeGrant(t *testing.T) {
	p := newPlane(t)
	p.register("rl_1", relayToken, "http://127.0.0.1:1")
	if list := p.revocations(); list.Number != 0 || len(list.Grants) != 0 {
		t.Errorf("at first %+v", list)
	}
	const ses1 = `{"session_id":"ses_1"}`
	alice, bob := p.grant(aliceToken, ses1), p.grant(bobToken, ses1)
	alice2 := p.grant(aliceToken, ses1)
	p.del(bobToken, p.grantID(alice), http.StatusNotFound)
	p.del(daveToken, p.grantID(bob), http.StatusNotFound)
	p.del(aliceToken, "gr_none", http.StatusNotFound)
	p.del(aliceToken, "a%20b", http.StatusNotFound)
	p.del("no-token", p.grantID(alice), http.StatusUnauthorized)
	p.want(signCall(alice, "k0", createPTY), http.StatusOK, "")

	p.del(aliceToken, p.grantID(alice), http.StatusNoContent) // one's own
	p.del(aliceToken, p.grantID(bob), http.StatusNoContent)   // of one's dashboard
	p.del(bobToken, p.grantID(bob), http.StatusNoContent)     // again
	list := p.revocations()
	for _, token := range []string{alice, bob} {
		id := p.grantID(token)
		if !slices.ContainsFunc(list.Grants, func(g jws.RevokedGrant) bool { return g.ID == id }) {
			t.Errorf("grant %s is not on the list %+v", id, list)
		}
	}
	if len(list.Grants) != 2 || list.Number == 0 {
		t.Errorf("list %+v", list)
	}
	p.want(signCall(alice, "k1", createPTY), http.StatusUnauthorized, "AuthError")
	p.want(signCall(alice2, "k1", createPTY), http.StatusOK, "")

	etag := fmt.Sprintf(`"%d"`, list.Number)
	if body, _ := p.text("/.well-known/revocations", "If-None-Match", etag); body != "" {
		t.Errorf("an unchanged list was sent again: %s", body)
	}
	p.clock.Advance(protocol.MaxGrantTTL + 2*protocol.ClockSkew + 2*time.Second)
	if list := p.revocations(); len(list.Grants) != 0 {
		t.Errorf("what expired is still on the list: %+v", list)
	}
}

// TestRevokeGrantsOf: who was removed loses all they have there, and what they
// get afterwards is good.
func TestRevokeGrantsOf(t *testing.T) {
	p := newPlane(t)
	p.register("rl_1", relayToken, "http://127.0.0.1:1")
	var before []string
	for range 60 {
		before = append(before, p.grant(aliceToken, `{"session_id":"ses_1"}`))
	}
	p.clock.Advance(time.Second)
	if err := p.server.grants.RevokeOf(t.Context(), "usr_alice", "dash_1"); err != nil {
		t.Fatal(err)
	}
	after := p.grant(aliceToken, `{"session_id":"ses_1"}`)
	list := p.revocations()
	for _, token := range before {
		if g, err := p.keys().Grant(t.Context(), token); err != nil || !list.Revokes(g) {
			t.Fatalf("grant %v is not void, %v", g, err)
		}
	}
	if g, err := p.keys().Grant(t.Context(), after); err != nil || list.Revokes(g) {
		t.Errorf("a later grant is void, %v", err)
	}
	p.want(signCall(before[0], "k1", createPTY), http.StatusUnauthorized, "AuthError")
	p.want(signCall(after, "k1", createPTY), http.StatusOK, "")
}

// TestFound02NothingIsForgotten: what people make and remove without a grant
// adds nothing, and what is on the list stays there until it has expired.
func TestFound02NothingIsForgotten(t *testing.T) {
	p := newPlane(t)
	bob := p.grant(bobToken, `{"session_id":"ses_1"}`)
	p.clock.Advance(time.Second)
	w := p.serve(call{"DELETE", "/dashboards/dash_1/members/usr_bob", aliceToken, "", nil})
	if w.Code != http.StatusNoContent {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	before := p.revocations()
	for range 140 {
		made := p.want(call{"POST", "/dashboards", carolToken, `{"name":"short-lived"}`, nil}, http.StatusCreated, "")
		id, _ := made["dashboard"].(map[string]any)["id"].(string)
		if w := p.serve(call{"DELETE", "/dashboards/" + id, carolToken, "", nil}); w.Code != http.StatusNoContent {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	after := p.revocations()
	if after.Number != before.Number || !slices.Equal(after.Subjects, before.Subjects) || len(after.Subjects) != 1 {
		t.Errorf("%+v, then %+v", before, after)
	}
	p.clock.Advance(protocol.MaxGrantTTL - time.Second)
	g := &jws.Grant{Subject: "usr_bob", Dashboard: "dash_1", IssuedAt: after.Subjects[0].Before - 1}
	if list := p.revocations(); !list.Revokes(g) || !p.server.revoked.Grant(g) {
		t.Errorf("before its end it is forgotten: %+v", list)
	}
	if bob == "" {
		t.Error("there was no grant")
	}
}

// A listRelay takes revocation lists and commands as a relay does.
type listRelay struct {
	*httptest.Server
	mu     sync.Mutex
	status int // for the next lists
	lists  []string
	told   []protocol.CommandEnvelope
}

func newListRelay(t *testing.T) *listRelay {
	t.Helper()
	l := &listRelay{status: http.StatusNoContent}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		switch r.Method + " " + r.URL.Path {
		case "POST /control/revocations":
			l.lists = append(l.lists, string(body))
			w.WriteHeader(l.status)
		case "POST /control/commands":
			var env protocol.CommandEnvelope
			if err := json.Unmarshal(body, &env); err != nil {
				t.Error(err)
			}
			l.told = append(l.told, env)
			callback(`"status":"ok","result":{"kind":"grant.revoke"}`)(w, env)
		default:
			t.Errorf("relay got %s %s", r.Method, r.URL)
		}
	}))
	t.Cleanup(l.Close)
	return l
}

func (l *listRelay) set(status int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status = status
}

func (l *listRelay) got() (lists []string, told []protocol.CommandEnvelope) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lists), slices.Clone(l.told)
}

// spread lets the server look once, and waits for what that started.
func (p *plane) spread() {
	p.t.Helper()
	if err := p.server.spread.Look(p.t.Context()); err != nil {
		p.t.Error(err)
	}
	p.server.spread.Wait()
}

// TestSpread: each change gets to every relay until it confirms it.
func TestSpread(t *testing.T) {
	p := newPlane(t)
	p.server.spread.Clock, p.server.spread.Timeout = clock.New(p.clock.Now), time.Minute
	one, two := newListRelay(t), newListRelay(t)
	p.register("rl_1", relayToken, one.URL)
	p.register("rl_2", relay2Token, two.URL)
	p.spread()
	if lists, _ := one.got(); len(lists) != 0 {
		t.Errorf("a list was sent before anything was revoked")
	}
	token := p.grant(aliceToken, `{"session_id":"ses_1"}`)
	id := p.grantID(token)
	two.set(http.StatusServiceUnavailable)
	// As another process does it.
	if err := p.server.store.Grants.RevokeGrant(t.Context(), id, p.clock.Now()); err != nil {
		t.Fatal(err)
	}
	p.spread()
	for _, relay := range []*listRelay{one, two} {
		lists, _ := relay.got()
		if len(lists) != 1 {
			t.Fatalf("%d lists", len(lists))
		}
		list, err := p.keys().Revocations(t.Context(), lists[0])
		if err != nil || len(list.Grants) != 1 || list.Grants[0].ID != id {
			t.Errorf("list %+v, %v", list, err)
		}
	}
	p.spread() // too early to try again
	if lists, _ := two.got(); len(lists) != 1 {
		t.Errorf("%d tries without a pause", len(lists))
	}
	two.set(http.StatusNoContent)
	p.clock.Advance(200 * time.Millisecond)
	p.spread()
	p.clock.Advance(200 * time.Millisecond)
	p.spread()
	if lists, _ := one.got(); len(lists) != 1 {
		t.Errorf("%d lists to a relay that has confirmed the first", len(lists))
	}
	if lists, _ := two.got(); len(lists) != 2 {
		t.Errorf("%d tries at a relay that was unavailable once", len(lists))
	}

	// One that registers may have started anew, one at a new address has.
	p.register("rl_1", relayToken, one.URL)
	p.spread()
	if lists, _ := one.got(); len(lists) != 2 {
		t.Errorf("%d lists to a relay that registered again", len(lists))
	}
	three := newListRelay(t)
	p.register("rl_1", relayToken, three.URL)
	p.spread()
	if lists, _ := three.got(); len(lists) != 1 {
		t.Errorf("%d lists to a relay that moved", len(lists))
	}
}

// TestTellSandbox: a sandbox hears once, in a signed command, which grants are
// void; whoever looks sees what became of that.
func TestTellSandbox(t *testing.T) {
	p := newPlane(t)
	p.server.spread.Clock, p.server.spread.Timeout = clock.New(p.clock.Now), time.Minute
	relay := newListRelay(t)
	p.register("rl_1", relayToken, relay.URL)
	id := p.grantID(p.grant(aliceToken, `{"session_id":"ses_1"}`))
	p.del(aliceToken, id, http.StatusNoContent)
	p.spread()
	p.spread()
	_, told := relay.got()
	if len(told) != 1 {
		t.Fatalf("%d commands to the sandbox: %s", len(told), p.log)
	}
	cmd := verifyCommand(t, p.keys(), told[0].JWS)
	if cmd.Target != (protocol.CommandTarget{SandboxID: "sb_1"}) || cmd.UserID != "" ||
		string(cmd.Op) != `{"kind":"grant.revoke","grants":["`+string(id)+`"]}` {
		t.Errorf("command %+v, op %s", cmd, cmd.Op)
	}
	if stored, err := p.server.store.Commands.Command(t.Context(), cmd.CommandID); err != nil || stored.Outcome.Status != protocol.StatusOK {
		t.Errorf("stored %+v, %v", stored.Outcome, err)
	}
}

// kicks counts how often a spread is told that something was revoked.
type kicks struct {
	*authority.Spread
	n int
}

func (k *kicks) Kick() {
	k.n++
	k.Spread.Kick()
}

// TestSpreadRuns: a revocation of this process gets out without waiting for the
// next look, and ends with the server.
func TestSpreadRuns(t *testing.T) {
	p := newPlane(t)
	relay := newListRelay(t)
	p.register("rl_1", relayToken, relay.URL)
	id := p.grantID(p.grant(aliceToken, `{"session_id":"ses_1"}`))
	kicked := &kicks{Spread: p.server.spread}
	p.server.grants.Spread = kicked
	p.del(aliceToken, id, http.StatusNoContent)
	if kicked.n != 1 {
		t.Error("a revocation waits for the next look")
	}
	var group sync.WaitGroup
	done := make(chan struct{})
	ctx := contextUntil(t, done)
	group.Go(func() { p.server.spread.Run(ctx) })
	late := time.After(time.Minute)
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for sent := false; !sent; {
		select {
		case <-poll.C:
			lists, told := relay.got()
			sent = len(lists) > 0 && len(told) > 0
		case <-late:
			t.Fatal("the list was not sent")
		}
	}
	close(done)
	group.Wait()
}

// TestPeopleCantRevoke: grant.revoke is the control plane's own.
func TestPeopleCantRevoke(t *testing.T) {
	p := newPlane(t)
	p.register("rl_1", relayToken, "http://127.0.0.1:1")
	const op = `"target":{"sessionId":"ses_1"},"op":{"kind":"grant.revoke","grants":["gr_1"]}`
	grant := p.grant(aliceToken, `{"session_id":"ses_1"}`)
	for _, c := range []call{signCall(grant, "k1", op), {"POST", "/commands", aliceToken, `{` + op + `}`, nil}} {
		if status, body, _ := p.do(c); status < 400 || status >= 500 && status != http.StatusNotImplemented {
			t.Errorf("%s: %d %v", c.path, status, body)
		}
	}
	if !strings.Contains(p.log.String(), "request refused") {
		t.Error("nothing was logged")
	}
}

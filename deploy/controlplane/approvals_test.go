package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/notices"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/webhook"
	"github.com/fairlead/fairlead/protocol"
)

func testApproval() protocol.Approval {
	return protocol.Approval{
		ID: "apr_1", Revision: 1, Kind: protocol.ApprovalEgress, SessionID: "ses_1", PTYID: "pty_1",
		Host: "unknown.example", Port: 443, State: protocol.ApprovalPending, AskedAt: 1, EndsAt: 60_001, LeftMs: 60_000,
	}
}

func testTool() protocol.Approval {
	return protocol.Approval{
		ID: "apr_t", Revision: 1, Kind: protocol.ApprovalTool, SessionID: "ses_1", ConversationID: "c-1", RunID: "cmd_1", Tool: "Bash",
		InputSHA256: strings.Repeat("ab", 32), State: protocol.ApprovalPending, AskedAt: 1,
	}
}

// notice is what the sandbox tells of raw at a time.
func (b *testSandbox) notice(t *testing.T, raw []byte, at time.Time) protocol.ApprovalNotice {
	t.Helper()
	return protocol.ApprovalNotice{
		Certificate: b.certificate, Approval: raw, At: at.UnixMilli(),
		Signature: b.sign(t, protocol.ApprovalTranscript(b.id, raw, at.UnixMilli())),
	}
}

func (b *testSandbox) approvalNotice(t *testing.T, a protocol.Approval, at time.Time) protocol.ApprovalNotice {
	t.Helper()
	raw, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	return b.notice(t, raw, at)
}

// listen makes the control plane tell a webhook, and returns what that gets.
func (p *plane) listen() <-chan notices.ApprovalNews {
	p.t.Helper()
	got := make(chan notices.ApprovalNews, 100)
	const secret = "secret-of-webhook-0123456789"
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var news notices.ApprovalNews
		if err != nil || protocol.UnmarshalStrict(body, &news) != nil {
			p.t.Errorf("%s, %v", body, err)
		}
		if r.Header.Get(webhook.SignatureHeader) != webhook.Sign([]byte(secret), r.Header.Get(webhook.TimestampHeader), body) {
			p.t.Error("the news isn't signed")
		}
		got <- news
	}))
	p.t.Cleanup(receiver.Close)
	sender, err := notices.NewWebhook(notices.WebhookConfig{URL: receiver.URL, Secret: secret}, slog.New(slog.DiscardHandler))
	if err != nil {
		p.t.Fatal(err)
	}
	p.server.notices.Webhook = sender
	done := make(chan struct{})
	go func() { defer close(done); sender.Run(p.server.closing) }()
	p.t.Cleanup(func() { p.server.close(); <-done })
	return got
}

// changeID names a change of an approval, so that a receiver knows it again.
func changeID(sandbox protocol.SandboxID, a protocol.Approval) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d", sandbox, a.ID, a.Revision))
	return "wh_" + hex.EncodeToString(sum[:16])
}

// TestApprovalNotice: each change is told once, in the form of its type.
func TestApprovalNotice(t *testing.T) {
	p := newPlane(t)
	srv := p.agentListener()
	b := p.enrolled(srv, "sb_1")
	agent := connect(t, srv)
	news := p.listen()
	post := func(a protocol.Approval) {
		t.Helper()
		if status, answer := agent.post("/approvals", b.approvalNotice(t, a, p.clock.Now())); status != http.StatusNoContent || len(answer) != 0 {
			t.Fatalf("%+v: %d %s", a, status, answer)
		}
	}
	asked := testApproval()
	post(asked)
	decided := asked
	decided.Revision, decided.State, decided.Decision, decided.UserID, decided.LeftMs = 2, protocol.ApprovalDecided, protocol.AllowOnce, "usr_alice", 0
	post(decided)
	expired := testApproval()
	expired.ID, expired.Revision, expired.State = "apr_2", 2, protocol.ApprovalExpired
	post(expired)
	cancelled := testTool()
	cancelled.Revision, cancelled.State = 2, protocol.ApprovalCancelled
	cancelled.Input = json.RawMessage(`{"command":"canary"}`)
	post(cancelled)
	cancelled.Input = nil // it goes nowhere

	got := make(map[string]notices.ApprovalNews)
	for range 4 { // in any order
		n := <-news
		got[n.Type] = n
	}
	for typ, a := range map[string]protocol.Approval{
		"approval.asked": asked, "approval.decided": decided, "approval.expired": expired, "approval.cancelled": cancelled,
	} {
		want := notices.ApprovalNews{
			ID: changeID("sb_1", a), Type: typ, Approval: a, SandboxID: "sb_1", DashboardID: "dash_1", SessionID: "ses_1",
			At: p.clock.Now().UnixMilli(),
		}
		if !reflect.DeepEqual(got[typ], want) {
			t.Errorf("%+v, want %+v", got[typ], want)
		}
	}
	if got["approval.asked"].ID == got["approval.decided"].ID {
		t.Error("two changes have one id")
	}

	// What was told is told no more, nor what came before it.
	post(asked)
	post(decided)
	undone := asked
	undone.Revision = 3
	older := b.approvalNotice(t, undone, p.clock.Now().Add(-time.Second))
	if status, answer := agent.post("/approvals", older); status != http.StatusNoContent {
		t.Errorf("%d %s", status, answer)
	}
	last := testApproval()
	last.ID = "apr_3"
	post(last)
	if n := <-news; n.Approval.ID != "apr_3" || len(news) != 0 {
		t.Errorf("told again: %+v", n)
	}
}

func TestApprovalNoticeRefused(t *testing.T) {
	p := newPlane(t)
	srv := p.agentListener()
	b, other := p.enrolled(srv, "sb_1"), p.enrolled(srv, "sb_2")
	agent := connect(t, srv)
	now := p.clock.Now()
	good := b.approvalNotice(t, testApproval(), now)
	with := func(change func(*protocol.Approval)) protocol.ApprovalNotice {
		a := testApproval()
		change(&a)
		return b.approvalNotice(t, a, now)
	}
	tool := func(change func(*protocol.Approval)) protocol.ApprovalNotice {
		a := testTool()
		change(&a)
		return b.approvalNotice(t, a, now)
	}
	edited := func(change func(*protocol.ApprovalNotice)) protocol.ApprovalNotice {
		n := good
		change(&n)
		return n
	}
	raw := func(text string) protocol.ApprovalNotice { return b.notice(t, []byte(text), now) }
	for _, tt := range []struct {
		name   string
		notice protocol.ApprovalNotice
		status int
	}{
		{"no certificate", edited(func(n *protocol.ApprovalNotice) { n.Certificate = "" }), 401},
		{"another sandbox's certificate", edited(func(n *protocol.ApprovalNotice) { n.Certificate = other.certificate }), 401},
		{"no signature", edited(func(n *protocol.ApprovalNotice) { n.Signature = nil }), 401},
		{"another time", edited(func(n *protocol.ApprovalNotice) { n.At++ }), 401},
		{"another approval", edited(func(n *protocol.ApprovalNotice) {
			n.Approval = json.RawMessage(strings.Replace(string(n.Approval), "unknown.example", "known.example", 1))
		}), 401},
		{"too old", b.approvalNotice(t, testApproval(), now.Add(-protocol.ClockSkew-time.Millisecond)), 401},
		{"of the future", b.approvalNotice(t, testApproval(), now.Add(protocol.ClockSkew+time.Millisecond)), 401},
		{"time that overflows", b.notice(t, good.Approval, time.UnixMilli(-1<<63)), 401},
		{"another sandbox's session", other.approvalNotice(t, testApproval(), now), 404},
		{"no such session", with(func(a *protocol.Approval) { a.SessionID = "ses_9" }), 404},
		{"no session", with(func(a *protocol.Approval) { a.SessionID = "" }), 400},
		{"no id", with(func(a *protocol.Approval) { a.ID = "a b" }), 400},
		{"no revision", with(func(a *protocol.Approval) { a.Revision = 0 }), 400},
		{"unknown kind", with(func(a *protocol.Approval) { a.Kind = "chat" }), 400},
		{"a tool's that is of a connection", with(func(a *protocol.Approval) { a.Kind = protocol.ApprovalTool }), 400},
		{"a connection's with a tool", with(func(a *protocol.Approval) { a.Tool = "Bash" }), 400},
		{"a tool's with a host", tool(func(a *protocol.Approval) { a.Host = "a.example" }), 400},
		{"no tool", tool(func(a *protocol.Approval) { a.Tool = "" }), 400},
		{"no conversation", tool(func(a *protocol.Approval) { a.ConversationID = ".." }), 400},
		{"no run", tool(func(a *protocol.Approval) { a.RunID = "a b" }), 400},
		{"no hash", tool(func(a *protocol.Approval) { a.InputSHA256 = "abc" }), 400},
		{"a long tool", tool(func(a *protocol.Approval) { a.Tool = strings.Repeat("x", 129) }), 400},
		{"a tool", tool(func(*protocol.Approval) {}), 204},
		{"unknown state", with(func(a *protocol.Approval) { a.State = "waiting" }), 400},
		{"no decision", with(func(a *protocol.Approval) { a.State = protocol.ApprovalDecided }), 400},
		{"a decision too many", with(func(a *protocol.Approval) { a.Decision = protocol.Deny }), 400},
		{"no host", with(func(a *protocol.Approval) { a.Host = "" }), 400},
		{"host with a line", with(func(a *protocol.Approval) { a.Host = "a\nb" }), 400},
		{"port out of range", with(func(a *protocol.Approval) { a.Port = 65536 }), 400},
		{"secret that is a value", with(func(a *protocol.Approval) { a.Secret = "sk-12345" }), 400},
		{"terminal that is no id", with(func(a *protocol.Approval) { a.PTYID = "/" }), 400},
		{"not an approval", raw(`{}`), 400},
		{"a list", raw(`[]`), 400},
		{"a member twice", raw(`{"id":"a","id":"b"}`), 400},
		{"the first", good, 204},
	} {
		if status, answer := agent.post("/approvals", tt.notice); status != tt.status {
			t.Errorf("%s: %d %s, want %d", tt.name, status, answer, tt.status)
		}
	}
	if status, _, _ := p.do(call{"POST", "/approvals", aliceToken, "{}", nil}); status != http.StatusNotFound {
		t.Errorf("the plain listener answers %d", status)
	}
}

// TestWebhookRuns: the program's own webhook delivers while it runs, and a
// receiver that hangs doesn't hold up its end.
func TestWebhookRuns(t *testing.T) {
	got, hang := make(chan struct{}, 8), make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got <- struct{}{}
		if len(r.Header.Get(webhook.SignatureHeader)) == 0 {
			t.Error("not signed")
		}
		<-hang
	}))
	t.Cleanup(receiver.Close)
	t.Cleanup(func() { close(hang) })
	cfg := testConfig(t)
	cfg.Webhook = notices.WebhookConfig{URL: receiver.URL, Secret: "0123456789abcdef"}
	server, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	for range 8 {
		server.notices.Webhook.Send("wh_1", []byte("{}"))
	}
	<-got
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if c := server.notices.Webhook.Counts(); c.Delivered != 0 || c.Dropped[webhook.Shutdown] != 8 {
		t.Errorf("%+v", c)
	}
}

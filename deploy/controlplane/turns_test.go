package controlplane

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/notices"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/webhook"
	"github.com/fairlead/fairlead/protocol"
)

func testTurn(p *plane) protocol.PTYCompleted {
	return protocol.PTYCompleted{
		SessionID: "ses_1", PTYID: "pty_1", Agent: "claude-code", Status: protocol.StopComplete, LastMessage: "Done.\nReally.",
		At: p.clock.Now().UnixMilli(),
	}
}

// TestPTYCompleted: a turn is kept and told once.
func TestPTYCompleted(t *testing.T) {
	p := newPlane(t)
	b := p.enrolled(p.agentListener(), "sb_1")
	bodies := make(chan []byte, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		data, err := web.ReadAll(r)
		if err != nil || r.Header.Get(webhook.SignatureHeader) == "" {
			t.Errorf("%v", err)
		}
		bodies <- data
	}))
	t.Cleanup(receiver.Close)
	sender, err := notices.NewWebhook(notices.WebhookConfig{URL: receiver.URL, Secret: "secret-of-webhook-0123456789"}, p.server.logger)
	if err != nil {
		t.Fatal(err)
	}
	p.server.notices.Webhook = sender
	done := make(chan struct{})
	go func() { defer close(done); sender.Run(p.server.closing) }()
	t.Cleanup(func() { p.server.close(); <-done })

	first := testTurn(p)
	second := first
	second.PTYID, second.Status, second.LastMessage, second.At = "pty_2", protocol.StopInterrupted, "", first.At+1
	for _, turn := range []protocol.PTYCompleted{first, first, second, first} {
		if status, answer := b.send(p, "POST", "/pty-completed", turn); status != http.StatusNoContent {
			t.Fatalf("%d %v", status, answer)
		}
	}
	ids := make(map[string]bool)
	for range 2 {
		var news notices.TurnNews
		if err := protocol.UnmarshalStrict(<-bodies, &news); err != nil {
			t.Fatal(err)
		}
		ids[news.ID] = true
		if news.Type != "agent.stopped" || news.Agent != "claude-code" || news.SandboxID != "sb_1" || news.DashboardID != "dash_1" ||
			news.SessionID != "ses_1" || news.PTYID == "pty_1" && news.LastMessage != first.LastMessage {
			t.Errorf("%+v", news)
		}
	}
	if len(ids) != 2 || len(bodies) != 0 {
		t.Errorf("told %v and %d more", ids, len(bodies))
	}

	turns := p.want(getAs(carolToken, "/dashboards/dash_1/turns?session_id=ses_1"), http.StatusOK, "")["turns"].([]any)
	if len(turns) != 2 || turns[0].(map[string]any)["pty_id"] != "pty_2" || turns[1].(map[string]any)["last_message"] != first.LastMessage {
		t.Errorf("%v", turns)
	}
	turns = p.want(getAs(carolToken, "/dashboards/dash_1/turns?session_id=ses_1&pty_id=pty_1&limit=5"), http.StatusOK, "")["turns"].([]any)
	if len(turns) != 1 {
		t.Errorf("%v", turns)
	}
	p.want(getAs(carolToken, "/dashboards/dash_1/turns"), http.StatusBadRequest, "RequestError")
	p.want(getAs(carolToken, "/dashboards/dash_1/turns?session_id=ses_9"), http.StatusNotFound, "TargetError")
	p.want(getAs(daveToken, "/dashboards/dash_1/turns?session_id=ses_1"), http.StatusNotFound, "TargetError")
}

func TestPTYCompletedRefused(t *testing.T) {
	p := newPlane(t)
	srv := p.agentListener()
	b, other := p.enrolled(srv, "sb_1"), p.enrolled(srv, "sb_2")
	with := func(change func(*protocol.PTYCompleted)) protocol.PTYCompleted {
		turn := testTurn(p)
		change(&turn)
		return turn
	}
	for _, tt := range []struct {
		name   string
		by     *testSandbox
		turn   protocol.PTYCompleted
		status int
	}{
		{"another sandbox", other, testTurn(p), 404},
		{"no such session", b, with(func(c *protocol.PTYCompleted) { c.SessionID = "ses_9" }), 404},
		{"no terminal", b, with(func(c *protocol.PTYCompleted) { c.PTYID = "" }), 400},
		{"no agent", b, with(func(c *protocol.PTYCompleted) { c.Agent = "" }), 400},
		{"a long name", b, with(func(c *protocol.PTYCompleted) { c.Agent = strings.Repeat("a", 65) }), 400},
		{"an unknown status", b, with(func(c *protocol.PTYCompleted) { c.Status = "bored" }), 400},
		{"a long message", b, with(func(c *protocol.PTYCompleted) { c.LastMessage = strings.Repeat("a", protocol.MaxLastMessage+1) }), 400},
		{"long ago", b, with(func(c *protocol.PTYCompleted) { c.At -= (25 * time.Hour).Milliseconds() }), 400},
		{"to come", b, with(func(c *protocol.PTYCompleted) { c.At += (2 * time.Minute).Milliseconds() }), 400},
		{"a time that overflows", b, with(func(c *protocol.PTYCompleted) { c.At = -1 << 63 }), 400},
	} {
		if status, answer := tt.by.send(p, "POST", "/pty-completed", tt.turn); status != tt.status {
			t.Errorf("%s: %d %v, want %d", tt.name, status, answer, tt.status)
		}
	}
	data, err := json.Marshal(testTurn(p))
	if err != nil {
		t.Fatal(err)
	}
	if status, _ := p.sendSigned("POST", "/pty-completed", data, nil); status != http.StatusUnauthorized {
		t.Errorf("unsigned: %d", status)
	}
}

package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// What is advised where a coding agent isn't installed can be carried out by the
// terminal's own user, and then the agent starts.
func TestFound20InstallAdvice(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	pty, err := newTerminal(ctx, s.Ready.User("alice"), s.Ready.SessionID, "")
	must(t, err)
	term := attach(t, s, "alice", pty)
	_, err = term.ExpectMessage(ctx, protocol.ServerAttached, nil)
	must(t, err)
	start := map[string]any{"name": "droid"}
	status, answer := agentOp(ctx, t, s, "alice", "", pty, start)
	var refusal struct{ Error protocol.ErrorBody }
	must(t, json.Unmarshal([]byte(answer), &refusal))
	_, command, found := strings.Cut(refusal.Error.Message, "this installs it for this terminal: ")
	if status != http.StatusBadRequest || !found || !strings.HasPrefix(command, "npm install -g --prefix ~/.local ") {
		t.Fatalf("%d %s", status, answer)
	}
	// The package isn't fetched here: what the command leaves is.
	must(t, term.Type(ctx, `mkdir -p ~/.local/lib ~/.local/bin && printf '#!/bin/sh\nexec cat\n' > ~/.local/lib/droid && chmod +x ~/.local/lib/droid && ln -s ../lib/droid ~/.local/bin/droid && echo installed-$((6*7)); command -v droid`+"\r"))
	must(t, term.Expect(ctx, "installed-42"))
	must(t, term.Expect(ctx, "/.local/bin/droid\r\n"))
	if status, answer := agentOp(ctx, t, s, "alice", "", pty, start); status != http.StatusOK {
		t.Fatalf("%d %s", status, answer)
	}
	must(t, term.Expect(ctx, "droid"))
}

// The console offers that command to be copied.
func TestFound20BrowserCopiesTheAdvice(t *testing.T) {
	s := shared(t)
	w := openWindow(t, "advice", s.Ready.Relays[0].URL+"/#token="+s.Ready.Users["alice"].Token, 1440, 900)
	w.untilText("status", "Connected")
	w.click("btn-agent-start")
	w.click("agent-codex")
	w.untilText("hint-text", "npm install -g --prefix ~/.local @openai/codex")
	w.untilText("btn-hint", "Copy the command")
	w.shoot("hint")
}

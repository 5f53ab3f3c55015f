package terminal

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/account"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
)

func credentialsOf(session protocol.SessionID, id protocol.PTYID) protocol.MCPCredentials {
	return protocol.MCPCredentials{
		URL: "http://127.0.0.1:8081/sessions/" + string(session) + "/mcp", SessionID: session, PTYID: id, Secret: "of-" + string(id),
	}
}

// wiring gives each terminal credentials, and furnishes homes as it is told to.
type wiring struct {
	furnish func(feature.Home) error // nil: nothing is done
}

func (wiring) TerminalStarts(start *feature.Start) error {
	c := credentialsOf(start.Session, start.PTY)
	start.Credentials = &c
	return nil
}

func (w wiring) FurnishHome(home feature.Home) error {
	if w.furnish == nil {
		return nil
	}
	return w.furnish(home)
}

func (wiring) TerminalEnded(feature.Terminal) {}

// TestCredentials: each terminal's programs have their own, in the environment
// and in a file that nobody else reads.
func TestCredentials(t *testing.T) {
	isolations(t, func(t *testing.T, h *Host) {
		h.config.Features = wiring{}
		u := sitDown(t, h, op.PTYCreate{Command: `echo "$FAIRLEAD_MCP_SECRET $ORCABOT_MCP_SECRET $ORCABOT_PTY_ID $FAIRLEAD_MCP_URL" up; cat`})
		want := credentialsOf(session, u.id)
		if got := u.expect(`^(.*) up`); got != fmt.Sprintf("%s %s %s %s", want.Secret, want.Secret, u.id, want.URL) {
			t.Errorf("%q", got)
		}
		u.startAgent(h, op.AgentStart{Command: `echo "agent: $FAIRLEAD_MCP_SECRET"; sleep 100`})
		u.expect("agent: " + want.Secret)
		name := filepath.Join(h.config.Homes, string(u.id), account.Dir, account.CredentialsFile)
		text, err := os.ReadFile(name)
		must(t, err)
		var got protocol.MCPCredentials
		must(t, json.Unmarshal(text, &got))
		st, err := os.Stat(name)
		must(t, err)
		uid, _ := h.UID(session, u.id)
		if owner := int(st.Sys().(*syscall.Stat_t).Uid); got != want || st.Mode() != 0o600 || uid >= 0 && owner != uid {
			t.Errorf("%+v, %v of %d", got, st.Mode(), owner)
		}
	})
}

// TestFurnish: a terminal starts whatever is in the way, and shows that; a known
// coding agent doesn't.
func TestFurnish(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "claude"), []byte("#!/bin/sh\necho here\nsleep 100\n"), 0o755))
	h := realHost(t, IsolationNone)
	h.config.SearchPath = dir + ":" + DefaultSearchPath
	var calls []string
	var fail error
	h.config.Features = wiring{func(home feature.Home) error {
		if _, err := home.Root.Stat(filepath.Join(account.Dir, account.CredentialsFile)); err != nil || home.Session != session {
			t.Errorf("%v, %s", err, home.Session)
		}
		calls = append(calls, fmt.Sprintf("%s %q %d %d", home.PTY, home.Agent, home.UID, home.GID))
		return fail
	}}
	u := sitDown(t, h, op.PTYCreate{Command: "echo up; cat"})
	u.expect("^up")
	start := func(s op.AgentStart) error {
		_, err := h.StartAgent(t.Context(), session, u.id, s)
		return err
	}
	fail = errors.New("~/.claude/settings.json: not JSON")
	wantRefusal(t, start(op.AgentStart{Name: "claude"}), protocol.KindInvalid, "~/.claude/settings.json")
	must(t, start(op.AgentStart{Name: "other", Command: "echo other; sleep 100"}))
	_, err := h.StopAgent(t.Context(), session, u.id)
	must(t, err)
	fail = nil
	must(t, start(op.AgentStart{Name: "claude"}))
	u.expect("here")
	want := []string{"", "claude", "claude"}
	for i, agent := range want {
		want[i] = fmt.Sprintf("%s %q -1 -1", u.id, agent)
	}
	if !slices.Equal(calls, want) {
		t.Errorf("%q, want %q", calls, want)
	}

	fail = errors.New("~/.codex/config.toml: not TOML")
	second := sitDown(t, h, op.PTYCreate{Command: "echo up; cat"})
	if got := second.expect(`(?s)^(.*)up`); !strings.Contains(got, "config.toml") || !strings.HasSuffix(got, "\r\n") {
		t.Errorf("%q", got)
	}
}

// TestPlainScreen: whole lines, of the screen and above it, without secrets.
func TestPlainScreen(t *testing.T) {
	stageBubble(t, func(t *testing.T, r *stageRig) {
		r.print("\x1b[31mfirst\x1b[0m\r\n" + strings.Repeat("w", 100) + "世\r\n\r\nlast  \r\n\r\n")
		text, info, err := r.host.Screen(session, "pty_1", 0)
		if want := "first\n" + strings.Repeat("w", 100) + "世\n\nlast\n"; err != nil || text != want || info.ID != "pty_1" || info.Cols != 80 {
			t.Errorf("%q, %+v, %v", text, info, err)
		}
		r.print("\x1b[2J\x1b[H")
		for i := range 2000 {
			r.print(fmt.Sprintf("line %d\r\n", i))
		}
		text, _, err = r.host.Screen(session, "pty_1", 2)
		if err != nil || !strings.HasPrefix(text, "line 1975\n") || !strings.HasSuffix(text, "line 1999\n") {
			t.Errorf("%q, %v", text, err)
		}
		back, err := r.host.Scrollback(session, "pty_1")
		must(t, err)
		if len(back) > maxScrollback || !strings.HasPrefix(string(back), "line ") || !strings.HasSuffix(string(back), "line 1999\n") {
			t.Errorf("%d bytes: %.20q … %q", len(back), back, back[len(back)-20:])
		}
		r.host.SetSecrets(compile(t, "line 1999"), []string{"line 1999"})
		if text, _, err = r.host.Screen(session, "pty_1", 0); err != nil || strings.Contains(text, "line 1999") {
			t.Errorf("%q, %v", text, err)
		}
		r.print("\x1b[?1049h\x1b[Halternate")
		if text, _, err = r.host.Screen(session, "pty_1", 50); err != nil || text != "alternate\n" {
			t.Errorf("%q, %v", text, err)
		}
		_, _, err = r.host.Screen("ses_2", "pty_1", 0)
		wantKind(t, err, protocol.KindNotFound)
		_, err = r.host.Scrollback(session, "pty_2")
		wantKind(t, err, protocol.KindNotFound)
	})
}

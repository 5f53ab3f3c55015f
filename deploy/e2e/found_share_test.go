package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// A stranger is a program of one terminal that wants something of another.
type stranger struct {
	*ToolClient
	credentials protocol.MCPCredentials
}

func newStranger(ctx context.Context, t *testing.T, s *Stack, id protocol.PTYID) stranger {
	t.Helper()
	credentials, err := Credentials(s.Ready.Sandboxes[0].PID, id)
	must(t, err)
	client, err := LocalTools(ctx, credentials)
	must(t, err)
	t.Cleanup(client.Close)
	return stranger{client, credentials}
}

// tries returns what it is told of another terminal by every way that there is,
// each with whether that way was refused.
func (c stranger) tries(ctx context.Context, t *testing.T, id protocol.PTYID, command string) map[string]bool {
	t.Helper()
	refused := make(map[string]bool)
	arguments := map[string]any{"pty_id": id}
	for _, tool := range []string{"terminal_read", "terminal_run", "terminal_send"} {
		switch tool {
		case "terminal_run":
			arguments = map[string]any{"pty_id": id, "command": command}
		case "terminal_send":
			arguments = map[string]any{"pty_id": id, "text": "\x15"} // empties the line
		}
		_, failed, err := c.Call(ctx, tool, arguments)
		must(t, err)
		refused[tool] = failed
		at := c.credentials.URL + "/tools/call?pty_id=" + string(c.credentials.PTYID)
		status, answer, err := Call(ctx, http.MethodPost, at, "", map[string]any{"name": tool, "arguments": arguments},
			protocol.MCPSecretHeader, c.credentials.Secret)
		must(t, err)
		refused[tool+" by REST"] = status != http.StatusOK || strings.Contains(string(answer), `"isError":true`)
	}
	list, _, err := c.Call(ctx, "terminal_list", map[string]any{})
	must(t, err)
	refused["terminal_list"] = !strings.Contains(list, string(id))
	at := strings.TrimSuffix(c.credentials.URL, "/mcp") + "/ptys/" + string(id) + "/scrollback"
	status, _, err := Call(ctx, http.MethodGet, at, "", nil, protocol.MCPSecretHeader, c.credentials.Secret)
	must(t, err)
	refused["scrollback"] = status == http.StatusForbidden
	return refused
}

// share has a user open a terminal to programs of others.
func share(ctx context.Context, t *testing.T, s *Stack, user string, id protocol.PTYID, with string) int {
	t.Helper()
	u := s.Ready.User(user)
	at := fmt.Sprintf("%s/sessions/%s/ptys/%s/share", u.Base, s.Ready.SessionID, id)
	status, _, err := Call(ctx, http.MethodPost, at, mustGrant(ctx, t, s, user), map[string]string{"with": with})
	must(t, err)
	return status
}

// sharedWith waits until a viewer was told last that a terminal is open to with.
func sharedWith(ctx context.Context, t *testing.T, term *Terminal, with string) {
	t.Helper()
	must(t, term.Await(ctx, "shared "+with, func(_ []byte, messages []Message, _ error) bool {
		last := any("none")
		for _, m := range messages {
			if m.Type() == "shared" {
				last = m["with"]
			}
		}
		return last == with
	}))
}

// newShell opens a terminal that alice controls, and has its shell say that it is
// there.
func newShell(ctx context.Context, t *testing.T, s *Stack) (protocol.PTYID, *Terminal) {
	t.Helper()
	id := newPTY(t, s, "")
	a := attach(t, s, "alice", id)
	must(t, a.Type(ctx, "echo ready-$((40+2))\r"))
	must(t, a.Expect(ctx, "ready-42\r\n"))
	return id, a
}

// idleShell is a newShell that nobody controls.
func idleShell(ctx context.Context, t *testing.T, s *Stack) (protocol.PTYID, *Terminal) {
	t.Helper()
	id, a := newShell(ctx, t, s)
	must(t, a.Say(ctx, Message{"type": "revoke_control"}))
	_, err := a.ExpectMessage(ctx, protocol.ServerControlRevoked, nil)
	must(t, err)
	return id, a
}

// TestFound03ProgramsStayInTheirTerminal: a terminal's programs neither read
// another terminal nor type into it until a person has opened that to them, and
// everybody sees that it is open.
func TestFound03ProgramsStayInTheirTerminal(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	victim, alice := idleShell(ctx, t, s)
	other, third := newPTY(t, s, ""), newPTY(t, s, "")
	carol := attach(t, s, "carol", victim)
	friend, stray := newStranger(ctx, t, s, other), newStranger(ctx, t, s, third)
	closed := func(c stranger, when string) {
		t.Helper()
		for way, refused := range c.tries(ctx, t, victim, "echo intruder-$((40+2))") {
			if !refused {
				t.Errorf("%s: %s gets through", when, way)
			}
		}
	}
	closed(friend, "nobody has opened it")
	friend.want(ctx, t, "", "terminal_read", map[string]any{"pty_id": other}) // its own
	friend.want(ctx, t, string(other), "terminal_list", map[string]any{})

	if status := share(ctx, t, s, "carol", victim, "session"); status != http.StatusForbidden {
		t.Errorf("a viewer opens a terminal to programs: %d", status)
	}
	for with, want := range map[string]int{"": 400, "-": 400, string(victim): 400, "pty_of_nobody": 404} {
		if status := share(ctx, t, s, "alice", victim, with); status != want {
			t.Errorf("opened with %q: %d, want %d", with, status, want)
		}
	}
	if status := share(ctx, t, s, "alice", victim, string(other)); status != http.StatusOK {
		t.Fatalf("opening it: %d", status)
	}
	for _, term := range []*Terminal{alice, carol, attach(t, s, "bob", victim)} {
		sharedWith(ctx, t, term, string(other))
	}
	friend.want(ctx, t, "friend-42", "terminal_run", map[string]any{"pty_id": victim, "command": "echo friend-$((40+2))"})
	friend.want(ctx, t, "friend-42", "terminal_read", map[string]any{"pty_id": victim})
	friend.want(ctx, t, string(victim), "terminal_list", map[string]any{})
	closed(stray, "it is open to another")

	if status := share(ctx, t, s, "bob", victim, "session"); status != http.StatusOK { // who may control it
		t.Fatalf("opening it to the session: %d", status)
	}
	sharedWith(ctx, t, carol, "session")
	stray.want(ctx, t, "stray-42", "terminal_run", map[string]any{"pty_id": victim, "command": "echo stray-$((40+2))"})
	if status := share(ctx, t, s, "alice", victim, "none"); status != http.StatusOK {
		t.Fatalf("closing it: %d", status)
	}
	sharedWith(ctx, t, carol, "none")
	closed(friend, "it was closed")
	closed(stray, "it was closed")
	if strings.Contains(string(alice.Output()), "intruder-42") {
		t.Error("a program's command ran in a terminal that was not open to it")
	}
	// A person's tools go by the person's grant, whatever is open to programs.
	tools(ctx, t, s, "alice").want(ctx, t, "person-42", "terminal_run", map[string]any{"pty_id": victim, "command": "echo person-$((40+2))"})
}

// TestFound03OpenTerminalEndsWithItsGuest: what was opened to a terminal's
// programs is closed with it, for another terminal may get its name; and whoever
// attaches after a relay's death sees what is open.
func TestFound03OpenTerminalEndsWithItsGuest(t *testing.T) {
	s := own(t)
	ctx := within(t)
	victim, _ := idleShell(ctx, t, s)
	other := newPTY(t, s, "")
	if status := share(ctx, t, s, "alice", victim, string(other)); status != http.StatusOK {
		t.Fatalf("opening it: %d", status)
	}
	pid := s.Ready.Relays[0].PID
	killRelay(t, s)
	awaitRelay(ctx, t, s, 0, pid)
	var late *Terminal
	await(t, "a viewer after the relay's death", func() (there bool) {
		term, err := s.Ready.User("carol").Attach(ctx, s.Ready.SessionID, victim, "")
		late = term
		return err == nil
	})
	defer late.Close()
	sharedWith(ctx, t, late, string(other))
	alice := s.Ready.User("alice")
	at := fmt.Sprintf("%s/sessions/%s/ptys/%s", alice.Base, s.Ready.SessionID, other)
	must(t, call(ctx, http.StatusNoContent, nil, http.MethodDelete, at, mustGrant(ctx, t, s, "alice"), nil))
	sharedWith(ctx, t, late, "none")
}

package op

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// TestShellChecked: what the web client of seed 002 may ask for, and what nobody may.
func TestShellChecked(t *testing.T) {
	for text, good := range map[string]bool{
		`{"provider":"claude"}`: true,
		`{"provider":"claude","session_id":"a.b:c_D-9","has_session":true}`:              true,
		`{"provider":"plain-shell","plain":true,"initial_command":"echo \"$(id)\" '&'"}`: true,
		`{"provider":"codex","project_path":"/workspace/a b'$(id)"}`:                     true,
		`{}`:                      false,
		`{"provider":"bash"}`:     false,
		`{"provider":"Claude"}`:   false,
		`{"provider":["claude"]}`: false,
		`{"provider":"claude","session_id":"$(id)"}`:                                               false,
		`{"provider":"claude","session_id":"a b"}`:                                                 false,
		`{"provider":"claude","session_id":"a\"; id"}`:                                             false,
		`{"provider":"claude","session_id":"a\n"}`:                                                 false,
		`{"provider":"claude","session_id":"../a"}`:                                                false,
		`{"provider":"claude","session_id":"--dangerously-skip-permissions"}`:                      false,
		`{"provider":"claude","session_id":"` + strings.Repeat("a", protocol.MaxIDBytes+1) + `"}`:  false,
		`{"provider":"claude","project_path":"a\u0000b"}`:                                          false,
		`{"provider":"claude","project_path":"` + strings.Repeat("a", maxShellPath+1) + `"}`:       false,
		`{"provider":"claude","initial_command":"a\u0000b"}`:                                       false,
		`{"provider":"claude","initial_command":"` + strings.Repeat("a", maxShellCommand+1) + `"}`: false,
		`{"provider":"claude","argv":["id"]}`:                                                      false,
		`{"provider":"claude","plain":"yes"}`:                                                      false,
		`"claude"`:                                                                                 false,
		`[]`:                                                                                       false,
		`null`:                                                                                     true, // as if it weren't there
	} {
		_, body, err := Decode(json.RawMessage(`{"kind":"pty.create","cols":80,"shell":` + text + `}`))
		if (err == nil) != good || err != nil && protocol.KindOf(err) != protocol.KindInvalid {
			t.Errorf("%.80s: %+v, %v", text, body, err)
		}
	}
	for _, beside := range []string{`"command":"id"`, `"dir":"a"`, `"args":["a"]`, `"conversation":"c-1"`} {
		if _, _, err := Decode(json.RawMessage(`{"kind":"pty.create","shell":{"provider":"claude"},` + beside + `}`)); protocol.KindOf(err) != protocol.KindInvalid {
			t.Errorf("beside %s: %v", beside, err)
		}
	}
}

// TestShellNeeds: who goes on with a session answers what its coding agent asks.
func TestShellNeeds(t *testing.T) {
	both := []protocol.Capability{protocol.CapChat, protocol.CapApprove}
	for _, c := range []struct {
		shell  Shell
		plain  bool
		starts string
		needs  []protocol.Capability
	}{
		{Shell{Provider: "claude"}, false, "claude", nil},
		{Shell{Provider: "claude", SessionID: "s"}, false, "claude", nil},
		{Shell{Provider: "claude", HasSession: true}, false, "claude", nil},
		{Shell{Provider: "cursor", SessionID: "s", HasSession: true}, false, "cursor-agent", both},
		{Shell{Provider: "claude", SessionID: "s", HasSession: true, InitialCommand: "claude"}, false, "claude", both},
		{Shell{Provider: "claude", SessionID: "s", HasSession: true, Plain: true}, true, "", nil},
		{Shell{Provider: PlainShell, SessionID: "s", HasSession: true}, true, "", nil},
		{Shell{Provider: "claude", InitialCommand: "npm test"}, true, "", nil},
	} {
		create := PTYCreate{Shell: &c.shell}
		if needs, err := create.AskedBy("usr_a"); err != nil || !slices.Equal(needs, c.needs) {
			t.Errorf("%+v needs %v, %v", c.shell, needs, err)
		}
		if c.shell.IsPlain() != c.plain || c.shell.Program() != c.starts {
			t.Errorf("%+v: plain %t, starts %q", c.shell, c.shell.IsPlain(), c.shell.Program())
		}
	}
}

// TestShellID: weakness 10. Everything that makes a shell another one counts, to its
// last byte; what is the same has the same terminal wherever it is asked for.
func TestShellID(t *testing.T) {
	const session = protocol.SessionID("ses_1")
	seen := map[protocol.PTYID]Shell{}
	for _, s := range []Shell{
		{Provider: "claude"},
		{Provider: "codex"},
		{Provider: "claude", Plain: true},
		{Provider: PlainShell},
		{Provider: "claude", SessionID: "a"},
		{Provider: "claude", ProjectPath: "/workspace/a"},
		{Provider: "claude", ProjectPath: "/workspace/a b"},
		{Provider: "claude", InitialCommand: "npm run test:unit"},
		{Provider: "claude", InitialCommand: "npm run test:e2e"},
		{Provider: "claude", ProjectPath: "ab", SessionID: "c"},
		{Provider: "claude", ProjectPath: "a", SessionID: "bc"},
	} {
		id := s.PTYID(session)
		if before, taken := seen[id]; taken || !protocol.ValidID(id) || len(id) != len("pty_")+52 {
			t.Errorf("%+v and %+v are %s", before, s, id)
		}
		seen[id] = s
		if s.PTYID("ses_2") == id {
			t.Errorf("%+v is the same in two sessions", s)
		}
	}
	same := Shell{Provider: "claude", ProjectPath: "/workspace/./a//", SessionID: "default", HasSession: true}
	if (&Shell{Provider: "claude", ProjectPath: "/workspace/a"}).PTYID(session) != same.PTYID(session) {
		t.Error("one folder, spelled in two ways, is two")
	}
}

// TestShellCompleted: the terminal of a shell is named by what it is, and by nobody.
func TestShellCompleted(t *testing.T) {
	create := &PTYCreate{Shell: &Shell{Provider: "claude"}}
	target := protocol.CommandTarget{SessionID: "ses_1"}
	if err := create.Complete(&target); err != nil || target.PTYID != create.Shell.PTYID("ses_1") {
		t.Errorf("%+v, %v", target, err)
	}
	if err := create.Complete(&target); err != nil {
		t.Error(err)
	}
	target.PTYID = "pty_mine"
	if err := create.Complete(&target); protocol.KindOf(err) != protocol.KindInvalid {
		t.Errorf("%+v, %v", target, err)
	}
	if err := (&PTYCreate{}).Complete(&target); err != nil || target.PTYID != "pty_mine" {
		t.Errorf("%+v, %v", target, err)
	}
}

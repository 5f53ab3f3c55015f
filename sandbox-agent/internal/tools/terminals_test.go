package tools

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/arbiter"
	"github.com/fairlead/fairlead/sandbox-agent/internal/shell"
	"github.com/fairlead/fairlead/sandbox-agent/internal/terminal"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox/toolboxtest"
)

var _ Host = (*terminal.Host)(nil)

// A desk is a Host that notes what is asked of it.
type desk struct {
	typed  string
	by     arbiter.Typist
	lines  int
	run    func(ctx context.Context) (shell.Result, error)
	refuse error
	open   protocol.Share // of each terminal
}

func (d *desk) OpenTo(_ protocol.SessionID, id, programs protocol.PTYID) bool {
	return id == programs || d.open.Opens(programs)
}

func (d *desk) List(protocol.SessionID) []protocol.PTYInfo {
	return []protocol.PTYInfo{{ID: "p1", Cols: 80, Rows: 24}, {ID: "p2", Cols: 80, Rows: 24}}
}

func (d *desk) Screen(_ protocol.SessionID, id protocol.PTYID, lines int) (string, protocol.PTYInfo, error) {
	d.lines = lines
	return "$ ls\n", protocol.PTYInfo{ID: id}, d.refuse
}

func (d *desk) TypeFor(_ context.Context, _ protocol.SessionID, id protocol.PTYID, by arbiter.Typist, text []byte) error {
	d.typed, d.by = string(id)+":"+string(text), by
	return d.refuse
}

func (d *desk) Run(ctx context.Context, _ protocol.SessionID, _ protocol.PTYID, by arbiter.Typist, command string) (shell.Result, error) {
	d.typed, d.by = command, by
	return d.run(ctx)
}

func TestTerminalList(t *testing.T) {
	set := &Terminals{Host: &desk{}}
	for _, test := range []struct {
		ptys []string
		want int
	}{{[]string{"*"}, 2}, {[]string{"p2"}, 1}, {[]string{"p3"}, 0}} {
		texts, err := toolboxtest.Call(t, set, toolboxtest.Person(test.ptys, protocol.CapView), "terminal_list", `{}`)
		toolboxtest.Works(t, err)
		var got terminalListing
		if err := json.Unmarshal([]byte(texts[0]), &got); err != nil || len(got.Terminals) != test.want {
			t.Errorf("%v sees %s, want %d", test.ptys, texts[0], test.want)
		}
	}
	for open, want := range map[protocol.Share]bool{"": false, protocol.ShareNone: false, "p3": false, "p1": true, protocol.ShareSession: true} {
		texts, err := toolboxtest.Call(t, &Terminals{Host: &desk{open: open}}, toolboxtest.Program, "terminal_list", ``)
		toolboxtest.Works(t, err)
		if !strings.Contains(texts[0], `"own":"p1"`) || !strings.Contains(texts[0], `"id":"p1"`) || strings.Contains(texts[0], `"id":"p2"`) != want {
			t.Errorf("open to %q: got %s", open, texts[0])
		}
	}
}

// A program is asked for nothing that isn't open to it.
func TestTerminalsOfOthers(t *testing.T) {
	d := &desk{open: "p3"}
	set := &Terminals{Host: d}
	for tool, args := range map[string]string{
		"terminal_read": `{"pty_id":"p2"}`,
		"terminal_send": `{"pty_id":"p2","text":"x"}`,
		"terminal_run":  `{"pty_id":"p2","command":"ls"}`,
	} {
		_, err := toolboxtest.Call(t, set, toolboxtest.Program, tool, args)
		toolboxtest.Fails(t, err, protocol.KindForbidden, "not open to your programs")
	}
	if d.typed != "" || d.lines != 0 {
		t.Errorf("the host was asked for %q, %d lines", d.typed, d.lines)
	}
}

func TestTerminalRead(t *testing.T) {
	d := &desk{open: protocol.ShareSession}
	set := &Terminals{Host: d}
	texts, err := toolboxtest.Call(t, set, toolboxtest.Program, "terminal_read", `{}`)
	toolboxtest.Works(t, err)
	if texts[0] != "$ ls\n" || !strings.Contains(texts[1], `"id":"p1"`) || d.lines != defaultLines {
		t.Errorf("got %q with %d lines", texts, d.lines)
	}
	_, err = toolboxtest.Call(t, set, toolboxtest.Program, "terminal_read", `{"pty_id":"p2","lines":0}`)
	if toolboxtest.Works(t, err); d.lines != 0 {
		t.Errorf("%d lines were asked for, want none", d.lines)
	}
	_, err = toolboxtest.Call(t, set, toolboxtest.Program, "terminal_read", `{"lines":2001}`)
	toolboxtest.Fails(t, err, protocol.KindInvalid, "lines")
	_, err = toolboxtest.Call(t, set, toolboxtest.Person([]string{"*"}, protocol.CapView), "terminal_read", `{}`)
	toolboxtest.Fails(t, err, protocol.KindInvalid, "pty_id")
	_, err = toolboxtest.Call(t, set, toolboxtest.Person([]string{"p1"}, protocol.CapView), "terminal_read", `{"pty_id":"p2"}`)
	toolboxtest.Fails(t, err, protocol.KindForbidden, "view")
	_, err = toolboxtest.Call(t, set, toolboxtest.Person([]string{"*"}, protocol.CapControl), "terminal_read", `{"pty_id":"p2"}`)
	toolboxtest.Fails(t, err, protocol.KindForbidden, "view")
	d.refuse = protocol.Errorf(protocol.KindNotFound, "no such terminal")
	_, err = toolboxtest.Call(t, set, toolboxtest.Program, "terminal_read", `{"pty_id":"p9"}`)
	toolboxtest.Fails(t, err, protocol.KindNotFound, "no such terminal")
}

func TestTerminalSend(t *testing.T) {
	d := &desk{open: protocol.ShareSession}
	set := &Terminals{Host: d}
	_, err := toolboxtest.Call(t, set, toolboxtest.Program, "terminal_send", `{"pty_id":"p2","text":"ls","enter":true}`)
	toolboxtest.Works(t, err)
	if d.typed != "p2:ls\r" || d.by.Grant != nil || d.by.PTY != "p1" {
		t.Errorf("typed %q by %+v", d.typed, d.by)
	}
	who := toolboxtest.Person([]string{"*"}, protocol.CapControl)
	_, err = toolboxtest.Call(t, set, who, "terminal_send", `{"pty_id":"p1","text":"\u0003"}`)
	toolboxtest.Works(t, err)
	if d.typed != "p1:\x03" || d.by.Grant != who.Grant {
		t.Errorf("typed %q by %+v", d.typed, d.by)
	}
	d.typed = ""
	_, err = toolboxtest.Call(t, set, toolboxtest.Program, "terminal_send", `{"pty_id":"p1","text":"ls"}`)
	toolboxtest.Fails(t, err, protocol.KindForbidden, "own")
	_, err = toolboxtest.Call(t, set, toolboxtest.Program, "terminal_send", `{"pty_id":"p2"}`)
	toolboxtest.Fails(t, err, protocol.KindInvalid, "text")
	_, err = toolboxtest.Call(t, set, toolboxtest.Program, "terminal_send", `{"text":"x"}`)
	toolboxtest.Fails(t, err, protocol.KindInvalid, "pty_id")
	_, err = toolboxtest.Call(t, set, toolboxtest.Person([]string{"*"}, protocol.CapView), "terminal_send", `{"pty_id":"p2","text":"ls"}`)
	toolboxtest.Fails(t, err, protocol.KindForbidden, "control")
	_, err = toolboxtest.Call(t, set, toolboxtest.Person([]string{"p1"}, protocol.CapControl), "terminal_send", `{"pty_id":"p2","text":"ls"}`)
	toolboxtest.Fails(t, err, protocol.KindForbidden, "control")
	if d.typed != "" {
		t.Errorf("%q was typed", d.typed)
	}
	d.refuse = protocol.Errorf(protocol.KindConflict, "bob has control of the terminal")
	_, err = toolboxtest.Call(t, set, toolboxtest.Program, "terminal_send", `{"pty_id":"p2","text":"ls"}`)
	toolboxtest.Fails(t, err, protocol.KindConflict, "bob")
	d.refuse = context.Canceled
	_, err = toolboxtest.Call(t, set, toolboxtest.Program, "terminal_send", `{"pty_id":"p2","text":"ls"}`)
	toolboxtest.Fails(t, err, protocol.KindInternal, protocol.KindInternal.Text())
}

func TestTerminalRun(t *testing.T) { synctest.Test(t, testTerminalRun) }

func testTerminalRun(t *testing.T) {
	d := &desk{open: protocol.ShareSession}
	set := &Terminals{Host: d}
	const args = `{"pty_id":"p2","command":"make","timeout_seconds":1}`
	d.run = func(context.Context) (shell.Result, error) {
		return shell.Result{Output: "no\n", ExitCode: 2, Truncated: true}, nil
	}
	texts, err := toolboxtest.Call(t, set, toolboxtest.Program, "terminal_run", args)
	if toolboxtest.Works(t, err); texts[0] != `{"exit_code":2,"output":"no\n","truncated":true}` || d.typed != "make" {
		t.Errorf("got %s", texts[0])
	}
	d.run = func(ctx context.Context) (shell.Result, error) {
		<-ctx.Done()
		return shell.Result{Output: "half"}, protocol.Errorf(protocol.KindUnavailable, "it goes on")
	}
	_, err = toolboxtest.Call(t, set, toolboxtest.Program, "terminal_run", args)
	toolboxtest.Fails(t, err, protocol.KindUnavailable, "within 1s")
	toolboxtest.Fails(t, err, protocol.KindUnavailable, `"output":"half"`)
	d.run = func(context.Context) (shell.Result, error) {
		return shell.Result{Output: "bye", ExitCode: 3}, protocol.Errorf(protocol.KindEnded, "ended")
	}
	_, err = toolboxtest.Call(t, set, toolboxtest.Program, "terminal_run", args)
	toolboxtest.Fails(t, err, protocol.KindUnavailable, `"exit_code":3,"output":"bye"`)
	d.run = func(context.Context) (shell.Result, error) {
		return shell.Result{}, protocol.Errorf(protocol.KindConflict, "the shell isn't at its prompt")
	}
	_, err = toolboxtest.Call(t, set, toolboxtest.Program, "terminal_run", args)
	toolboxtest.Fails(t, err, protocol.KindConflict, "prompt")

	// Whose grant ends while the command runs sees nothing of it.
	who := toolboxtest.Person([]string{"*"}, protocol.CapControl, protocol.CapView)
	d.run = func(context.Context) (shell.Result, error) {
		who.Grant.ExpiresAt = time.Now().Unix() - 1
		return shell.Result{Output: "secret"}, nil
	}
	texts, err = toolboxtest.Call(t, set, who, "terminal_run", args)
	toolboxtest.Fails(t, err, protocol.KindExpired, "")
	if len(texts) > 0 {
		t.Errorf("it was told %q", texts)
	}
	d.run = func(context.Context) (shell.Result, error) {
		t.Error("it ran")
		return shell.Result{}, nil
	}
	for _, bad := range []string{
		`{"pty_id":"p2"}`, `{"command":"x"}`, `{"pty_id":"p2","command":"x","timeout_seconds":0}`,
		`{"pty_id":"p2","command":"x","timeout_seconds":601}`, `{"pty_id":"p2","command":["x"]}`,
	} {
		_, err = toolboxtest.Call(t, set, toolboxtest.Program, "terminal_run", bad)
		toolboxtest.Fails(t, err, protocol.KindInvalid, "")
	}
	_, err = toolboxtest.Call(t, set, toolboxtest.Program, "terminal_run", `{"pty_id":"p1","command":"x"}`)
	toolboxtest.Fails(t, err, protocol.KindForbidden, "own")
	_, err = toolboxtest.Call(t, set, toolboxtest.Person([]string{"*"}, protocol.CapControl), "terminal_run", args)
	toolboxtest.Fails(t, err, protocol.KindForbidden, "view")
}

package tools

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/terminal"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox/toolboxtest"
)

// The tools in a real shell.
func TestShell(t *testing.T) {
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash")
	}
	dir := t.TempDir()
	host, err := terminal.NewHost(terminal.Config{
		Workspace: dir + "/workspace", Homes: dir + "/homes", Isolation: terminal.IsolationNone, Shell: shell,
	})
	toolboxtest.Works(t, err)
	defer host.Shutdown(context.Background())
	_, err = host.Create(t.Context(), "s1", "p2", op.PTYCreate{Cols: 80, Rows: 24})
	toolboxtest.Works(t, err)
	toolboxtest.Works(t, host.Share("s1", "p2", protocol.ShareSession))
	set := &Terminals{Host: host}
	for round, caller := range []toolbox.Caller{toolboxtest.Program, toolboxtest.Person([]string{"p2"}, protocol.CapControl, protocol.CapView)} {
		var texts []string
		eventually(t, func() (err error) { // once the shell is at its prompt
			texts, err = toolboxtest.Call(t, set, caller, "terminal_run", `{"pty_id":"p2","command":"echo one; (exit 3)"}`)
			return err
		})
		if !strings.Contains(texts[0], `"exit_code":3`) || !strings.Contains(texts[0], `"output":"one`) {
			t.Errorf("got %s", texts[0])
		}
		_, err := toolboxtest.Call(t, set, caller, "terminal_send", `{"pty_id":"p2","text":"printf 't%s' wo","enter":true}`)
		toolboxtest.Works(t, err)
		eventually(t, func() error {
			texts, err := toolboxtest.Call(t, set, caller, "terminal_read", `{"pty_id":"p2","lines":0}`)
			if err == nil && strings.Count(texts[0], "two") <= round {
				err = protocol.Errorf(protocol.KindConflict, "the screen is %q", texts[0])
			}
			return err
		})
	}
}

// eventually calls try until it returns no error, or one that won't pass.
func eventually(t *testing.T, try func() error) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-tick.C {
		err := try()
		if err == nil {
			return
		}
		if kind := protocol.KindOf(err); kind != protocol.KindConflict && kind != protocol.KindUnsupported || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

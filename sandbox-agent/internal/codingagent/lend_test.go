package codingagent

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/launch"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
	"github.com/fairlead/fairlead/sandbox-agent/internal/provider"
)

// lend lends the session's account to a terminal for the program "standin".
func (w *world) lend() launch.Lent {
	w.t.Helper()
	lent, err := w.Lend(w.t.Context(), Launch{Session: session, Command: provider.Command{Program: "standin", Args: []string{"an argument"}}})
	if err != nil {
		w.t.Fatal(err)
	}
	return lent
}

// TestLend: what a terminal runs under a session's account is in every respect
// what a conversation runs, and the features hear of the account's end once, after
// the last of all programs.
func TestLend(t *testing.T) {
	each(t, func(w *world) {
		const script = `id -u; echo "$HOME $PWD $1"; env | grep -e ^FAIRLEAD_PTY -e ^AROUND -e ^FAIRLEAD_MCP | sort | tr '\n' ' '; echo`
		program := w.run(script, "an argument")
		want := []string{w.line(program), w.line(program), w.line(program)}
		<-program.Gone()
		if got := w.features.took(); !slices.Equal(got, []string{"starts", "ended"}) {
			t.Errorf("%q", got)
		}
		first, second := w.lend(), w.lend()
		cmd := process.Command(first.Argv)
		cmd.Dir, cmd.Env = first.Dir, first.Mark.Environ(first.Env)
		cmd.SysProcAttr.Credential = first.Account.Credential()
		if got, err := cmd.Output(); err != nil || strings.TrimSpace(string(got)) != strings.TrimSpace(strings.Join(want, "\n")) {
			t.Errorf("in the terminal %q, in a conversation %q: %v", got, want, err)
		}
		if first.Account.Home != w.Home(session) || first.Mark == second.Mark {
			t.Errorf("%+v %+v", first, second)
		}
		first.Return()
		first.Return() // counts once
		<-w.run("exit 0").Gone()
		if got := w.features.took(); !slices.Equal(got, []string{"starts", "starts", "starts"}) {
			t.Errorf("while a terminal has the account: %q", got)
		}
		second.Return()
		if got := w.features.took(); !slices.Equal(got, []string{"ended"}) {
			t.Errorf("after the last one: %q", got)
		}
	})
}

// TestLendRefusals: nothing is lent for what can't run.
func TestLendRefusals(t *testing.T) {
	w := newWorld(t, false)
	w.program("standin", "exit 0")
	for _, l := range []Launch{
		{Session: session, Command: provider.Command{Program: "codex-missing"}},
		{Session: session, Command: provider.Command{Program: "standin"}, Dir: "/"},
		{Session: "../x", Command: provider.Command{Program: "standin"}},
	} {
		if _, err := w.Lend(t.Context(), l); protocol.KindOf(err) != protocol.KindInvalid {
			t.Errorf("%+v: %v", l, err)
		}
	}
	w.features.fail = protocol.Errorf(protocol.KindUnavailable, "no firewall")
	if _, err := w.Lend(t.Context(), Launch{Session: session, Command: provider.Command{Program: "standin"}}); protocol.KindOf(err) != protocol.KindUnavailable {
		t.Error(err)
	}
	w.features.fail = nil
	w.features.took()
	w.lend().Return()
	if got := w.features.took(); !slices.Equal(got, []string{"starts", "ended"}) {
		t.Errorf("what was refused counts: %q", got)
	}
}

// TestLendEnds: the end of a session doesn't wait for a terminal that has its
// account, and ends what runs there.
func TestLendEnds(t *testing.T) {
	each(t, func(w *world) {
		w.program("standin", "echo ready; sleep 1000")
		lent := w.lend()
		cmd := process.Command(lent.Argv)
		cmd.Dir, cmd.Env = lent.Dir, lent.Env
		cmd.SysProcAttr.Credential = lent.Account.Credential()
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
		if err := w.SessionEnded(session); err != nil {
			t.Error(err)
		}
		err = cmd.Wait()
		if exit, ok := err.(*exec.ExitError); !ok || exit.Success() {
			t.Errorf("what ran in the terminal: %v", err)
		}
		lent.Return()
		if got := w.features.took(); !slices.Equal(got, []string{"starts", "ended"}) {
			t.Errorf("%q", got)
		}
	})
}

package terminal

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
)

// Coding agents on real PTYs.

func (u *user) startAgent(h *Host, s op.AgentStart) {
	u.t.Helper()
	if _, err := h.StartAgent(u.t.Context(), session, u.id, s); err != nil {
		u.t.Fatal(err)
	}
}

// TestAgentInFrontOfAShell starts an agent at a prompt, lets a human type at it
// while it is paused, and goes back to the shell.
func TestAgentInFrontOfAShell(t *testing.T) {
	isolations(t, func(t *testing.T, h *Host) {
		bin := filepath.Join(h.config.Workspace, "bin")
		if err := os.Mkdir(bin, 0o755); err != nil {
			t.Fatal(err)
		}
		const cli = `#!/bin/sh
stty -echo; echo "cli:$1:$(pwd):$(stty size):$(tty)"; printf '\033[?1049h\033[?25l'
while read line; do echo "heard $line"; [ "$line" = bye ] && exit 7; done
`
		if err := os.WriteFile(filepath.Join(bin, "claude"), []byte(cli), 0o755); err != nil {
			t.Fatal(err)
		}
		h.config.SearchPath += ":" + bin
		u := sitDown(t, h, op.PTYCreate{CreatorID: alice})
		u.expect(`sandbox[^\n]*[#$] `)
		u.enter("mkdir sub; cd sub; tty\r")
		shell := u.expect(`(/dev/pts/\d+)\r`)
		u.startAgent(h, op.AgentStart{Name: "claude", Args: []string{"--model=x"}})
		tty := u.expect(`cli:--model=x:` + h.config.Workspace + `/sub:24 80:(/dev/pts/\d+)\r`)
		if tty == shell {
			t.Error("the agent is on the shell's PTY")
		}
		if _, err := h.PauseAgent(session, u.id); err != nil {
			t.Fatal(err)
		}
		u.await(protocol.AgentPaused)
		u.enter("hello\r")
		if _, err := h.ResumeAgent(session, u.id); err != nil {
			t.Fatal(err)
		}
		u.expect("heard hello\r")
		if _, err := h.PauseAgent(session, u.id); err != nil {
			t.Fatal(err)
		}
		u.await(protocol.AgentPaused)
		u.enter("bye\r")
		if _, err := h.ResumeAgent(session, u.id); err != nil {
			t.Fatal(err)
		}
		u.expect(`heard bye\r\n\x18\x1b\[\?1049l\x1b\[!p`)
		u.await(protocol.AgentStopped)
		if info := u.terminal.Info(); info.Agent.ExitCode == nil || *info.Agent.ExitCode != 7 {
			t.Errorf("%+v", info.Agent)
		}
		u.expect(`sandbox[^\n]*sub[^\n]*[#$] `) // drawn again
		u.enter("echo $((6*7))\r")
		u.expect(`\r?42\r`)
	})
}

// await reads until the agent's state is state and control is back.
func (u *user) await(state protocol.AgentState) {
	u.t.Helper()
	for u.agent != state || u.holder != alice {
		u.read()
	}
}

// TestPauseReachesAll pauses an agent whose helpers are in the background, in
// sessions of their own and daemons, then stops it.
func TestPauseReachesAll(t *testing.T) {
	isolations(t, func(t *testing.T, h *Host) {
		u := sitDown(t, h, unechoed("echo up; cat"))
		u.expect("up")
		count := filepath.Join(h.config.Workspace, "count")
		tick := func(n int) string { return fmt.Sprintf(`while :; do echo x >>%s%d; sleep 0.002; done`, count, n) }
		u.startAgent(h, op.AgentStart{Name: robot, Command: `(` + tick(0) + `) & setsid sh -c '` + tick(1) + `' &
			sh -c "setsid sh -c '` + tick(2) + `' & exit"; ` + tick(3)})
		sizes := func() (all [4]int64) {
			for i := range all {
				if st, err := os.Stat(fmt.Sprint(count, i)); err == nil {
					all[i] = st.Size()
				}
			}
			return all
		}
		for range 2 {
			begun, late := sizes(), time.After(time.Minute)
			for i := range begun {
				for sizes()[i] == begun[i] {
					select {
					case <-time.After(time.Millisecond):
					case <-late:
						t.Fatalf("part %d of the agent does nothing", i)
					}
				}
			}
			if _, err := h.PauseAgent(session, u.id); err != nil {
				t.Fatal(err)
			}
			before := sizes()
			<-time.After(30 * time.Millisecond)
			if sizes() != before {
				t.Fatal("something of a paused agent runs")
			}
			if _, err := h.ResumeAgent(session, u.id); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := h.StopAgent(t.Context(), session, u.id); err != nil || got.State != protocol.AgentStopped {
			t.Fatalf("%+v, %v", got, err)
		}
		process.Each(func(s process.Stat) {
			line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(s.PID), "cmdline"))
			if err == nil && strings.Contains(string(line), count) {
				t.Errorf("process %d is left: %q", s.PID, line)
			}
		})
		u.await(protocol.AgentStopped)
		u.enter("cat still has the terminal")
		u.expect("cat still has the terminal")
	})
}

// TestAgentWithoutAFolder: where the program is can't be entered any more.
func TestAgentWithoutAFolder(t *testing.T) {
	h := realHost(t, IsolationNone)
	u := sitDown(t, h, op.PTYCreate{Command: "mkdir gone; cd gone; rmdir ../gone; stty raw -echo; echo up; cat"})
	u.expect("up")
	u.startAgent(h, op.AgentStart{Name: robot, Command: "pwd"})
	u.expect(h.config.Workspace + `\r\n`)
}

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// A codingAgent is what a coding agent does to a terminal: it takes the screen,
// has processes of its own, and reads what is typed.
const codingAgent = `sh -c '
	sh -c "while :; do sleep 0.05; done" &
	trap "echo agent-was-asked-to-stop; exit 3" INT
	echo agent-is-here-$((20+22))
	while :; do read -r line && echo "agent-got:$line"; done'`

// agentOp posts one of alice's changes to the agent of a terminal.
func agentOp(ctx context.Context, t *testing.T, s *Stack, user, what string, id protocol.PTYID, body any) (int, string) {
	t.Helper()
	u := s.Ready.User(user)
	grant, err := u.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	status, answer, err := Call(ctx, http.MethodPost, fmt.Sprintf("%s/sessions/%s/ptys/%s/agent%s", u.Base, s.Ready.SessionID, id, what), grant, body)
	must(t, err)
	return status, string(answer)
}

// agentState waits until a viewer was told of a state last.
func agentState(ctx context.Context, t *testing.T, term *Terminal, want protocol.AgentState) {
	t.Helper()
	must(t, term.Await(ctx, "agent_state "+string(want), func(_ []byte, messages []Message, _ error) bool {
		var last any
		for _, m := range messages {
			if m.Type() == protocol.ServerAgentState || m.Type() == protocol.ServerControlState {
				last = m["agent_state"]
			}
		}
		return last == string(want)
	}))
}

// marked returns the state letters (proc(5)) of all processes whose environment
// holds mark. One that will stop before it runs another instruction is stopped, T:
// it is D while it waits for a child of vfork, and that child may be stopped too.
func marked(mark string) (states []string) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		environ, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil || !bytes.Contains(environ, []byte(mark)) {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			continue
		}
		state := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))[0]
		if state == "D" && stops(dir) {
			state = "T"
		}
		states = append(states, state)
	}
	return states
}

// stops reports whether SIGSTOP is pending for a process.
func stops(dir string) bool {
	status, _ := os.ReadFile(filepath.Join(dir, "status")) // it may have ended
	for _, label := range []string{"SigPnd:", "ShdPnd:"} {
		_, rest, _ := strings.Cut(string(status), label)
		mask, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
		if pending, err := strconv.ParseUint(mask, 16, 64); err == nil && pending&(1<<(syscall.SIGSTOP-1)) != 0 {
			return true
		}
	}
	return false
}

// all reports whether there are n states or more and each is one of letters.
func all(states []string, n int, letters string) bool {
	for _, state := range states {
		if !strings.Contains(letters, state) {
			return false
		}
	}
	return len(states) >= n
}

func awaitStates(ctx context.Context, t *testing.T, what string, done func([]string) bool, mark string) {
	t.Helper()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		states := marked(mark)
		if done(states) {
			return
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			t.Fatalf("%s: the processes are %v", what, states)
		}
	}
}

// TestAgentInFront starts a coding agent in a shared terminal, pauses it,
// continues it and stops it, and looks at its processes and at what three
// people see.
func TestAgentInFront(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to read the environment of other users' processes")
	}
	s := shared(t)
	ctx := within(t)
	alice := s.Ready.User("alice")
	id := newPTY(t, s, "")
	a := attach(t, s, "alice", id)
	_, err := a.ExpectMessage(ctx, protocol.ServerControlState, controller(alice.ID))
	must(t, err)
	b, c := attach(t, s, "bob", id), attach(t, s, "carol", id)
	must(t, a.Type(ctx, "echo shell-$((1+1))\r"))
	must(t, a.Expect(ctx, "shell-2\r\n"))

	mark := "FAIRLEAD_TEST=" + string(protocol.NewCommandID())
	body := map[string]any{"name": "tester", "command": "export " + mark + "; exec " + codingAgent}
	if status, answer := agentOp(ctx, t, s, "carol", "", id, body); status != http.StatusForbidden {
		t.Errorf("carol starts an agent: %d %s", status, answer)
	}
	if status, answer := agentOp(ctx, t, s, "alice", "", id, body); status != http.StatusOK || !strings.Contains(answer, `"running"`) {
		t.Fatalf("start: %d %s", status, answer)
	}
	for _, term := range []*Terminal{a, b, c} {
		must(t, term.Expect(ctx, "agent-is-here-42"))
		agentState(ctx, t, term, protocol.AgentRunning)
	}
	_, err = b.ExpectMessage(ctx, protocol.ServerControlState, controller(protocol.AgentHolder))
	must(t, err)

	// It has the terminal to itself.
	must(t, a.Type(ctx, "human-was-here\r"))
	m, err := a.ExpectMessage(ctx, protocol.ServerInputRefused, nil)
	must(t, err)
	if m["reason"] != string(protocol.RefusedAgentRunning) {
		t.Errorf("typing while the agent runs is refused as %v", m)
	}
	if status, answer := agentOp(ctx, t, s, "alice", "", id, body); status != http.StatusConflict {
		t.Errorf("a second agent: %d %s", status, answer)
	}

	// Paused, all of it is stopped, and humans may type.
	if status, answer := agentOp(ctx, t, s, "alice", "/pause", id, nil); status != http.StatusOK || !strings.Contains(answer, `"paused"`) {
		t.Fatalf("pause: %d %s", status, answer)
	}
	awaitStates(ctx, t, "after the pause", func(states []string) bool { return all(states, 2, "T") }, mark)
	for _, term := range []*Terminal{a, b, c} {
		agentState(ctx, t, term, protocol.AgentPaused)
	}
	must(t, a.Await(ctx, "control back", func(_ []byte, messages []Message, _ error) bool {
		return len(messages) > 0 && lastController(messages) == string(alice.ID)
	}))
	must(t, a.Type(ctx, "typed-while-paused\r"))

	if status, answer := agentOp(ctx, t, s, "alice", "/resume", id, nil); status != http.StatusOK || !strings.Contains(answer, `"running"`) {
		t.Fatalf("resume: %d %s", status, answer)
	}
	awaitStates(ctx, t, "after the resumption", func(states []string) bool { return all(states, 2, "SRD") }, mark)
	must(t, b.Expect(ctx, "agent-got:typed-while-paused"))

	// Stopped, nothing of it is left, and the shell behind it is there again.
	if status, answer := agentOp(ctx, t, s, "alice", "/stop", id, nil); status != http.StatusOK || !strings.Contains(answer, `"stopped"`) {
		t.Fatalf("stop: %d %s", status, answer)
	}
	must(t, c.Expect(ctx, "agent-was-asked-to-stop"))
	for _, term := range []*Terminal{a, b, c} {
		agentState(ctx, t, term, protocol.AgentStopped)
	}
	awaitStates(ctx, t, "after the stop", func(states []string) bool { return len(states) == 0 }, mark)
	must(t, a.Type(ctx, "echo back-$((3*3))\r"))
	must(t, c.Expect(ctx, "back-9\r\n"))
	if bytes.Contains(a.Output(), []byte("human-was-here")) {
		t.Error("what was typed while the agent ran was written")
	}
}

func lastController(messages []Message) string {
	var last string
	for _, m := range messages {
		if v, ok := m["controller"].(string); ok {
			last = v
		}
	}
	return last
}

// TestAgentThatWontStop ignores all that may be ignored.
func TestAgentThatWontStop(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	id := newPTY(t, s, "cat")
	a := attach(t, s, "alice", id)
	body := map[string]any{"name": "stubborn", "command": `trap "echo no" INT; trap "echo never" TERM; trap "" HUP; echo stubborn-$((1)); while :; do sleep 0.1; done`}
	if status, answer := agentOp(ctx, t, s, "alice", "", id, body); status != http.StatusOK {
		t.Fatalf("start: %d %s", status, answer)
	}
	must(t, a.Expect(ctx, "stubborn-1"))
	began := time.Now()
	if status, answer := agentOp(ctx, t, s, "alice", "/stop", id, nil); status != http.StatusOK {
		t.Fatalf("stop: %d %s", status, answer)
	}
	if took := time.Since(began); took < 2*time.Second || took > 30*time.Second {
		t.Errorf("SIGINT three times, SIGTERM and SIGKILL took %v", took)
	}
	// Of two signals a program that gets no time notices one.
	for _, refusal := range []string{"no\r\n", "never\r\n"} {
		must(t, a.Expect(ctx, refusal))
	}
	agentState(ctx, t, a, protocol.AgentStopped)
}

// TestAgentThatIsNotInstalled says what is missing.
func TestAgentThatIsNotInstalled(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	id := newPTY(t, s, "cat")
	status, answer := agentOp(ctx, t, s, "alice", "", id, map[string]any{"name": "openclaw"})
	if status != http.StatusBadRequest || !strings.Contains(answer, "openclaw") {
		t.Errorf("%d %s", status, answer)
	}
	status, answer = agentOp(ctx, t, s, "alice", "/pause", id, nil)
	if status != http.StatusConflict && status != http.StatusNotFound {
		t.Errorf("pausing no agent: %d %s", status, answer)
	}
}

// TestExecute types a line and Enter, as seed 001's client asks for it.
func TestExecute(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	id := newPTY(t, s, "")
	a := attach(t, s, "alice", id)
	_, err := a.ExpectMessage(ctx, protocol.ServerControlState, controller(s.Ready.User("alice").ID))
	must(t, err)
	b := attach(t, s, "bob", id)
	must(t, a.Say(ctx, Message{"type": "execute", "text": "echo done-$((6*7))"}))
	must(t, b.Expect(ctx, "done-42\r\n"))
	must(t, b.Say(ctx, Message{"type": "execute", "text": "echo intruder"}))
	_, err = b.ExpectMessage(ctx, protocol.ServerInputRefused, nil)
	must(t, err)
}

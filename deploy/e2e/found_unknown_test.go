package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// A revival starts a control plane that was killed anew, as a supervisor would:
// the same program with the same state and environment, on the same ports.
type revival struct {
	args, env []string
	url       string
}

func newRevival(t *testing.T, s *Stack) *revival {
	t.Helper()
	read := func(name string) []string {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", s.Ready.ControlPlane.PID, name))
		must(t, err)
		return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
	}
	v := &revival{read("cmdline"), read("environ"), s.Ready.ControlPlane.URL}
	var ready struct{ URL, TLS, AdminURL string }
	for i, arg := range v.args {
		if arg == "--ready-file" {
			data, err := os.ReadFile(v.args[i+1])
			must(t, err)
			must(t, json.Unmarshal(data, &ready))
		}
	}
	at, err := url.Parse(v.url)
	must(t, err)
	for i, arg := range v.args {
		switch {
		case arg == "--listen":
			v.args[i+1] = at.Host
		case arg == "--tls-listen" && ready.TLS != "":
			v.args[i+1] = ready.TLS
		}
	}
	return v
}

// start returns once the control plane answers. It ends with the test.
func (v *revival) start(ctx context.Context, t *testing.T) (pid int) {
	t.Helper()
	var out lockedBuffer
	cmd := exec.Command(filepath.Join(programs, "controlplane"), v.args[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = v.env, &out, &out
	must(t, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }() // received below, or in the cleanup
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-done
	})
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		if status, _, err := Call(ctx, http.MethodGet, v.url+"/auth/config", "", nil); err == nil && status == http.StatusOK {
			return cmd.Process.Pid
		}
		select {
		case <-poll.C:
		case err := <-done:
			done <- err
			t.Fatalf("the control plane ended: %v: %s", err, &out)
		}
	}
}

// terminals lists the session's terminals, by the relay.
func terminals(ctx context.Context, t *testing.T, s *Stack, grant string) map[protocol.PTYID]bool {
	t.Helper()
	var list protocol.PTYList
	must(t, call(ctx, http.StatusOK, &list, http.MethodGet, s.Ready.Relays[0].URL+"/sessions/"+string(s.Ready.SessionID)+"/ptys", grant, nil))
	there := map[protocol.PTYID]bool{}
	for _, p := range list.PTYs {
		there[p.ID] = true
	}
	return there
}

// TestFound23KilledUnderCommands: the control plane is killed under POST /commands
// until an answer is lost that way. 503 says that nothing was done, and is right.
// Of everything else that isn't known the answer says so, and the same key tells,
// without anything being done twice.
func TestFound23KilledUnderCommands(t *testing.T) {
	s := own(t)
	ctx := within(t)
	alice := s.Ready.User("alice")
	grant := mustGrant(ctx, t, s, "alice")
	again := newRevival(t, s)
	pid := s.Ready.ControlPlane.PID
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	unknown, ran, unsent := 0, 0, 0 // answers: not known; of them it had been done; 503
	for round := 0; ran == 0; round++ {
		if round == 10 { // as many terminals as a sandbox has
			t.Fatal("no answer was lost")
		}
		ptys := make([]protocol.PTYID, 20)
		statuses, answers := make([]int, len(ptys)), make([]string, len(ptys))
		ask := func(i int) (int, string) {
			status, answer, err := Call(ctx, http.MethodPost, alice.Base+"/commands", alice.Token, map[string]any{
				"target": map[string]any{"sessionId": s.Ready.SessionID, "ptyId": ptys[i]},
				"op":     map[string]any{"kind": "pty.create", "command": "cat"},
			}, "Idempotency-Key", string(ptys[i]))
			if err != nil {
				t.Error(err)
			}
			return status, string(answer)
		}
		first := make(chan struct{}, len(ptys))
		var asking sync.WaitGroup
		for i := range ptys {
			ptys[i] = protocol.NewPTYID()
			asking.Go(func() {
				statuses[i], answers[i] = ask(i)
				first <- struct{}{}
			})
		}
		<-first
		must(t, syscall.Kill(pid, syscall.SIGKILL))
		asking.Wait()
		pid = again.start(ctx, t)
		there := terminals(ctx, t, s, grant)
		for i, id := range ptys {
			lost := strings.Contains(answers[i], `"status":"unknown"`)
			switch {
			case statuses[i] == http.StatusServiceUnavailable && there[id]:
				t.Errorf("round %d: 503 for what was done: %s", round, answers[i])
			case statuses[i] == http.StatusServiceUnavailable:
				unsent++
			case lost && there[id]:
				unknown, ran = unknown+1, ran+1
			case lost:
				unknown++
			case statuses[i] != http.StatusOK || !strings.Contains(answers[i], `"status":"ok"`) || !there[id]:
				t.Errorf("round %d: %d %s, and the terminal is there: %v", round, statuses[i], answers[i], there[id])
			}
		}
		// The same key tells what became of it, or has it done now.
		for i, id := range ptys {
			status, answer := ask(i)
			for status == http.StatusServiceUnavailable { // it was just started
				<-poll.C
				status, answer = ask(i)
			}
			if status != http.StatusOK || !strings.Contains(answer, `"status":"ok"`) || !strings.Contains(answer, string(id)) {
				t.Errorf("round %d: by the same key: %d %s, after %d %s", round, status, answer, statuses[i], answers[i])
			}
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d answers unknown, of which %d had been done; %d times 503, none of which had", unknown, ran, unsent)
}

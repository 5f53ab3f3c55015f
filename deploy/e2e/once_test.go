package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// TestRetryAfterARelaysDeath: the relay dies while it makes a terminal; the
// same request again makes no other one.
func TestRetryAfterARelaysDeath(t *testing.T) {
	s := own(t)
	ctx := within(t)
	alice := s.Ready.User("alice")
	grant, err := alice.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	url := alice.Base + "/sessions/" + string(s.Ready.SessionID) + "/ptys"
	for round := range 5 {
		key := string(protocol.NewCommandID())
		create := func() (string, bool) {
			status, body, err := Call(ctx, http.MethodPost, url, grant, map[string]any{"command": "cat"}, "Idempotency-Key", key)
			return string(body), err == nil && status == http.StatusCreated
		}
		first := make(chan string, 1)
		go func() { // received below
			body, _ := create()
			first <- body
		}()
		pid := s.Ready.Relays[0].PID
		killed := make(chan struct{})
		time.AfterFunc(time.Duration(round)*3*time.Millisecond, func() {
			defer close(killed)
			syscall.Kill(pid, syscall.SIGKILL)
		})
		<-first
		<-killed
		var made string
		poll := time.NewTicker(20 * time.Millisecond)
		for done := false; !done; made, done = create() {
			select {
			case <-poll.C:
			case <-ctx.Done():
				t.Fatal("no terminal")
			}
		}
		poll.Stop()
		again, ok := create()
		if !ok || again != made {
			t.Errorf("round %d: %s, then %s", round, made, again)
		}
		awaitRelay(ctx, t, s, 0, pid)
	}
	var list protocol.PTYList
	must(t, call(ctx, http.StatusOK, &list, http.MethodGet, url, grant, nil))
	cats := 0
	for _, p := range list.PTYs {
		if p.Command == "cat" {
			cats++
		}
	}
	if cats != 5 {
		t.Errorf("%d terminals of 5 requests", cats)
	}
}

// TestAtMostOnceAcrossKill9 kills agents in the middle of commands. Each
// command runs once or not at all, and what is told about it is true.
func TestAtMostOnceAcrossKill9(t *testing.T) {
	s := own(t)
	ctx := within(t)
	key := signer(t, s)
	state := s.Ready.Sandboxes[0].StateDir
	must(t, syscall.Kill(s.Ready.Sandboxes[0].PID, syscall.SIGKILL))
	runs := t.TempDir()
	must(t, os.Chmod(runs, 0o777))
	must(t, os.Chmod(filepath.Dir(runs), 0o755))
	must(t, os.Chmod(filepath.Dir(filepath.Dir(runs)), 0o755))
	const rounds, each = 4, 6
	var all []protocol.CommandEnvelope
	told := map[protocol.CommandID]string{}
	agent, output := startAgent(t, state)
	awaitText(ctx, t, output.String, "connected")
	for round := range rounds {
		var mu sync.Mutex
		var posting sync.WaitGroup
		for range each {
			cmd := command(s, protocol.NewPTYID())
			op, err := json.Marshal(map[string]string{"kind": "pty.create",
				"command": "echo run >> " + filepath.Join(runs, string(cmd.CommandID))})
			must(t, err)
			cmd.Op, cmd.TTLMs = op, protocol.MaxCommandTTL.Milliseconds()
			token, err := key.SignCommand(cmd)
			must(t, err)
			env := envelope(cmd, token)
			all = append(all, env)
			posting.Go(func() {
				_, callback := post(ctx, t, s, env)
				mu.Lock()
				defer mu.Unlock()
				told[env.CommandID] = callback.Status // empty: the sandbox was not there
			})
		}
		pid := agent.Process.Pid
		time.AfterFunc(time.Duration(1+round*4)*time.Millisecond, func() { syscall.Kill(pid, syscall.SIGKILL) })
		agent.Wait()
		// The next one answers for what the last one began.
		agent, output = startAgent(t, state)
		awaitText(ctx, t, output.String, "connected")
		posting.Wait()
	}
	outcomes := map[string]int{}
	for _, env := range all {
		var last string
		for i := range 3 {
			_, callback := post(ctx, t, s, env)
			if i > 0 && callback.Status != last {
				t.Errorf("%s: %s, then %s", env.CommandID, last, callback.Status)
			}
			last = callback.Status
		}
		outcomes[last]++
		if before := told[env.CommandID]; before != "" && before != last {
			t.Errorf("%s: %s, and after another start %s", env.CommandID, before, last)
		}
		// The program may have been hung up with its agent before it did anything.
		data, _ := os.ReadFile(filepath.Join(runs, string(env.CommandID)))
		if ran := strings.Count(string(data), "run"); ran > 1 {
			t.Errorf("%s ran %d times and is said to be %s", env.CommandID, ran, last)
		}
	}
	t.Logf("outcomes: %v", outcomes)
}

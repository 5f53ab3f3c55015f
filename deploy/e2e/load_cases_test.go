package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

// size is how much a test does: all of it where its long form is asked for.
func size(short, full int) int {
	if *long {
		return full
	}
	return short
}

// TestCase40JoinsAndLeaves: people who come and go, in order and without a word,
// leave nothing behind.
func TestCase40JoinsAndLeaves(t *testing.T) {
	s := own(t)
	ctx := longer(t)
	alice, id := s.Ready.User("alice"), newPTY(t, s, "")
	stays := attach(t, s, "bob", id)
	_, err := stays.ExpectMessage(ctx, protocol.ServerAttached, nil)
	must(t, err)
	join := func(n int) {
		grant, err := alice.Grant(ctx, s.Ready.SessionID)
		must(t, err)
		var all sync.WaitGroup
		for lane := range 8 {
			all.Go(func() {
				for i := lane; i < n; i += 8 {
					ticket, err := alice.Ticket(ctx, grant, s.Ready.SessionID, id)
					if err != nil {
						t.Error(err)
						return
					}
					conn, err := DialRaw(ctx, ticket, alice.Base)
					if err != nil {
						t.Error(err)
						return
					}
					if _, _, err := conn.Read(ctx); err != nil {
						t.Error(err)
					}
					if i%2 == 0 {
						conn.CloseNow()
					} else {
						conn.Close(1000, "")
					}
				}
			})
		}
		all.Wait()
	}
	join(64) // what is made once
	relay, agent := relayFootprint(ctx, t, s), agentFootprint(ctx, t, s)
	n := size(1000, 10_000)
	join(n)
	t.Logf("%d joins and leaves", n)
	more := footprint{goroutines: 10, descriptors: 5}
	returns(t, "relay", relay, func() footprint { return relayFootprint(ctx, t, s) }, more)
	returns(t, "agent", agent, func() footprint { return agentFootprint(ctx, t, s) }, more)
}

// longer is within, or longer where the long form is asked for.
func longer(t *testing.T) context.Context {
	if !*long {
		return within(t)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestCase103Sessions: terminals that are made, used and closed leave nothing
// behind, at the relay or at the agent.
func TestCase103Sessions(t *testing.T) {
	s := own(t)
	ctx := longer(t)
	alice := s.Ready.User("alice")
	cycle := func(n int) {
		var all sync.WaitGroup
		for lane := range 4 {
			all.Go(func() {
				for i := lane; i < n; i += 4 {
					if err := oneTerminal(ctx, s, alice, i); err != nil {
						t.Errorf("terminal %d: %v", i, err)
						return
					}
				}
			})
		}
		all.Wait()
	}
	cycle(16)
	relay, agent := relayFootprint(ctx, t, s), agentFootprint(ctx, t, s)
	n := size(100, 10_000)
	cycle(n)
	t.Logf("%d terminals", n)
	returns(t, "relay", relay, func() footprint { return relayFootprint(ctx, t, s) }, footprint{10, 5, 5 << 20})
	returns(t, "agent", agent, func() footprint { return agentFootprint(ctx, t, s) }, footprint{10, 5, 0})
}

// oneTerminal makes a terminal, types into it, and closes it.
func oneTerminal(ctx context.Context, s *Stack, user User, i int) error {
	grant, err := user.Grant(ctx, s.Ready.SessionID)
	if err != nil {
		return err
	}
	ptys := user.Base + "/sessions/" + string(s.Ready.SessionID) + "/ptys"
	var made struct {
		ID protocol.PTYID `json:"id"`
	}
	if err := call(ctx, http.StatusCreated, &made, http.MethodPost, ptys, grant, map[string]any{"command": "cat"}); err != nil {
		return err
	}
	ticket, err := user.Ticket(ctx, grant, s.Ready.SessionID, made.ID)
	if err != nil {
		return err
	}
	term, err := Dial(ctx, ticket, user.Base)
	if err != nil {
		return err
	}
	defer term.Close()
	if err := term.Type(ctx, fmt.Sprintf("line-%d\r", i)); err != nil {
		return err
	}
	if err := term.Expect(ctx, fmt.Sprintf("line-%d", i)); err != nil {
		return err
	}
	status, body, err := Call(ctx, http.MethodDelete, ptys+"/"+string(made.ID), grant, nil)
	if err == nil && status/100 != 2 {
		err = fmt.Errorf("close: status %d: %s", status, body)
	}
	return err
}

// TestCase102Descriptors: a relay, a control plane and an agent with 256 file
// descriptors, which somebody takes up, go on with what they have, and are as
// ever when they are free.
func TestCase102Descriptors(t *testing.T) {
	s := own(t)
	ctx := within(t)
	alice := s.Ready.User("alice")
	id := newPTY(t, s, "")
	term := attach(t, s, "alice", id)
	_, err := term.ExpectMessage(ctx, protocol.ServerAttached, nil)
	must(t, err)
	must(t, term.Type(ctx, "echo before-$((1+1))\r"))
	must(t, term.Expect(ctx, "before-2\r\n"))
	limit := unix.Rlimit{Cur: 256, Max: 256}
	for _, pid := range pids(s.Ready) {
		must(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &limit, nil))
	}
	var idle []net.Conn
	for _, base := range []string{alice.Base, s.Ready.ControlPlane.URL} {
		for range 400 {
			conn, err := net.DialTimeout("tcp", strings.TrimPrefix(base, "http://"), time.Second)
			if err != nil {
				break // nobody accepts any more
			}
			idle = append(idle, conn)
		}
	}
	t.Logf("%d connections that say nothing", len(idle))
	began := time.Now()
	must(t, term.Type(ctx, "echo within-$((1+1))\r"))
	must(t, term.Expect(ctx, "within-2\r\n"))

	// The agent's are taken up by its terminals.
	grant := ""
	for _, conn := range idle {
		conn.Close()
	}
	await(t, "somebody to answer", func() bool {
		asking, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		var err error
		grant, err = alice.Grant(asking, s.Ready.SessionID)
		return err == nil
	})
	t.Logf("everybody answers again after %v", time.Since(began).Round(time.Millisecond))
	ptys := alice.Base + "/sessions/" + string(s.Ready.SessionID) + "/ptys"
	var made []protocol.PTYID
	refused := ""
	for i := 0; i < 300 && refused == ""; i++ {
		var answer struct {
			ID protocol.PTYID `json:"id"`
		}
		if err := call(ctx, http.StatusCreated, &answer, http.MethodPost, ptys, grant, map[string]any{"command": "cat"}); err != nil {
			refused = err.Error()
			break
		}
		made = append(made, answer.ID)
	}
	t.Logf("%d terminals, then: %s (%v)", len(made), refused, time.Since(began).Round(time.Millisecond))
	if refused == "" || !strings.Contains(refused, "status 4") && !strings.Contains(refused, "status 5") {
		t.Errorf("an agent with 256 descriptors has %d terminals; then %q", len(made), refused)
	}
	must(t, term.Type(ctx, "echo among-$((1+1))\r"))
	must(t, term.Expect(ctx, "among-2\r\n"))
	for _, id := range made {
		_, _, err := Call(ctx, http.MethodDelete, ptys+"/"+string(id), grant, nil)
		must(t, err)
	}
	must(t, oneTerminal(ctx, s, alice, 1))
	for _, pid := range pids(s.Ready) {
		if !alive(pid) {
			t.Errorf("process %d has ended", pid)
		}
	}
}

// TestCase102Memory: a relay that may have 256 MiB serves viewers of floods, some
// of whom don't read, and lives.
func TestCase102Memory(t *testing.T) {
	if slowdown > 1 {
		t.Skip("the race detector needs more than that")
	}
	s := own(t)
	ctx := within(t)
	alice := s.Ready.User("alice")
	limit := unix.Rlimit{Cur: 256 << 20, Max: 256 << 20}
	must(t, unix.Prlimit(s.Ready.Relays[0].PID, unix.RLIMIT_DATA, &limit, nil))
	grant, err := alice.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	for range 4 {
		id := newPTY(t, s, `yes "a line of output that goes on and on and on"`)
		for i := range 12 {
			ticket, err := alice.Ticket(ctx, grant, s.Ready.SessionID, id)
			must(t, err)
			conn, err := DialRaw(ctx, ticket, alice.Base)
			must(t, err)
			defer conn.CloseNow()
			if i == 0 {
				go func() { // ends with its connection
					for {
						if _, _, err := conn.Read(ctx); err != nil {
							return
						}
					}
				}()
			}
		}
	}
	quiet := newPTY(t, s, "")
	term := attach(t, s, "alice", quiet)
	for i := range size(30, 300) {
		must(t, term.Type(ctx, fmt.Sprintf("echo round-$((%d+0))\r", i)))
		must(t, term.Expect(ctx, fmt.Sprintf("round-%d\r\n", i)))
	}
	pid := s.Ready.Relays[0].PID
	t.Logf("the relay holds %d MiB", residentOf(t, pid)>>20)
	must(t, s.Reload(time.Second))
	if s.Ready.Relays[0].PID != pid || !alive(pid) {
		t.Errorf("the relay has died: %s", s.Logs("relay-1"))
	}
}

// TestCase104RegistryLost: what a relay knows of its sandboxes is in its memory
// alone. When it is gone, they tell it again, and everything is where it was.
func TestCase104RegistryLost(t *testing.T) {
	s := own(t, "--sandboxes", "3")
	ctx := within(t)
	term := attach(t, s, "alice", s.Ready.PTYID)
	must(t, term.Type(ctx, "mark=kept; echo $((1+1))-marked\r"))
	must(t, term.Expect(ctx, "2-marked\r\n"))
	pid := s.Ready.Relays[0].PID
	lost := time.Now()
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	awaitRelay(ctx, t, s, 0, pid)
	await(t, "every sandbox at the new relay", func() bool {
		_, body, err := Call(ctx, http.MethodGet, s.Ready.Relays[0].AdminURL+"/sandboxes", "", nil)
		if err != nil {
			return false
		}
		for _, sb := range s.Ready.Sandboxes {
			if !strings.Contains(string(body), string(sb.ID)) {
				return false
			}
		}
		return true
	})
	took := time.Since(lost)
	t.Logf("rebuilt after %v", took.Round(time.Millisecond))
	if took > 10*time.Second {
		t.Errorf("the registry was rebuilt after %v, more than 10 s", took)
	}
	again := attach(t, s, "alice", s.Ready.PTYID)
	must(t, again.Type(ctx, "echo $mark-$((1+1))\r"))
	must(t, again.Expect(ctx, "kept-2\r\n"))
}

// TestCase101Storm: the relay of many sandboxes is killed. They come back in their
// own time, and soon.
func TestCase101Storm(t *testing.T) {
	out, code := runLoadtest(t, loadtest(t), "run", "reconnect-storm", "--local", "--agents", strconv.Itoa(size(100, 1000)),
		"--blocks", "1", "--idle", "1s", "--slo", "all_back<=30s", "--slo", "registrations_peak<=200", "--progress", "none", "--report-dir", "", "--allow-saturated")
	if code != 0 {
		t.Errorf("exit %d: %s", code, out)
	}
	t.Log(out)
}

package terminal

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

const robot = "robot"

// A stageRig is a terminal of a host over fakes, in front of whose program
// coding agents come and go.
type stageRig struct {
	*rig
	host *fakeHost
}

// stageBubble runs f in virtual time.
func stageBubble(t *testing.T, f func(t *testing.T, r *stageRig)) {
	t.Helper()
	hostBubble(t, func(t *testing.T, h *fakeHost) {
		h.create(t, "pty_1")
		must(t, h.Share(session, "pty_1", protocol.ShareSession)) // elsewhere types into it
		term, err := h.Get(session, "pty_1")
		if err != nil {
			t.Fatal(err)
		}
		r := h.launched[0]
		r.Terminal = term
		f(t, &stageRig{rig: r, host: h})
	})
}

// start starts a coding agent and returns its fakes.
func (r *stageRig) start(t *testing.T) *rig {
	t.Helper()
	got, err := r.host.StartAgent(t.Context(), session, "pty_1", op.AgentStart{Name: robot, Command: "exec robot"})
	if err != nil || got.State != protocol.AgentRunning || got.Name != robot {
		t.Fatalf("%+v, %v", got, err)
	}
	return r.host.launched[len(r.host.launched)-1]
}

func (r *stageRig) pause(t *testing.T) {
	t.Helper()
	if got, err := r.host.PauseAgent(session, "pty_1"); err != nil || got.State != protocol.AgentPaused {
		t.Fatalf("%+v, %v", got, err)
	}
}

func (r *stageRig) resume(t *testing.T) {
	t.Helper()
	if got, err := r.host.ResumeAgent(session, "pty_1"); err != nil || got.State != protocol.AgentRunning {
		t.Fatalf("%+v, %v", got, err)
	}
}

// quit ends a coding agent by itself.
func (r *rig) quit(code int) {
	close(r.dev.output)
	r.proc.exit(code)
	synctest.Wait()
}

func (v *viewer) wantAgent(state protocol.AgentState) protocol.AgentReport {
	v.t.Helper()
	m := want[protocol.AgentReport](v)
	if m.State != state || m.Name != robot {
		v.t.Fatalf("got %+v, want %s", m, state)
	}
	return m
}

// wantLease checks who controls the terminal now and under which term.
func (v *viewer) wantLease(holder protocol.UserID, term uint64) protocol.Lease {
	v.t.Helper()
	m := want[protocol.Leased](v)
	if m.Lease.Holder != holder || m.Lease.Term != term || m.ID != 0 {
		v.t.Fatalf("got %+v, want %q under %d", m, holder, term)
	}
	return m.Lease
}

// wantOutput reads output until it ends with s.
func (v *viewer) wantOutput(s string) {
	v.t.Helper()
	var got []byte
	for !strings.HasSuffix(string(got), s) {
		m, ok := v.next().(protocol.Data)
		if !ok {
			v.t.Fatalf("%#v after %q", m, got)
		}
		got = append(got, m.Bytes...)
	}
}

// silent checks that no message but output waits.
func (v *viewer) silent() {
	v.t.Helper()
	for {
		m, err := v.Poll()
		if _, output := m.(protocol.Data); !output {
			if m != nil || err != nil {
				v.t.Fatalf("unexpected %#v, %v", m, err)
			}
			return
		}
	}
}

// TestSoftLock goes through all states: who may type, and into what.
func TestSoftLock(t *testing.T) {
	stageBubble(t, func(t *testing.T, r *stageRig) {
		v := r.attach(t, nil)
		term := v.propose(alice).Lease.Term
		cli := r.start(t)
		v.wantAgent(protocol.AgentRunning)
		v.wantLease(protocol.AgentHolder, term+1)
		seq := uint64(0)
		locked := func() {
			t.Helper()
			for old := range term + 3 {
				seq++
				v.typed(old, seq, "x")
				v.wantRefused(seq, protocol.RefusedAgentRunning)
				v.Resize(protocol.Resize{Term: old, Cols: 90, Rows: 30})
			}
			for _, next := range []protocol.LeaseNext{{}, {Holder: alice, GrantID: "gr_1"}, {Holder: protocol.AgentHolder}} {
				v.Propose(protocol.LeaseProposal{ID: 9, ExpectRevision: r.revision(), Next: next})
				if m := want[protocol.Leased](v); m.ID != 9 || m.Refused != string(protocol.RefusedAgentRunning) {
					t.Fatalf("%+v", m)
				}
			}
			v.Holder(protocol.Holder{User: protocol.AgentHolder, Sockets: 0})
			time.Sleep(2 * protocol.ControlGrace)
			v.silent()
			if got := r.dev.take() + cli.dev.take(); got != "" || len(r.dev.sized())+len(cli.dev.sized()) != 0 {
				t.Fatalf("wrote %q, sizes %v", got, cli.dev.sized())
			}
		}
		locked()
		r.pause(t)
		v.wantAgent(protocol.AgentPaused)
		v.wantLease(alice, term+2)
		if !cli.proc.frozen {
			t.Fatal("it isn't paused")
		}
		r.pause(t) // again changes nothing
		v.nothing()
		seq++
		v.typed(term+2, seq, "to the agent")
		v.wantAck(seq)
		if got := cli.dev.take(); got != "to the agent" || r.dev.take() != "" {
			t.Fatalf("wrote %q", got)
		}
		term += 2
		r.resume(t)
		v.wantAgent(protocol.AgentRunning)
		v.wantLease(protocol.AgentHolder, term+1)
		if cli.proc.frozen {
			t.Fatal("it is paused")
		}
		locked()
		cli.quit(3)
		m := v.wantAgent(protocol.AgentStopped)
		if m.ExitCode == nil || *m.ExitCode != 3 || m.Signal != "" {
			t.Errorf("%+v", m)
		}
		v.wantLease(alice, term+2)
		seq++
		v.typed(term+2, seq, "ls\r")
		v.wantAck(seq)
		if got := r.dev.take(); got != "ls\r" {
			t.Fatalf("wrote %q", got)
		}
		if info := r.Info(); info.Agent == nil || info.Agent.State != protocol.AgentStopped {
			t.Errorf("%+v", info)
		}
	})
}

func (r *rig) revision() uint64 {
	return r.arbiter.Lease().Revision
}

// TestAgentErrors: what can't be done, and what may be done again.
func TestAgentErrors(t *testing.T) {
	stageBubble(t, func(t *testing.T, r *stageRig) {
		h := r.host
		start := func(s op.AgentStart) error {
			_, err := h.StartAgent(t.Context(), session, "pty_1", s)
			return err
		}
		pause := func() error { _, err := h.PauseAgent(session, "pty_1"); return err }
		resume := func() error { _, err := h.ResumeAgent(session, "pty_1"); return err }
		stop := func() error { _, err := h.StopAgent(t.Context(), session, "pty_1"); return err }
		for _, f := range []func() error{pause, resume, stop} {
			wantKind(t, f(), protocol.KindNotFound)
		}
		for _, s := range []op.AgentStart{
			{}, {Name: "nobody"}, {Name: "claude"}, {Command: "no-such-program -v"}, {Command: "no-such", Args: []string{"x"}},
			{Command: "-c", Args: []string{"x"}}, {Command: "exec a\x00b"}, {Name: strings.Repeat("x", 65), Command: "exec a"},
			{Name: "a\x1b[2J", Command: "exec a"},
		} {
			wantKind(t, start(s), protocol.KindInvalid)
		}
		if err := start(op.AgentStart{Name: "codex"}); !strings.Contains(err.Error(), "codex is not installed") {
			t.Error(err)
		}
		_, err := h.StartAgent(t.Context(), "ses_2", "pty_1", op.AgentStart{Command: "exec a"})
		wantKind(t, err, protocol.KindNotFound)
		h.fail = errors.New("no more PTYs")
		wantKind(t, start(op.AgentStart{Command: "exec a"}), protocol.KindInternal)
		h.fail = nil
		cli := r.start(t)
		wantKind(t, start(op.AgentStart{Command: "exec b"}), protocol.KindConflict)
		r.resume(t) // it runs already
		cli.proc.stuck = true
		wantKind(t, pause(), protocol.KindUnavailable)
		if r.agentState() != protocol.AgentRunning || cli.proc.frozen {
			t.Error("a pause that failed changed something")
		}
		cli.proc.stuck = false
		r.pause(t)
		wantKind(t, h.Signal(session, "pty_1", "CONT"), protocol.KindConflict)
		if err := h.Signal(session, "pty_1", "INT"); err != nil || !slices.Contains(cli.proc.got, syscall.SIGINT) {
			t.Errorf("the agent got %v, %v", cli.proc.got, err)
		}
		cli.quit(0)
		wantKind(t, pause(), protocol.KindNotFound)
		wantKind(t, resume(), protocol.KindNotFound)
		for range 2 {
			if got, err := h.StopAgent(t.Context(), session, "pty_1"); err != nil || got.State != protocol.AgentStopped {
				t.Errorf("%+v, %v", got, err)
			}
		}
		r.start(t) // the next one
		if err := stop(); err != nil {
			t.Error(err)
		}
		r.proc.exit(0)
		close(r.dev.output)
		synctest.Wait()
		wantKind(t, start(op.AgentStart{Command: "exec a"}), protocol.KindEnded)
	})
}

// TestStopAgent: signals, times and what is reported, of one that is running and
// one that is paused.
func TestStopAgent(t *testing.T) {
	for name, tt := range map[string]struct {
		paused bool
		heeds  syscall.Signal
		left   int
		got    []syscall.Signal // the first ones
		took   time.Duration
	}{
		"interrupted": {false, syscall.SIGINT, 0, []syscall.Signal{syscall.SIGINT}, drainFor},
		"terminated": {false, syscall.SIGTERM, 0, []syscall.Signal{syscall.SIGINT, syscall.SIGINT, syscall.SIGINT, syscall.SIGTERM},
			1500*time.Millisecond + drainFor},
		"killed": {false, 0, 0, []syscall.Signal{syscall.SIGINT, syscall.SIGINT, syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL},
			2500*time.Millisecond + drainFor},
		"paused": {true, syscall.SIGINT, 0, []syscall.Signal{syscall.SIGCONT, syscall.SIGINT}, drainFor},
		"stubborn leftovers": {false, syscall.SIGINT, 2, []syscall.Signal{
			syscall.SIGINT, syscall.SIGHUP, syscall.SIGCONT, syscall.SIGHUP, syscall.SIGCONT, syscall.SIGKILL,
		},
			drainFor + stoppedFor},
	} {
		t.Run(name, func(t *testing.T) {
			stageBubble(t, func(t *testing.T, r *stageRig) {
				cli := r.start(t)
				cli.proc.heeds, cli.proc.leftover, cli.proc.stubborn = tt.heeds, tt.left, true
				if tt.paused {
					r.pause(t)
				}
				start := time.Now()
				got, err := r.host.StopAgent(t.Context(), session, "pty_1")
				if err != nil || got.State != protocol.AgentStopped || got.Signal == "" || got.ExitCode != nil {
					t.Fatalf("%+v, %v", got, err)
				}
				if took := time.Since(start); took < tt.took || took > tt.took+redrawAfter+sweepEvery || !slices.Equal(cli.proc.got[:min(len(tt.got), len(cli.proc.got))], tt.got) {
					t.Errorf("took %v with %v, want %v with %v", took, cli.proc.got, tt.took, tt.got)
				}
			})
		})
	}
}

// TestCloseEndsBoth closes the terminal under a running and a paused agent.
func TestCloseEndsBoth(t *testing.T) {
	for _, stubborn := range []bool{false, true} {
		for _, paused := range []bool{false, true} {
			stageBubble(t, func(t *testing.T, r *stageRig) {
				cli := r.start(t)
				cli.proc.stubborn = stubborn
				if paused {
					r.pause(t)
				}
				start := time.Now()
				if err := r.host.Close(session, "pty_1"); err != nil {
					t.Fatal(err)
				}
				most := 2 * drainFor
				if stubborn {
					most += killAfter
				}
				if took := time.Since(start); took > most || cli.proc.running || r.proc.running {
					t.Errorf("took %v", took)
				}
				if paused && stubborn && !slices.Contains(cli.proc.got, syscall.SIGCONT) {
					t.Errorf("a stopped agent got %v", cli.proc.got)
				}
			})
		}
	}
}

// TestYield: control goes back to whoever had it, if they are still there with a
// right to it.
func TestYield(t *testing.T) {
	for name, tt := range map[string]struct {
		meanwhile func(r *stageRig, v *viewer)
		holder    protocol.UserID
		grant     protocol.GrantID
	}{
		"there":           {func(*stageRig, *viewer) {}, alice, "gr_1"},
		"away":            {func(_ *stageRig, v *viewer) { v.Holder(protocol.Holder{User: alice, Sockets: 0}) }, "", ""},
		"revoked":         {func(r *stageRig, v *viewer) { r.host.RevokeGrants("gr_1"); want[protocol.Granted](v) }, "", ""},
		"expired":         {func(*stageRig, *viewer) { time.Sleep(11 * time.Minute) }, "", ""},
		"grant not there": {func(_ *stageRig, v *viewer) { v.DropGrant("gr_1") }, alice, "gr_1"},
		"renewed": {func(r *stageRig, v *viewer) {
			time.Sleep(5 * time.Minute)
			v.mayControl(alice, "gr_2")
			time.Sleep(6 * time.Minute)
		}, alice, "gr_2"},
		"renewed to view": {func(r *stageRig, v *viewer) {
			if err := v.AddGrant(grantOf(alice, "gr_2", time.Hour), 0); err != nil {
				t.Error(err)
			}
			r.host.RevokeGrants("gr_1")
			want[protocol.Granted](v)
		}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			stageBubble(t, func(t *testing.T, r *stageRig) {
				v := r.attach(t, nil)
				if err := v.AddGrant(grantOf(bob, "gr_b", time.Hour), 0); err != nil { // keeps the stream
					t.Fatal(err)
				}
				v.propose(alice)
				cli := r.start(t)
				v.wantAgent(protocol.AgentRunning)
				v.wantLease(protocol.AgentHolder, 2)
				tt.meanwhile(r, v)
				v.silent()
				cli.quit(0)
				v.wantAgent(protocol.AgentStopped)
				term := uint64(2)
				if tt.holder != "" {
					term = 3
				}
				if l := v.wantLease(tt.holder, term); l.GrantID != tt.grant {
					t.Errorf("%+v", l)
				}
			})
		})
	}
}

// TestPausedAgentEnds: what was typed at it doesn't reach the program behind.
func TestPausedAgentEnds(t *testing.T) {
	stageBubble(t, func(t *testing.T, r *stageRig) {
		v := r.attach(t, nil)
		v.propose(alice)
		cli := r.start(t)
		r.pause(t)
		for range 4 {
			v.next()
		}
		cli.dev.setRoom(2)
		v.typed(3, 1, "yes\r")
		cli.quit(0)
		v.wantRefused(1, protocol.RefusedStaleTerm)
		v.wantAgent(protocol.AgentStopped)
		v.wantLease(alice, 4)
		v.typed(3, 2, "y\r")
		v.wantRefused(2, protocol.RefusedStaleTerm)
		v.typed(4, 3, "ls\r")
		v.wantAck(3)
		if got := r.dev.take(); got != "ls\r" {
			t.Errorf("wrote %q", got)
		}
	})
}

// TestStopOfAPausedAgent: from the moment at which it is continued to end, humans
// are refused as while it runs; who had control has it at the end.
func TestStopOfAPausedAgent(t *testing.T) {
	stageBubble(t, func(t *testing.T, r *stageRig) {
		v := r.attach(t, nil)
		v.propose(alice)
		cli := r.start(t)
		r.pause(t)
		for range 4 {
			v.next()
		}
		cli.dev.setRoom(2)
		v.typed(3, 1, "yes\r")
		stopped := make(chan error)
		go func() { // received below
			_, err := r.host.StopAgent(t.Context(), session, "pty_1")
			stopped <- err
		}()
		synctest.Wait()
		v.wantRefused(1, protocol.RefusedAgentRunning)
		cli.dev.setRoom(1 << 10)
		v.typed(3, 1, "yes\r") // again, by another relay say
		v.wantRefused(1, protocol.RefusedAgentRunning)
		for seq := range uint64(5) { // over all signals but the last
			v.typed(3, seq+2, "x")
			v.wantRefused(seq+2, protocol.RefusedAgentRunning)
			v.Resize(protocol.Resize{Term: 3, Cols: 90, Rows: 30})
			for _, next := range []protocol.LeaseNext{{}, {Holder: alice, GrantID: "gr_1"}} {
				v.Propose(protocol.LeaseProposal{ID: 9, ExpectRevision: r.revision(), Next: next})
				if m := want[protocol.Leased](v); m.ID != 9 || m.Refused != string(protocol.RefusedAgentRunning) {
					t.Fatalf("%+v", m)
				}
			}
			time.Sleep(450 * time.Millisecond)
		}
		v.silent()
		if got := cli.dev.take() + r.dev.take(); got != "ye" || len(cli.dev.sized())+len(r.dev.sized()) != 0 {
			t.Errorf("wrote %q, sizes %v", got, cli.dev.sized())
		}
		if err := <-stopped; err != nil {
			t.Fatal(err)
		}
		v.wantAgent(protocol.AgentStopped)
		v.wantLease(alice, 4)
		v.typed(4, 7, "ls\r")
		v.wantAck(7)
		if got := r.dev.take(); got != "ls\r" {
			t.Errorf("wrote %q", got)
		}
	})
}

package terminal

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/arbiter"
)

func robotTurn(text string) protocol.AgentTurn {
	return protocol.AgentTurn{Agent: robot, LastMessage: text, Reason: protocol.StopComplete, At: 7}
}

func (r *stageRig) finish(t *testing.T, text string) {
	t.Helper()
	must(t, r.host.AgentTurn(session, "pty_1", robotTurn(text)))
}

func (r *stageRig) begin(t *testing.T) {
	t.Helper()
	must(t, r.host.AgentStarted(session, "pty_1", robot))
}

func (r *stageRig) ready(t *testing.T) {
	t.Helper()
	must(t, r.host.AgentReady(session, "pty_1", robot))
}

// resumes resumes the agent, which is in state then.
func (r *stageRig) resumes(t *testing.T, state protocol.AgentState) {
	t.Helper()
	if got, err := r.host.ResumeAgent(session, "pty_1"); err != nil || got.State != state {
		t.Fatalf("%+v, %v", got, err)
	}
}

// TestPromptAndTurn: the first prompt, and the next ones, are typed by the human
// who has control, and nobody types while the agent works on them. That it
// begins cuts what is typed as a start does.
func TestPromptAndTurn(t *testing.T) {
	stageBubble(t, func(t *testing.T, r *stageRig) {
		v := r.attach(t, nil)
		term := v.propose(alice).Lease.Term
		cli := r.start(t)
		v.wantAgent(protocol.AgentRunning)
		v.wantLease(protocol.AgentHolder, term+1)
		seq := uint64(1)
		v.typed(term+1, seq, "early")
		v.wantRefused(seq, protocol.RefusedAgentRunning)
		r.ready(t)
		for i := range uint64(3) {
			v.wantAgent(protocol.AgentWaiting)
			prompting := v.wantLease(alice, term+2+2*i).Term
			r.ready(t) // again changes nothing
			v.silent()
			cli.dev.setRoom(4)
			seq++
			v.typed(prompting, seq, "fix\r")
			v.wantAck(seq)
			seq++
			v.typed(prompting, seq, "and more") // a fast typist
			v.silent()
			r.begin(t)
			v.wantAgent(protocol.AgentRunning)
			v.wantLease(protocol.AgentHolder, prompting+1)
			v.wantRefused(seq, protocol.RefusedAgentRunning)
			cli.dev.setRoom(1 << 20)
			synctest.Wait()
			if got := cli.dev.take(); got != "fix\r" {
				t.Fatalf("the agent got %q", got)
			}
			r.ready(t) // too late: it works
			r.begin(t) // again changes nothing
			v.silent()
			r.finish(t, "done")
			if m := want[protocol.AgentTurn](v); m != robotTurn("done") {
				t.Fatalf("%+v", m)
			}
		}
		v.wantAgent(protocol.AgentWaiting)
		v.wantLease(alice, term+8)
		late := r.attach(t, nil)
		if turn := late.opened.Turn; turn == nil || *turn != robotTurn("done") || late.opened.Agent.State != protocol.AgentWaiting {
			t.Errorf("%+v", late.opened)
		}
		// It ends while it waits: what was typed at it isn't for the shell.
		cli.dev.setRoom(0)
		seq++
		v.typed(term+8, seq, "rm x\r")
		cli.quit(0)
		v.wantRefused(seq, protocol.RefusedStaleTerm)
		v.wantAgent(protocol.AgentStopped)
		v.wantLease(alice, term+9)
		if got := r.dev.take(); got != "" {
			t.Errorf("the shell got %q", got)
		}
		r.finish(t, "by hand") // of one in the shell
		want[protocol.AgentTurn](v)
		v.silent()
	})
}

// TestPausedBetweenTurns: a pause and what its hooks say meanwhile.
func TestPausedBetweenTurns(t *testing.T) {
	stageBubble(t, func(t *testing.T, r *stageRig) {
		v := r.attach(t, nil)
		term := v.propose(alice).Lease.Term
		cli := r.start(t)
		v.wantAgent(protocol.AgentRunning)
		v.wantLease(protocol.AgentHolder, term+1)
		r.ready(t)
		v.wantAgent(protocol.AgentWaiting)
		v.wantLease(alice, term+2)

		r.pause(t) // of one that waits
		v.wantAgent(protocol.AgentPaused)
		v.silent() // nobody lost control
		if !cli.proc.frozen {
			t.Error("it isn't paused")
		}
		r.resumes(t, protocol.AgentWaiting)
		v.wantAgent(protocol.AgentWaiting)
		v.silent()
		if cli.proc.frozen {
			t.Error("it is paused")
		}

		r.pause(t)
		v.wantAgent(protocol.AgentPaused)
		r.begin(t) // its hook was on its way
		v.silent()
		r.resumes(t, protocol.AgentRunning)
		v.wantAgent(protocol.AgentRunning)
		v.wantLease(protocol.AgentHolder, term+3)

		r.pause(t) // of one that works
		v.wantAgent(protocol.AgentPaused)
		v.wantLease(alice, term+4)
		r.finish(t, "")
		want[protocol.AgentTurn](v)
		r.resumes(t, protocol.AgentWaiting)
		v.wantAgent(protocol.AgentWaiting)
		v.silent()

		// It is stopped while it waits: from then on nobody types.
		cli.proc.heeds = 0
		stopped := make(chan error)
		go func() {
			_, err := r.host.StopAgent(t.Context(), session, "pty_1")
			stopped <- err
		}()
		synctest.Wait()
		v.typed(term+4, 1, "x")
		v.wantRefused(1, protocol.RefusedAgentRunning)
		r.begin(t)
		r.finish(t, "")
		want[protocol.AgentTurn](v)
		v.silent()
		time.Sleep(5 * time.Second)
		close(cli.dev.output)
		must(t, <-stopped)
		v.wantAgent(protocol.AgentStopped)
		v.wantLease(alice, term+5)
		for _, report := range []func(*testing.T){r.begin, r.ready} {
			report(t)
		}
		v.silent()
	})
}

// TestTurnWithoutHolder: who had control is gone when the turn is over.
func TestTurnWithoutHolder(t *testing.T) {
	stageBubble(t, func(t *testing.T, r *stageRig) {
		v := r.attach(t, nil)
		v.propose(alice)
		r.start(t)
		v.Holder(protocol.Holder{User: alice, Sockets: 0})
		r.finish(t, "")
		if l := r.lease(); l.Holder != "" {
			t.Errorf("%+v", l)
		}
		r.begin(t)
		r.finish(t, "")
		if l := r.lease(); l.Holder != "" || r.agentState() != protocol.AgentWaiting {
			t.Errorf("%+v", l)
		}
	})
}

func (r *rig) lease() protocol.Lease {
	return r.arbiter.Lease()
}

func (r *rig) agentState() protocol.AgentState {
	if report := r.Info().Agent; report != nil {
		return report.State
	}
	return protocol.AgentStopped
}

// TestFirstPrompt: an agent that was started by its name alone waits for its
// prompt though no hook says so, unless one says that it works.
func TestFirstPrompt(t *testing.T) {
	stageBubble(t, func(t *testing.T, r *stageRig) {
		start := func(idle bool) *rig {
			must(t, r.arbiter.ReserveAgent())
			dev, proc, err := r.host.launch(r.launched)
			must(t, err)
			r.bringForward(newProgram(dev, proc), arbiter.Arrival{Name: robot, Idle: idle})
			return r.host.launched[len(r.host.launched)-1]
		}
		state := func(after time.Duration, want protocol.AgentState) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if got := r.Info().Agent.State; got != want {
				t.Errorf("after %v it is %s, want %s", after, got, want)
			}
		}
		cli := start(true)
		state(arbiter.FirstPromptAfter-time.Millisecond, protocol.AgentRunning)
		state(time.Millisecond, protocol.AgentWaiting)
		cli.quit(0)
		cli = start(true)
		r.begin(t)
		state(arbiter.FirstPromptAfter, protocol.AgentRunning)
		cli.quit(0)
		cli = start(false)
		state(time.Hour, protocol.AgentRunning)
		cli.quit(0)
		start(true)
		r.pause(t)
		state(arbiter.FirstPromptAfter, protocol.AgentPaused)
		r.resumes(t, protocol.AgentWaiting)
	})
}

// A turnLog notes turns.
type turnLog []protocol.PTYCompleted

func (l *turnLog) Turn(done protocol.PTYCompleted) { *l = append(*l, done) }

// TestReports: what is taken of hooks, and what isn't.
func TestReports(t *testing.T) {
	stageBubble(t, func(t *testing.T, r *stageRig) {
		told := &turnLog{}
		r.host.config.Turns = told
		report := func(turn protocol.AgentTurn) error { return r.host.AgentTurn(session, "pty_1", turn) }
		wantKind(t, r.host.AgentTurn("ses_2", "pty_1", robotTurn("")), protocol.KindNotFound)
		wantKind(t, r.host.AgentStarted(session, "pty_2", robot), protocol.KindNotFound)
		for _, name := range []string{"", "a\x1b[2J", strings.Repeat("x", protocol.MaxAgentNameBytes+1)} {
			wantKind(t, report(protocol.AgentTurn{Agent: name}), protocol.KindInvalid)
			wantKind(t, r.host.AgentReady(session, "pty_1", name), protocol.KindInvalid)
		}
		wantKind(t, report(protocol.AgentTurn{Agent: robot, Reason: "bored"}), protocol.KindInvalid)

		r.host.SetSecrets(compile(t, secretA), []string{secretA})
		v := r.attach(t, nil)
		long := strings.Repeat("é", protocol.MaxLastMessage)
		for text, want := range map[string]string{
			"the key is " + secretA:                                  "the key is " + strings.Repeat("*", len(secretA)),
			"\x1b]0;x\abell \x00and\ttab\nline\u009b":                "]0;xbell and\ttab\nline",
			secretA[:4] + "\x1b" + secretA[4:] + " in between":       strings.Repeat("*", len(secretA)) + " in between",
			"not UTF-8 \xff":                                         "not UTF-8 \ufffd",
			long + "x":                                               long[len(long)-protocol.MaxLastMessage+2:] + "x",
			secretA + strings.Repeat("y", protocol.MaxLastMessage-5): strings.Repeat("*", 5) + strings.Repeat("y", protocol.MaxLastMessage-5),
		} {
			must(t, report(protocol.AgentTurn{Agent: robot, LastMessage: text}))
			m := want1(v)
			if m.LastMessage != want || m.Reason != protocol.StopComplete || m.At != time.Now().UnixMilli() || (*told)[len(*told)-1] != (protocol.PTYCompleted{
				SessionID: session, PTYID: "pty_1", Agent: m.Agent, Status: m.Reason, LastMessage: m.LastMessage, At: m.At,
			}) {
				t.Errorf("%.60q: %.80q, want %.80q; %+v", text, m.LastMessage, want, m.Reason)
			}
		}
		// A secret that is set later is masked in what was said before.
		must(t, report(robotTurn("tell nobody about xyzzy-plugh")))
		want1(v)
		r.host.SetSecrets(compile(t, "xyzzy-plugh"), []string{"xyzzy-plugh"})
		if m := want1(v); m != robotTurn("tell nobody about ***********") {
			t.Errorf("%+v", m)
		}

		var err error
		n := 0
		for ; err == nil; n++ {
			err = report(robotTurn(""))
		}
		if wantKind(t, err, protocol.KindTooMany); n > arbiter.ReportBurst+1 {
			t.Errorf("%d reports", n)
		}
		must(t, r.host.AgentStarted(session, "pty_1", robot)) // of none that is in front
		time.Sleep(arbiter.ReportEvery)
		must(t, report(robotTurn("")))
		wantKind(t, report(robotTurn("")), protocol.KindTooMany)
		time.Sleep(time.Hour)
		r.host.end(0)
		wantKind(t, report(robotTurn("")), protocol.KindEnded)
	})
}

// TestManyTools: an agent that reports after each of many tools can still say that
// its turn is over.
func TestManyTools(t *testing.T) {
	stageBubble(t, func(t *testing.T, r *stageRig) {
		v := r.attach(t, nil)
		term := v.propose(alice).Lease.Term
		r.start(t)
		v.wantAgent(protocol.AgentRunning)
		v.wantLease(protocol.AgentHolder, term+1)
		for range 10 * arbiter.ReportBurst {
			r.begin(t)
		}
		r.ready(t)
		r.finish(t, "done")
		want[protocol.AgentTurn](v)
		v.wantAgent(protocol.AgentWaiting)
		v.wantLease(alice, term+2)
	})
}

// want1 returns the next turn, in front of which there may be other messages.
func want1(v *viewer) protocol.AgentTurn {
	v.t.Helper()
	for {
		if m, ok := v.next().(protocol.AgentTurn); ok {
			return m
		}
	}
}

// TestOtherAgents: a known agent's turn is not that of another one in front,
// which may have started it.
func TestOtherAgents(t *testing.T) {
	stageBubble(t, func(t *testing.T, r *stageRig) {
		must(t, r.arbiter.ReserveAgent())
		dev, proc, err := r.host.launch(r.launched)
		must(t, err)
		r.bringForward(newProgram(dev, proc), arbiter.Arrival{Name: "claude", CLI: "claude"})
		must(t, r.host.AgentTurn(session, "pty_1", protocol.AgentTurn{Agent: "codex"}))
		if r.agentState() != protocol.AgentRunning {
			t.Error("it waits because another one does")
		}
		must(t, r.host.AgentTurn(session, "pty_1", protocol.AgentTurn{Agent: "claude-code"}))
		if r.agentState() != protocol.AgentWaiting {
			t.Error("it doesn't wait")
		}
		must(t, r.host.AgentStarted(session, "pty_1", "codex-cli"))
		if r.agentState() != protocol.AgentWaiting {
			t.Error("it works because another one does")
		}
	})
}

// TestNoteTools: who is slow is told of the first and the last.
func TestNoteTools(t *testing.T) {
	stageBubble(t, func(t *testing.T, r *stageRig) {
		v := r.attach(t, nil)
		for n := range 10_000 {
			r.host.NoteTools(session, "", n, n+1)
		}
		r.host.NoteTools(session, "pty_2", 0, 1)
		r.host.NoteTools("ses_2", "", 0, 1)
		if m := want[protocol.ToolsChanged](v); m.Old != 0 || m.New != 10_000 || m.At != time.Now().UnixMilli() {
			t.Errorf("%+v", m)
		}
		v.nothing()
		r.host.NoteTools(session, "pty_1", 1, 2)
		if m := want[protocol.ToolsChanged](v); m.Old != 1 || m.New != 2 {
			t.Errorf("%+v", m)
		}
	})
}

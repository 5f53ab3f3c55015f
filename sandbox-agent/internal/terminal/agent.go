package terminal

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
	"github.com/fairlead/fairlead/sandbox-agent/internal/pty"
	"github.com/fairlead/fairlead/sandbox-agent/internal/screen"
)

// stoppedFor is how long what a coding agent started may take to end after the
// agent was stopped.
const stoppedFor = time.Second

// A stage is what runs in a terminal: its own program, and perhaps a coding
// agent in front of it. The arbiter's mu guards it.
//
// The agent has a PTY of its own, and with that the terminal: its output is what
// is seen, and it gets all input. The program behind goes on until it prints
// more than its PTY holds. If it ends, the terminal stays until the agent has
// ended, too.
type stage struct {
	front    *program // whose output is seen and who gets input
	agent    *agent   // the last one; nil: there never was one
	starting bool     // another one is about to come
	leaving  bool     // the terminal's own program has ended: no more agents
}

// An agent is a coding agent that is in front of a terminal's own program, or
// was.
type agent struct {
	// Static after construction.
	*program
	name   string
	cli    string        // of a known coding agent; "": of none
	exited chan struct{} // closed when the program itself has ended
	gone   chan struct{} // closed when nothing of it is left

	steering sync.Mutex // held while it is paused, resumed or stopped

	// Guarded by arbiter.mu.
	is       protocol.AgentState
	resumes  protocol.AgentState // what it is when it is paused no more: running or waiting
	prompted bool                // it has begun a turn
	promptBy time.Time           // it waits for its first prompt from then on; zero: who knows
	how      pty.Exit            // it ended
	stopping bool                // it is being stopped
	before   *jws.Grant          // of the human who gets control back; nil: nobody does
	modes    screen.Modes        // of the program behind
}

// Signal and Done are what [process.Stop] needs.
func (a *agent) Signal(sig syscall.Signal) int { return a.proc.SignalAll(sig) }
func (a *agent) Done() <-chan struct{}         { return a.exited }

// state returns what the agent in front does. The caller holds mu.
func (s *stage) state() protocol.AgentState {
	if s.agent == nil {
		return protocol.AgentStopped
	}
	return s.agent.is
}

// locked reports whether no human may type, resize or take control: an agent
// runs, or is about to be stopped, for which a paused one is continued. The
// caller holds mu.
func (s *stage) locked() bool {
	state := s.state()
	return state == protocol.AgentRunning || state != protocol.AgentStopped && s.agent.stopping
}

// report returns how the agent stands, nil when there never was one. The caller
// holds mu.
func (s *stage) report() *protocol.AgentReport {
	if s.agent == nil {
		return nil
	}
	r := s.agent.report()
	return &r
}

// report returns how the agent stands. The caller holds arbiter.mu.
func (a *agent) report() protocol.AgentReport {
	r := protocol.AgentReport{State: a.is, Name: a.name}
	if a.is == protocol.AgentStopped {
		if r.Signal = a.how.Signal; r.Signal == "" {
			r.ExitCode = &a.how.Code
		}
	}
	return r
}

var errNoAgent = protocol.Errorf(protocol.KindNotFound, "no coding agent is in front of the terminal")

// StartAgent starts a coding agent in front of the program of the terminal id of
// session, in that program's folder. It takes control without asking: what
// humans have in flight is refused from then on. It fails with KindConflict
// while another agent is there, with KindEnded when the program has ended, and
// with KindInvalid, saying what to install, when there is no such command.
func (h *Host) StartAgent(ctx context.Context, session protocol.SessionID, id protocol.PTYID, s op.AgentStart) (protocol.AgentReport, error) {
	t, err := h.Get(session, id)
	if err != nil {
		return protocol.AgentReport{}, err
	}
	plan, err := h.planAgent(s, t.site.launched.Account.Home)
	if err != nil {
		return protocol.AgentReport{}, err
	}
	if err := ctx.Err(); err != nil {
		return protocol.AgentReport{}, protocol.Fault(protocol.KindUnavailable, err)
	}
	l, err := t.reserveAgent()
	if err != nil {
		return protocol.AgentReport{}, err
	}
	if err := h.wireAgent(session, id, l.Account, plan.cli); err != nil {
		t.giveUpAgent()
		return protocol.AgentReport{}, err
	}
	l.Argv = plan.argv
	l.Env, _, err = h.environ(session, id, l.Account, t.site.created)
	if err != nil {
		t.giveUpAgent()
		return protocol.AgentReport{}, protocol.AsError(err)
	}
	dev, proc, err := h.launchAgent(l, t.own.proc.Dir())
	if err != nil {
		t.giveUpAgent()
		return protocol.AgentReport{}, protocol.AsError(err)
	}
	return t.bringForward(plan, newProgram(dev, proc), l), nil
}

// launchAgent starts l in dir, or where the terminal began if it can't be there
// any more.
func (h *Host) launchAgent(l pty.Launch, dir string) (pty.Device, pty.Child, error) {
	if dir != "" && dir != l.Dir {
		there := l
		there.Dir = dir
		if dev, proc, err := h.launch(there); err == nil {
			return dev, proc, nil
		}
	}
	return h.launch(l)
}

// PauseAgent stops the coding agent in front of the terminal id of session and
// everything it started, and gives control back unless it waits and nobody has
// lost it. Of a paused one nothing changes. It fails with KindNotFound when there is none, and with
// KindUnavailable when something of it can't be stopped: then it goes on.
func (h *Host) PauseAgent(session protocol.SessionID, id protocol.PTYID) (protocol.AgentReport, error) {
	t, a, err := h.agentOf(session, id)
	if err != nil {
		return protocol.AgentReport{}, err
	}
	a.steering.Lock()
	defer a.steering.Unlock()
	if r := t.reportOf(a); r.State != protocol.AgentRunning && r.State != protocol.AgentWaiting {
		return r, noneLeft(r)
	}
	if err := a.proc.Freeze(true); err != nil {
		return t.reportOf(a), protocol.Fault(protocol.KindUnavailable, errors.Join(err, a.proc.Freeze(false)))
	}
	r := t.pauseAgent(a)
	return r, noneLeft(r)
}

// ResumeAgent lets a paused coding agent go on as what it was, and takes control
// for one that works. Of one that isn't paused nothing changes. It fails with KindNotFound when there is none.
func (h *Host) ResumeAgent(session protocol.SessionID, id protocol.PTYID) (protocol.AgentReport, error) {
	t, a, err := h.agentOf(session, id)
	if err != nil {
		return protocol.AgentReport{}, err
	}
	a.steering.Lock()
	defer a.steering.Unlock()
	r, resumed := t.resumeAgent(a)
	if resumed {
		err = a.proc.Freeze(false)
	}
	if err != nil {
		return r, protocol.Fault(protocol.KindUnavailable, err)
	}
	return r, noneLeft(r)
}

// StopAgent ends the coding agent in front of the terminal id of session as
// [process.Stop] does, and gives control back. It returns when nothing of the
// agent is left. Until then humans are refused as while it runs, of a paused one
// too. Of a stopped one nothing changes. It fails with KindNotFound
// when there never was one. When ctx ends first, the agent is killed at once.
func (h *Host) StopAgent(ctx context.Context, session protocol.SessionID, id protocol.PTYID) (protocol.AgentReport, error) {
	t, a, err := h.agentOf(session, id)
	if err != nil {
		return protocol.AgentReport{}, err
	}
	a.steering.Lock()
	defer a.steering.Unlock()
	paused := t.stopAgent(a)
	if err := process.Stop(ctx, a, paused); err != nil {
		return t.reportOf(a), protocol.Fault(protocol.KindUnavailable, err)
	}
	<-a.gone
	return t.reportOf(a), nil
}

// agentOf returns the last coding agent of a terminal.
func (h *Host) agentOf(session protocol.SessionID, id protocol.PTYID) (*Terminal, *agent, error) {
	t, err := h.Get(session, id)
	if err != nil {
		return nil, nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stage.agent == nil {
		return nil, nil, errNoAgent
	}
	return t, t.stage.agent, nil
}

func (b *arbiter) reportOf(a *agent) protocol.AgentReport {
	b.mu.Lock()
	defer b.mu.Unlock()
	return a.report()
}

// noneLeft is the error of a change that came too late.
func noneLeft(r protocol.AgentReport) error {
	if r.State == protocol.AgentStopped {
		return errNoAgent
	}
	return nil
}

// pauseAgent notes that a was stopped, unless it has ended meanwhile.
func (b *arbiter) pauseAgent(a *agent) protocol.AgentReport {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch was := a.is; was {
	case protocol.AgentRunning, protocol.AgentWaiting:
		a.is, a.resumes = protocol.AgentPaused, was
		b.announceAgent()
		if was == protocol.AgentRunning {
			b.yield(a)
		}
	}
	return a.report()
}

// resumeAgent has a, if it is paused, be what it was, takes control for it if
// that was running, and reports whether it was paused.
func (b *arbiter) resumeAgent(a *agent) (protocol.AgentReport, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	paused := a.is == protocol.AgentPaused
	switch {
	case paused && a.resumes == protocol.AgentWaiting:
		a.is = protocol.AgentWaiting
		b.announceAgent()
	case paused:
		b.takeOver(a)
	}
	return a.report(), paused
}

// stopAgent notes that a is to end, and reports whether it is paused. From here
// on it is locked as a running one is: what humans typed doesn't reach it.
func (b *arbiter) stopAgent(a *agent) (paused bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a.stopping = true
	b.refuseStale()
	return a.is == protocol.AgentPaused
}

// takeOver lets a run and takes control for it, whoever has it: a clean cut, as
// every change of control is. The caller holds mu.
func (b *arbiter) takeOver(a *agent) {
	if a.before = b.control.grant; b.control.isLent() {
		a.before = nil
	}
	a.is = protocol.AgentRunning
	b.announceAgent()
	b.assign(protocol.LeaseNext{Holder: protocol.AgentHolder}, nil)
	b.leaseChanged(nil, 0)
}

// yield gives control back to the human who had it, if they are present and
// still may have it, else to nobody. The caller holds mu.
func (b *arbiter) yield(a *agent) {
	next := protocol.LeaseNext{}
	g := a.before
	if g != nil && b.sockets(g.Subject) > 0 {
		if now := time.Now(); over(g, now) {
			g = b.anotherGrant(g.Subject, now)
		}
		if g != nil {
			next = protocol.LeaseNext{Holder: g.Subject, GrantID: g.ID}
		}
	}
	if next.Holder == "" {
		g = nil
	}
	a.before = nil
	b.assign(next, g)
	b.leaseChanged(nil, 0)
}

// announceAgent tells everybody how the agent stands. The caller holds mu.
func (b *arbiter) announceAgent() {
	r := b.stage.agent.report()
	for a := range b.attachments {
		a.post(r)
	}
}

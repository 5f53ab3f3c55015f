package terminal

import (
	"context"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/arbiter"
	"github.com/fairlead/fairlead/sandbox-agent/internal/launch"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
	"github.com/fairlead/fairlead/sandbox-agent/internal/pty"
)

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
	if t.lent() {
		return protocol.AgentReport{}, protocol.Errorf(protocol.KindConflict, "a coding agent goes on with a conversation in this terminal")
	}
	l := t.launched
	plan, err := h.Setup().PlanAgent(s, l.Account.Home)
	if err != nil {
		return protocol.AgentReport{}, err
	}
	if err := ctx.Err(); err != nil {
		return protocol.AgentReport{}, protocol.Fault(protocol.KindUnavailable, err)
	}
	if err := t.arbiter.ReserveAgent(); err != nil {
		return protocol.AgentReport{}, err
	}
	l.Argv, l.Front, l.Mark = plan.Argv, true, process.NewMark(l.Account.UID, l.Account.GID)
	l.Cols, l.Rows = t.transcript.Size()
	p, err := h.startAgent(t, plan, l)
	if err != nil {
		t.arbiter.GiveUpAgent()
		return protocol.AgentReport{}, err
	}
	return t.bringForward(p, arbiter.Arrival{Name: plan.Name, CLI: plan.CLI, Idle: plan.Idle, Cols: l.Cols, Rows: l.Rows}), nil
}

// startAgent starts a coding agent, whose place is reserved, as l says.
func (h *Host) startAgent(t *Terminal, plan launch.Agent, l pty.Launch) (*program, error) {
	if err := h.furnishAgent(t.session, t.id, l.Account, plan.CLI); err != nil {
		return nil, err
	}
	start, err := h.prepare(t.session, t.id, l.Account, t.created)
	if err != nil {
		return nil, protocol.AsError(err)
	}
	l.Env = start.Env
	dev, proc, err := h.launchAgent(l, t.own.Process.Dir())
	if err != nil {
		return nil, protocol.AsError(err)
	}
	return newProgram(dev, proc), nil
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

// PauseAgent pauses the coding agent in front of the terminal id of session, as
// [arbiter.Agent.Pause] says. It fails with KindNotFound when there is none.
func (h *Host) PauseAgent(session protocol.SessionID, id protocol.PTYID) (protocol.AgentReport, error) {
	a, err := h.agentOf(session, id)
	if err != nil {
		return protocol.AgentReport{}, err
	}
	return a.Pause()
}

// ResumeAgent lets a paused coding agent go on, as [arbiter.Agent.Resume] says. It
// fails with KindNotFound when there is none.
func (h *Host) ResumeAgent(session protocol.SessionID, id protocol.PTYID) (protocol.AgentReport, error) {
	a, err := h.agentOf(session, id)
	if err != nil {
		return protocol.AgentReport{}, err
	}
	return a.Resume()
}

// StopAgent ends the coding agent in front of the terminal id of session, as
// [arbiter.Agent.Stop] says, and gives control back. Of a stopped one nothing
// changes. It fails with KindNotFound when there never was one.
func (h *Host) StopAgent(ctx context.Context, session protocol.SessionID, id protocol.PTYID) (protocol.AgentReport, error) {
	a, err := h.agentOf(session, id)
	if err != nil {
		return protocol.AgentReport{}, err
	}
	return a.Stop(ctx)
}

// agentOf returns the last coding agent of a terminal.
func (h *Host) agentOf(session protocol.SessionID, id protocol.PTYID) (*arbiter.Agent, error) {
	t, err := h.Get(session, id)
	if err != nil {
		return nil, err
	}
	return t.arbiter.Agent()
}

package terminal

import (
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
	"github.com/fairlead/fairlead/sandbox-agent/internal/pty"
	"github.com/fairlead/fairlead/sandbox-agent/internal/screen"
)

// redrawAfter is how long a program that is back in front gets to notice that its
// size isn't what it was.
const redrawAfter = 50 * time.Millisecond

// reserveAgent takes the place of the one coding agent and returns what to start
// there, but for the command. bringForward or giveUpAgent must follow.
func (t *Terminal) reserveAgent() (pty.Launch, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !t.ended.IsZero() || t.stage.leaving:
		return pty.Launch{}, protocol.Errorf(protocol.KindEnded, "the program has ended")
	case t.stage.starting || t.stage.state() != protocol.AgentStopped:
		return pty.Launch{}, protocol.Errorf(protocol.KindConflict, "a coding agent is in front of the terminal already")
	}
	t.stage.starting = true
	l := t.site.launched
	l.Front, l.Mark = true, process.NewMark(l.Account.UID, l.Account.GID)
	l.Cols, l.Rows = t.transcript.Size()
	return l, nil
}

// giveUpAgent frees the place that reserveAgent took.
func (b *arbiter) giveUpAgent() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stage.starting = false
	b.poke() // the terminal may wait for it to end
}

// bringForward puts p, a coding agent that was started as l says, in front of
// the terminal's own program.
func (t *Terminal) bringForward(plan agentPlan, p *program, l pty.Launch) protocol.AgentReport {
	a := &agent{
		program: p, name: plan.name, cli: plan.cli,
		exited: make(chan struct{}), gone: make(chan struct{}),
	}
	if plan.idle {
		a.promptBy = time.Now().Add(firstPromptAfter)
	}
	t.view.mu.Lock()
	defer t.view.mu.Unlock()
	a.modes = t.view.display.HandOver(&p.out, screen.Modes{})
	t.beginAnewIfDue(time.Now())
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stage.starting, t.stage.agent = false, a
	t.putInFront(p)
	if cols, rows := t.transcript.Size(); cols != l.Cols || rows != l.Rows {
		t.sizeFront(cols, rows)
	}
	t.takeOver(a)
	t.poke()                                 // for its first prompt
	p.reader.Go(func() { t.read(p) })        // attend waits for it
	t.life.agents.Go(func() { t.attend(a) }) // finish waits for it
	t.log.Info("coding agent started", "name", a.name)
	return a.report()
}

// attend waits for the end of a, brings the program behind back, and clears away
// what a left running.
func (t *Terminal) attend(a *agent) {
	how := a.proc.Wait()
	close(a.exited)
	patience := killAfter
	if t.isStopping(a) { // nobody waits for the last words of what it started
		patience = stoppedFor
		hangUp(a.proc)
	}
	t.drain(a.program)
	t.standBack(a, how)
	t.redraw()
	t.sweep(a.proc, patience)
	close(a.gone)
	t.log.Info("coding agent ended", "name", a.name, "code", how.Code, "signal", how.Signal)
}

// standBack brings the terminal's own program back in front after all output of
// a, and gives control back.
func (t *Terminal) standBack(a *agent, how pty.Exit) {
	t.view.mu.Lock()
	defer t.view.mu.Unlock()
	t.view.display.HandOver(&t.own.out, a.modes)
	t.beginAnewIfDue(time.Now())
	t.mu.Lock()
	defer t.mu.Unlock()
	was := a.is
	a.is, a.how = protocol.AgentStopped, how
	t.refuseAll() // what humans typed at it while it was paused
	t.putInFront(t.own)
	cols, rows := t.transcript.Size()
	t.sizeFront(cols, max(rows-1, protocol.MinRows)) // redraw follows
	t.announceAgent()
	if was == protocol.AgentRunning {
		t.yield(a)
	} else {
		t.renewTerm()
	}
	t.pump()
	t.poke() // the terminal's own program may have ended meanwhile
}

func (b *arbiter) isStopping(a *agent) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return a.stopping
}

// redraw has the program that is back in front draw its screen again. Of
// SIGWINCH alone some take no notice: the size must differ from what they knew,
// so it was another one for a moment.
func (t *Terminal) redraw() {
	wait := time.NewTimer(redrawAfter)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-t.life.killing.c:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stage.front == t.own && !t.stage.leaving {
		t.sizeFront(t.transcript.Size())
	}
}

// putInFront has p, whose output the display shows from now on, get the input,
// too. The caller holds view.mu and arbiter.mu.
func (t *Terminal) putInFront(p *program) {
	t.stage.front = p
	t.displayed(false)
	t.paced()
}

// sizeFront gives the program in front the terminal's size. The caller holds arbiter.mu.
func (t *Terminal) sizeFront(cols, rows int) {
	if err := t.stage.front.dev.Resize(cols, rows); err != nil {
		t.log.Warn("resizing a terminal failed", "error", err)
	}
}

// renewTerm gives the human who has control a new term, and who types for a tool
// none: keys that were typed at a coding agent must not reach the program behind
// it. The caller holds mu.
func (b *arbiter) renewTerm() {
	g := b.control.grant
	held := b.control.lease.Lease(time.Now())
	switch {
	case held.Holder == "":
		return
	case b.control.isLent():
		b.assign(protocol.LeaseNext{}, nil)
	default:
		b.assign(protocol.LeaseNext{Holder: held.Holder, GrantID: held.GrantID}, g)
	}
	b.leaseChanged(nil, 0)
}

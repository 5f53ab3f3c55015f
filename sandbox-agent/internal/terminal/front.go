package terminal

import (
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/arbiter"
	"github.com/fairlead/fairlead/sandbox-agent/internal/pty"
	"github.com/fairlead/fairlead/sandbox-agent/internal/screen"
)

// redrawAfter is how long a program that is back in front gets to notice that its
// size isn't what it was.
const redrawAfter = 50 * time.Millisecond

// stoppedFor is how long what a coding agent started may take to end after the
// agent was stopped.
const stoppedFor = time.Second

// bringForward puts p, a coding agent, in front of the terminal's own program.
func (t *Terminal) bringForward(p *program, as arbiter.Arrival) protocol.AgentReport {
	t.view.mu.Lock()
	defer t.view.mu.Unlock()
	modes := t.view.display.HandOver(p.out, screen.Modes{})
	t.beginAnewIfDue(time.Now())
	a, report := t.arbiter.BringForward(p.Program, as, t.shown())
	p.reader.Go(func() { t.read(p) })                  // attend waits for it
	t.life.agents.Go(func() { t.attend(a, p, modes) }) // finish waits for it
	return report
}

// attend waits for the end of a, which runs as p, brings the program behind back,
// whose modes were modes, and clears away what a left running.
func (t *Terminal) attend(a *arbiter.Agent, p *program, modes screen.Modes) {
	how := p.Process.Wait()
	a.Exited()
	patience := killAfter
	if a.Stopping() { // nobody waits for the last words of what it started
		patience = stoppedFor
		hangUp(p.Process)
	}
	t.drain(p)
	t.standBack(a, modes, how)
	t.redraw()
	t.sweep(p.Process, patience)
	a.Gone()
}

// standBack brings the terminal's own program back in front after all output of
// a, and gives control back.
func (t *Terminal) standBack(a *arbiter.Agent, modes screen.Modes, how pty.Exit) {
	t.view.mu.Lock()
	defer t.view.mu.Unlock()
	t.view.display.HandOver(t.own.out, modes)
	t.beginAnewIfDue(time.Now())
	t.arbiter.StandBack(a, how, t.shown())
}

// redraw has the program that is back in front draw its screen again.
func (t *Terminal) redraw() {
	wait := time.NewTimer(redrawAfter)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-t.life.killing.c:
	}
	t.arbiter.Redraw()
}

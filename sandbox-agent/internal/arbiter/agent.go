package arbiter

import (
	"context"
	"errors"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/grantlist"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
	"github.com/fairlead/fairlead/sandbox-agent/internal/pty"
)

// Exited closes Done.
func (a *Agent) Exited() { close(a.exited) }

// Gone notes that nothing of the agent is left. It follows [Arbiter.StandBack].
func (a *Agent) Gone() {
	a.arbiter.mu.Lock()
	how := a.how
	a.arbiter.mu.Unlock()
	close(a.gone)
	a.arbiter.o.Log.Info("coding agent ended", "name", a.name, "code", how.Code, "signal", how.Signal)
}

// FirstPromptAfter is how long a coding agent that was started by its name alone
// counts as running unless its hooks say something: it has nothing to do before
// somebody tells it, and what it asks first, say for a sign-in, no hook knows of.
const FirstPromptAfter = 5 * time.Second

var errNoAgent = protocol.Errorf(protocol.KindNotFound, "no coding agent is in front of the terminal")

// Agent returns the last coding agent. It fails with KindNotFound when there never
// was one.
func (b *Arbiter) Agent() (*Agent, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stage.agent == nil {
		return nil, errNoAgent
	}
	return b.stage.agent, nil
}

// Report returns how the agent stands.
func (a *Agent) Report() protocol.AgentReport {
	a.arbiter.mu.Lock()
	defer a.arbiter.mu.Unlock()
	return a.report()
}

// noneLeft is the error of a change that came too late.
func noneLeft(r protocol.AgentReport) error {
	if r.State == protocol.AgentStopped {
		return errNoAgent
	}
	return nil
}

// Pause stops the agent and everything it started, and gives control back unless
// it waits and nobody has lost it. Of a paused one nothing changes. It fails with
// KindNotFound when the agent has ended, and with KindUnavailable when something
// of it can't be stopped: then it goes on.
func (a *Agent) Pause() (protocol.AgentReport, error) {
	a.steering.Lock()
	defer a.steering.Unlock()
	if r := a.Report(); r.State != protocol.AgentRunning && r.State != protocol.AgentWaiting {
		return r, noneLeft(r)
	}
	if err := a.Process.Freeze(true); err != nil {
		return a.Report(), protocol.Fault(protocol.KindUnavailable, errors.Join(err, a.Process.Freeze(false)))
	}
	r := a.pause()
	return r, noneLeft(r)
}

// Resume lets a paused agent go on as what it was, and takes control for one that
// works. Of one that isn't paused nothing changes. It fails with KindNotFound when
// the agent has ended.
func (a *Agent) Resume() (protocol.AgentReport, error) {
	a.steering.Lock()
	defer a.steering.Unlock()
	r, resumed := a.resume()
	if resumed {
		if err := a.Process.Freeze(false); err != nil {
			return r, protocol.Fault(protocol.KindUnavailable, err)
		}
	}
	return r, noneLeft(r)
}

// Stop ends the agent as [process.Stop] does, and returns when nothing of it is
// left. Until then humans are refused as while it runs. When ctx ends first, the
// agent is killed at once.
func (a *Agent) Stop(ctx context.Context) (protocol.AgentReport, error) {
	a.steering.Lock()
	defer a.steering.Unlock()
	paused := a.stop()
	if err := process.Stop(ctx, a, paused); err != nil {
		return a.Report(), protocol.Fault(protocol.KindUnavailable, err)
	}
	<-a.gone
	return a.Report(), nil
}

// Stopping reports whether the agent is being stopped.
func (a *Agent) Stopping() bool {
	a.arbiter.mu.Lock()
	defer a.arbiter.mu.Unlock()
	return a.stopping
}

// pause notes that a was stopped, unless it has ended meanwhile.
func (a *Agent) pause() protocol.AgentReport {
	a.arbiter.mu.Lock()
	defer a.arbiter.mu.Unlock()
	switch was := a.is; was {
	case protocol.AgentRunning, protocol.AgentWaiting:
		a.is, a.resumes = protocol.AgentPaused, was
		a.announce()
		if was == protocol.AgentRunning {
			a.yield()
		}
	}
	return a.report()
}

// resume has a, if it is paused, be what it was, takes control for it if
// that was running, and reports whether it was paused.
func (a *Agent) resume() (protocol.AgentReport, bool) {
	a.arbiter.mu.Lock()
	defer a.arbiter.mu.Unlock()
	paused := a.is == protocol.AgentPaused
	switch {
	case paused && a.resumes == protocol.AgentWaiting:
		a.is = protocol.AgentWaiting
		a.announce()
	case paused:
		a.takeOver()
	}
	return a.report(), paused
}

// stop notes that a is to end, and reports whether it is paused. From here
// on it is locked as a running one is: what humans typed doesn't reach it.
func (a *Agent) stop() (paused bool) {
	a.arbiter.mu.Lock()
	defer a.arbiter.mu.Unlock()
	a.stopping = true
	a.arbiter.refuseStale()
	return a.is == protocol.AgentPaused
}

// takeOver lets a run and takes control for it, whoever has it: a clean cut, as
// every change of control is. The caller holds mu.
func (a *Agent) takeOver() {
	b := a.arbiter
	if a.before = b.control.grant; b.control.isLent() {
		a.before = nil
	}
	a.is = protocol.AgentRunning
	a.announce()
	b.assign(protocol.LeaseNext{Holder: protocol.AgentHolder}, nil)
	b.leaseChanged(nil, 0)
}

// yield gives control back to the human who had it, if they are present and
// still may have it, else to nobody. The caller holds mu.
func (a *Agent) yield() {
	b := a.arbiter
	next := protocol.LeaseNext{}
	g := a.before
	if g != nil && b.streams.sockets(g.Subject) > 0 {
		if now := time.Now(); grantlist.Over(g, now) {
			g = b.streams.grantOf(&b.o, g.Subject, now)
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

// announce tells everybody how the agent stands. The caller holds mu.
func (a *Agent) announce() { a.arbiter.streams.tell(a.report()) }

// ReserveAgent takes the place of the one coding agent. BringForward or
// GiveUpAgent must follow. It fails with KindEnded when the program has ended,
// and with KindConflict while another agent is there.
func (b *Arbiter) ReserveAgent() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.ended.IsZero() || b.stage.leaving:
		return errEnded
	case b.stage.starting || b.stage.state() != protocol.AgentStopped:
		return protocol.Errorf(protocol.KindConflict, "a coding agent is in front of the terminal already")
	}
	b.stage.starting = true
	return nil
}

// GiveUpAgent frees the place that ReserveAgent took.
func (b *Arbiter) GiveUpAgent() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stage.starting = false
	b.Poke() // the terminal may wait for it to end
}

// An Arrival is a coding agent that was started and comes to the front.
type Arrival struct {
	Name       string // shown to viewers
	CLI        string // of a known coding agent; "": of none
	Idle       bool   // it has nothing to do before somebody tells it
	Cols, Rows int    // that it was started with
}

// BringForward has p, a coding agent whose place is reserved, get the input and
// control. Its output is seen already, by a display that stands as shown says.
// BringForward also returns how the agent stands.
func (b *Arbiter) BringForward(p *Program, as Arrival, shown Shown) (*Agent, protocol.AgentReport) {
	a := &Agent{
		Program: p, arbiter: b, name: as.Name, cli: as.CLI,
		exited: make(chan struct{}), gone: make(chan struct{}),
	}
	if as.Idle {
		a.promptBy = time.Now().Add(FirstPromptAfter)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stage.starting, b.stage.agent = false, a
	b.putInFront(p, shown)
	if cols, rows := b.o.Transcript.Size(); cols != as.Cols || rows != as.Rows {
		p.resize(cols, rows, b.o.Log)
	}
	a.takeOver()
	b.Poke() // for its first prompt
	b.o.Log.Info("coding agent started", "name", a.name)
	return a, a.report()
}

// StandBack notes that a has ended, how, and brings the terminal's own program
// back in front, whose output is seen already, by a display that stands as shown
// says. Control goes back to who had it. [Arbiter.Redraw] follows.
func (b *Arbiter) StandBack(a *Agent, how pty.Exit, shown Shown) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := a.is
	a.is, a.how = protocol.AgentStopped, how
	b.refuseAll() // what humans typed at it while it was paused
	b.putInFront(b.own, shown)
	cols, rows := b.o.Transcript.Size()
	b.own.resize(cols, max(rows-1, protocol.MinRows), b.o.Log) // Redraw follows
	a.announce()
	if was == protocol.AgentRunning {
		a.yield()
	} else {
		b.renewTerm()
	}
	b.pump()
	b.Poke() // the terminal's own program may have ended meanwhile
}

// Redraw has the terminal's own program, if it is in front, draw its screen
// again, a moment after StandBack. Of SIGWINCH alone some take no notice: the
// size must differ from what they knew, so StandBack gave it another.
func (b *Arbiter) Redraw() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stage.front == b.own && !b.stage.leaving {
		cols, rows := b.o.Transcript.Size()
		b.own.resize(cols, rows, b.o.Log)
	}
}

// putInFront has p get the input, too, whose output is seen already. The caller
// holds mu.
func (b *Arbiter) putInFront(p *Program, shown Shown) {
	b.stage.front = p
	b.shows(shown, false)
	b.flow.paced(p)
}

// Front returns the program in front, and whether that is a paused coding agent.
func (b *Arbiter) Front() (p *Program, paused bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stage.front, b.stage.state() == protocol.AgentPaused
}

// Leave reports whether the terminal's own program, which has ended, is in front,
// and lets no more agents come.
func (b *Arbiter) Leave() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stage.leaving = true
	return !b.stage.starting && b.stage.front == b.own
}

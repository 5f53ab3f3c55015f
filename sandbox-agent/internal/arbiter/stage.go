package arbiter

import (
	"sync"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/pty"
)

// A stage is what runs in a terminal: its own program, and perhaps a coding
// agent in front of it. The arbiter's mu guards it.
//
// The agent has a PTY of its own, and with that the terminal: its output is what
// is seen, and it gets all input. The program behind goes on until it prints
// more than its PTY holds. If it ends, the terminal stays until the agent has
// ended, too.
type stage struct {
	front    *Program // whose output is seen and who gets input
	agent    *Agent   // the last one; nil: there never was one
	starting bool     // another one is about to come
	leaving  bool     // the terminal's own program has ended: no more agents
}

// An Agent is a coding agent that is in front of a terminal's own program, or
// was.
type Agent struct {
	// Static after construction.
	*Program
	arbiter *Arbiter
	name    string        // shown to viewers
	cli     string        // of a known coding agent; "": of none
	exited  chan struct{} // closed when the program itself has ended
	gone    chan struct{} // closed when nothing of it is left

	steering sync.Mutex // held while it is paused, resumed or stopped

	// Guarded by Arbiter.mu.
	is       protocol.AgentState
	resumes  protocol.AgentState // what it is when it is paused no more: running or waiting
	prompted bool                // it has begun a turn
	promptBy time.Time           // it waits for its first prompt from then on; zero: who knows
	how      pty.Exit            // it ended
	stopping bool                // it is being stopped
	before   *jws.Grant          // of the human who gets control back; nil: nobody does
}

// Signal and Done are what [process.Stop] needs.
func (a *Agent) Signal(sig syscall.Signal) int { return a.Process.SignalAll(sig) }

// Done is closed when the program itself has ended.
func (a *Agent) Done() <-chan struct{} { return a.exited }

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

// report returns how the agent stands. The caller holds Arbiter.mu.
func (a *Agent) report() protocol.AgentReport {
	r := protocol.AgentReport{State: a.is, Name: a.name}
	if a.is == protocol.AgentStopped {
		if r.Signal = a.how.Signal; r.Signal == "" {
			r.ExitCode = &a.how.Code
		}
	}
	return r
}

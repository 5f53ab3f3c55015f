// Package turn is turn-taking on one terminal as a pure function: it turns
// events from viewers and the agent into proposals to the agent and messages to
// viewers. The agent's lease decides; nothing is announced before the agent has
// confirmed it.
//
// The rules are those of seed 001, and three more. Control of a new terminal
// goes to its creator. A viewer who asks, or types, gets a free terminal at
// once; otherwise whoever asks waits in line until the controller hands over.
// The session's owner takes control back from anybody, and a controller whom
// the agent calls idle, having typed nothing for some time, yields to the first
// in line. Otherwise nobody in line advances without the controller, not even
// after the grace, for then "control becomes available (no controller)":
// whoever asks next gets it, in line or not. A user is present while one of
// their sockets may control. Only presence ends or averts the grace, which the
// agent times.
//
// A coding agent in the terminal makes no request: the agent gives it the
// lease, and takes it back when its turn is over, it is paused or ends. While
// it has the lease or runs, nobody types, takes, hands over or gives back;
// while it waits for a prompt, the usual rules hold. The line stays, and the
// next controller sees it. A program that types for a tool briefly has the
// lease in the same way.
//
// The line, and the viewers to whom control can be handed, are this relay's
// own. It learns of events at another relay only by the lease.
package turn

import (
	"slices"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// maxQueued bounds the requests that wait while a proposal is in progress.
	// Beyond it viewers are told to slow down.
	maxQueued = 64
	// maxRequests bounds the line for control, so that a control_state stays
	// small.
	maxRequests = 64
	// maxTries bounds how often one intent is proposed again because the lease
	// changed meanwhile.
	maxTries = 8
)

// A State is one relay's view of the control of a terminal. It is a value:
// [Step] returns a new one and leaves its argument unchanged.
type State struct {
	creator  protocol.UserID
	claimed  bool // a person has had control
	attached bool // there is a stream to the agent
	lease    protocol.Lease
	coding   protocol.AgentStateMessage // the coding agent's state
	people   people
	requests []protocol.UserID // in line for control

	underway intent // the intent of the present proposal; none if proposal.ID is 0
	proposal protocol.LeaseProposal
	lastID   uint64   // of a proposal
	queue    []intent // intents that wait for the answer: at most maxQueued, plus those that go first
}

// New returns the state of a terminal whose first stream was just opened: the
// content of OPENED, without viewers.
func New(opened protocol.TerminalOpened) State {
	return State{attached: true}.following(opened)
}

// following returns s with the content of OPENED.
func (s State) following(opened protocol.TerminalOpened) State {
	s.creator, s.lease, s.coding = opened.Creator, opened.Lease, codingOf(opened.Agent)
	s.claimed = opened.Claimed || human(opened.Lease.Holder)
	return s
}

// codingOf returns what viewers are told of a coding agent; nil: none.
func codingOf(r *protocol.AgentReport) protocol.AgentStateMessage {
	if r == nil {
		return protocol.AgentStateMessage{AgentState: protocol.AgentStopped}
	}
	return protocol.AgentStateMessage{AgentState: r.State, Agent: r.Name}
}

// human reports whether a lease's holder is a user.
func human(holder protocol.UserID) bool { return holder != "" && holder != protocol.AgentHolder }

// StateFor returns the full control_state for one viewer. Its grace is the rest
// at the time of the agent's report; see [State.Revision].
func (s State) StateFor(id SocketID) protocol.ControlState {
	v, _ := s.people.socket(id)
	return protocol.ControlState{
		Controller: s.lease.Holder, Requests: s.requests, Term: s.lease.Term, GraceMS: s.lease.MSLeft,
		AgentState: string(s.coding.AgentState), Agent: s.coding.Agent, You: v.user, CanControl: v.canControl,
		CanTakeBack: v.canControl && v.owns,
	}
}

// Controller returns who has control, "" when nobody has.
func (s State) Controller() protocol.UserID { return s.lease.Holder }

// Revision returns the lease's revision. It changes with each new [Leased].
func (s State) Revision() uint64 { return s.lease.Revision }

// Undecided counts a viewer's requests to hand over or give back control that
// are neither done nor refused. They are decided in order.
func (s State) Undecided(id SocketID) (n int) {
	if s.proposal.ID != 0 && s.underway.yieldsOf(id) {
		n++
	}
	for _, w := range s.queue {
		if w.yieldsOf(id) {
			n++
		}
	}
	return n
}

// Free reports whether the first key of a viewer who may control takes the
// terminal.
func (s State) Free() bool { return s.attached && s.lease.Holder == "" && !s.Locked() }

// MayControl reports whether a viewer could have control.
func (s State) MayControl(id SocketID) bool {
	v, _ := s.people.socket(id)
	return v.canControl
}

// Taking reports whether a viewer's key that takes the terminal is still
// undecided.
func (s State) Taking(id SocketID) bool {
	takes := func(w intent) bool { return w.kind == key && w.socket == id }
	return s.proposal.ID != 0 && takes(s.underway) || slices.ContainsFunc(s.queue, takes)
}

// Term returns the term under which the controller types.
func (s State) Term() uint64 { return s.lease.Term }

// Locked reports whether a coding agent has the terminal to itself.
func (s State) Locked() bool {
	return s.coding.AgentState == protocol.AgentRunning || s.lease.Holder == protocol.AgentHolder
}

// torn reports whether the agent has reported a started or ended coding agent,
// but not yet the lease that follows from it.
func (s State) torn() bool {
	return (s.coding.AgentState == protocol.AgentRunning) != (s.lease.Holder == protocol.AgentHolder)
}

// MayType reports whether input typed into a socket under term may be passed
// on, and if not, why.
func (s State) MayType(id SocketID, term uint64) (protocol.RefusalReason, bool) {
	v, _ := s.people.socket(id)
	switch {
	case v.canControl && s.Locked():
		return protocol.RefusedAgentRunning, false
	case term != s.lease.Term:
		return protocol.RefusedStaleTerm, false
	case !v.canControl || v.user != s.lease.Holder:
		return protocol.RefusedNotController, false
	}
	return "", true
}

// agentHas says that a coding agent, or a program, has control.
func (s *State) agentHas() string {
	if s.coding.AgentState != protocol.AgentRunning && s.lease.Holder == protocol.AgentHolder {
		return "a program of the sandbox has control for a moment"
	}
	name := s.coding.Agent
	if name == "" {
		name = "a coding agent"
	}
	return name + " has control until its turn is over, or it is paused"
}

// claimable reports whether the creator may claim control now.
func (s *State) claimable() bool {
	_, n := s.people.controlling(s.creator)
	return s.attached && !s.claimed && s.lease.Holder == "" && !s.Locked() && n > 0
}

// outlived reports whether the lease's grant has no socket left, though its
// holder has others.
func (s *State) outlived() bool {
	_, n := s.people.controlling(s.lease.Holder)
	return n > 0 && !slices.ContainsFunc(s.people.of(s.lease.Holder), func(v socket) bool {
		return v.canControl && v.grant == s.lease.GrantID
	})
}

// Package turn is turn-taking on one terminal as a pure function: it turns what
// viewers and the agent say into proposals to the agent and messages to
// viewers. The agent's lease decides; nothing is announced before the agent
// has confirmed it.
//
// The rules are those of seed 001, and three more. Control of a new terminal goes
// to its creator. A viewer who asks gets a free terminal at once, as does one who
// types, and otherwise waits in line until the controller hands over. Who owns
// the session takes control back from anybody, and a controller who has typed
// nothing for so long that the agent calls them idle yields to the first in line.
// Beside that nobody moves up by themselves, not even when the grace is over, for
// then "control becomes available (no controller)": whoever asks next has it, in
// line or not. A user counts as present while a
// socket of theirs may control, and only presence ends or averts the grace,
// which the agent times.
//
// A coding agent in the terminal needs no request: the agent gives it the lease
// and takes it back when its turn is over, it is paused or ends. While it has the
// lease or runs, nobody types, takes, hands over or gives back; while it waits
// for a prompt, everything is as without it. The line stays, and whoever has
// control afterwards sees it. A program that types for a tool has the lease in
// the same way, for a moment.
//
// The line is this relay's own, as are the viewers to whom control can be handed
// over. Of what happens at another relay this one learns by the lease alone.
package turn

import (
	"cmp"
	"slices"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// maxQueued bounds what viewers ask for while a proposal is under way.
	// Beyond it they are told to slow down.
	maxQueued = 64
	// maxRequests bounds the users in line for control, so that a
	// control_state stays small.
	maxRequests = 64
	// maxTries bounds how often one wish is proposed anew because the lease
	// changed meanwhile.
	maxTries = 8
)

// A State is how control of one terminal stands, as one relay knows it. It is a
// value: [Step] returns another one and leaves its argument as it was.
type State struct {
	creator  protocol.UserID
	claimed  bool // somebody has had control
	attached bool // there is a stream to the agent
	lease    protocol.Lease
	coding   protocol.AgentStateMessage // how the coding agent stands
	sockets  []socket                   // by id
	requests []protocol.UserID          // in line for control

	underway wish // proposed to the agent; none when proposal.ID is 0
	proposal protocol.LeaseProposal
	lastID   uint64 // of a proposal
	queue    []wish // wait for the answer: maxQueued at most, and what goes first
}

type socket struct {
	id         SocketID
	user       protocol.UserID
	name       string
	grant      protocol.GrantID
	canControl bool
	owns       bool
}

// New returns the state of a terminal whose stream to the agent was just
// opened: what OPENED said, and no viewers.
func New(opened protocol.TerminalOpened) State {
	return State{attached: true}.following(opened)
}

// following returns s with what OPENED says of the terminal.
func (s State) following(opened protocol.TerminalOpened) State {
	s.creator, s.lease, s.coding = opened.Creator, opened.Lease, codingOf(opened.Agent)
	s.claimed = opened.Claimed || human(opened.Lease.Holder)
	return s
}

// codingOf returns what to tell viewers of a coding agent; nil is none.
func codingOf(r *protocol.AgentReport) protocol.AgentStateMessage {
	if r == nil {
		return protocol.AgentStateMessage{AgentState: protocol.AgentStopped}
	}
	return protocol.AgentStateMessage{AgentState: r.State, Agent: r.Name}
}

// human reports whether a lease's holder is a user.
func human(holder protocol.UserID) bool { return holder != "" && holder != protocol.AgentHolder }

// StateFor returns the full control_state for one viewer. Its grace is what was
// left when the agent said that the lease is as it is; see [State.Revision].
func (s State) StateFor(id SocketID) protocol.ControlState {
	v, _ := s.socket(id)
	return protocol.ControlState{
		Controller: s.lease.Holder, Requests: s.requests, Term: s.lease.Term, GraceMS: s.lease.MSLeft,
		AgentState: string(s.coding.AgentState), Agent: s.coding.Agent, You: v.user, CanControl: v.canControl,
		CanTakeBack: v.canControl && v.owns,
	}
}

// Controller returns who has control, "" when nobody has.
func (s State) Controller() protocol.UserID { return s.lease.Holder }

// Revision returns the revision of the lease. It changes with each [Leased] that
// is news.
func (s State) Revision() uint64 { return s.lease.Revision }

// Undecided counts a viewer's wishes to hand control over or to give it back
// that are neither done nor refused. They are decided in the order in which they
// came.
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
	v, _ := s.socket(id)
	return v.canControl
}

// Taking reports whether it isn't decided yet if a viewer's key takes the
// terminal.
func (s State) Taking(id SocketID) bool {
	takes := func(w wish) bool { return w.kind == key && w.socket == id }
	return s.proposal.ID != 0 && takes(s.underway) || slices.ContainsFunc(s.queue, takes)
}

// Term returns the term under which the controller types.
func (s State) Term() uint64 { return s.lease.Term }

// Locked reports whether a coding agent has the terminal to itself.
func (s State) Locked() bool {
	return s.coding.AgentState == protocol.AgentRunning || s.lease.Holder == protocol.AgentHolder
}

// torn reports whether the agent has said that a coding agent runs, or doesn't
// any more, and is about to say who has control for that.
func (s State) torn() bool {
	return (s.coding.AgentState == protocol.AgentRunning) != (s.lease.Holder == protocol.AgentHolder)
}

// MayType reports whether what was typed into a socket under term may be passed
// on, and if not, why.
func (s State) MayType(id SocketID, term uint64) (protocol.RefusalReason, bool) {
	v, _ := s.socket(id)
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

// find returns where the socket is among the others, or belongs.
func (s *State) find(id SocketID) (int, bool) {
	return slices.BinarySearchFunc(s.sockets, id, func(v socket, id SocketID) int { return cmp.Compare(v.id, id) })
}

func (s *State) socket(id SocketID) (socket, bool) {
	i, ok := s.find(id)
	if !ok {
		return socket{}, false
	}
	return s.sockets[i], true
}

// controlling counts the sockets with which user may control, and returns the
// last that came.
func (s *State) controlling(user protocol.UserID) (last socket, n int) {
	for _, v := range s.sockets {
		if v.user == user && v.canControl {
			last = v
			n++
		}
	}
	return last, n
}

func (s *State) connected(user protocol.UserID) bool {
	return slices.ContainsFunc(s.sockets, func(v socket) bool { return v.user == user })
}

// agentHas says in a message that a coding agent has control, or a program.
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

// nameOf returns what to call a user in a message.
func (s *State) nameOf(user protocol.UserID) string {
	for _, v := range s.sockets {
		if v.user == user && v.name != "" {
			return v.name
		}
	}
	return "somebody else"
}

// claimable reports whether control goes to the creator now.
func (s *State) claimable() bool {
	_, n := s.controlling(s.creator)
	return s.attached && !s.claimed && s.lease.Holder == "" && !s.Locked() && n > 0
}

// outlived reports whether the lease is under a grant that no socket of its
// holder has, though the holder has others.
func (s *State) outlived() bool {
	_, n := s.controlling(s.lease.Holder)
	return n > 0 && !slices.ContainsFunc(s.sockets, func(v socket) bool {
		return v.user == s.lease.Holder && v.canControl && v.grant == s.lease.GrantID
	})
}

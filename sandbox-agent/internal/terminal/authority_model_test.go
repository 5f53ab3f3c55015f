package terminal

import (
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/fairlead/fairlead/protocol"
)

// The model of TestAuthorityIsLinearizable: who may type into one terminal,
// written as one comparable value and one function.

const (
	modelUsers   = 3 // people, from 1; 0 is nobody
	modelAgent   = modelUsers + 1
	modelClients = 5
)

// An authorityOp is one call that a client, which is a relay, makes.
type authorityOp struct {
	terminal int
	kind     authorityOpKind
	client   int
	user     int    // proposed, reported or revoked
	expect   uint64 // revision, of a proposal
	term     uint64 // of input
	sockets  int
	now      time.Duration // since the start: all calls of a round have the same
}

type authorityOpKind uint8

const (
	opPropose authorityOpKind = iota
	opSockets
	opRevoke
	opType
	opPause
	opResume
	opTurn  // the coding agent's is over
	opStart // it begins another one
	opLook
	opPrint
	clientOps
	opRound // time passes, and everybody gets a new grant
)

// An authorityResult is what a call returned.
type authorityResult struct {
	lease   leaseView // of opPropose and opLook
	refused protocol.RefusalReason
	at      int // where input or output went
}

// A leaseView is what the model says of a lease.
type leaseView struct {
	revision, term uint64
	user, round    int // who, and of which round their grant is
	state          protocol.LeaseState
	left           time.Duration
}

// authority is the model's state.
type authority struct {
	revision, term uint64
	user           int           // who has control, modelAgent for the coding agent
	round          int           // of the grant under which they have it
	leftAt         time.Duration // when their last socket went, −1: they are there
	running        bool          // the coding agent
	paused         bool          // it
	waits          bool          // it, when it is resumed
	before         int           // who gets control back from it
	beforeRound    int
	rounds         int // how many grants there were
	revoked        [modelUsers + 1]bool
	sockets        [modelClients][modelUsers + 1]int
	typed, printed int
}

// newAuthority is a terminal whose coding agent was started and paused.
var newAuthority = authority{revision: 2, term: 1, leftAt: -1, paused: true}

// refusedConflict stands for every refusal of a proposal but that of the soft
// lock, whose texts don't matter.
const refusedConflict protocol.RefusalReason = "conflict"

func (m *authority) present(user int) (n int) {
	for client := range m.sockets {
		n += m.sockets[client][user]
	}
	return n
}

func (m *authority) graceOver(now time.Duration) bool {
	return m.user != 0 && m.leftAt >= 0 && now-m.leftAt >= protocol.ControlGrace
}

func (m *authority) view(now time.Duration) leaseView {
	v := leaseView{revision: m.revision, term: m.term, user: m.user, round: m.round, state: protocol.LeaseHeld}
	switch {
	case m.user == 0:
		v.state = protocol.LeaseFree
	case m.leftAt >= 0:
		v.state, v.left = protocol.LeaseGrace, protocol.ControlGrace-(now-m.leftAt)
	}
	return v
}

// to gives control to user, 0 for nobody.
func (m *authority) to(user, round int) {
	m.revision++
	if m.user, m.round, m.leftAt = user, round, -1; user != 0 {
		m.term++
	}
}

// step returns the state after o, and what o must have returned.
func (m authority) step(o authorityOp) (authority, authorityResult) {
	var r authorityResult
	switch o.kind {
	case opPropose:
		r.refused = m.propose(o)
		r.lease = m.view(o.now)
	case opSockets:
		m.sockets[o.client][o.user] = o.sockets
		m.count(o.user, o.now)
	case opRevoke:
		m.revoked[o.user] = true
		if m.user == o.user && m.round == m.rounds {
			m.to(0, 0)
		}
		if m.before == o.user && m.beforeRound == m.rounds {
			m.before, m.beforeRound = 0, 0
		}
	case opType:
		if r.refused = m.mayType(o.term); r.refused == "" {
			r.at = m.typed
			m.typed++
		}
	case opPause:
		if !m.paused {
			m.paused, m.waits = true, !m.running
			m.yield()
		}
	case opResume:
		if m.paused {
			if m.paused = false; !m.waits {
				m.takeOver()
			}
		}
	case opTurn:
		m.waits = m.waits || m.paused
		m.yield()
	case opStart:
		if m.waits = m.waits && !m.paused; !m.paused && !m.running {
			m.takeOver()
		}
	case opLook:
		r.lease, r.at = m.view(o.now), m.printed
	case opPrint:
		r.at = m.printed
		m.printed++
	case opRound:
		if m.graceOver(o.now) {
			m.to(0, 0)
		}
		m.rounds++
		m.revoked = [modelUsers + 1]bool{}
	}
	return m, r
}

func (m *authority) propose(o authorityOp) protocol.RefusalReason {
	switch {
	case m.running:
		return protocol.RefusedAgentRunning
	case m.revoked[o.user], o.expect != m.revision:
		return refusedConflict
	case o.user == 0 && m.user == 0:
	case o.user == 0:
		m.to(0, 0)
	case o.user != m.user:
		m.to(o.user, m.rounds)
	default:
		if m.round != m.rounds {
			m.round = m.rounds
			m.revision++
		}
		if m.leftAt >= 0 {
			m.leftAt = -1
			m.revision++
		}
	}
	if o.user != 0 && m.sockets[o.client][o.user] == 0 {
		m.sockets[o.client][o.user] = 1
	}
	return ""
}

// count begins or ends the grace.
func (m *authority) count(user int, now time.Duration) {
	here := m.present(user) > 0
	if user != m.user || here == (m.leftAt < 0) {
		return
	}
	if m.leftAt = now; here {
		m.leftAt = -1
	}
	m.revision++
}

func (m *authority) mayType(term uint64) protocol.RefusalReason {
	switch {
	case m.running:
		return protocol.RefusedAgentRunning
	case m.user == 0:
		return protocol.RefusedNotController
	case term != m.term:
		return protocol.RefusedStaleTerm
	}
	return ""
}

// takeOver has the coding agent work.
func (m *authority) takeOver() {
	m.running, m.before, m.beforeRound = true, m.user, m.round
	m.to(modelAgent, 0)
}

// yield has it do so no longer.
func (m *authority) yield() {
	if !m.running {
		return
	}
	user, round := m.before, m.beforeRound
	if m.present(user) == 0 {
		user, round = 0, 0
	}
	m.running, m.before, m.beforeRound = false, 0, 0
	m.to(user, round)
}

var authorityModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		var parts [][]porcupine.Operation
		for _, operation := range history {
			n := operation.Input.(authorityOp).terminal
			for len(parts) <= n {
				parts = append(parts, nil)
			}
			parts[n] = append(parts[n], operation)
		}
		return parts
	},
	Init: func() any { return newAuthority },
	Step: func(state, input, output any) (bool, any) {
		next, want := state.(authority).step(input.(authorityOp))
		return output.(authorityResult) == want, next
	},
}

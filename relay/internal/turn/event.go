package turn

import "github.com/fairlead/fairlead/protocol"

// A SocketID names one viewer's socket at this relay.
type SocketID uint64

// An Event is something that happened: one of the types below.
type Event interface{ event() }

type (
	// Joined: a viewer has joined. One user may have several sockets.
	Joined struct {
		Socket     SocketID
		User       protocol.UserID
		Name       string
		GrantID    protocol.GrantID
		CanControl bool
		Owns       bool // the session: it may take control back
	}
	// Left: a viewer's socket has ended.
	Left struct{ Socket SocketID }
	// Renewed: a viewer uses another grant.
	Renewed struct {
		Socket     SocketID
		GrantID    protocol.GrantID
		CanControl bool
		Owns       bool
	}
	// Succeeded: another grant replaces one for all its viewers.
	Succeeded struct{ From, To protocol.GrantID }

	// Requested: a viewer wants control, now or later.
	Requested struct{ Socket SocketID }
	// Taken: a viewer wants control if nobody has it.
	Taken struct{ Socket SocketID }
	// TakenBack: a viewer wants control, even if somebody has it.
	TakenBack struct{ Socket SocketID }
	// Keyed: a viewer has typed while nobody had control. The only answer is the
	// fate of its input; see [State.Taking].
	Keyed struct{ Socket SocketID }
	// Cancelled: a viewer no longer wants control.
	Cancelled struct{ Socket SocketID }
	// Granted: a viewer hands control over.
	Granted struct {
		Socket SocketID
		To     protocol.UserID
	}
	// Revoked: a viewer gives control back.
	Revoked struct{ Socket SocketID }

	// Leased is the agent's report of the lease.
	Leased struct{ protocol.Leased }
	// Reported is the agent's report of the coding agent in the terminal.
	Reported struct{ protocol.AgentReport }
	// Detached: the stream to the agent has ended.
	Detached struct{}
	// Reattached: there is a new stream to the agent.
	Reattached struct{ Opened protocol.TerminalOpened }
)

func (Joined) event()     {}
func (Left) event()       {}
func (Renewed) event()    {}
func (Succeeded) event()  {}
func (Requested) event()  {}
func (Taken) event()      {}
func (TakenBack) event()  {}
func (Keyed) event()      {}
func (Cancelled) event()  {}
func (Granted) event()    {}
func (Revoked) event()    {}
func (Leased) event()     {}
func (Reported) event()   {}
func (Detached) event()   {}
func (Reattached) event() {}

// An Effect is something to do: one of the types below, in order.
type Effect interface{ effect() }

type (
	// Propose asks the agent to change the lease.
	Propose struct{ Proposal protocol.LeaseProposal }
	// ReportHolder tells the agent how many sockets a user has.
	ReportHolder struct{ Holder protocol.Holder }
	// Greet: send the socket its first messages. Each socket is greeted once,
	// usually at once, and gets no broadcast before.
	Greet struct{ Socket SocketID }
	// Broadcast goes to all greeted sockets.
	Broadcast struct{ Message protocol.ServerMessage }
	// Send goes to one socket.
	Send struct {
		Socket  SocketID
		Message protocol.ServerMessage
	}
	// SendState: send [State.StateFor] to one socket.
	SendState struct{ Socket SocketID }
	// StateChanged: send [State.StateFor] to all greeted sockets.
	StateChanged struct{}
)

func (Propose) effect()      {}
func (ReportHolder) effect() {}
func (Greet) effect()        {}
func (Broadcast) effect()    {}
func (Send) effect()         {}
func (SendState) effect()    {}
func (StateChanged) effect() {}

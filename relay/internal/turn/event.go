package turn

import "github.com/fairlead/fairlead/protocol"

// A SocketID names one viewer's socket at this relay.
type SocketID uint64

// An Event is something that happened: one of the types below.
type Event interface{ event() }

type (
	// Joined: a viewer is there. Several sockets may be one user's.
	Joined struct {
		Socket     SocketID
		User       protocol.UserID
		Name       string
		GrantID    protocol.GrantID
		CanControl bool
		Owns       bool // the session: it may take control back
	}
	// Left: a viewer's socket is gone.
	Left struct{ Socket SocketID }
	// Renewed: a viewer lives under another grant.
	Renewed struct {
		Socket     SocketID
		GrantID    protocol.GrantID
		CanControl bool
		Owns       bool
	}
	// Succeeded: another grant stands for all viewers for whom one did.
	Succeeded struct{ From, To protocol.GrantID }

	// Requested: a viewer wants control, now or later.
	Requested struct{ Socket SocketID }
	// Taken: a viewer wants control, if nobody has it.
	Taken struct{ Socket SocketID }
	// TakenBack: a viewer wants control, whoever has it.
	TakenBack struct{ Socket SocketID }
	// Keyed: a viewer has typed at a terminal that nobody had control of. It gets
	// no answer beyond what becomes of its input; see [State.Taking].
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

	// Leased is the agent's word on the lease.
	Leased struct{ protocol.Leased }
	// Reported is the agent's word on the coding agent in the terminal.
	Reported struct{ protocol.AgentReport }
	// Detached: the stream to the agent is gone.
	Detached struct{}
	// Reattached: there is another stream to the agent.
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
	// ReportHolder tells the agent whether a user is present.
	ReportHolder struct{ Holder protocol.Holder }
	// Greet: the socket may now be sent its first messages. Each socket that
	// stays is greeted, most at once, and none is sent broadcasts before.
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

package chathub

import (
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/chatsocket"
	"github.com/fairlead/fairlead/relay/internal/roster"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

// Who may send, by the rules of package turn, and what sockets are told of it.
// Owned by the hub's run. A conversation has no creator who claims it, and no
// coding agent that types: its lease says whose messages the agent takes.

// step feeds one event to the turn-taking rules and executes their effects. What
// they would tell a terminal's viewers is told here by control_state alone.
func (h *hub) step(e turn.Event) {
	var effects []turn.Effect
	revision := h.control.Revision()
	h.control, effects = turn.Step(h.control, e)
	if _, again := e.(turn.Reattached); again || h.control.Revision() != revision {
		h.leasedAt = time.Now()
	}
	for _, effect := range effects {
		switch effect := effect.(type) {
		case turn.Propose:
			h.carry(h.roster.Hurry(effect.Proposal.Next.GrantID))
			h.send(effect.Proposal)
		case turn.ReportHolder:
			h.send(effect.Holder)
		case turn.Send:
			if f := h.members[effect.Socket]; f != nil {
				h.tellRefusal(f, effect.Message)
			}
		case turn.SendState:
			if f := h.members[effect.Socket]; f != nil && h.heeds(f) {
				f.socket.queue.tell(frameOf(h.controlFor(f)), maxOwn)
			}
		case turn.StateChanged:
			for _, f := range h.members {
				if h.heeds(f) {
					f.socket.queue.tell(frameOf(h.controlFor(f)), maxOwn)
				}
			}
		}
	}
}

// revoke gives the conversation back. The session's owner takes it from whoever
// has it.
func (h *hub) revoke(f *follower) {
	switch {
	case !h.has(f):
	case f.may(roster.Own) && h.control.Controller() != f.socket.user:
		h.step(turn.TakenBack{Socket: f.id})
	default:
		h.step(turn.Revoked{Socket: f.id})
	}
}

// refusals are the codes for what the turn-taking rules refuse, by error name.
var refusals = map[string]protocol.ChatCode{
	protocol.KindForbidden.Name():   protocol.ChatNotController,
	protocol.KindConflict.Name():    protocol.ChatNotController,
	protocol.KindUnavailable.Name(): protocol.ChatUnavailable,
	protocol.KindTooMany.Name():     protocol.ChatUnavailable,
	protocol.KindNotFound.Name():    protocol.ChatInternalError,
}

// tellRefusal tells f why its request is refused.
func (h *hub) tellRefusal(f *follower, m protocol.ServerMessage) {
	refused, ok := m.(protocol.ErrorMessage)
	if !ok {
		return // control_state says it
	}
	code := refusals[refused.Name]
	// Who has control already is refused for another reason: to hand it to somebody
	// who may not have it.
	if code == protocol.ChatNotController && (!f.may(roster.Control) || h.control.Controller() == f.socket.user) {
		code = protocol.ChatForbidden
	}
	f.socket.Complain(protocol.ChatFault{Code: code, Text: chatsocket.Sentence(refused.Message)}, h.key.Conversation)
}

// heeds reports whether f is told what only clients know that have said
// chat.hello: it was greeted.
func (h *hub) heeds(f *follower) bool {
	return f.admitted && f.socket.hello.Load() && f.spot.cursor.Follows()
}

// greetNew tells those who follow now what they otherwise learn by changes.
func (h *hub) greetNew() {
	for _, f := range h.ordered() {
		if !f.ungreeted.Load() || !h.heeds(f) {
			continue
		}
		f.ungreeted.Store(false)
		s := h.stateFor(f.socket.user)
		f.socket.queue.tell(frameOf(h.controlFor(f)), maxOwn)
		f.socket.queue.tell(h.presenceFrame(), maxOwn)
		f.socket.queue.tell(frameOf(runState{protocol.ChatRunStateKind, h.key.Conversation, s.Run, s.CommandID, s.Terminal}), maxOwn)
	}
}

// controlFor returns the present control_state for f.
func (h *hub) controlFor(f *follower) controlState {
	s := h.control.StateFor(f.id)
	m := controlState{
		Kind: protocol.ChatControlState, SessionID: h.key.Conversation, Controller: s.Controller, Requests: s.Requests,
		State: protocol.LeaseHeld, You: f.socket.user, CanControl: s.CanControl,
	}
	if m.Requests == nil {
		m.Requests = []protocol.UserID{}
	}
	switch {
	case s.Controller == "":
		m.State = protocol.LeaseFree
	case s.GraceMS > 0:
		m.State, m.MSLeft = protocol.LeaseGrace, max(s.GraceMS-time.Since(h.leasedAt).Milliseconds(), 1)
	}
	return m
}

// presenceFrame returns who is here.
func (h *hub) presenceFrame() []byte {
	m := h.present.Message()
	return frameOf(presenceMessage{protocol.ChatPresenceKind, h.key.Conversation, m.Count, m.Viewers})
}

// tellRun tells those who follow of another run state. The stream's reader calls
// it before the event that the state results in.
func (h *hub) tellRun(s protocol.ChatState) {
	var frame []byte
	for _, one := range h.ring.Followers() {
		f, ok := one.(*follower)
		if !ok || !f.socket.hello.Load() {
			continue
		}
		if frame == nil {
			frame = frameOf(runState{protocol.ChatRunStateKind, h.key.Conversation, s.Run, s.CommandID, s.Terminal})
		}
		f.socket.queue.tell(frame, maxOwn)
	}
}

package hub

import (
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// maxAddresses bounds the addresses that viewers who come are told. The oldest go
// first.
const maxAddresses = 32

// maxAddressBytes bounds each.
const maxAddressBytes = 16 << 10

// newsInterval is the least time between two messages about the session's list
// of terminals, as each may make every viewer request the list.
const newsInterval = time.Second

// facts are what the agent has said of the terminal besides output. Owned by
// run.
type facts struct {
	lastTurn  *protocol.AgentStoppedMessage // the last turn that a coding agent finished; nil: none
	recording string                        // id of the running one
	openTo    protocol.Share                // the programs that may read and type here
	held      bool                          // output waits: the input before it may be the beginning of a secret
	addresses []protocol.Address            // that its program has printed, at most maxAddresses
	listed    int64                         // when the session's list of terminals changed, if viewers don't know yet; otherwise 0
	listSent  time.Time                     // time of the last broadcast about the list
}

// turn stores the last turn of a coding agent, and reports whether it is new.
// If the agent knows none, it was restarted, and there is none.
func (f *facts) turn(m *protocol.AgentTurn) (another bool) {
	was := f.lastTurn
	if m == nil {
		f.lastTurn = nil
		return false
	}
	f.lastTurn = &protocol.AgentStoppedMessage{Agent: m.Agent, LastMessage: m.LastMessage, Reason: m.Reason, Timestamp: m.At}
	return was == nil || was.Timestamp != m.At
}

// greeting returns what differs from the defaults, for a new viewer.
func (f *facts) greeting() (messages []protocol.ServerMessage) {
	if f.recording != "" {
		messages = append(messages, protocol.RecordingState{ID: f.recording})
	}
	if f.openTo != protocol.ShareNone {
		messages = append(messages, protocol.SharedMessage{With: f.openTo})
	}
	for _, m := range f.addresses {
		messages = append(messages, m)
	}
	return messages
}

// address stores an address that the terminal's program has printed, and returns
// the news, if it is new: at a new stream the agent repeats all.
func (f *facts) address(m protocol.Address) (news []protocol.ServerMessage) {
	if !strings.HasPrefix(m.URL, "https://") && !strings.HasPrefix(m.URL, "http://") || len(m.URL) > maxAddressBytes {
		return nil // a browser may open it
	}
	if slices.ContainsFunc(f.addresses, func(a protocol.Address) bool { return a.URL == m.URL }) {
		return nil
	}
	if len(f.addresses) == maxAddresses {
		f.addresses = slices.Delete(f.addresses, 0, 1)
	}
	f.addresses = append(f.addresses, m)
	return []protocol.ServerMessage{m}
}

// note stores the running recording and the share, and returns the changes for
// viewers.
func (f *facts) note(recording string, openTo protocol.Share) (news []protocol.ServerMessage) {
	if openTo == "" {
		openTo = protocol.ShareNone
	}
	if recording != f.recording {
		news = append(news, protocol.RecordingState{ID: recording})
	}
	if openTo != f.openTo {
		news = append(news, protocol.SharedMessage{With: openTo})
	}
	f.recording, f.openTo = recording, openTo
	return news
}

// list returns the news of a changed list of terminals. They are due at once,
// unless the last ones are too recent.
func (f *facts) list(now time.Time) (news []protocol.ServerMessage) {
	if wait, needed := f.listDueIn(now); needed && wait <= 0 {
		news = append(news, protocol.ListChanged{Timestamp: f.listed})
		f.listed, f.listSent = 0, now
	}
	return news
}

// listDueIn returns how long after now the news of the list are due, if there
// are any.
func (f *facts) listDueIn(now time.Time) (wait time.Duration, needed bool) {
	return newsInterval - now.Sub(f.listSent), f.listed != 0
}

// turned tells everybody that a coding agent has finished a turn. A repeated
// one was masked again: it replaces the stored text, but is no news.
func (h *Hub) turned(m protocol.AgentTurn) {
	if h.facts.turn(&m) {
		h.audience.tell(*h.facts.lastTurn)
		return
	}
	h.tellState()
}

// hold notes whether output is held back, and tells only the viewer whose input
// it waits for: nobody else may learn that somebody types a secret.
func (h *Hub) hold(held bool) {
	if held == h.facts.held {
		return
	}
	h.facts.held = held
	for _, v := range h.audience.viewers {
		if v.greeted && h.pacers.controls(v) {
			v.outbox.Tell(protocol.OutputHeld{Held: held})
		}
	}
}

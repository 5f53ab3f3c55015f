package hub

import (
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// newsInterval is the least time between two messages about the session's list of
// terminals: each may have every viewer ask for it.
const newsInterval = time.Second

// facts are what the agent has said of the terminal beside its output. Owned by
// run.
type facts struct {
	lastTurn  *protocol.AgentStoppedMessage // that a coding agent finished; nil: none
	recording string                        // id of the one that runs
	openTo    protocol.Share                // whose programs may read and type here
	held      bool                          // output waits, since the input before it may be the beginning of a secret
	listed    int64                         // when the session's list of terminals changed, and viewers are to hear; 0: they know
	listSent  time.Time                     // the last broadcast of that
}

// turn notes the last turn of a coding agent, and reports whether it is another
// one than before. An agent that knows of none was started anew: then there is
// none.
func (f *facts) turn(m *protocol.AgentTurn) (another bool) {
	was := f.lastTurn
	if m == nil {
		f.lastTurn = nil
		return false
	}
	f.lastTurn = &protocol.AgentStoppedMessage{Agent: m.Agent, LastMessage: m.LastMessage, Reason: m.Reason, Timestamp: m.At}
	return was == nil || was.Timestamp != m.At
}

// greeting says to a newcomer what is not as usual.
func (f *facts) greeting() (messages []protocol.ServerMessage) {
	if f.recording != "" {
		messages = append(messages, protocol.RecordingState{ID: f.recording})
	}
	if f.openTo != protocol.ShareNone {
		messages = append(messages, protocol.SharedMessage{With: f.openTo})
	}
	return messages
}

// note notes which recording runs and to whose programs the terminal is open, and
// returns what viewers are to be told of that.
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

// list returns what viewers are to be told of the session's list of terminals: it
// is another one. They hear at once, unless they were told a moment ago.
func (f *facts) list(now time.Time) (news []protocol.ServerMessage) {
	if wait, needed := f.listDueIn(now); needed && wait <= 0 {
		news = append(news, protocol.ListChanged{Timestamp: f.listed})
		f.listed, f.listSent = 0, now
	}
	return news
}

// listDueIn returns how long after now viewers are to be told of the session's
// list of terminals, if they are.
func (f *facts) listDueIn(now time.Time) (wait time.Duration, needed bool) {
	return newsInterval - now.Sub(f.listSent), f.listed != 0
}

// turned tells everybody that a coding agent has finished a turn. One that is
// told again was masked anew: then what is remembered changes, and nothing has
// happened.
func (h *Hub) turned(m protocol.AgentTurn) {
	if h.facts.turn(&m) {
		h.audience.tell(*h.facts.lastTurn)
		return
	}
	h.tellState()
}

// hold notes whether output is held back, and tells who typed what it waits for:
// nobody else learns that somebody types a secret.
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

package terminal

import (
	"strings"
	"time"
	"unicode"

	"github.com/fairlead/fairlead/protocol"
)

// AgentTurn notes that a coding agent in the terminal id of session has finished
// a turn, and tells everybody. If that is the one in front, and it runs, it waits
// from then on: control goes back as in a pause, and humans may type. Of one
// that is paused it is remembered. What is too long of a last message is cut off
// at its beginning, and secrets in it are masked. It fails with KindNotFound
// when there is no such terminal, KindEnded when it has ended, KindInvalid for a
// turn that makes no sense, and KindTooMany when hooks report too often.
func (h *Host) AgentTurn(session protocol.SessionID, id protocol.PTYID, turn protocol.AgentTurn) error {
	t, err := h.reportable(session, id, turn.Agent)
	if err != nil {
		return err
	}
	if turn.Reason == "" {
		turn.Reason = protocol.StopComplete
	}
	if !turn.Reason.Known() {
		return protocol.Errorf(protocol.KindInvalid, "not a reason for the end of a turn")
	}
	if turn.At == 0 {
		turn.At = time.Now().UnixMilli()
	}
	if turn, err = t.arbiter.FinishTurn(turn); err != nil {
		return err
	}
	if h.config.Turns != nil {
		h.config.Turns.Turn(protocol.PTYCompleted{
			SessionID: session, PTYID: id, Agent: turn.Agent, Status: turn.Reason, LastMessage: turn.LastMessage, At: turn.At,
		})
	}
	return nil
}

// AgentStarted notes that the coding agent called name in the terminal id of
// session has begun a turn. If that is the one in front, and it waits, it takes
// control without asking, as when it was started: what humans have in flight is
// refused from then on. Of one that is paused it is remembered. Errors are those
// of [Host.AgentTurn].
func (h *Host) AgentStarted(session protocol.SessionID, id protocol.PTYID, name string) error {
	t, err := h.reportable(session, id, name)
	if err != nil {
		return err
	}
	return t.arbiter.BeginTurn(name)
}

// AgentReady notes that the coding agent called name in the terminal id of
// session waits for its first prompt, if it is the one in front and has had
// none. Errors are those of [Host.AgentTurn].
func (h *Host) AgentReady(session protocol.SessionID, id protocol.PTYID, name string) error {
	t, err := h.reportable(session, id, name)
	if err != nil {
		return err
	}
	return t.arbiter.AwaitPrompt(name)
}

// reportable returns the terminal of a report about the coding agent called
// name.
func (h *Host) reportable(session protocol.SessionID, id protocol.PTYID, name string) (*Terminal, error) {
	if name == "" || len(name) > protocol.MaxAgentNameBytes || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return nil, protocol.Errorf(protocol.KindInvalid, "not a name for a coding agent")
	}
	return h.Get(session, id)
}

// NoteTools tells everybody who watches the terminal id of session, with an
// empty id those of all its terminals, how many tools its programs had before and
// have now.
func (h *Host) NoteTools(session protocol.SessionID, id protocol.PTYID, before, now int) {
	m := protocol.ToolsChanged{Old: before, New: now, At: time.Now().UnixMilli()}
	for _, t := range h.of(session) {
		if id == "" || t.id == id {
			t.arbiter.Note(m)
		}
	}
}

// NoteList tells everybody who watches a terminal of session that there is something
// else to list than before: terminals, or plugins of their programs.
func (h *Host) NoteList(session protocol.SessionID) {
	m := protocol.TerminalsChanged{At: time.Now().UnixMilli()}
	for _, t := range h.of(session) {
		t.arbiter.Note(m)
	}
}

package terminal

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
)

const (
	// firstPromptAfter is how long a coding agent that was started by its name
	// alone counts as running unless its hooks say something: it has nothing to
	// do before somebody tells it, and what it asks first, say for a sign-in,
	// no hook knows of.
	firstPromptAfter = 5 * time.Second
	// Hooks may say reportBurst things about a terminal at once, and one more
	// every reportEvery.
	reportBurst = 30
	reportEvery = 200 * time.Millisecond
)

// hooks is what the hooks of coding agents in a terminal have said. The
// arbiter's mu guards it.
type hooks struct {
	turn  *protocol.AgentTurn // the last one, masked; nil: none was finished
	spent time.Time           // when as many reports as were made would have been due
}

// allow reports whether another report may be made now.
func (h *hooks) allow(now time.Time) bool {
	if earliest := now.Add(-reportBurst * reportEvery); h.spent.Before(earliest) {
		h.spent = earliest
	}
	if !h.spent.Before(now) {
		return false
	}
	h.spent = h.spent.Add(reportEvery)
	return true
}

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
	if turn, err = t.finishTurn(turn); err != nil {
		return err
	}
	if h.config.OnTurn != nil {
		h.config.OnTurn(session, id, turn)
	}
	return nil
}

// AgentStarted notes that the coding agent called name in the terminal id of
// session has begun a turn. If that is the one in front, and it waits, it takes
// control without asking, as when it was started: what humans have in flight is
// refused from then on. Of one that is paused it is remembered. Errors are those
// of [Host.AgentTurn].
func (h *Host) AgentStarted(session protocol.SessionID, id protocol.PTYID, name string) error {
	return h.report(session, id, name, func(a *agent) bool { return a.prompted && a.is == protocol.AgentRunning }, (*arbiter).beginTurn)
}

// AgentReady notes that the coding agent called name in the terminal id of
// session waits for its first prompt, if it is the one in front and has had
// none. Errors are those of [Host.AgentTurn].
func (h *Host) AgentReady(session protocol.SessionID, id protocol.PTYID, name string) error {
	return h.report(session, id, name, func(a *agent) bool { return a.prompted }, (*arbiter).awaitPrompt)
}

// report has act done to a terminal and the agent in front of it, if that is the
// one called name. What is known of it changes nothing and may be said any number
// of times: some agents report after each of their tools, and the end of their
// turn must not be one report too many.
func (h *Host) report(session protocol.SessionID, id protocol.PTYID, name string, known func(*agent) bool, act func(*arbiter, *agent)) error {
	t, err := h.reportable(session, id, name)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.stage.working(name)
	if t.ended.IsZero() && (a == nil || known(a)) {
		return nil
	}
	if err := t.mayReport(); err != nil {
		return err
	}
	if a != nil {
		act(t.arbiter, a)
	}
	return nil
}

// reportable returns the terminal of a report about the coding agent called
// name.
func (h *Host) reportable(session protocol.SessionID, id protocol.PTYID, name string) (*Terminal, error) {
	if name == "" || len(name) > protocol.MaxAgentNameBytes || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return nil, protocol.Errorf(protocol.KindInvalid, "not a name for a coding agent")
	}
	return h.Get(session, id)
}

// mayReport says why no report can be made now. The caller holds mu.
func (b *arbiter) mayReport() error {
	if !b.ended.IsZero() {
		return protocol.Errorf(protocol.KindEnded, "the program has ended")
	}
	if !b.hooks.allow(time.Now()) {
		return protocol.Errorf(protocol.KindTooMany, "too many reports about coding agents")
	}
	return nil
}

// working returns the coding agent in front if it may be the one called name:
// agents may run others. The caller holds mu.
func (s *stage) working(name string) *agent {
	a := s.agent
	if a == nil || a.is == protocol.AgentStopped {
		return nil
	}
	if cli := process.KnownAgent(name); cli != "" && a.cli != "" && cli != a.cli {
		return nil
	}
	return a
}

// finishTurn notes turn and returns it as it may be seen.
func (b *arbiter) finishTurn(turn protocol.AgentTurn) (protocol.AgentTurn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.mayReport(); err != nil {
		return turn, err
	}
	turn.Agent = b.shown(turn.Agent, protocol.MaxAgentNameBytes)
	turn.LastMessage = b.shown(turn.LastMessage, protocol.MaxLastMessage)
	b.hooks.turn = &turn
	b.tellTurn()
	if a := b.stage.working(turn.Agent); a != nil {
		a.prompted = true
		b.waits(a)
	}
	return turn, nil
}

// tellTurn tells everybody of the last turn. The caller holds mu.
func (b *arbiter) tellTurn() {
	for a := range b.attachments {
		a.postNewest(*b.hooks.turn)
	}
}

// beginTurn notes that a has begun a turn. The caller holds mu.
func (b *arbiter) beginTurn(a *agent) {
	a.prompted = true
	switch {
	case a.stopping:
	case a.is == protocol.AgentWaiting:
		b.takeOver(a)
	case a.is == protocol.AgentPaused:
		a.resumes = protocol.AgentRunning
	}
}

// awaitPrompt notes that a waits for its first prompt. The caller holds mu.
func (b *arbiter) awaitPrompt(a *agent) {
	if !a.prompted {
		b.waits(a)
	}
}

// awaitPromptIfDue notes that the agent in front waits for its first prompt if
// that is due, and returns how long until it is. The caller holds mu.
func (b *arbiter) awaitPromptIfDue(now time.Time) time.Duration {
	a := b.stage.agent
	if a == nil || a.promptBy.IsZero() || a.prompted || a.is == protocol.AgentStopped {
		return noDeadline
	}
	if wait := a.promptBy.Sub(now); wait > 0 {
		return wait
	}
	a.promptBy = time.Time{}
	b.waits(a)
	return noDeadline
}

// waits notes that a, which is in front, has nothing to do before somebody tells
// it: control goes back. One that is paused waits when it is resumed. The caller
// holds mu.
func (b *arbiter) waits(a *agent) {
	switch {
	case a.stopping: // which ends with control going back
	case a.is == protocol.AgentRunning:
		a.is = protocol.AgentWaiting
		b.announceAgent()
		b.yield(a)
	case a.is == protocol.AgentPaused:
		a.resumes = protocol.AgentWaiting
	}
}

// NoteTools tells everybody who watches the terminal id of session, with an
// empty id those of all its terminals, how many tools its programs had before and
// have now.
func (h *Host) NoteTools(session protocol.SessionID, id protocol.PTYID, before, now int) {
	m := protocol.ToolsChanged{Old: before, New: now, At: time.Now().UnixMilli()}
	for _, t := range h.of(session) {
		if id == "" || t.info.ID == id {
			t.tellTools(m)
		}
	}
}

func (t *Terminal) tellTools(m protocol.ToolsChanged) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for a := range t.attachments {
		a.postNewest(m)
	}
}

// noteList tells everybody who watches a terminal of session that these are
// others than before.
func (h *Host) noteList(session protocol.SessionID) {
	m := protocol.TerminalsChanged{At: time.Now().UnixMilli()}
	for _, t := range h.of(session) {
		t.tellList(m)
	}
}

func (t *Terminal) tellList(m protocol.TerminalsChanged) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended.IsZero() {
		return // nothing follows EXITED
	}
	for a := range t.attachments {
		a.postNewest(m)
	}
}

// postNewest queues m in place of a message of its type that waits: who is slow
// needs the newest only. The caller holds mu.
func (a *Attachment) postNewest(m protocol.Message) {
	for i := len(a.outbox) - 1; i >= max(0, len(a.outbox)-ackSearch); i-- {
		if a.outbox[i].FrameType() != m.FrameType() {
			continue
		}
		if tools, ok := m.(protocol.ToolsChanged); ok {
			tools.Old = a.outbox[i].(protocol.ToolsChanged).Old
			m = tools
		}
		a.outbox[i] = m
		return
	}
	a.post(m)
}

// remaskTurn masks the last turn with secrets that are new, and tells everybody
// if that changes it. The caller holds mu.
func (b *arbiter) remaskTurn() {
	if b.hooks.turn == nil {
		return
	}
	turn := *b.hooks.turn
	turn.Agent = b.shown(turn.Agent, protocol.MaxAgentNameBytes)
	turn.LastMessage = b.shown(turn.LastMessage, protocol.MaxLastMessage)
	if turn != *b.hooks.turn {
		b.hooks.turn = &turn
		b.tellTurn()
	}
}

// shown returns the end of text, of so many bytes at most, as it may be seen:
// without secrets and without controls that a terminal would obey. The caller
// holds mu.
func (b *arbiter) shown(text string, most int) string {
	text = withoutSecrets(b.secrets, strings.ToValidUTF8(text, string(utf8.RuneError)))
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
	// What was split by controls may be a secret now.
	text = withoutSecrets(b.secrets, text)
	if len(text) <= most {
		return text
	}
	text = text[len(text)-most:]
	for !utf8.RuneStart(text[0]) {
		text = text[1:]
	}
	return text
}

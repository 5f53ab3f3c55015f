package arbiter

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
)

const (
	// Hooks may say ReportBurst things about a terminal at once, and one more
	// every Options.ReportEvery.
	ReportBurst = 30
	ReportEvery = 200 * time.Millisecond
)

// hooks is what the hooks of coding agents in a terminal have said. The
// arbiter's mu guards it.
type hooks struct {
	turn  *protocol.AgentTurn // the last one, masked; nil: none was finished
	spent time.Time           // when as many reports as were made would have been due
}

// allow reports whether another report may be made now, of which one is due every
// so often; less than 0: there is no limit.
func (h *hooks) allow(now time.Time, every time.Duration) bool {
	if every < 0 {
		return true
	}
	if earliest := now.Add(-ReportBurst * every); h.spent.Before(earliest) {
		h.spent = earliest
	}
	if !h.spent.Before(now) {
		return false
	}
	h.spent = h.spent.Add(every)
	return true
}

// mayReport says why no report can be made now, of which one is due every so
// often. The caller holds mu.
func (h *hooks) mayReport(ended bool, every time.Duration) error {
	if ended {
		return errEnded
	}
	if !h.allow(time.Now(), every) {
		return protocol.Errorf(protocol.KindTooMany, "too many reports about coding agents")
	}
	return nil
}

// working returns the coding agent in front if it may be the one called name:
// agents may run others. The caller holds mu.
func (s *stage) working(name string) *Agent {
	a := s.agent
	if a == nil || a.is == protocol.AgentStopped {
		return nil
	}
	if cli := process.KnownAgent(name); cli != "" && a.cli != "" && cli != a.cli {
		return nil
	}
	return a
}

// FinishTurn notes that a coding agent has finished turn, tells everybody, and
// returns it as it may be seen: masked, and with the end of a last message that is
// too long. If that is the agent in front, and it runs, it waits from then on. It
// fails with KindEnded, and with KindTooMany when hooks report too often.
func (b *Arbiter) FinishTurn(turn protocol.AgentTurn) (protocol.AgentTurn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.hooks.mayReport(!b.ended.IsZero(), b.o.ReportEvery); err != nil {
		return turn, err
	}
	turn.Agent = shown(b.secrets, turn.Agent, protocol.MaxAgentNameBytes)
	turn.LastMessage = shown(b.secrets, turn.LastMessage, protocol.MaxLastMessage)
	b.hooks.turn = &turn
	b.streams.tellNewest(turn)
	if a := b.stage.working(turn.Agent); a != nil {
		a.prompted = true
		a.waits()
	}
	return turn, nil
}

// BeginTurn notes that the coding agent called name has begun a turn. If that is
// the one in front, and it waits, it takes control without asking. Errors are
// those of [Arbiter.FinishTurn].
func (b *Arbiter) BeginTurn(name string) error {
	return b.report(name, func(a *Agent) bool { return a.prompted && a.is == protocol.AgentRunning }, (*Agent).beginTurn)
}

// AwaitPrompt notes that the coding agent called name waits for its first prompt,
// if it is the one in front and has had none. Errors are those of
// [Arbiter.FinishTurn].
func (b *Arbiter) AwaitPrompt(name string) error {
	return b.report(name, func(a *Agent) bool { return a.prompted }, (*Agent).awaitPrompt)
}

// report has act done to the agent in front, if that is the one called name. What
// is known of it changes nothing and may be said any number of times: some agents
// report after each of their tools, and the end of their turn must not be one
// report too many. known is called with mu held. act is called with mu held.
func (b *Arbiter) report(name string, known func(*Agent) bool, act func(*Agent)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.stage.working(name)
	if b.ended.IsZero() && (a == nil || known(a)) {
		return nil
	}
	if err := b.hooks.mayReport(!b.ended.IsZero(), b.o.ReportEvery); err != nil {
		return err
	}
	if a != nil {
		act(a)
	}
	return nil
}

// beginTurn notes that a has begun a turn. The caller holds mu.
func (a *Agent) beginTurn() {
	a.prompted = true
	switch {
	case a.stopping:
	case a.is == protocol.AgentWaiting:
		a.takeOver()
	case a.is == protocol.AgentPaused:
		a.resumes = protocol.AgentRunning
	}
}

// awaitPrompt notes that a waits for its first prompt. The caller holds mu.
func (a *Agent) awaitPrompt() {
	if !a.prompted {
		a.waits()
	}
}

// awaitPromptIfDue notes that the agent in front waits for its first prompt if
// that is due, and returns how long until it is. The caller holds mu.
func (s *stage) awaitPromptIfDue(now time.Time) time.Duration {
	a := s.agent
	if a == nil || a.promptBy.IsZero() || a.prompted || a.is == protocol.AgentStopped {
		return NoDeadline
	}
	if wait := a.promptBy.Sub(now); wait > 0 {
		return wait
	}
	a.promptBy = time.Time{}
	a.waits()
	return NoDeadline
}

// waits notes that a, which is in front, has nothing to do before somebody tells
// it: control goes back. One that is paused waits when it is resumed. The caller
// holds mu.
func (a *Agent) waits() {
	switch {
	case a.stopping: // which ends with control going back
	case a.is == protocol.AgentRunning:
		a.is = protocol.AgentWaiting
		a.announce()
		a.yield()
	case a.is == protocol.AgentPaused:
		a.resumes = protocol.AgentWaiting
	}
}

// shown returns the end of text, of so many bytes at most, as it may be seen:
// without the secrets of set and without controls that a terminal would obey.
func shown(set *redact.Set, text string, most int) string {
	text = masked(set, strings.ToValidUTF8(text, string(utf8.RuneError)))
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
	// What was split by controls may be a secret now.
	text = masked(set, text)
	if len(text) <= most {
		return text
	}
	text = text[len(text)-most:]
	for !utf8.RuneStart(text[0]) {
		text = text[1:]
	}
	return text
}

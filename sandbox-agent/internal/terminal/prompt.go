package terminal

import (
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/account"
	"github.com/fairlead/fairlead/sandbox-agent/internal/pty"
)

const (
	// settledFor is how long a prompt must have been there: what was typed ahead
	// of it comes first. It must be longer where that may have been typed at the
	// prompt as well, in the same tick of the clock.
	settledFor = 20 * time.Millisecond
)

// fileClock returns the time as files are given it, which is a little late.
func fileClock() time.Time {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now); err != nil {
		return time.Now()
	}
	return time.Unix(now.Unix())
}

var (
	errNoPrompts = protocol.Errorf(protocol.KindUnsupported, "no shell in the terminal tells when a command is done: "+
		"bash and zsh do, with the start files that its home began with")
	errNotAtPrompt = protocol.Errorf(protocol.KindConflict, "the shell is not at its prompt: something runs in the terminal")
	errTypedAt     = protocol.Errorf(protocol.KindConflict, "somebody has typed at the shell's prompt")
)

// atPrompt reports whether the shell in the terminal waits for a command, and
// there is none begun; begun says that the shell may have been given the
// beginning of one all the same, before it was at its prompt. The caller holds
// arbiter.mu.
func (t *Terminal) atPrompt() (begun bool, err error) {
	a := t.stage.agent
	if t.stage.front != t.own {
		return false, protocol.Errorf(protocol.KindConflict, "%s is in front of the shell", a.name)
	}
	note, noted, err := t.site.launched.Account.ReadNote(account.PromptFile)
	pid, number := strconv.Atoi(strings.TrimSpace(note))
	if err != nil || number != nil || pid < 2 {
		return false, errNoPrompts
	}
	editor, ok := t.own.dev.(pty.LineEditor)
	if !ok {
		return false, errNoPrompts
	}
	q, now := &t.input, fileClock()
	group, byKey := editor.Editing()
	switch {
	case group != pid || !byKey || len(q.items) > 0:
		return false, errNotAtPrompt
	case q.last.After(noted):
		return false, errTypedAt
	case now.Sub(noted) < settledFor, q.last.Equal(noted) && now.Sub(noted) < 5*settledFor:
		return false, errNotAtPrompt
	}
	return !q.entered, nil
}

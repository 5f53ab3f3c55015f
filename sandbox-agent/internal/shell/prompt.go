package shell

import (
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/account"
	"github.com/fairlead/fairlead/sandbox-agent/internal/arbiter"
	"github.com/fairlead/fairlead/sandbox-agent/internal/pty"
)

// settledFor is how long a prompt must have been there: what was typed ahead of it
// comes first. It must be longer where that may have been typed at the prompt as
// well, in the same tick of the clock.
const settledFor = 20 * time.Millisecond

// Why no command can be typed.
var (
	ErrNoPrompts = protocol.Errorf(protocol.KindUnsupported, "no shell in the terminal tells when a command is done: "+
		"bash and zsh do, with the start files that its home began with")
	ErrNotAtPrompt = protocol.Errorf(protocol.KindConflict, "the shell is not at its prompt: something runs in the terminal")
	ErrTypedAt     = protocol.Errorf(protocol.KindConflict, "somebody has typed at the shell's prompt")
)

// AtPrompt reports whether the shell that runs on device as user waits for a
// command, and there is none begun; begun says that the shell may have been given
// the beginning of one all the same, before it was at its prompt. at is what the
// arbiter knows. Errors are [ErrNoPrompts], [ErrNotAtPrompt], [ErrTypedAt], and
// KindConflict while a coding agent is in front.
func AtPrompt(user account.Account, device pty.Device, at arbiter.Prompt) (begun bool, err error) {
	if at.Agent != "" {
		return false, protocol.Errorf(protocol.KindConflict, "%s is in front of the shell", at.Agent)
	}
	note, noted, err := user.ReadNote(account.PromptFile)
	pid, number := strconv.Atoi(strings.TrimSpace(note))
	if err != nil || number != nil || pid < 2 {
		return false, ErrNoPrompts
	}
	editor, ok := device.(pty.LineEditor)
	if !ok {
		return false, ErrNoPrompts
	}
	now := account.FileClock()
	group, byKey := editor.Editing()
	switch {
	case group != pid || !byKey || at.Queued:
		return false, ErrNotAtPrompt
	case at.Last.After(noted):
		return false, ErrTypedAt
	case now.Sub(noted) < settledFor, at.Last.Equal(noted) && now.Sub(noted) < 5*settledFor:
		return false, ErrNotAtPrompt
	}
	return !at.Entered, nil
}

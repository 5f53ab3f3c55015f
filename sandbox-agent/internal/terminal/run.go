package terminal

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/account"
	"github.com/fairlead/fairlead/sandbox-agent/internal/arbiter"
)

const (
	// maxRunOutput bounds the output of a command that [Host.Run] returns, and
	// maxCommandBytes the command.
	maxRunOutput    = 256 << 10
	maxCommandBytes = 16 << 10
	// promptWithin is how long a shell may take to show the prompt that it has
	// said it would, and promptEvery how often it is looked for.
	promptWithin = time.Second
	promptEvery  = 20 * time.Millisecond
)

// A RunResult is what became of a command.
type RunResult struct {
	Output    string // plain text, without secrets; the end of it where it is longer than 256 KiB
	ExitCode  int    // as the shell tells it: 128 + n for one that a signal n ended
	Truncated bool   // something before Output is missing
}

// Run types command at the prompt of the shell in the terminal id of session and
// waits until it is done, which bash and zsh tell. It has control of the terminal
// while it types, as [Host.TypeFor] has, and nobody needs it after that. When
// ctx ends first the command goes on; Run returns what it has printed so far,
// and KindUnavailable. It returns KindEnded and the exit status of the shell
// when that ends.
//
// Further errors are those of TypeFor, KindUnsupported where no shell tells when
// a command is done, and KindConflict where the shell isn't at its prompt,
// somebody has typed at it, or another command is waited for. A command is at
// most 16 KiB, without controls but for tabs and, where the shell takes pastes,
// line feeds: KindTooLarge, KindInvalid.
func (h *Host) Run(ctx context.Context, session protocol.SessionID, id protocol.PTYID, by arbiter.Typist, command string) (RunResult, error) {
	if err := checkCommand(command); err != nil {
		return RunResult{}, err
	}
	t, err := h.typable(session, id, by)
	if err != nil {
		return RunResult{}, err
	}
	select {
	case t.running <- struct{}{}:
		defer func() { <-t.running }()
	default:
		return RunResult{}, protocol.Errorf(protocol.KindConflict, "another command is waited for in the terminal")
	}
	open, leave, err := t.arbiter.WhileOpen(ctx, by)
	if err != nil {
		return RunResult{}, err
	}
	defer leave()
	result, err := t.run(open, by, command)
	if arbiter.ShutOut(open) { // what the command has printed since is not its to read
		return RunResult{}, arbiter.ErrNotOpen
	}
	return result, err
}

// run is Run once it is known who may.
func (t *Terminal) run(ctx context.Context, by arbiter.Typist, command string) (RunResult, error) {
	out, err := t.begin(ctx, by, command, rand.Text())
	if err != nil {
		return RunResult{}, err
	}
	defer out.Close()
	return out.await(ctx)
}

func checkCommand(command string) error {
	switch {
	case strings.TrimSpace(command) == "":
		return protocol.Errorf(protocol.KindInvalid, "no command")
	case len(command) > maxCommandBytes:
		return protocol.Errorf(protocol.KindTooLarge, "a command of over %d bytes", maxCommandBytes)
	case strings.ContainsFunc(command, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }):
		return protocol.Errorf(protocol.KindInvalid, "controls in the command")
	}
	return nil
}

// begin types command, which is called name, at the shell's prompt and returns
// what follows its output. The caller closes that.
func (t *Terminal) begin(ctx context.Context, by arbiter.Typist, command, name string) (*runOutput, error) {
	seat, err := t.arbiter.Sit(ctx, by)
	if err != nil {
		return nil, err
	}
	defer seat.Leave()
	ctx, cancel := context.WithTimeout(ctx, arbiter.GivenBackAfter)
	defer cancel()
	var out *runOutput
	var text string
	err = t.takeAtPrompt(ctx, seat, func(begun bool) (err error) {
		if text, err = t.commandText(command, begun); err != nil {
			return err
		}
		if err := t.launched.Account.WritePrivate(account.RunFile, []byte(name+"\n")); err != nil {
			return protocol.Fault(protocol.KindUnavailable, err)
		}
		out = t.newRunOutput(command, name)
		return nil
	})
	if err == nil {
		err = seat.Type(ctx, []byte(text))
	}
	if err != nil && out != nil {
		out.Close()
	}
	return out, err
}

// takeAtPrompt takes control once the shell is at its prompt, for which it waits a
// moment if it isn't. Last it calls begin, which may say what is against it. begin
// is called with view.mu held.
func (t *Terminal) takeAtPrompt(ctx context.Context, seat *arbiter.Seat, begin func(begun bool) error) error {
	again := time.NewTicker(promptEvery)
	defer again.Stop()
	for patience := time.Now().Add(promptWithin); ; {
		err := t.takeReady(seat, func(at arbiter.Prompt) error {
			begun, err := t.atPrompt(at)
			if err != nil {
				return err
			}
			return begin(begun)
		})
		if !errors.Is(err, errNotAtPrompt) && !errors.Is(err, errNoPaste) || time.Now().After(patience) {
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return err
		}
	}
}

// takeReady takes control unless ready, which may look at the screen, says what is
// against it. ready is called with view.mu held.
func (t *Terminal) takeReady(seat *arbiter.Seat, ready func(arbiter.Prompt) error) error {
	t.view.mu.Lock()
	defer t.view.mu.Unlock()
	return seat.Take(ready)
}

var errNoPaste = protocol.Errorf(protocol.KindInvalid, "the shell takes no command of several lines, or with tabs")

// commandText returns what to type for command, where the shell's line may have
// been begun. The caller holds view.mu.
func (t *Terminal) commandText(command string, begun bool) (string, error) {
	if strings.ContainsAny(command, "\n\t") {
		if !t.view.display.BracketedPaste() {
			return "", errNoPaste
		}
		command = "\x1b[200~" + command + "\x1b[201~"
	}
	if begun {
		command = "\x01\x0b" + command // to the beginning, and the rest goes
	}
	return command + "\r", nil
}

// status returns the exit status of the command called name, if it has ended.
func (t *Terminal) status(name string) (code int, ended bool) {
	note, _, err := t.launched.Account.ReadNote(account.RanFile)
	rest, found := strings.CutPrefix(note, name+" ")
	if err != nil || !found {
		return 0, false
	}
	code, err = strconv.Atoi(strings.TrimSpace(rest))
	return code, err == nil
}

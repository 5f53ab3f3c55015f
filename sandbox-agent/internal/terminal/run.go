package terminal

import (
	"context"
	"errors"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/arbiter"
	"github.com/fairlead/fairlead/sandbox-agent/internal/shell"
)

const (
	// promptWithin is how long a shell may take to show the prompt that it has
	// said it would, and promptEvery how often it is looked for.
	promptWithin = time.Second
	promptEvery  = 20 * time.Millisecond
)

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
func (h *Host) Run(ctx context.Context, session protocol.SessionID, id protocol.PTYID, by arbiter.Typist, command string) (shell.Result, error) {
	c, err := shell.NewCommand(command)
	if err != nil {
		return shell.Result{}, err
	}
	t, err := h.typable(session, id, by)
	if err != nil {
		return shell.Result{}, err
	}
	select {
	case t.running <- struct{}{}:
		defer func() { <-t.running }()
	default:
		return shell.Result{}, protocol.Errorf(protocol.KindConflict, "another command is waited for in the terminal")
	}
	open, leave, err := t.arbiter.WhileOpen(ctx, by)
	if err != nil {
		return shell.Result{}, err
	}
	defer leave()
	result, err := t.run(open, by, c)
	if arbiter.ShutOut(open) { // what the command has printed since is not its to read
		return shell.Result{}, arbiter.ErrNotOpen
	}
	return result, err
}

// run is Run once it is known who may.
func (t *Terminal) run(ctx context.Context, by arbiter.Typist, c shell.Command) (shell.Result, error) {
	out, err := t.begin(ctx, by, c)
	if err != nil {
		return shell.Result{}, err
	}
	defer out.Close()
	return out.Await(ctx)
}

// begin types c at the shell's prompt and returns what follows its output. The
// caller closes that.
func (t *Terminal) begin(ctx context.Context, by arbiter.Typist, c shell.Command) (*shell.Output, error) {
	seat, err := t.arbiter.Sit(ctx, by)
	if err != nil {
		return nil, err
	}
	defer seat.Leave()
	ctx, cancel := context.WithTimeout(ctx, arbiter.GivenBackAfter)
	defer cancel()
	var out *shell.Output
	var text []byte
	err = t.takeAtPrompt(ctx, seat, func(begun bool) (err error) {
		if text, err = c.Announce(t.launched.Account, begun, t.view.display.BracketedPaste()); err == nil {
			out = shell.NewOutput(c, t.launched.Account, t.transcript, t.view.display.Fork())
		}
		return err
	})
	if err == nil {
		err = seat.Type(ctx, text)
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
			begun, err := shell.AtPrompt(t.launched.Account, t.own.Device, at)
			if err != nil {
				return err
			}
			return begin(begun)
		})
		if !errors.Is(err, shell.ErrNotAtPrompt) && !errors.Is(err, shell.ErrNoPaste) || time.Now().After(patience) {
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

package codingagent

import (
	"context"
	"errors"
	"sync"

	"github.com/fairlead/fairlead/sandbox-agent/internal/launch"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
)

// Lend returns what a terminal needs to run l itself: as the programs of the
// session's conversations, in their home, and with what they find around them. So
// what people do there with a coding agent is as much a part of the session's
// conversations as what they do by chat, and nothing has to be brought back. The
// terminal returns it. Errors are those of [Host.Start].
func (h *Host) Lend(ctx context.Context, l Launch) (launch.Lent, error) {
	dir, err := h.check(ctx, l)
	if err != nil {
		return launch.Lent{}, err
	}
	for {
		a, err := h.account(l.Session)
		if err != nil {
			return launch.Lent{}, err
		}
		lent, err := h.lend(a, l, dir)
		if !errors.Is(err, errEnded) {
			return lent, err
		}
	}
}

// lend lends a for l in dir.
func (h *Host) lend(a *sessionAccount, l Launch, dir string) (launch.Lent, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	begins, err := h.ready(a, l)
	if err != nil {
		return launch.Lent{}, err
	}
	a.lent++
	return launch.Lent{
		Account: a.kept.Account, Argv: append([]string{l.Command.Program}, l.Command.Args...), Dir: dir,
		Env: begins.Env, Mark: process.NewMark(a.kept.UID, a.kept.GID), Egress: begins.Egress, Owner: &loan{host: h, account: a},
	}, nil
}

// A loan is one terminal's use of an account.
type loan struct {
	// Static.
	host    *Host
	account *sessionAccount
	once    sync.Once
}

// Return implements [launch.Owner].
func (l *loan) Return() { l.once.Do(func() { l.host.returned(l.account) }) }

// returned notes that nothing is left of a program in a terminal.
func (h *Host) returned(a *sessionAccount) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lent--
	h.idle(a)
}

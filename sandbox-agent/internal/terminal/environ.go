package terminal

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/account"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/launch"
)

// prepare returns a program about to start in the terminal id, with its whole
// environment.
func (h *Host) prepare(session protocol.SessionID, id protocol.PTYID, a account.Account, create op.PTYCreate) (*feature.Start, error) {
	start := &feature.Start{Terminal: feature.Terminal{Session: session, PTY: id, UID: a.UID}, Create: create}
	if h.config.Features != nil {
		if err := h.config.Features.TerminalStarts(start); err != nil {
			return nil, err
		}
	}
	env := h.Setup().Environment(session, id, a)
	if start.Credentials != nil {
		env = append(env, launch.CredentialVariables(*start.Credentials)...)
	}
	start.Env = append(append(env, start.Env...), launch.ShellVariables(create.Shell)...)
	return start, nil
}

// UID returns the uid of the terminal id of session, −1 where terminals run as
// the agent's own user. It is false when there is no such terminal or its uid is
// free again. While the terminal is being started it waits: its program may be quick.
func (h *Host) UID(session protocol.SessionID, id protocol.PTYID) (uid int, ok bool) {
	h.mu.Lock()
	started := h.starting[id]
	h.mu.Unlock()
	if started != nil {
		<-started
	}
	t, err := h.Get(session, id)
	if err != nil || t.released() {
		return 0, false
	}
	return t.launched.Account.UID, true
}

// A Running is a terminal that holds something of the system.
type Running struct {
	Session protocol.SessionID
	ID      protocol.PTYID
	UID     int // −1: the agent's own
	PID     int // of its program; 0 if it has none
}

// Running returns the terminals of all sessions that run, by id.
func (h *Host) Running() []Running {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []Running
	for id, t := range h.listed {
		if !t.released() {
			all = append(all, Running{Session: t.session, ID: id, UID: t.launched.Account.UID, PID: t.own.Process.PID()})
		}
	}
	slices.SortFunc(all, func(a, b Running) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return all
}

// ApplyEnv has the running shells of the terminal id of session read script
// before their next prompt, with an empty id those of all its terminals. Of
// shells, bash and zsh do, when the start files of their home are in use; others
// read it when they start. Nothing is typed into the terminal, and nothing of it
// shown. It fails with KindNotFound when there is no such terminal, and with
// KindUnavailable when the script can't be written: then other terminals may
// have it.
func (h *Host) ApplyEnv(session protocol.SessionID, id protocol.PTYID, script []byte) error {
	ts := h.of(session)
	if id != "" {
		t, err := h.Get(session, id)
		if err != nil {
			return err
		}
		ts = []*Terminal{t}
	}
	script = append([]byte("# "+rand.Text()+"\n"), script...) // shells compare that line
	var errs []error
	for _, t := range ts {
		if t.released() || t.lent() { // what runs there is no shell
			continue
		}
		if err := t.launched.Account.WritePrivate(account.EnvFile, script); err != nil && !t.hasEnded() {
			errs = append(errs, fmt.Errorf("terminal %s: %w", t.id, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return protocol.Fault(protocol.KindUnavailable, err)
	}
	return nil
}

// OwnsUID reports whether uid is one that terminals are given.
func (h *Host) OwnsUID(uid uint32) bool { return h.accounts.Has(int(uid)) }

// ReserveUID returns a uid that no terminal has, as [account.Pool.Reserve] does.
func (h *Host) ReserveUID() (uid, gid int, release func(), err error) { return h.accounts.Reserve() }

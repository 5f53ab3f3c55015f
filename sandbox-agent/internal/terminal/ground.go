package terminal

import (
	"context"
	"errors"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/account"
	"github.com/fairlead/fairlead/sandbox-agent/internal/arbiter"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/launch"
	"github.com/fairlead/fairlead/sandbox-agent/internal/pty"
)

// A ground is what a new terminal stands on.
type ground struct {
	// Static.
	host    *Host
	session protocol.SessionID
	id      protocol.PTYID
	create  op.PTYCreate
	lent    *launch.Lent // nil: it has an account and a home of its own

	// Static after prepare.
	account account.Account // its own
	egress  protocol.EgressState
	notice  string // what its programs are without
}

// start starts the terminal, whose name is reserved.
func (g *ground) start(l pty.Launch) (t *Terminal, err error) {
	h, session, id, p := g.host, g.session, g.id, g.create
	defer func() {
		if err != nil {
			h.terminals.Done()
		}
	}()
	if err := g.prepare(&l); err != nil {
		return nil, err
	}
	info := protocol.PTYInfo{
		ID: id, CreatorID: p.CreatorID, Command: launch.CommandLine(p, l), Dir: h.Setup().Below(l.Dir), Cols: l.Cols, Rows: l.Rows,
		CreatedAt: time.Now().UnixMilli(), Egress: g.egress, Conversation: p.Conversation,
	}
	if p.Spawn == op.SpawnLazy {
		info.Spawn = string(p.Spawn)
	}
	if _, ends := p.OnDetach.After(); ends {
		info.OnDetach = string(p.OnDetach)
	}
	h.counts.started.Add(1)
	end := func() {
		h.closeTo(session, id)
		h.counts.ended.Add(1)
		g.leave()
	}
	at := site{counts: h.counts, launched: l, notice: g.notice, created: p, spill: h.config.Spill, secrets: h.knownSecrets(), rules: arbiter.Options{Revoked: h.config.Revoked, ReportEvery: h.reports}}
	if g.lent != nil {
		at.hidden, at.secrets = g.lent.Hidden, h.secrets.atStart(at.secrets, g.lent.Hidden)
	}
	if h.leases != nil {
		at.rules.Leased = func(lease protocol.Lease) { h.leases.note(session, id, lease) }
	}
	if p.Record {
		if at.tape, err = h.tape(session, info, at.secrets); err != nil {
			end()
			return nil, err
		}
	}
	own, err := g.begin(l)
	if err != nil {
		if at.tape != nil {
			err = errors.Join(err, at.tape.Discard())
		}
		end()
		return nil, err
	}
	t = newTerminal(session, info, own, at, h.log.With("pty", id))
	go t.keep(func() { // Shutdown waits for it
		end()
		h.NoteList(session)
		h.terminals.Done()
	})
	return t, nil
}

// begin starts the terminal's program, or has it start with the first byte that is
// typed.
func (g *ground) begin(l pty.Launch) (*program, error) {
	if g.create.Spawn == op.SpawnLazy {
		return newPending(pty.NewPending(l, g)), nil
	}
	dev, proc, err := g.host.launch(l)
	if err != nil {
		return nil, err
	}
	return newProgram(dev, proc), nil
}

// Launch implements [pty.Starter]: it starts the program of a terminal that has
// waited for its first byte, with the environment as it is by now.
func (g *ground) Launch(l pty.Launch) (pty.Device, pty.Child, error) {
	if g.lent == nil {
		start, err := g.host.prepare(g.session, g.id, l.Account, g.create)
		if err != nil {
			return nil, nil, g.notLaunched(err)
		}
		l.Env = start.Env
	}
	dev, proc, err := g.host.launch(l)
	if err != nil {
		return nil, nil, g.notLaunched(err)
	}
	g.host.NoteList(g.session)
	return dev, proc, nil
}

// notLaunched returns what the terminal says where its program can't be started.
func (g *ground) notLaunched(err error) error {
	g.host.log.Warn("a terminal's program can't be started", "pty", g.id, "error", err)
	return protocol.AsError(err)
}

// prepare completes how the terminal is started.
func (g *ground) prepare(l *pty.Launch) error {
	if lent := g.lent; lent != nil {
		l.Account, l.Argv, l.Dir, l.Env, l.Mark, l.Front = lent.Account, lent.Argv, lent.Dir, lent.Env, lent.Mark, true
		l.Env = append(l.Env, launch.ShellVariables(g.create.Shell)...)
		g.egress = lent.Egress
		return nil
	}
	a, err := g.host.accounts.Acquire(g.id)
	if err != nil {
		return err
	}
	if err := a.Introduce(g.create.CreatorID, g.create.CreatorName); err != nil {
		g.release(a)
		return err
	}
	begins, err := g.host.prepare(g.session, g.id, a, g.create)
	if err != nil {
		g.release(a)
		return err
	}
	l.Account, l.Env = a, begins.Env
	g.account, g.egress, g.notice = a, begins.Egress, g.host.furnishNew(begins, a)
	return nil
}

// leave is called when nothing of the terminal runs any more. The features may
// know something of a terminal itself, also where its account is another's.
func (g *ground) leave() {
	ended := feature.Terminal{Session: g.session, PTY: g.id, UID: -1}
	if g.lent == nil {
		ended.UID = g.account.UID
	}
	if g.host.config.Features != nil {
		g.host.config.Features.TerminalEnded(ended)
	}
	if g.lent != nil {
		g.lent.Return()
		return
	}
	g.release(g.account)
}

// release gives back an account of the terminal's own.
func (g *ground) release(a account.Account) {
	if err := g.host.accounts.Release(a); err != nil {
		g.host.log.Warn("a terminal's account was not fully released", "error", err)
	}
}

// CreateLent starts a terminal in session for what runs under another account,
// which is returned when nothing of it runs any more, or at once when it fails.
// Neither its end nor the terminal's touches what else runs under that account. An
// empty id has one made.
//
// To the features its program is not the terminal's: it has the variables, tools
// and ways to the network of the account that it runs under. Nothing is ever
// written into that account's home for the terminal.
func (h *Host) CreateLent(ctx context.Context, session protocol.SessionID, id protocol.PTYID, p op.PTYCreate, lent launch.Lent) (protocol.PTYInfo, error) {
	if id == "" {
		id = protocol.NewPTYID()
	}
	info, err := h.create(ctx, &ground{host: h, session: session, id: id, create: p, lent: &lent})
	if err != nil {
		lent.Return()
	}
	return info, err
}

// lent reports whether the terminal's account isn't its own.
func (t *Terminal) lent() bool { return t.launched.Front }

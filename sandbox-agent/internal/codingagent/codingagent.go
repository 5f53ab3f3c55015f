// Package codingagent runs the programs of coding agents for conversations: on
// pipes, under an account and in a home that all conversations of a session
// share, and ends each with everything that it has started.
//
// To the features of the sandbox such an account is what a terminal is: it has an
// id like one, and finds the same variables, secrets, tools and ways to the
// network. Its home outlives the agent, for in it are the transcripts and logins
// of coding agents.
package codingagent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/account"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/launch"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
	"github.com/fairlead/fairlead/sandbox-agent/internal/provider"
)

// IDVariable has the id of its terminal, or of such an account, in the environment
// of every program.
const IDVariable = account.IDVariable

// Options configure a Host.
type Options struct {
	Accounts *account.Pool // the terminals'
	Setup    launch.Setup  // the terminals'
	// Features are what programs find around them; nil: nothing.
	Features Features
	// AllowPrivileges lets programs gain privileges by what they run.
	AllowPrivileges bool
	Log             *slog.Logger // nil: silent
}

// Features are what the programs of a session's account find around them.
// [feature.Set] is all of them. The account's first program begins what
// TerminalEnded ends after its last one.
type Features interface {
	feature.Starter
	feature.Furnisher
	feature.Ender
}

// A Launch says what to start.
type Launch struct {
	Session protocol.SessionID
	Command provider.Command
	Dir     string   // in or below the workspace; "": the workspace
	Env     []string // "NAME=value", beyond what every program of the session has
}

// A Host runs coding agents' programs. It is safe for concurrent use.
type Host struct {
	o Options // static after construction

	mu sync.Mutex
	// Guarded by mu.
	accounts map[protocol.SessionID]*sessionAccount
	closed   bool
}

// New returns a Host that runs nothing. What an earlier one has left running was
// ended by [account.Pool.ClearLeftovers].
func New(o Options) *Host {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Host{o: o, accounts: make(map[protocol.SessionID]*sessionAccount)}
}

// A sessionAccount is what the programs of a session run as.
type sessionAccount struct {
	session protocol.SessionID   // static after construction
	user    atomic.Pointer[user] // nil: nobody; readers wait for no start

	mu sync.Mutex // held while a program starts
	// Guarded by mu.
	ended   bool // another one takes its place
	kept    *account.Kept
	running map[*Process]struct{}
	lent    int  // how many terminals have it
	begun   bool // the features know of it
}

// A user is whom a session's programs run as.
type user struct {
	id  protocol.PTYID
	uid int
}

// Start starts a program for a conversation of a session. It fails with
// KindInvalid for a folder that isn't below the workspace and, with how to
// install it, for a program that isn't there; with KindTooMany when no uid is
// free; and with KindUnavailable when the Host is closed or ctx has ended.
func (h *Host) Start(ctx context.Context, l Launch) (*Process, error) {
	dir, err := h.check(ctx, l)
	if err != nil {
		return nil, err
	}
	for {
		a, err := h.account(l.Session)
		if err != nil {
			return nil, err
		}
		p, err := h.start(a, l, dir)
		if !errors.Is(err, errEnded) {
			return p, err
		}
	}
}

// check returns the folder where l works, or why it can't be started.
func (h *Host) check(ctx context.Context, l Launch) (dir string, err error) {
	if !protocol.ValidID(l.Session) {
		return "", protocol.Errorf(protocol.KindInvalid, "not the id of a session")
	}
	if name := l.Command.Program; name == "" || strings.HasPrefix(name, "-") || strings.ContainsAny(name, "/\x00") {
		return "", protocol.Errorf(protocol.KindInvalid, "not a program's name")
	}
	if dir, err = h.o.Setup.Folder(l.Dir); err != nil {
		return "", err
	}
	if err := ctx.Err(); err != nil {
		return "", protocol.Fault(protocol.KindUnavailable, err)
	}
	return dir, nil
}

// endWithin is how long programs may take to end when their session does. Then
// they are killed.
const endWithin = 2 * time.Second

// errEnded says that an account was left meanwhile.
var errEnded = errors.New("codingagent: the account was left")

// account returns a session's account, which need not be anybody yet.
func (h *Host) account(session protocol.SessionID) (*sessionAccount, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, protocol.Errorf(protocol.KindUnavailable, "the sandbox is shutting down")
	}
	a := h.accounts[session]
	if a == nil {
		a = &sessionAccount{session: session, running: make(map[*Process]struct{})}
		h.accounts[session] = a
	}
	return a, nil
}

// start starts l in dir as a.
func (h *Host) start(a *sessionAccount, l Launch, dir string) (*Process, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	begins, err := h.ready(a, l)
	if err != nil {
		return nil, err
	}
	cmd := process.Command(append([]string{l.Command.Program}, l.Command.Args...))
	cmd.Dir, cmd.Env = dir, begins.Env
	cmd.SysProcAttr.Credential = a.kept.Credential()
	start := process.StartConfined
	if h.o.AllowPrivileges {
		start = (*exec.Cmd).Start
	}
	p, err := launchOnPipes(cmd, process.NewMark(a.kept.UID, a.kept.GID), start, h.o.Log, func(p *Process) { h.released(a, p) })
	if err != nil {
		h.idle(a)
		return nil, protocol.AsError(err)
	}
	a.running[p] = struct{}{}
	return p, nil
}

// keep makes a somebody. The caller holds a.mu.
func (h *Host) keep(a *sessionAccount) error {
	if a.kept != nil {
		return nil
	}
	kept, err := h.o.Accounts.Keep(a.session)
	if err != nil {
		return protocol.AsError(err)
	}
	a.kept = &kept
	a.user.Store(&user{kept.ID, kept.UID})
	return nil
}

// Hold has the home of session belong to its user until the session ends. Before
// that a terminal may have the uid of the home's last user.
func (h *Host) Hold(session protocol.SessionID) error {
	for {
		a, err := h.account(session)
		if err != nil {
			return err
		}
		a.mu.Lock()
		ended := a.ended
		if !ended {
			err = h.keep(a)
		}
		a.mu.Unlock()
		if !ended {
			return err
		}
	}
}

// ready makes a somebody, as whom l can be started, and returns the program about
// to start. The caller holds a.mu, and calls idle if it doesn't start.
func (h *Host) ready(a *sessionAccount, l Launch) (*feature.Start, error) {
	if a.ended {
		return nil, errEnded
	}
	if err := h.keep(a); err != nil {
		return nil, err
	}
	if err := process.CheckInstalledForAll(l.Command.Program, h.o.Setup.SearchPath, a.kept.Home); err != nil {
		return nil, err
	}
	begins, err := h.prepare(a, l)
	if err != nil {
		h.idle(a)
		return nil, protocol.AsError(err)
	}
	return begins, nil
}

// prepare returns a program about to start with its whole environment, and puts
// into the home what it needs to find the agent's tools. What keeps it from those
// is logged. The caller holds a.mu.
func (h *Host) prepare(a *sessionAccount, l Launch) (*feature.Start, error) {
	start := &feature.Start{Terminal: a.terminal()}
	if h.o.Features != nil {
		if err := h.o.Features.TerminalStarts(start); err != nil {
			return nil, err
		}
	}
	begun := a.begun
	a.begun = true
	env := h.o.Setup.Environment(a.session, a.kept.ID, a.kept.Account)
	if start.Credentials != nil {
		env = append(env, launch.CredentialVariables(*start.Credentials)...)
	}
	start.Env = slices.Concat(env, start.Env, l.Command.Env, l.Env)
	var err error
	if !begun {
		err = launch.WriteCredentials(start.Credentials, a.kept.Account)
	}
	if cli := process.KnownAgent(l.Command.Program); h.o.Features != nil && cli != "" {
		err = errors.Join(err, launch.Furnish(h.o.Features, feature.Home{Terminal: start.Terminal, Agent: cli, ToolsOnly: true}, a.kept.Account))
	}
	if err != nil {
		h.o.Log.Warn("a coding agent is without the sandbox's tools", "session", a.session, "program", l.Command.Program, "err", err)
	}
	return start, nil
}

// terminal returns what a is to the features. The caller holds a.mu.
func (a *sessionAccount) terminal() feature.Terminal {
	return feature.Terminal{Session: a.session, PTY: a.kept.ID, UID: a.kept.UID}
}

// released notes that nothing is left of p.
func (h *Host) released(a *sessionAccount, p *Process) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.running, p)
	h.idle(a)
}

// idle tells the features when nothing runs as a any more. The caller holds
// a.mu.
func (h *Host) idle(a *sessionAccount) {
	if a.begun && len(a.running) == 0 && a.lent == 0 {
		a.begun = false
		if h.o.Features != nil {
			h.o.Features.TerminalEnded(a.terminal())
		}
	}
}

// known returns a session's account if something has run as it.
func (h *Host) known(session protocol.SessionID) *sessionAccount {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.accounts[session]
}

// UID returns the uid of the account id of session, −1 where programs run as the
// agent's own user. It is false when there is no such account, or nobody has used
// it since the agent has started.
func (h *Host) UID(session protocol.SessionID, id protocol.PTYID) (uid int, ok bool) {
	a := h.known(session)
	if a == nil {
		return 0, false
	}
	if u := a.user.Load(); u != nil && u.id == id {
		return u.uid, true
	}
	return 0, false
}

// Home returns the home that the programs of session have, or will have. It may
// not exist.
func (h *Host) Home(session protocol.SessionID) string { return h.o.Accounts.KeptHome(session) }

// Running returns how many programs run.
func (h *Host) Running() (n int) {
	h.mu.Lock()
	accounts := slices.Collect(maps.Values(h.accounts))
	h.mu.Unlock()
	for _, a := range accounts {
		a.mu.Lock()
		n += len(a.running)
		a.mu.Unlock()
	}
	return n
}

// SessionEnded ends all programs of a session, and removes its home.
func (h *Host) SessionEnded(session protocol.SessionID) error {
	h.mu.Lock()
	a := h.accounts[session]
	delete(h.accounts, session)
	h.mu.Unlock()
	var err error
	if a != nil {
		err = h.leave(a)
	}
	return errors.Join(err, h.o.Accounts.Forget(session))
}

// Close ends all programs. Homes stay.
func (h *Host) Close() error {
	h.mu.Lock()
	h.closed = true
	accounts := slices.Collect(maps.Values(h.accounts))
	clear(h.accounts)
	h.mu.Unlock()
	errs := make([]error, len(accounts))
	var leaving sync.WaitGroup
	for i, a := range accounts {
		leaving.Go(func() { errs[i] = h.leave(a) })
	}
	leaving.Wait()
	return errors.Join(errs...)
}

// leave ends all programs of an account, and leaves it.
func (h *Host) leave(a *sessionAccount) error {
	a.mu.Lock()
	a.ended = true
	running := slices.Collect(maps.Keys(a.running))
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), endWithin)
	defer cancel()
	var ending sync.WaitGroup
	for _, p := range running {
		ending.Go(func() {
			if err := p.End(ctx); err != nil {
				h.o.Log.Error("a coding agent can't be ended", "session", a.session, "err", err)
			}
		})
	}
	ending.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.kept == nil {
		return nil
	}
	if err := h.o.Accounts.Leave(*a.kept); err != nil {
		return fmt.Errorf("codingagent: %w", err)
	}
	return nil
}

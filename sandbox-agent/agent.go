// Package agent is the sandbox's side: it dials out to a relay, hosts the
// terminals, and runs what the control plane has signed. It listens on loopback
// alone, for its terminals' programs.
package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/audit"
	"github.com/fairlead/fairlead/sandbox-agent/internal/authority"
	"github.com/fairlead/fairlead/sandbox-agent/internal/egress"
	"github.com/fairlead/fairlead/sandbox-agent/internal/executor"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/ledger"
	"github.com/fairlead/fairlead/sandbox-agent/internal/link"
	"github.com/fairlead/fairlead/sandbox-agent/internal/loopback"
	"github.com/fairlead/fairlead/sandbox-agent/internal/mask"
	"github.com/fairlead/fairlead/sandbox-agent/internal/recording"
	"github.com/fairlead/fairlead/sandbox-agent/internal/terminal"
	"github.com/fairlead/fairlead/sandbox-agent/internal/uplink"
	"github.com/fairlead/fairlead/tunnel"
)

// noteTimeout bounds the recording of what an earlier process left undone.
const noteTimeout = 5 * time.Second

// shutdownTimeout bounds how long terminals get to end with the agent.
const shutdownTimeout = 5 * time.Second

// Agent is the agent of one sandbox. Make one with New, then Run it once.
type Agent struct {
	// Static after construction.
	cfg        Config
	log        *slog.Logger
	instance   string // of this process, random
	identity   *authority.Identity
	authority  *authority.Authority
	ledger     *ledger.Ledger
	audit      *audit.Log
	recordings *recording.Store
	host       *terminal.Host
	features   *feature.Set // closes what was opened, the last first
	egress     *egress.Gate
	link       *link.Link
	tunnels    *uplink.Tunnels
	status     *reporter
	secrets    *mask.Secrets
}

// Run enrols the sandbox where that is still to be done, and runs its agent
// until ctx ends. From its beginning on the status file is its own: what an
// agent that was killed has left there says nothing any more.
func Run(ctx context.Context, cfg Config) error {
	cfg.say(Status{})
	if err := enrol(ctx, cfg); err != nil {
		return err
	}
	a, err := New(cfg)
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

// enrol exchanges the invitation, if there is one, for an enrolment.
func enrol(ctx context.Context, cfg Config) error {
	if cfg.Invitation == "" {
		return nil
	}
	if err := errors.Join(cfg.check(), harden()); err != nil {
		return err
	}
	return authority.Enrol(ctx, authority.EnrolOptions{
		Invitation: cfg.Invitation, StateDir: cfg.StateDir, Enrolment: cfg.Enrolment,
		Relays: cfg.Relays, Carriers: cfg.carriers(), Log: cfg.Logger,
	}, func(p protocol.Problem) { cfg.say(Status{Problems: []protocol.Problem{p}}) })
}

// New reads the agent's state and prepares its terminals.
func New(cfg Config) (*Agent, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	leaveCores()
	if err := harden(); err != nil {
		return nil, err
	}
	a := &Agent{cfg: cfg, instance: strings.ToLower(rand.Text()), secrets: &mask.Secrets{}, features: &feature.Set{}}
	a.log = slog.New(a.secrets.Handler(cfg.Logger.Handler()))
	for _, step := range []func() error{a.load, a.build} {
		if err := step(); err != nil {
			return nil, errors.Join(err, a.features.Close())
		}
	}
	return a, nil
}

// harden keeps what this process holds to itself: terminals run programs we
// don't trust, which must not read its memory or files, even where they share
// its user.
func harden() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("PR_SET_DUMPABLE: %w", err)
	}
	return nil
}

// leaveCores keeps this process to half of the machine's cores, unless
// GOMAXPROCS says otherwise: the agent is a guest, the cores are for the work.
// It is also faster on a small machine, where a key would wake an idle thread
// at every step of its way (keystroke echo with 2 cores: 2.4 instead of 2.9
// times a direct PTY's).
func leaveCores() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(1, runtime.NumCPU()/2))
	}
}

// load reads the state directory.
func (a *Agent) load() (err error) {
	if a.identity, err = authority.Load(a.cfg.StateDir, a.cfg.Enrolment); err != nil {
		return err
	}
	if a.ledger, err = ledger.Open(filepath.Join(a.cfg.StateDir, "ledger"), time.Now); err != nil {
		return err
	}
	a.features.Add(a.ledger)
	enrolment := a.identity.Enrolment
	if len(a.cfg.Relays) == 0 {
		a.cfg.Relays = enrolment.Relays
	}
	a.tunnels = uplink.New(uplink.Options{
		Relays: a.cfg.Relays, TLS: a.identity.RelayTLS, Carriers: a.cfg.carriers(),
		Hello: protocol.Hello{
			SandboxID: enrolment.SandboxID, InstanceID: a.instance, Revision: a.cfg.Revision, Isolation: string(isolation()),
		},
		Generations: a.ledger, Log: a.log, Patience: a.cfg.patience,
	})
	a.status = newReporter(&a.cfg, a.log)
	a.audit, err = audit.Open(audit.Options{
		Dir: filepath.Join(a.cfg.StateDir, "audit"), Sandbox: enrolment.SandboxID, Device: a.identity.Device,
		Now: time.Now, Logger: a.log, Changed: a.status.news,
	})
	if err != nil {
		return err
	}
	a.features.Add(a.audit)
	a.authority, err = authority.Open(authority.Options{
		Identity: a.identity, KeysMaxAge: a.cfg.KeysMaxAge, Dialer: a.tunnels, Audit: a.audit,
		Changed: a.status.news, Log: a.log,
	})
	if err != nil {
		return err
	}
	a.features.Add(a.authority)
	return nil
}

// isolation returns how far terminals can be kept apart.
func isolation() terminal.Isolation {
	if os.Geteuid() == 0 {
		return terminal.IsolationUID
	}
	return terminal.IsolationNone
}

// build makes the terminals' host, the features, and what serves relays. Programs
// of terminals find the features around them: the host knows the Set, which is
// complete before a relay can ask for the first terminal.
func (a *Agent) build() error {
	listeners, err := a.cfg.listen()
	if err != nil {
		return err
	}
	a.features.Add(listeners)
	if a.recordings, err = a.cfg.openRecordings(a.log); err != nil {
		return err
	}
	older, err := a.cfg.openSpill(a.log)
	if err != nil {
		return err
	}
	if older != nil {
		a.features.Add(older)
	}
	isolation := isolation()
	program, err := ownProgram(a.cfg.Homes, isolation == terminal.IsolationUID)
	if err != nil {
		return err
	}
	a.host, err = terminal.NewHost(terminal.Config{
		Workspace: a.cfg.Workspace, Homes: a.cfg.Homes, Isolation: isolation, Logger: a.log,
		AllowPrivileges: a.cfg.AllowPrivileges, Passwd: a.cfg.userList(isolation, a.log),
		Recordings: a.recordings, Spill: older, Revoked: a.authority.Trust.Revocations.Set, Leases: a.audit, Turns: a.authority.Outbox,
		SearchPath: terminal.DefaultSearchPath + ":" + filepath.Dir(program), Features: a.features,
	})
	if err != nil {
		return err
	}
	if err := a.fill(listeners, program); err != nil {
		a.host.Shutdown(context.Background()) // it has no terminals yet
		return err
	}
	a.log.Info("agent ready", "sandbox", a.identity.Enrolment.SandboxID, "instance", a.instance,
		"isolation", isolation, "revision", a.cfg.Revision)
	return nil
}

// fill makes the features and what serves them to relays.
func (a *Agent) fill(l listeners, program string) error {
	if a.host.Isolation() == terminal.IsolationUID {
		if err := checkReach(a.cfg.Workspace, a.cfg.Homes); err != nil {
			return err
		}
	}
	b := &builder{a, l, loopback.Ports{Agent: l.ports(), Terminals: a.host}, program}
	if err := b.network(); err != nil {
		return err
	}
	if err := b.agents(); err != nil {
		return err
	}
	run, err := b.sandbox()
	if err != nil {
		return err
	}
	a.noteLost(run)
	a.link = &link.Link{
		Sandbox: a.identity.Enrolment.SandboxID, Keys: a.authority.Trust.Keys, Host: a.host, Arrive: func() link.Execute { return run.Arrive().Execute },
		Recordings: a.recordings, Revision: a.cfg.Revision, Log: a.log,
		Followed: feature.Of[feature.Followed](a.features), Services: []feature.Router{a.features},
		Grants: lifetime.New(lifetime.Options{Revoked: a.authority.Trust.Revocations.Set, Skew: jws.Skew}),
	}
	return nil
}

func (a *Agent) health() health { return health{a.tunnels, a.authority, a.ledger, a.audit, a.egress} }

// noteLost records the commands whose outcomes an earlier process took with it.
func (a *Agent) noteLost(run *executor.Executor) {
	ctx, cancel := context.WithTimeout(context.Background(), noteTimeout)
	defer cancel()
	if err := run.NoteLost(ctx); err != nil {
		a.log.Warn("lost commands not recorded", "err", err)
	}
}

// Run keeps tunnels to up to two relays until ctx ends, or until another copy
// of this sandbox takes over, which is an error.
func (a *Agent) Run(ctx context.Context) error {
	defer a.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var keeping sync.WaitGroup // Run waits for it
	keeping.Go(func() { a.status.keep(ctx, a.health(), a.tunnels) })
	keeping.Go(func() { a.features.Run(ctx) })
	err := a.tunnels.Run(ctx, a.authority.Credentials, a)
	cancel()
	keeping.Wait()
	return err
}

// Serve implements [uplink.Server].
func (a *Agent) Serve(ctx context.Context, session *tunnel.Session) {
	var serving sync.WaitGroup
	serving.Go(func() { a.link.Serve(ctx, session) })
	a.status.greet(session)
	a.features.Reconnected()
	serving.Go(func() { a.authority.Trust.Follow(ctx, func() bool { return a.tunnels.Primary() == session }) })
	serving.Wait()
}

func (a *Agent) close() {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	a.host.Shutdown(ctx)
	a.link.Wait()
	if err := a.features.Close(); err != nil {
		a.log.Warn("the sandbox's features were not wholly closed", "err", err)
	}
}

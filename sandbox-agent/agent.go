// Package agent is the sandbox's side: it dials out to a relay, hosts the
// terminals, and runs what the control plane has signed. It listens on loopback
// alone, for its terminals' programs.
package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/authority"
	"github.com/fairlead/fairlead/sandbox-agent/internal/link"
	"github.com/fairlead/fairlead/sandbox-agent/internal/loopback"
	"github.com/fairlead/fairlead/sandbox-agent/internal/terminal"
	"github.com/fairlead/fairlead/tunnel"
)

// shutdownTimeout bounds how long terminals get to end with the agent.
const shutdownTimeout = 5 * time.Second

// Agent is the agent of one sandbox. Make one with New, then Run it once.
type Agent struct {
	// Static after construction.
	*base
	host   *terminal.Host
	link   *link.Link
	status *reporter
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
	b, err := newBase(cfg)
	if err != nil {
		return nil, err
	}
	a, err := build(b)
	if err != nil {
		return nil, errors.Join(err, b.features.Close())
	}
	return a, nil
}

// build makes the terminals' host, the features, and what serves relays. Programs
// of terminals find the features around them: the host knows the Set, which is
// complete before a relay can ask for the first terminal.
func build(b *base) (*Agent, error) {
	listeners, err := b.cfg.listen()
	if err != nil {
		return nil, err
	}
	b.features.Add(listeners)
	recordings, err := b.cfg.openRecordings(b.log)
	if err != nil {
		return nil, err
	}
	older, err := b.cfg.openSpill(b.log)
	if err != nil {
		return nil, err
	}
	if older != nil {
		b.features.Add(older)
	}
	isolation := isolation()
	program, err := ownProgram(b.cfg.Homes, isolation == terminal.IsolationUID)
	if err != nil {
		return nil, err
	}
	host, err := terminal.NewHost(terminal.Config{
		Workspace: b.cfg.Workspace, Homes: b.cfg.Homes, Isolation: isolation, Logger: b.log,
		AllowPrivileges: b.cfg.AllowPrivileges, Passwd: b.cfg.userList(isolation, b.log),
		Recordings: recordings, Spill: older, Revoked: b.authority.Trust.Revocations.Set, Leases: b.audit, Turns: b.authority.Outbox,
		SearchPath: b.cfg.searchPath(filepath.Dir(program)), Features: b.features,
	})
	if err != nil {
		return nil, err
	}
	ports := loopback.Ports{Agent: listeners.ports(), Terminals: host}
	served, status, err := (&builder{base: b, listeners: listeners, ports: ports, program: program, host: host, recordings: recordings}).build()
	if err != nil {
		host.Shutdown(context.Background()) // it has no terminals yet
		return nil, err
	}
	b.log.Info("agent ready", "sandbox", b.identity.Enrolment.SandboxID, "instance", b.instance,
		"isolation", isolation, "revision", b.cfg.Revision)
	return &Agent{base: b, host: host, link: served, status: status}, nil
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

// Run keeps tunnels to up to two relays until ctx ends, or until another copy
// of this sandbox takes over, which is an error.
func (a *Agent) Run(ctx context.Context) error {
	defer a.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup // Run waits for it
	running.Go(func() { a.features.Run(ctx) })
	err := a.tunnels.Run(ctx, a.authority.Credentials, a)
	cancel()
	running.Wait()
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
		a.log.Warn("not all was closed", "err", err)
	}
}

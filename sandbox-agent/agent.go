// Package agent is the sandbox's side: it dials out to a relay, hosts the
// terminals, and runs what the control plane has signed. It listens nowhere.
package agent

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/executor"
	"github.com/fairlead/fairlead/sandbox-agent/internal/ledger"
	"github.com/fairlead/fairlead/sandbox-agent/internal/link"
	"github.com/fairlead/fairlead/sandbox-agent/internal/terminal"
	"github.com/fairlead/fairlead/tunnel"
)

// shutdownTimeout bounds how long terminals get to end with the agent.
const shutdownTimeout = 5 * time.Second

// Agent is the agent of one sandbox. Make one with New, then Run it once.
type Agent struct {
	// Static after construction.
	cfg            Config
	log            *slog.Logger
	instance       string // of this process, random
	enrolment      *protocol.Enrolment
	device         *jws.DeviceKey
	relayCA        *x509.CertPool
	controlPlaneCA *x509.CertPool
	keys           *jws.Keys
	ledger         *ledger.Ledger
	host           *terminal.Host
	link           *link.Link

	session atomic.Pointer[tunnel.Session] // the registered tunnel, if any
}

// New reads the agent's state and prepares its terminals.
func New(cfg Config) (*Agent, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	leaveCores()
	// Terminals run programs we don't trust: they must not read this
	// process's memory or files, even where they share its user.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("PR_SET_DUMPABLE: %w", err)
	}
	a := &Agent{cfg: cfg, log: cfg.Logger, instance: strings.ToLower(rand.Text())}
	if err := a.load(); err != nil {
		return nil, err
	}
	if err := a.build(); err != nil {
		return nil, errors.Join(err, a.ledger.Close())
	}
	return a, nil
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
func (a *Agent) load() error {
	var err error
	if a.device, err = DeviceKey(a.cfg.StateDir); err != nil {
		return err
	}
	if a.enrolment, err = loadEnrolment(a.cfg.Enrolment); err != nil {
		return err
	}
	if len(a.cfg.Relays) == 0 {
		a.cfg.Relays = a.enrolment.Relays
	}
	if a.relayCA, err = certPool(a.enrolment.RelayCAPEM); err != nil {
		return fmt.Errorf("enrolment %s: relay_ca_pem: %w", a.cfg.Enrolment, err)
	}
	if a.controlPlaneCA, err = certPool(a.enrolment.ControlPlane.CAPEM); err != nil {
		return fmt.Errorf("enrolment %s: control_plane.ca_pem: %w", a.cfg.Enrolment, err)
	}
	known, err := a.knownKeys()
	if err != nil {
		return err
	}
	a.keys = jws.NewKeys(known, jws.KeysOptions{Fetch: a.fetchKeys, OnUpdate: a.storeKeys})
	a.ledger, err = ledger.Open(filepath.Join(a.cfg.StateDir, "ledger"), time.Now)
	return err
}

// build makes what serves relays.
func (a *Agent) build() error {
	isolation := terminal.IsolationNone
	if os.Geteuid() == 0 {
		isolation = terminal.IsolationUID
	}
	var err error
	a.host, err = terminal.NewHost(terminal.Config{
		Workspace: a.cfg.Workspace, Homes: a.cfg.Homes, Isolation: isolation, Logger: a.log,
	})
	if err != nil {
		return err
	}
	if isolation == terminal.IsolationUID {
		if err := checkReach(a.cfg.Workspace, a.cfg.Homes); err != nil {
			a.host.Shutdown(context.Background()) // it has no terminals yet
			return err
		}
	}
	run := &executor.Executor{
		Sandbox: a.enrolment.SandboxID, Keys: a.keys, Ledger: a.ledger, Terminals: a.host, Now: time.Now, Log: a.log,
	}
	a.link = &link.Link{
		Sandbox: a.enrolment.SandboxID, Keys: a.keys, Host: a.host, Execute: run.Execute,
		Revision: a.cfg.Revision, Now: time.Now, Log: a.log,
	}
	a.log.Info("agent ready", "sandbox", a.enrolment.SandboxID, "instance", a.instance,
		"isolation", isolation, "revision", a.cfg.Revision)
	return nil
}

// Run keeps a tunnel to a relay until ctx ends, or until another copy of this
// sandbox takes over, which is an error.
func (a *Agent) Run(ctx context.Context) error {
	defer a.close()
	err := tunnel.Run(ctx, tunnel.RunConfig{
		Addrs: a.cfg.Relays, Dial: a.dial, Serve: a.serve, Fatal: fatal, Logger: a.log,
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (a *Agent) close() {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	a.host.Shutdown(ctx)
	a.link.Wait()
	if err := a.ledger.Close(); err != nil {
		a.log.Warn("ledger not closed", "err", err)
	}
}

// fatal reports whether dialling again is pointless: another copy of the
// sandbox is newer. A certificate that is refused may be accepted later, by a
// relay that knows newer keys.
func fatal(err error) bool {
	var e *protocol.Error
	return errors.As(err, &e) && e.Kind == protocol.KindSuperseded
}

// dial opens and registers a tunnel under a new generation.
func (a *Agent) dial(ctx context.Context, addr string) (*tunnel.Session, error) {
	generation, err := a.ledger.NextGeneration()
	if err != nil {
		return nil, err
	}
	return tunnel.Dial(ctx, tunnel.DialConfig{
		Addr:   addr,
		TLS:    &tls.Config{RootCAs: a.relayCA, MinVersion: tls.VersionTLS13},
		Logger: a.log,
		Hello: func(c protocol.Challenge, exporter []byte) (protocol.Hello, error) {
			signature, err := a.device.Sign(protocol.HelloTranscript(c.RelayID, c.Nonce, exporter))
			return protocol.Hello{
				MinVersion: protocol.MinVersion, MaxVersion: protocol.MaxVersion,
				SandboxID: a.enrolment.SandboxID, Certificate: a.enrolment.Certificate,
				Generation: generation, InstanceID: a.instance, Revision: a.cfg.Revision,
				Isolation: string(a.host.Isolation()), Signature: signature,
			}, err
		},
	})
}

// serve uses a registered tunnel until it is over.
func (a *Agent) serve(ctx context.Context, session *tunnel.Session) error {
	a.session.Store(session)
	defer a.session.CompareAndSwap(session, nil)
	a.log.Info("connected", "relay", session.Welcome().RelayID, "addr", session.RemoteAddr())
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan struct{})
	go func() { // serve waits for it below
		defer close(served)
		a.link.Serve(ctx, session)
	}()
	refreshed := make(chan struct{})
	go func() { // serve waits for it below
		defer close(refreshed)
		a.refreshKeys(ctx)
	}()
	err := a.watch(ctx, session)
	cancel()
	session.Close()
	<-served
	<-refreshed
	return err
}

// watch waits for the end of session and says why.
func (a *Agent) watch(ctx context.Context, session *tunnel.Session) error {
	select {
	case m := <-session.GoAways():
		return a.leave(m)
	case <-session.Done():
		select {
		case m := <-session.GoAways(): // it came with the end
			return a.leave(m)
		default:
		}
		a.log.Info("disconnected", "err", session.Err())
		return nil
	case <-ctx.Done():
		return nil
	}
}

// leave acts on a GOAWAY: it is an error only when another copy of this
// sandbox took over.
func (a *Agent) leave(m protocol.GoAway) error {
	if m.Reason == protocol.KindSuperseded && m.InstanceID != a.instance {
		return protocol.Errorf(protocol.KindSuperseded,
			"another copy of sandbox %s took over (instance %s; this is %s): %s",
			a.enrolment.SandboxID, m.InstanceID, a.instance, m.Message)
	}
	a.log.Info("the relay asks to go", "reason", m.Reason, "message", m.Message)
	return nil
}

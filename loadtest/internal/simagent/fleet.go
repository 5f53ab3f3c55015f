// Package simagent simulates sandboxes: many agents in one process that hold
// real tunnels to real relays, under real certificates, and carry out what the
// control plane signs, on terminals that are not there.
//
// A simulated terminal runs package source, whatever it was asked to run: it
// says "ready", and obeys orders that are typed into it. Everything else of a
// terminal is as the protocol has it: its log, keyframes, the lease, input that
// is written once, and who holds it back. It has no files, secrets, approvals,
// recordings or coding agents: such commands are refused as unsupported.
package simagent

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/loadtest/internal/enrol"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/tunnel"
)

// A Config says which sandboxes are simulated, and how.
type Config struct {
	// Identities are the sandboxes, all of one control plane.
	Identities []enrol.Identity
	// Relays are the addresses ("host:port") of tunnels; empty: those of the
	// enrolment. Agent i dials the relay i modulo their number first, and has one
	// tunnel at a time.
	Relays []string
	// Carriers are those that may be used; empty: QUIC and WebSocket.
	Carriers []tunnel.Carrier
	// FetchKeys returns the control plane's JWK set when something is signed by
	// a key that is not in the enrolment's; nil: there are no others.
	FetchKeys func(ctx context.Context) ([]byte, error)
	// Window is how much output each terminal keeps, in bytes; 0:
	// protocol.LogWindowBytes.
	Window int
	// Registered is told of each registration, Failed of each dial that came to
	// nothing, Lost of each tunnel's end; they may be nil, and must not wait.
	Registered func(sandbox protocol.SandboxID, at time.Time)
	Failed     func(sandbox protocol.SandboxID, at time.Time, err error)
	Lost       func(sandbox protocol.SandboxID, at time.Time, err error)
	Logger     *slog.Logger // nil: nobody reads it
}

// A Fleet is a number of simulated agents.
type Fleet struct {
	// Static after construction.
	cfg      Config
	tls      *tls.Config
	keys     *jws.Keys
	revoked  *jws.RevocationSet
	instance string
	agents   []*agent
	log      *slog.Logger

	generation atomic.Uint64 // of the last dial of all

	mu sync.Mutex
	// Guarded by mu.
	stats   Stats
	changed chan struct{} // closed and replaced when stats change
}

// Stats says how a fleet stands.
type Stats struct {
	Agents        int
	Connected     int
	Ended         int   // agents that gave up: another copy of their sandbox took over
	Registrations int64 // since the beginning
	Failures      int64 // of dials
	Lost          int64 // tunnels that ended
	Terminals     int
}

// New returns a fleet that does nothing yet.
func New(cfg Config) (*Fleet, error) {
	if len(cfg.Identities) == 0 {
		return nil, errors.New("simagent: no identities")
	}
	first := cfg.Identities[0].Enrolment
	if len(cfg.Relays) == 0 {
		cfg.Relays = first.Relays
	}
	if cfg.Window == 0 {
		cfg.Window = protocol.LogWindowBytes
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(first.RelayCAPEM)) {
		return nil, errors.New("simagent: no certificate of the relays' authority can be read")
	}
	set, err := jws.ParseKeySet(first.JWKS)
	if err != nil {
		return nil, fmt.Errorf("simagent: %w", err)
	}
	f := &Fleet{
		cfg: cfg, tls: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13},
		revoked: jws.NewRevocationSet(), instance: rand.Text(), log: cfg.Logger,
		changed: make(chan struct{}),
	}
	f.keys = jws.NewKeys(set, jws.KeysOptions{Fetch: cfg.FetchKeys, Revoked: f.revoked})
	// It must be higher than what an earlier process of the same sandboxes said.
	f.generation.Store(uint64(time.Now().UnixMicro()))
	for i, identity := range cfg.Identities {
		f.agents = append(f.agents, &agent{
			fleet: f, sandbox: identity.Enrolment.SandboxID, certificate: identity.Enrolment.Certificate,
			device: identity.Device, relay: i % len(cfg.Relays),
		})
	}
	f.stats.Agents = len(f.agents)
	return f, nil
}

// Run keeps all agents connected until ctx ends, and then waits until nothing
// of them is left. It is called once.
func (f *Fleet) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, a := range f.agents {
		running.Go(func() { a.run(ctx) })
	}
	running.Wait()
}

// Stats returns how the fleet stands.
func (f *Fleet) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stats
}

// Await waits until at least n agents are connected.
func (f *Fleet) Await(ctx context.Context, n int) error {
	for {
		f.mu.Lock()
		enough, changed := f.stats.Connected >= n, f.changed
		f.mu.Unlock()
		if enough {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("simagent: %d of %d agents are connected: %w", f.Stats().Connected, n, context.Cause(ctx))
		}
	}
}

// count changes the stats.
func (f *Fleet) count(change func(*Stats)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.stats)
	close(f.changed)
	f.changed = make(chan struct{})
}

// Package controlplane says who may do what: it keeps users, dashboards and
// sessions, hands out grants, and signs every command that a sandbox runs.
package controlplane

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/access"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/authority"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/boards"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/clock"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/commands"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/commands/dispatch"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/commands/signing"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/contents"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/device"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/fleet"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/grants"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/integrations"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/keyring"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/metrics"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/notices"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/people"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/private"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/relays"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/statedir"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/tabs"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/usage"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/deploy/program/certfile"
	"github.com/fairlead/fairlead/protocol/jws"
)

// A Config says how a control plane runs.
type Config struct {
	StateDir string // signing keys and database; made if it doesn't exist
	Database string // URL or path, see [statedir.Location]; empty: a file in StateDir
	DevSeed  string // file with development users; empty: none
	Login    LoginConfig
	Webhook  notices.WebhookConfig // is told of approvals and of turns that end

	Integrations integrations.Config

	// The first listener, for relays and machines: without Cert plain HTTP, which is for
	// loopback only.
	Listen string // "host:port"
	Cert   string // PEM file; read again when it changes
	Key    string // PEM file; likewise

	// RelayURLCA is a PEM file with who vouches for relays at https URLs; empty: the
	// system's.
	RelayURLCA string

	// The second listener, for agents. Empty TLSListen: none.
	TLSListen string // "host:port"
	TLSCert   string // PEM file; read again when it changes
	TLSKey    string // PEM file; likewise

	AdminListen string // of the listener for operators, "host:port"; empty: none

	CertificateLife time.Duration // of those that sandboxes get; 0: [fleet.DefaultCertificateLife]
	GrantsPerPerson int           // live ones; 0: DefaultGrantsPerPerson

	Revision string
	Logger   *slog.Logger
	Now      func() time.Time // nil: time.Now
}

// DefaultGrantsPerPerson is how many live grants one person may have.
const DefaultGrantsPerPerson = 64

// requestKeyFile holds the key of the hashes by which a repeated env.apply is
// known again. Without it, whoever reads the database could try values out.
const (
	requestKeyFile  = "request.key"
	requestKeyBytes = 32
)

// A LoginConfig lets people sign in at an OpenID Connect provider.
type LoginConfig = people.LoginConfig

// A Server is a control plane with its listeners open.
type Server struct {
	// Static after construction: what the parts share.
	revision   string
	logger     *slog.Logger
	clock      clock.Clock
	web        *web.Server
	store      *store.Store
	keys       *keyring.Ring      // what signs, and verifies our own signatures
	requestKey []byte             // of the hashes of requests that hold secrets
	revoked    *jws.RevocationSet // what is void before its time
	relays     *relays.Directory
	gate       *access.Gate // asks people and relays who they are
	devices    *device.Gate // asks sandboxes
	usage      *usage.Meter
	metrics    *metrics.Metrics

	// Static after construction: the parts.
	list         *authority.List   // what is void, signed
	spread       *authority.Spread // tells relays and sandboxes of it
	commands     *commands.Commands
	people       *people.People
	grants       *grants.Grants
	boards       *boards.Boards
	contents     *contents.Contents
	integrations *integrations.Integrations
	tabs         *tabs.Tabs
	notices      *notices.Notices // what sandboxes tell of approvals and turns
	fleet        *fleet.Fleet

	// Static after construction: the listeners.
	public  net.Listener
	secured bool         // public speaks TLS
	agents  net.Listener // nil: no second listener
	admin   net.Listener // nil: none for operators

	// closing ends with the server: dispatches don't end with their browser.
	closing context.Context
	close   context.CancelFunc
}

// New opens the state and the listeners. Errors name the file or address that
// is at fault. Whoever gets a Server must call [Server.Run].
func New(ctx context.Context, cfg Config) (*Server, error) {
	s := &Server{
		revision: cfg.Revision, logger: cfg.Logger, clock: clock.New(cfg.Now),
	}
	s.web = web.New(s.revision, s.logger, s.clock)
	s.closing, s.close = context.WithCancel(context.WithoutCancel(ctx))
	if err := s.open(ctx, cfg); err != nil {
		s.close()
		return nil, errors.Join(err, s.closeResources())
	}
	return s, nil
}

func (s *Server) open(ctx context.Context, cfg Config) error {
	if err := s.openState(ctx, cfg); err != nil {
		return err
	}
	login, err := people.NewLogin(cfg.Login, cfg.StateDir, s.clock)
	if err != nil {
		return err
	}
	s.people = &people.People{
		Store: s.store.People, Sessions: s.store.Sessions, Login: login, Usage: s.usage,
		Gate: s.gate, Metrics: s.metrics, Clock: s.clock, Logger: s.logger,
	}
	hook, err := notices.NewWebhook(cfg.Webhook, cfg.Logger)
	if err != nil {
		return err
	}
	s.notices = notices.New(notices.Parts{
		Store: s.store.Sessions, People: s.gate, Sandboxes: s.devices, Webhook: hook, Clock: s.clock, Logger: s.logger,
	})
	in := cfg.Integrations
	in.PublicURL = cfg.Login.PublicURL
	s.tabs = &tabs.Tabs{
		Store: s.store.Tabs, Sessions: s.store.Sessions, Commands: s.commands, Gate: s.gate, Revoked: s.revoked,
		Clock: s.clock, Logger: s.logger,
	}
	if s.integrations, err = integrations.New(s.closing, in, integrations.Parts{
		Store: s.store.Integrations, Sessions: s.store.Sessions, People: s.gate, Sandboxes: s.devices,
		Relays: s.relays, Contents: s.store.Contents, Commands: s.commands, Tabs: s.tabs,
		Clock: s.clock, Logger: s.logger, Calls: s.metrics.Gateway, Secret: s.requestKey,
	}); err != nil {
		return err
	}
	s.tabs.Notify = s.integrations
	s.grants = &grants.Grants{
		Store: s.store.Grants, Sessions: s.store.Sessions, Boards: s.store.Boards, Keys: s.keys, Spread: s.spread,
		PerPerson: cmp.Or(cfg.GrantsPerPerson, DefaultGrantsPerPerson),
		Usage:     s.usage, Gate: s.gate, Metrics: s.metrics, Clock: s.clock, Logger: s.logger,
	}
	s.contents = &contents.Contents{Store: s.store.Contents, Gate: s.gate}
	s.boards = &boards.Boards{
		Store: s.store.Boards, Sessions: s.store.Sessions, Usage: s.store.Usage, Meter: s.usage,
		Grants: s.grants, Attachments: s.integrations, Gate: s.gate, Metrics: s.metrics, Clock: s.clock, Logger: s.logger,
	}
	if cfg.DevSeed != "" {
		if err := loadSeed(ctx, s.store, cfg.DevSeed); err != nil {
			return err
		}
	}
	return s.listen(cfg)
}

// openState opens the keys and the database.
func (s *Server) openState(ctx context.Context, cfg Config) error {
	s.metrics = metrics.New()
	s.revoked = jws.NewRevocationSetBy(s.clock.Now)
	var err error
	if s.keys, err = keyring.OpenIn(cfg.StateDir, keyring.Options{Now: s.clock.Now, Logger: s.logger, Revoked: s.revoked}); err != nil {
		return err
	}
	if s.requestKey, err = private.Key(filepath.Join(cfg.StateDir, requestKeyFile), requestKeyBytes); err != nil {
		return fmt.Errorf("request key: %w", err)
	}
	if s.store, err = (statedir.Location{StateDir: cfg.StateDir, Database: cfg.Database}).OpenStore(ctx, s.clock.Now); err != nil {
		return err
	}
	s.usage = usage.New(s.store.Usage, s.logger, s.clock)
	s.list = authority.NewList(s.store.Grants, s.keys, s.revoked, s.clock, s.logger)
	var believed *x509.CertPool // nil: the system's
	if cfg.RelayURLCA != "" {
		if believed, err = certfile.Pool(cfg.RelayURLCA); err != nil {
			return fmt.Errorf("--relay-url-ca: %w", err)
		}
	}
	s.relays = relays.New(s.store.Fleet, s.clock, believed)
	s.gate = access.NewGate(s.store.People, s.store.Fleet, s.store.Boards, s.usage)
	s.devices = device.NewGate(s.store.Fleet, s.keys, s.list, s.clock)
	s.commands = s.newCommands()
	s.spread = authority.NewSpread(s.list, s.relays, s.commands, s.metrics, s.logger)
	s.fleet = fleet.New(fleet.Parts{
		Store: s.store.Fleet, Gate: s.gate, Devices: s.devices, Keys: s.keys, Relays: s.relays, Spread: s.spread,
		Metrics: s.metrics, Clock: s.clock, Logger: s.logger, StateDir: cfg.StateDir, CertificateLife: cfg.CertificateLife,
	})
	return nil
}

// newCommands builds what signs and dispatches commands.
func (s *Server) newCommands() *commands.Commands {
	return &commands.Commands{
		Store: s.store.Commands, Sessions: s.store.Sessions, Boards: s.store.Boards, Fleet: s.store.Fleet,
		Signer: &signing.Signer{
			Store: s.store.Commands, Sessions: s.store.Sessions, Boards: s.store.Boards, People: s.store.People,
			Sandboxes: s.store.Fleet, Keys: s.keys, RequestKey: s.requestKey,
			Usage: s.usage, Metrics: s.metrics, Clock: s.clock, Logger: s.logger,
		},
		Dispatcher:  &dispatch.Dispatcher{Relays: s.relays, Sandboxes: s.store.Fleet, Metrics: s.metrics, Logger: s.logger},
		Settlements: dispatch.NewSettlements(s.closing, s.relays, s.keys, s.clock, s.metrics, s.logger),
		Relays:      s.relays, Keys: s.keys, Revoked: s.list,
		Usage: s.usage, Gate: s.gate, Metrics: s.metrics, Clock: s.clock, Logger: s.logger, Closing: s.closing,
	}
}

func (s *Server) listen(cfg Config) error {
	var err error
	if s.public, err = s.listenPublic(cfg); err != nil {
		return err
	}
	if cfg.AdminListen != "" {
		if s.admin, err = net.Listen("tcp", cfg.AdminListen); err != nil {
			return fmt.Errorf("admin listener: %w", err)
		}
	}
	if cfg.TLSListen == "" {
		return nil
	}
	s.agents, err = s.listenTLS(cfg.TLSListen, cfg.TLSCert, cfg.TLSKey)
	return err
}

// listenPublic opens the first listener.
func (s *Server) listenPublic(cfg Config) (net.Listener, error) {
	switch {
	case (cfg.Cert == "") != (cfg.Key == ""):
		return nil, errors.New("--cert and --key go together")
	case cfg.Cert != "":
		s.secured = true
		return s.listenTLS(cfg.Listen, cfg.Cert, cfg.Key)
	}
	if err := checkLoopback(cfg.Listen); err != nil {
		return nil, err
	}
	return net.Listen("tcp", cfg.Listen)
}

// listenTLS opens a listener with the certificate in two files.
func (s *Server) listenTLS(addr, cert, key string) (net.Listener, error) {
	certificate, err := certfile.Follow(cert, key, s.clock.Now, s.logger)
	if err != nil {
		return nil, err
	}
	return tls.Listen("tcp", addr, &tls.Config{
		MinVersion:     tls.VersionTLS13,
		NextProtos:     []string{"http/1.1"},
		GetCertificate: certificate,
	})
}

// checkLoopback refuses an address that others than this machine can reach,
// since what goes there isn't encrypted.
func checkLoopback(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("listen address %q: want host:port", addr)
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("listen address %q: plain HTTP is for loopback only; elsewhere it takes --cert and --key", addr)
}

// URL returns the base URL of the first listener.
func (s *Server) URL() string {
	scheme := "http://"
	if s.secured {
		scheme = "https://"
	}
	return scheme + s.public.Addr().String()
}

// TLSAddr returns the address of the second listener, empty if there is none.
func (s *Server) TLSAddr() string {
	if s.agents == nil {
		return ""
	}
	return s.agents.Addr().String()
}

func (s *Server) closeResources() error {
	var err error
	for _, l := range []net.Listener{s.public, s.agents, s.admin} {
		if l != nil {
			if e := l.Close(); !errors.Is(e, net.ErrClosed) {
				err = errors.Join(err, e)
			}
		}
	}
	if s.commands != nil {
		s.commands.Settlements.Close()
	}
	if s.relays != nil {
		s.relays.Close()
	}
	if s.people != nil {
		s.people.Login.Close()
	}
	s.integrations.Close()
	if s.store != nil {
		err = errors.Join(err, s.store.Close())
	}
	return err
}

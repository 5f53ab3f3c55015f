// Package relay is the edge: browsers and agents both connect to it, and it
// joins them. It keeps no state that it can't afford to lose.
package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/program/instrument"
	"github.com/fairlead/fairlead/deploy/program/intake"
	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/admin"
	"github.com/fairlead/fairlead/relay/internal/chatapi"
	"github.com/fairlead/fairlead/relay/internal/chathub"
	"github.com/fairlead/fairlead/relay/internal/connectproxy"
	"github.com/fairlead/fairlead/relay/internal/dispatch"
	"github.com/fairlead/fairlead/relay/internal/fleet"
	"github.com/fairlead/fairlead/relay/internal/gateway"
	"github.com/fairlead/fairlead/relay/internal/hub"
	"github.com/fairlead/fairlead/relay/internal/pagestream"
	"github.com/fairlead/fairlead/relay/internal/panelapi"
	"github.com/fairlead/fairlead/relay/internal/pluginapi"
	"github.com/fairlead/fairlead/relay/internal/preview"
	"github.com/fairlead/fairlead/relay/internal/rejects"
	"github.com/fairlead/fairlead/relay/internal/reverseproxy"
	"github.com/fairlead/fairlead/relay/internal/shellapi"
	"github.com/fairlead/fairlead/relay/internal/syncdoor"
	"github.com/fairlead/fairlead/relay/internal/webapp"
	"github.com/fairlead/fairlead/tunnel"
)

// Relay is a relay that listens. Make one with New, then Run it.
type Relay struct {
	// Static after construction.
	cfg       Config
	log       *slog.Logger
	public    net.Listener
	admin     net.Listener
	preview   net.Listener // nil: there are no previews
	tunnels   *tunnel.Listener
	websocket net.Addr // of tunnels; nil: they use the public listener, if any
	registry  *prometheus.Registry
	metrics   *metrics
	origins   *access.Origins
	keys      *jws.Keys
	revoked   *jws.RevocationSet
	grants    *lifetime.Grants
	client    *http.Client // to the control plane
	fleet     *fleet.Fleet
	shared
	pages      *pagestream.Pages
	dispatcher *dispatch.Dispatcher
	requests   *reverseproxy.Requests
	previews   *preview.Previews
	refused    *rejects.Rejects
	connect    *connectproxy.Proxy
	bodies     *intake.Bodies // of requests to any listener

	ready      atomic.Bool // keys are known
	draining   atomic.Bool
	registered atomic.Bool                      // the control plane knows this relay
	taken      atomic.Bool                      // it was registered once
	refusal    atomic.Pointer[refusedError]     // why the control plane refuses this relay; nil: it doesn't, or did and is unreachable
	given      atomic.Pointer[protocol.RelayID] // the id that the control plane says, for a relay that had none
	peers      atomic.Pointer[[]peer]           // the other relays, as the control plane last said
}

// shared is what sockets share.
type shared struct {
	hubs    *hub.Set
	chats   *chathub.Set
	chat    *chatapi.API
	web     *webapp.Desk
	plugins *pluginapi.API
	sync    *syncdoor.Door
	panel   *panelapi.API
	shell   *shellapi.API
}

// New opens the relay's listeners, so that a busy port or an unreadable key is
// known at once.
func New(cfg Config) (*Relay, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	r := assemble(cfg)
	if err := r.listen(); err != nil {
		r.closeListeners()
		return nil, err
	}
	r.origins.OnRefused(func(err error) { r.refused.Count(rejects.Origin, err) })
	return r, nil
}

// assemble makes everything that needs no listener, including metrics.
func assemble(cfg Config) *Relay {
	r := &Relay{cfg: cfg, log: cfg.Logger, registry: instrument.NewRegistry("fairlead_relay_info", cfg.Revision)}
	r.metrics = newMetrics(r.registry)
	r.client = &http.Client{Timeout: 70 * time.Second, Transport: &meteredTransport{cfg.transport(), r.metrics}}
	r.revoked = jws.NewRevocationSet()
	r.grants = lifetime.New(lifetime.Options{Revoked: r.revoked})
	r.keys = jws.NewKeys(nil, jws.KeysOptions{
		Fetch: r.fetchKeys, MaxAge: cfg.KeysMaxAge, Revoked: r.revoked,
	})
	r.fleet = fleet.New(r.keys, r.revoked, r.log)
	r.registry.MustRegister(r.fleet, r.fleet.Traffic())
	r.hubs = hub.NewSet(r.fleet, r.log, hub.NewMetrics(r.registry))
	if cfg.NoIOURing {
		r.hubs.SendDirectly()
	}
	r.chats = chathub.NewSet(chathub.Options{
		Tunnels: r.fleet, Grants: r.grants, Log: r.log, Metrics: chathub.NewMetrics(r.registry),
	})
	r.pages = pagestream.New(r.grants, r.registry)
	r.refused = rejects.New(r.registry, r.log)
	r.bodies = intake.NewBodies(r.address, func(err error) { r.refused.Count(rejects.Body, err) })
	r.requests = reverseproxy.New(r.grants, r.registry)
	r.dispatcher = dispatch.New(dispatch.Options{
		Keys: r.keys, Tunnels: r.fleet, Pages: r.pages, Revoked: r.revoked, Log: r.log,
		Refused: func(err error) { r.refused.Count(rejects.Command, err) }, Metrics: r.metrics.dispatch,
	})
	r.web = &webapp.Desk{
		Tickets: access.NewTicketStore(time.Now), Grants: r.grants, Keys: r.keys, SocketsPerPerson: cfg.SocketsPerPerson, Log: r.log,
	}
	r.chat = &chatapi.API{
		Desk: r.web, Hubs: r.chats, Tunnels: r.fleet,
		Dispatcher: r.dispatcher, Requests: r.requests, Rejects: r.refused, Metrics: chatapi.NewMetrics(r.registry), Log: r.log,
	}
	r.panel = &panelapi.API{
		Keys: r.keys, Grants: r.grants, Hubs: r.hubs, Tunnels: r.fleet, Dispatcher: r.dispatcher, Rejects: r.refused,
		Metrics: panelapi.NewMetrics(r.registry), SocketsPerPerson: cfg.SocketsPerPerson, Revision: cfg.Revision, Log: r.log,
	}
	r.plugins = &pluginapi.API{
		Desk: r.web, Tunnels: r.fleet, Requests: r.requests, Metrics: pluginapi.NewMetrics(r.registry), Log: r.log,
	}
	r.shell = &shellapi.API{
		Desk: r.web, Hubs: r.hubs, Dispatcher: r.dispatcher, Rejects: r.refused, Metrics: shellapi.NewMetrics(r.registry), Log: r.log,
	}
	r.sync = syncdoor.New(syncdoor.Options{
		Tunnels: r.fleet, BehindProxy: cfg.BehindProxy, MaxBytes: int64(cfg.SyncMaxBytes), Metrics: syncdoor.NewMetrics(r.registry), Log: r.log,
	})
	r.connect = &connectproxy.Proxy{Address: cfg.ControlPlaneConnect, Log: r.log}
	r.ofState()
	return r
}

// listen opens the listeners.
func (r *Relay) listen() error {
	var err error
	if r.public, err = r.listenPublic("public", r.cfg.Listen); err != nil {
		return fmt.Errorf("public listener: %w", err)
	}
	if r.origins, err = access.NewOrigins(r.cfg.origins(r.public.Addr())); err != nil {
		return err
	}
	if err := r.origins.ListExtensions(r.cfg.ExtensionIDs); err != nil {
		return fmt.Errorf("--extension-ids: %w", err)
	}
	if r.admin, err = net.Listen("tcp", r.cfg.AdminListen); err != nil {
		return fmt.Errorf("admin listener: %w", err)
	}
	if err := r.listenPreviews(); err != nil {
		return fmt.Errorf("preview listener: %w", err)
	}
	return r.listenTunnels()
}

// listenPublic opens a listener for browsers, with TLS if there is a
// certificate. The log has name.
func (r *Relay) listenPublic(name, address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil || r.cfg.Cert == "" {
		return listener, err
	}
	config, err := loadTLS(r.cfg.Cert, r.cfg.Key, r.log.With("listener", name))
	if err != nil {
		listener.Close()
		return nil, err
	}
	return tls.NewListener(gateway.Gated(listener), config), nil
}

// listenPreviews opens the listener of the previews, if there are any.
func (r *Relay) listenPreviews() error {
	options := preview.Options{
		Framers: r.origins.List(), Keys: r.keys, Grants: r.grants, Tunnels: r.fleet, Requests: r.requests,
		Rejects: r.refused, Log: r.log,
	}
	var err error
	if r.cfg.PreviewListen != "" {
		if r.preview, err = r.listenPublic("preview", r.cfg.PreviewListen); err != nil {
			return err
		}
		options.Origin = r.cfg.previewOrigin(r.preview.Addr())
	}
	r.previews, err = preview.New(options)
	return err
}

func (r *Relay) closeListeners() {
	for _, l := range []net.Listener{r.public, r.admin, r.preview} {
		if l != nil {
			l.Close()
		}
	}
	if r.tunnels != nil {
		r.tunnels.Close()
	}
}

// Addresses returns where the relay listens.
func (r *Relay) Addresses() Addresses {
	scheme := "http://"
	if r.cfg.Cert != "" {
		scheme = "https://"
	}
	websocket := ""
	if r.websocket != nil {
		websocket = r.websocket.String()
	}
	previews := ""
	if r.preview != nil {
		previews = scheme + r.preview.Addr().String()
	}
	return Addresses{
		Preview: previews, URL: scheme + r.public.Addr().String(),
		Tunnel: r.tunnels.Addr().String(), TunnelWebSocket: websocket,
		AdminURL: "http://" + r.admin.Addr().String(), RelayID: r.id(), Revision: r.cfg.Revision,
	}
}

// Run serves until ctx ends, then drains: it sends sandboxes and viewers to
// other relays, or tells them to reconnect. It returns nil after a drain.
func (r *Relay) Run(ctx context.Context) error {
	defer r.closeListeners()
	publicServer, err := r.publicServer()
	if err != nil {
		return err
	}
	adminServer := r.adminServer()
	previewServer := r.browserServer(r.previews.Handler())
	failed := make(chan error, 4) // room for one from each server
	var serving sync.WaitGroup    // Run waits for it at the end
	serve := func(s *http.Server, l net.Listener) {
		serving.Go(func() {
			if err := intake.Serve(s, l, r.unclear); !errors.Is(err, http.ErrServerClosed) {
				failed <- err
			}
		})
	}
	serve(adminServer, r.admin)
	background, stop := context.WithCancel(context.Background())
	registered, unregister := context.WithCancel(background)
	var registering sync.WaitGroup // the drain waits for it
	serving.Go(func() { r.acceptTunnels(background) })
	serving.Go(func() { r.limitMemory(background) })
	if err := r.awaitKeys(ctx); err == nil {
		registering.Go(func() {
			r.stayRegistered(registered, func() {
				if err := r.announce(); err != nil {
					failed <- err
				}
			})
		})
		serving.Go(func() { r.refresh(background) })
		serve(publicServer, r.public)
		if r.preview != nil {
			serve(previewServer, r.preview)
		}
		r.ready.Store(true)
	}

	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	r.draining.Store(true)
	unregister()
	registering.Wait()
	r.drain(publicServer, previewServer)
	stop()
	adminServer.Close()
	r.tunnels.Close()
	r.closeListeners()
	serving.Wait()
	return err
}

// address returns where a request comes from.
func (r *Relay) address(req *http.Request) netip.Addr { return intake.Address(req, r.cfg.BehindProxy) }

// unclear counts a request that programs could parse differently.
func (r *Relay) unclear(err error) { r.refused.Count(rejects.Framing, err) }

// publicServer serves browsers and machines at the public origin.
func (r *Relay) publicServer() (*http.Server, error) {
	mux := http.NewServeMux()
	methods := access.NewMethods(mux)
	if err := r.routes(methods); err != nil {
		return nil, err
	}
	methods.RefuseOthers()
	return r.browserServer(closeUnlessUpgraded(r.withTunnels(r.origins.Guard(r.origins.Share(pluginapi.Front(mux)))))), nil
}

// browserServer serves handler to browsers. A request that has begun may take
// long; sending the header, or being idle, is bounded.
func (r *Relay) browserServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           r.bodies.Handler(handler),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    80 << 10, // room for a grant in a header
		ErrorLog:          slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
	}
}

// adminServer serves operators, who use an IP address: Prometheus finds relays
// by theirs, which need not be the address that is listened on.
func (r *Relay) adminServer() *http.Server {
	handler := admin.Handler(admin.Options{
		Revision:  r.cfg.Revision,
		Registry:  r.registry,
		Ready:     r.notReady,
		Status:    func() any { return map[string]any{"relay_id": r.id(), "sandboxes": r.fleet.List()} },
		Sandboxes: func() any { return r.fleet.List() },
	})
	return &http.Server{Handler: r.bodies.Handler(instrument.GuardNames(r.admin.Addr(), handler)), ReadHeaderTimeout: 10 * time.Second}
}

// notReady says why the relay takes no traffic, nil if it does.
func (r *Relay) notReady() error {
	switch {
	case r.draining.Load():
		return errors.New("draining")
	case r.ready.Load() && !r.keys.Usable():
		return errors.New("the control plane's keys are too old")
	case !r.ready.Load():
		return errors.New("waiting for the control plane's keys")
	}
	refusal := r.refusal.Load()
	switch {
	case refusal != nil:
		return fmt.Errorf("not registered at the control plane: %w", refusal)
	case !r.taken.Load():
		return errors.New("not registered at the control plane yet")
	}
	return nil
}

// acceptTunnels serves each registered tunnel until the listener closes.
func (r *Relay) acceptTunnels(ctx context.Context) {
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		session, err := r.tunnels.Accept(ctx)
		if err != nil {
			return
		}
		serving.Go(func() { r.connect.Serve(session) })
	}
}

// announce reports that the relay takes traffic.
func (r *Relay) announce() error {
	a := r.Addresses()
	r.log.Info("relay ready", "url", a.URL, "tunnel", a.Tunnel, "admin", a.AdminURL, "revision", a.Revision)
	if r.cfg.OnReady == nil {
		return nil
	}
	return r.cfg.OnReady(a)
}

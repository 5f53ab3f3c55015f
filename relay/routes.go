package relay

import (
	"net/http"
	"net/url"
	"time"

	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/chatapi"
	"github.com/fairlead/fairlead/relay/internal/console"
	"github.com/fairlead/fairlead/relay/internal/controlapi"
	"github.com/fairlead/fairlead/relay/internal/dispatch"
	"github.com/fairlead/fairlead/relay/internal/gateway"
	"github.com/fairlead/fairlead/relay/internal/openapi"
	"github.com/fairlead/fairlead/relay/internal/sandboxapi"
	"github.com/fairlead/fairlead/relay/internal/sidebarapi"
)

// routes registers everything that is served at the public origin. The console
// gets all other paths.
func (r *Relay) routes(router access.Router) error {
	controlPlane, err := url.Parse(r.cfg.ControlPlaneURL)
	if err != nil {
		return err
	}
	signer := &dispatch.Signer{URL: r.cfg.ControlPlaneURL, Credential: r.cfg.Credential, Client: r.client}
	sockets := &gateway.Gateway{
		Origins: r.origins, Tickets: access.NewTicketStore(time.Now), Grants: r.grants, Log: r.log,
		Metrics: r.metrics.gateway, SocketsPerPerson: r.cfg.SocketsPerPerson,
	}
	terminals := &gateway.Terminals{Gateway: sockets, Keys: r.keys, Hubs: r.hubs, Rejects: r.refused}
	health := r.health
	if r.origins.Extensions() {
		r.panel.Origins, r.panel.Signer = r.origins, signer
		r.panel.Register(router)
		terminals.Panel, r.chat.Panel = http.HandlerFunc(r.panel.Mint), http.HandlerFunc(r.panel.Socket)
		health = r.panel.Health(time.Now(), r.health)
	}
	terminals.Register(router)
	(&controlapi.API{
		Keys: r.keys, Dispatcher: r.dispatcher, Signer: signer, Pages: r.pages, StreamCookies: access.NewStreamCookies(time.Now),
		Revoked: r.revoked, Rejects: r.refused, Origins: r.origins,
		ControlPlane: controlPlane, Upstream: r.cfg.transport(), Address: r.address, Log: r.log,
	}).Register(router)
	(&sandboxapi.API{
		Keys: r.keys, Tunnels: r.fleet, Signer: signer, Dispatcher: r.dispatcher, Requests: r.requests, Rejects: r.refused,
		Revision: r.cfg.Revision, Log: r.log,
	}).Register(router)
	r.web.Origins, r.chat.Signer, r.shell.Signer = r.origins, signer, signer
	if r.web.Apps, err = access.NewAppSessions(r.cfg.appKey()); err != nil {
		return err
	}
	r.origins.AnswerForeign(chatapi.SocketPath, chatapi.ForeignOrigin)
	r.chat.Register(router)
	r.plugins.Register(router)
	r.sync.Register(router)
	r.shell.Register(router)
	if r.origins.Extensions() {
		cookies, err := access.NewPanelStreams(r.cfg.appKey())
		if err != nil {
			return err
		}
		(&sidebarapi.API{
			Origins: r.origins, Keys: r.keys, Cookies: cookies, Tunnels: r.fleet, Signer: signer, Dispatcher: r.dispatcher, Requests: r.requests,
			Rejects: r.refused, Metrics: r.metrics.sidebar, Open: r.panel, Log: r.log,
		}).Register(router)
	}
	r.previews.Register(router)
	openapi.Register(router)
	router.HandleFunc("GET /health", health)
	router.Handle("/", console.Handler(console.Options{ConnectOrigins: r.origins.List(), PreviewOrigin: r.previews.Origin(), Extensions: r.cfg.ExtensionIDs, Revision: r.cfg.Revision}))
	return nil
}

// closeUnlessUpgraded has a connection closed at once whose request asks for
// another protocol, such as WebSocket, and doesn't get it. What upgrades replaces
// the header.
func closeUnlessUpgraded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, asks := r.Header["Upgrade"]; asks {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// health is GET /health: the relay answers, with its revision, and whether side
// panels may come. Anybody may ask, so it says nothing else (seed 000's gave a token
// away).
func (r *Relay) health(w http.ResponseWriter, _ *http.Request) {
	said := map[string]any{"status": "ok", "revision": r.cfg.Revision}
	if r.origins.Extensions() {
		said["chatEnabled"] = true
	}
	access.WriteJSON(w, http.StatusOK, said)
}

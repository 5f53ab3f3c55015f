// Package controlapi serves the control plane's routes at the relay's public
// origin: it carries signed commands and their outcomes, and forwards the
// routes that belong to the control plane unchanged.
package controlapi

import (
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"

	"github.com/fairlead/fairlead/deploy/program/intake"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/dispatch"
	"github.com/fairlead/fairlead/relay/internal/pagestream"
	"github.com/fairlead/fairlead/relay/internal/rejects"
)

// ownCookies are the control plane's cookies, each with the path below which it
// reads it. They tie a sign-in, and an account being connected at a provider,
// to the browser that began it.
var ownCookies = map[string]string{"fairlead_login": "/auth/", "fairlead_connect": "/integrations/"}

// API serves the routes.
type API struct {
	Keys          *jws.Keys
	Dispatcher    *dispatch.Dispatcher
	Signer        *dispatch.Signer
	Pages         *pagestream.Pages
	StreamCookies *access.StreamCookies
	Revoked       *jws.RevocationSet
	Rejects       *rejects.Rejects
	Origins       *access.Origins
	ControlPlane  *url.URL
	Address       func(*http.Request) netip.Addr // where a request comes from
	Log           *slog.Logger

	reports   chan struct{} // a semaphore of maxReports
	callbacks *intake.Rates
}

// Forwarded are the patterns of the routes that belong to the control plane,
// which authenticates their callers itself.
var Forwarded = []string{
	"/auth/", "/grants", "/grants/{id}", "/sessions", "/sessions/{id}", "/commands", "/commands/{id}", "/dashboards", "/dashboards/",
	"/invitations", "/invitations/",
	"/integrations", "/integrations/",
	"/.well-known/jwks.json", "/.well-known/revocations",
}

// Register adds the routes.
func (a *API) Register(mux access.Router) {
	a.reports = make(chan struct{}, maxReports)
	a.callbacks = intake.NewRates(callbacksPerSecond, callbackBurst)
	a.Origins.Open(http.MethodPost, callbackPath)
	mux.HandleFunc("POST /control/commands", a.submit)
	mux.HandleFunc("GET /control/commands/{id}", a.status)
	mux.HandleFunc("POST /control-session", a.openSession)
	mux.HandleFunc("GET "+streamPath, a.stream)
	mux.HandleFunc("POST "+callbackPath, a.callback)
	mux.HandleFunc("POST /control/settled", a.settled)
	mux.HandleFunc("POST /control/revocations", a.revocations)
	forward := a.forward()
	for _, pattern := range Forwarded {
		mux.Handle(pattern, forward)
	}
}

// refuse answers with err and counts it.
func (a *API) refuse(w http.ResponseWriter, what string, err error) {
	a.Rejects.Count(what, err)
	access.WriteError(w, err)
}

package controlapi

import (
	"net/http"

	"github.com/fairlead/fairlead/deploy/program/intake"
	"github.com/fairlead/fairlead/relay/internal/access"
)

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
	mux.HandleFunc("POST /control/browsers", a.browsers)
	mux.HandleFunc("POST /control-session", a.openSession)
	mux.HandleFunc("GET "+streamPath, a.stream)
	mux.HandleFunc("POST "+callbackPath, a.callback)
	mux.HandleFunc("POST /control/settled", a.settled)
	mux.HandleFunc("POST /control/revocations", a.revocations)
	mux.HandleFunc("PUT /sessions/{sid}/tabs", a.shareTabs)
	mux.HandleFunc("GET /sessions/{sid}/tabs", a.sharedTabs)
	forward := a.forward()
	for _, pattern := range Forwarded {
		mux.Handle(pattern, forward)
	}
}

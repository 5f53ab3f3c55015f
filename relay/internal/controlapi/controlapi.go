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
	Upstream      http.RoundTripper              // carries requests there; nil: [http.DefaultTransport]
	Address       func(*http.Request) netip.Addr // where a request comes from
	Log           *slog.Logger

	reports   chan struct{} // a semaphore of maxReports
	callbacks *intake.Rates
}

// refuse answers with err and counts it.
func (a *API) refuse(w http.ResponseWriter, what string, err error) {
	a.Rejects.Count(what, err)
	access.WriteError(w, err)
}

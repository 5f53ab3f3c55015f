package panelapi

import (
	"context"
	"net/http"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/access"
)

// claudeAvailable is GET /claude-available: whether the session's sandbox has the
// program. Whose session it is says a grant or the panel's cookie, which that doesn't
// spend. The seed's server asked for neither, so without both the answer is that
// nothing speaks against it; the socket knows better.
func (a *API) claudeAvailable(w http.ResponseWriter, r *http.Request) {
	by, known, err := a.whose(r)
	said := available{Available: true}
	if err == nil && known {
		said, err = a.probe(r.Context(), by)
	}
	if err != nil {
		a.refuse(w, err)
		return
	}
	answer(w, http.StatusOK, said)
}

// whose returns on whose behalf r comes. A grant alone decides.
func (a *API) whose(r *http.Request) (by under, known bool, err error) {
	if _, bears := r.Header["Authorization"]; bears {
		grant, bearer, err := a.authorize(r)
		return under{grant, bearer}, true, err
	}
	cookie, err := r.Cookie(access.PanelCookieName)
	if err != nil {
		return under{}, false, nil
	}
	origin, _ := a.Origins.Extension(r)
	p, err := a.passes.look(cookie.Value, origin)
	if err == nil {
		err = a.Grants.Check(p.grant)
	}
	return under{p.grant, p.bearer}, true, err
}

// probed returns what the sandbox says of by's session at a path, or has said lately.
// That is the same for all who may ask: each was checked before.
func probed[T any](ctx context.Context, a *API, known *probes[T], by under, path string) (T, error) {
	ctx = context.WithoutCancel(ctx) // others wait for the answer, too
	said, asked, err := known.at(where{by.grant.Sandbox, by.grant.Session}).get(func() (said T, err error) {
		err = a.ask(ctx, by, path, &said)
		return said, err
	})
	from := probeKept
	if asked {
		from = probeAsked
	}
	a.Metrics.Probes.WithLabelValues(from).Inc()
	return said, err
}

// probe asks the sandbox whether the program is there.
func (a *API) probe(ctx context.Context, by under) (available, error) {
	said, err := probed(ctx, a, &a.claude, by, "/panel/claude")
	if protocol.KindOf(err) == protocol.KindInternal && err != nil {
		err = protocol.Fault(protocol.KindUpstream, err)
	}
	if !said.Available {
		said.InstallURL = installURL
	}
	return said, err
}

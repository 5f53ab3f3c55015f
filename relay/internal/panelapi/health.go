package panelapi

import (
	"net/http"
	"time"

	"github.com/fairlead/fairlead/relay/internal/access"
)

// Health serves GET /health to side panels in the form of seed 000's server: their
// panel takes any status but "healthy" for a server that is down. For others, whose
// platform (seed 001) takes any status but "ok" for one, others answers. Anybody may
// ask, so it says nothing of anybody and gives no token away; with a grant it names
// its session.
func (a *API) Health(started time.Time, others http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !a.fromPanel(r) {
			others(w, r)
			return
		}
		var session any
		if _, bears := r.Header["Authorization"]; bears {
			if grant, bearer, err := access.Grant(r, a.Keys); err == nil && grant.Session != "" {
				a.Renew(grant, bearer)
				session = map[string]any{"id": grant.Session, "name": nil}
			}
		}
		answer(w, http.StatusOK, map[string]any{
			"status": "healthy", "revision": a.Revision, "mode": "headed", "uptime": int64(time.Since(started) / time.Second), "tabs": 0,
			"chatEnabled": true, "agent": map[string]any{"status": "idle", "runningFor": nil, "queueLength": 0},
			"session": session, "security": map[string]any{"status": "off"}, "terminalPort": portOf(a.Origins.Public(r)),
		})
	}
}

// fromPanel reports whether a side panel asks, rather than a program or a person: by
// its origin, by a grant, or by what browsers say of a script's request. To a host
// that it may reach an extension sends no Origin with GET.
func (a *API) fromPanel(r *http.Request) bool {
	if _, listed := a.Origins.Extension(r); listed {
		return true
	}
	_, bears := r.Header["Authorization"]
	mode := r.Header.Get("Sec-Fetch-Mode")
	return bears || mode != "" && mode != "navigate"
}

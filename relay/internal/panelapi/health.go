package panelapi

import (
	"net/http"
	"time"

	"github.com/fairlead/fairlead/relay/internal/access"
)

// Health serves GET /health in the form of seed 000's server, whose panel takes any
// status but "healthy" for a server that is down. Anybody may ask, so it says
// nothing of anybody and gives no token away; with a grant it names its session.
func (a *API) Health(started time.Time) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
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

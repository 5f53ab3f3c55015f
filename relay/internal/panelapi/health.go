package panelapi

import (
	"net/http"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/access"
)

// resting is what a panel is told that may know nothing.
var resting = working{Agent: agent{Status: "idle"}}

// States of a server, as the panel knows them. It takes any but healthy for one that
// is down.
const (
	healthy   = "healthy"
	unhealthy = "unhealthy"
)

// A health is the answer to a panel.
type health struct {
	Status   string `json:"status"`
	Revision string `json:"revision"`
	Mode     string `json:"mode"`
	Uptime   int64  `json:"uptime"` // seconds
	working
	ChatEnabled  bool           `json:"chatEnabled"`
	Security     map[string]any `json:"security"`
	TerminalPort int            `json:"terminalPort"`
}

// Health serves GET /health to side panels in the form of seed 000's server. For
// others, whose platform (seed 001) takes any status but "ok" for one that is down,
// others answers. Anybody may ask, also without any credential, as the seed's panel
// does: so it gives no token away, and says how a sandbox stands only under a grant
// that may view the session. Everybody else is told the same of every sandbox, that
// nothing runs: the relay is up, more isn't theirs to know.
func (a *API) Health(started time.Time, others http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !a.fromPanel(r) {
			others(w, r)
			return
		}
		said := health{
			Status: healthy, Revision: a.Revision, Mode: "headed", Uptime: int64(time.Since(started) / time.Second), working: resting,
			ChatEnabled: true, Security: map[string]any{"status": "off"}, TerminalPort: portOf(a.Origins.Public(r)),
		}
		if by, ok := a.viewer(r); ok {
			now, err := probed(r.Context(), a, &a.agents, by, "/sidebar/health")
			if said.working = now; err != nil { // its panel can do nothing
				said.Status, said.working = unhealthy, resting
			}
		}
		answer(w, http.StatusOK, said)
	}
}

// viewer returns on whose behalf a panel asks that may view its session.
func (a *API) viewer(r *http.Request) (by under, ok bool) {
	if _, bears := r.Header["Authorization"]; !bears {
		return by, false
	}
	grant, bearer, err := access.Grant(r, a.Keys)
	if err != nil || grant.Session == "" {
		return by, false
	}
	a.Renew(grant, bearer)
	return under{grant, bearer}, grant.Allows(grant.Session, "", protocol.CapView)
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

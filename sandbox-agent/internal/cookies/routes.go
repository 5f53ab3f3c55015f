package cookies

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/reply"
	"github.com/fairlead/fairlead/sandbox-agent/internal/route"
)

// maxSites bounds the sites that are told; those with most cookies are.
const maxSites = 5000

// Routes serves whose logins a session's Chromium has, and no values. The addresses of
// pairings are told to whoever may pair.
func (s *Sink) Routes(mux *http.ServeMux) {
	route.Get(mux, "sync", protocol.CapView, func(w http.ResponseWriter, r *http.Request, session protocol.SessionID) error {
		reply.JSON(w, http.StatusOK, s.state(session, route.GrantOf(r).Allows(session, "", protocol.CapSync)))
		return nil
	})
}

func (s *Sink) state(session protocol.SessionID, withURLs bool) op.SyncState {
	policy, err := tellPolicy(s.dirOf(session))
	if err != nil {
		s.o.Log.Warn("a session's sync policy can't be read", "session", session, "err", err)
	}
	state := op.SyncState{Policy: policy, Pairings: []op.SyncPairing{}, Sites: []op.SyncSite{}}
	pairings := s.pairingsOf(session)
	s.mu.Lock()
	for _, p := range pairings {
		state.Pairings = append(state.Pairings, p.describe(withURLs))
		for name, n := range p.sum.sites {
			state.Sites = append(state.Sites, op.SyncSite{Site: name, Cookies: n, Pairing: p.ID})
		}
	}
	s.mu.Unlock()
	if len(state.Sites) > maxSites {
		slices.SortFunc(state.Sites, func(a, b op.SyncSite) int { return cmp.Compare(b.Cookies, a.Cookies) })
		state.Sites = state.Sites[:maxSites]
	}
	slices.SortFunc(state.Sites, func(a, b op.SyncSite) int {
		return cmp.Or(cmp.Compare(a.Site, b.Site), cmp.Compare(a.Pairing, b.Pairing))
	})
	return state
}

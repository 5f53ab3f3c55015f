// Package access says who asks for something, and what they may do.
package access

import (
	"context"
	"net/http"
	"slices"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
)

// What the store knows.
type (
	// People have tokens.
	People interface {
		UserByToken(ctx context.Context, token string) (store.User, error)
	}
	// Fleet has relays with credentials.
	Fleet interface {
		RelayByCredential(ctx context.Context, credential string) (protocol.RelayID, error)
	}
	// Boards have members.
	Boards interface {
		DashboardFor(ctx context.Context, user protocol.UserID, dashboard string) (store.Dashboard, store.Member, error)
	}
)

// A Counter counts what people do.
type Counter interface {
	Count(dashboard string, user protocol.UserID, counter string)
}

// A Gate asks whoever makes a request who they are.
type Gate struct {
	// Static after construction.
	people People
	fleet  Fleet
	boards Boards
	usage  Counter
}

// NewGate returns a gate that counts people's requests by usage.
func NewGate(people People, fleet Fleet, boards Boards, usage Counter) *Gate {
	return &Gate{people: people, fleet: fleet, boards: boards, usage: usage}
}

// The realms: whose token a route takes.
const (
	realmUser  = "user token"
	realmRelay = "relay credential"
	RealmGrant = "grant"
)

// User returns the user whose token r carries.
func (g *Gate) User(w *web.Writer, r *http.Request) (store.User, error) {
	user, err := g.person(w, r)
	if err == nil {
		g.usage.Count("", user.ID, store.UsageAPIRequests)
	}
	return user, err
}

func (g *Gate) person(w *web.Writer, r *http.Request) (store.User, error) {
	return authenticate(w, r, realmUser, g.people.UserByToken)
}

// Relay returns the relay whose credential r carries.
func (g *Gate) Relay(w *web.Writer, r *http.Request) (protocol.RelayID, error) {
	return authenticate(w, r, realmRelay, g.fleet.RelayByCredential)
}

// authenticate asks find who the bearer token of r stands for. realm tells the
// caller which token the route takes.
func authenticate[T any](w *web.Writer, r *http.Request, realm string, find func(context.Context, string) (T, error)) (T, error) {
	var found T
	token := web.Bearer(r)
	err := error(protocol.Errorf(protocol.KindUnauthenticated, "want Authorization: Bearer with a %s", realm))
	if token != "" {
		found, err = find(r.Context(), token)
	}
	if err != nil && protocol.KindOf(err) == protocol.KindUnauthenticated {
		Challenge(w, realm)
	}
	return found, err
}

// Challenge says in an answer of 401 which token the route takes.
func Challenge(w *web.Writer, realm string) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="`+realm+`"`)
}

// A Membership is a user in one of their dashboards.
type Membership struct {
	User         store.User
	Dashboard    store.Dashboard
	Role         store.Role
	Capabilities []protocol.Capability
}

// NewMembership returns user in dashboard as the member that the store has.
func NewMembership(user store.User, dashboard store.Dashboard, as store.Member) Membership {
	return Membership{user, dashboard, as.Role, Capabilities(as.Role, as.Capabilities)}
}

// Member returns who asks for the dashboard {id} in r's path. A dashboard of
// others doesn't exist for them: KindNotFound; without the capability it is
// KindForbidden.
func (g *Gate) Member(w *web.Writer, r *http.Request, needs protocol.Capability) (Membership, error) {
	user, err := g.person(w, r)
	if err != nil {
		return Membership{}, err
	}
	id := r.PathValue("id")
	if !protocol.ValidID(id) {
		return Membership{}, protocol.Errorf(protocol.KindNotFound, "no such dashboard")
	}
	dashboard, as, err := g.boards.DashboardFor(r.Context(), user.ID, id)
	if err != nil {
		return Membership{}, err
	}
	g.usage.Count(id, user.ID, store.UsageAPIRequests)
	m := NewMembership(user, dashboard, as)
	return m, Require(m.Capabilities, needs)
}

// Owner is [Gate.Member] for what only owners may do.
func (g *Gate) Owner(w *web.Writer, r *http.Request) (Membership, error) {
	m, err := g.Member(w, r, protocol.CapView)
	if err == nil && m.Role != store.RoleOwner {
		err = protocol.Errorf(protocol.KindForbidden, "only an owner may do this")
	}
	return m, err
}

// Editor is [Gate.Member] for what viewers may not do.
func (g *Gate) Editor(w *web.Writer, r *http.Request) (Membership, error) {
	m, err := g.Member(w, r, protocol.CapView)
	if err == nil {
		err = Edits(m.Role)
	}
	return m, err
}

// Edits is KindForbidden for roles that may only read.
func Edits(role store.Role) error {
	if role != store.RoleOwner && role != store.RoleEditor {
		return protocol.Errorf(protocol.KindForbidden, "viewers may only read")
	}
	return nil
}

// Require is KindForbidden unless all of needs are in caps.
func Require(caps []protocol.Capability, needs ...protocol.Capability) error {
	for _, c := range needs {
		if !slices.Contains(caps, c) {
			return protocol.Errorf(protocol.KindForbidden, "you don't have the capability %q here", string(c))
		}
	}
	return nil
}

package boards

import (
	"net/http"
	"slices"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/access"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/metrics"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
)

type memberBody struct {
	User         protocol.UserID       `json:"user"`
	Name         string                `json:"name"`
	Role         store.Role            `json:"role"`
	Capabilities []protocol.Capability `json:"capabilities"` // in effect; of who is invited: if they accept
	State        string                `json:"state"`
}

// getMembers lists the members of a dashboard, and who was asked to be one, to
// each member.
func (b *Boards) getMembers(w *web.Writer, r *http.Request) error {
	m, err := b.Gate.Member(w, r, protocol.CapView)
	if err != nil {
		return err
	}
	members, err := b.Store.Members(r.Context(), m.Dashboard.ID)
	if err != nil {
		return err
	}
	invited, err := b.Store.InvitedTo(r.Context(), m.Dashboard.ID)
	if err != nil {
		return err
	}
	answer := struct {
		Members []memberBody `json:"members"`
	}{[]memberBody{}}
	add := func(m store.Member, state string) {
		answer.Members = append(answer.Members, memberBody{m.User, m.Name, m.Role, access.Capabilities(m.Role, m.Capabilities), state})
	}
	for _, member := range members {
		add(member, store.MemberAccepted)
	}
	for _, i := range invited {
		add(i.Member, store.MemberInvited)
	}
	return w.JSON(http.StatusOK, answer)
}

type memberRequest struct {
	Role         store.Role             `json:"role"`
	Capabilities *[]protocol.Capability `json:"capabilities"` // absent: all of the role
}

// list returns the capabilities as the store keeps them. An owner has all of
// them: who may change the members can give them to themselves anyway.
func (m *memberRequest) list() (string, error) {
	if !m.Role.Known() {
		return "", protocol.Errorf(protocol.KindInvalid, "role: want owner, editor or viewer")
	}
	if m.Capabilities == nil {
		return "", nil
	}
	if m.Role == store.RoleOwner {
		return "", protocol.Errorf(protocol.KindInvalid, "an owner's capabilities can't be narrowed")
	}
	if !slices.Contains(*m.Capabilities, protocol.CapView) {
		return "", protocol.Errorf(protocol.KindInvalid, "capabilities: every member has %q", string(protocol.CapView))
	}
	var list []protocol.Capability
	for _, c := range access.Capabilities(m.Role, "") {
		if slices.Contains(*m.Capabilities, c) {
			list = append(list, c)
		}
	}
	for _, c := range *m.Capabilities {
		if !slices.Contains(list, c) {
			return "", protocol.Errorf(protocol.KindInvalid, "role %s has no capability %q", m.Role, string(c))
		}
	}
	return access.Join(list), nil
}

// putMember asks a user to join a dashboard, or to own it, or changes what a
// member may do there. Who loses a capability by it loses the grants that hold
// it.
func (b *Boards) putMember(w *web.Writer, r *http.Request) error {
	m, err := b.Gate.Owner(w, r)
	if err != nil {
		return err
	}
	var req memberRequest
	if err := web.ReadBody(r, &req); err != nil {
		return err
	}
	list, err := req.list()
	if err != nil {
		return err
	}
	user, err := pathUser(r)
	if err != nil {
		return err
	}
	before, err := b.capabilitiesIn(r, m.Dashboard.ID, user)
	if err != nil {
		return err
	}
	member, err := b.Store.Invite(r.Context(), m.User.ID, m.Dashboard.ID, user, req.Role, list)
	if err != nil {
		if protocol.KindOf(err) == protocol.KindTooMany {
			b.Metrics.Bounds.WithLabelValues(metrics.Invitations).Inc()
		}
		return err
	}
	after := access.Capabilities(req.Role, list)
	if !member {
		b.Logger.Info("member invited", "dashboard", m.Dashboard.ID, "member", user, "role", req.Role, "user", m.User.ID)
		return w.JSON(http.StatusOK, memberAnswer{user, req.Role, after, store.MemberInvited})
	}
	b.Logger.Info("member set", "dashboard", m.Dashboard.ID, "member", user, "role", req.Role, "user", m.User.ID)
	if slices.ContainsFunc(before, func(c protocol.Capability) bool { return !slices.Contains(after, c) }) {
		if err := b.Grants.RevokeOf(r.Context(), user, m.Dashboard.ID); err != nil {
			return err
		}
	}
	if req.Role == store.RoleViewer {
		if err := b.Attachments.DetachAll(r.Context(), user, m.Dashboard.ID); err != nil {
			return err
		}
	}
	return w.JSON(http.StatusOK, memberAnswer{user, req.Role, after, store.MemberAccepted})
}

type memberAnswer struct {
	User         protocol.UserID       `json:"user"`
	Role         store.Role            `json:"role"`
	Capabilities []protocol.Capability `json:"capabilities"`
	State        string                `json:"state"`
}

// pathUser returns the user in r's path.
func pathUser(r *http.Request) (protocol.UserID, error) {
	user := protocol.UserID(r.PathValue("user"))
	if !protocol.ValidID(user) {
		return "", protocol.Errorf(protocol.KindNotFound, "no such user")
	}
	return user, nil
}

// capabilitiesIn returns what a user may do in a dashboard now, nothing for
// whoever isn't a member.
func (b *Boards) capabilitiesIn(r *http.Request, dashboard string, user protocol.UserID) ([]protocol.Capability, error) {
	_, as, err := b.Store.DashboardFor(r.Context(), user, dashboard)
	switch {
	case err == nil:
		return access.Capabilities(as.Role, as.Capabilities), nil
	case protocol.KindOf(err) == protocol.KindNotFound:
		return nil, nil
	}
	return nil, err
}

// deleteMember takes a user out of a dashboard, or an invitation back: by an
// owner, or the user themself. The last owner stays.
func (b *Boards) deleteMember(w *web.Writer, r *http.Request) error {
	m, err := b.Gate.Member(w, r, protocol.CapView)
	if err != nil {
		return err
	}
	user, err := pathUser(r)
	if err != nil {
		return err
	}
	if m.Role != store.RoleOwner && user != m.User.ID {
		return protocol.Errorf(protocol.KindForbidden, "only an owner may do this")
	}
	if err := b.Store.RemoveMember(r.Context(), m.Dashboard.ID, user); err != nil {
		return err
	}
	b.Logger.Info("member removed", "dashboard", m.Dashboard.ID, "member", user, "user", m.User.ID)
	if err := b.Grants.RevokeOf(r.Context(), user, m.Dashboard.ID); err != nil {
		return err
	}
	if err := b.Attachments.DetachAll(r.Context(), user, m.Dashboard.ID); err != nil {
		return err
	}
	return w.None()
}

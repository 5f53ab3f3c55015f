package controlplane

import (
	"net/http"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
)

// roleCapabilities is what each role allows.
var roleCapabilities = map[store.Role][]protocol.Capability{
	store.RoleOwner: protocol.Capabilities,
	store.RoleEditor: {
		protocol.CapView, protocol.CapControl, protocol.CapShell, protocol.CapAgent,
		protocol.CapFilesRead, protocol.CapFilesWrite, protocol.CapChat, protocol.CapMCP,
		protocol.CapPlugins, protocol.CapApprove, protocol.CapRecord,
	},
	store.RoleViewer: {protocol.CapView},
}

// capabilitiesOf returns what a member may do, in the order of
// [protocol.Capabilities]: what the role allows, as far as the member's own
// list, separated by spaces, has it too. An empty list narrows nothing.
func capabilitiesOf(role store.Role, list string) []protocol.Capability {
	caps := slices.Clone(roleCapabilities[role])
	if list == "" {
		return caps
	}
	own := strings.Fields(list)
	return slices.DeleteFunc(caps, func(c protocol.Capability) bool { return !slices.Contains(own, string(c)) })
}

func joinCapabilities(caps []protocol.Capability) string {
	words := make([]string, len(caps))
	for i, c := range caps {
		words[i] = string(c)
	}
	return strings.Join(words, " ")
}

type memberBody struct {
	User         protocol.UserID       `json:"user"`
	Name         string                `json:"name"`
	Role         store.Role            `json:"role"`
	Capabilities []protocol.Capability `json:"capabilities"` // in effect; of who is invited: if they accept
	State        string                `json:"state"`
}

// What became of somebody whom an owner wants as a member.
const (
	StateAccepted = "accepted" // is one
	StateInvited  = "invited"  // was asked, and may do nothing yet that they couldn't before
)

// getMembers lists the members of a dashboard, and who was asked to be one, to
// each member.
func (s *Server) getMembers(w http.ResponseWriter, r *http.Request) error {
	m, err := s.member(w, r, protocol.CapView)
	if err != nil {
		return err
	}
	members, err := s.store.Boards.Members(r.Context(), m.dashboard.ID)
	if err != nil {
		return err
	}
	invited, err := s.store.Boards.InvitedTo(r.Context(), m.dashboard.ID)
	if err != nil {
		return err
	}
	answer := struct {
		Members []memberBody `json:"members"`
		revised
	}{[]memberBody{}, s.stamp()}
	add := func(m store.Member, state string) {
		answer.Members = append(answer.Members, memberBody{m.User, m.Name, m.Role, capabilitiesOf(m.Role, m.Capabilities), state})
	}
	for _, member := range members {
		add(member, StateAccepted)
	}
	for _, i := range invited {
		add(i.Member, StateInvited)
	}
	return s.write(w, http.StatusOK, answer)
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
	for _, c := range roleCapabilities[m.Role] {
		if slices.Contains(*m.Capabilities, c) {
			list = append(list, c)
		}
	}
	for _, c := range *m.Capabilities {
		if !slices.Contains(list, c) {
			return "", protocol.Errorf(protocol.KindInvalid, "role %s has no capability %q", m.Role, string(c))
		}
	}
	return joinCapabilities(list), nil
}

// putMember asks a user to join a dashboard, or to own it, or changes what a
// member may do there. Who loses a capability by it loses the grants that hold
// it.
func (s *Server) putMember(w http.ResponseWriter, r *http.Request) error {
	m, err := s.owner(w, r)
	if err != nil {
		return err
	}
	var req memberRequest
	if err := readBody(r, &req); err != nil {
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
	before, err := s.capabilitiesIn(r, m.dashboard.ID, user)
	if err != nil {
		return err
	}
	member, err := s.store.Boards.Invite(r.Context(), m.user.ID, m.dashboard.ID, user, req.Role, list)
	if err != nil {
		if protocol.KindOf(err) == protocol.KindTooMany {
			s.metrics.bounds.WithLabelValues(boundInvitations).Inc()
		}
		return err
	}
	after := capabilitiesOf(req.Role, list)
	if !member {
		s.logger.Info("member invited", "dashboard", m.dashboard.ID, "member", user, "role", req.Role, "user", m.user.ID)
		return s.write(w, http.StatusOK, memberAnswer{user, req.Role, after, StateInvited, s.stamp()})
	}
	s.logger.Info("member set", "dashboard", m.dashboard.ID, "member", user, "role", req.Role, "user", m.user.ID)
	if slices.ContainsFunc(before, func(c protocol.Capability) bool { return !slices.Contains(after, c) }) {
		if err := s.revokeGrantsOf(r.Context(), user, m.dashboard.ID); err != nil {
			return err
		}
	}
	if req.Role == store.RoleViewer {
		if err := s.detachAll(r.Context(), user, m.dashboard.ID); err != nil {
			return err
		}
	}
	return s.write(w, http.StatusOK, memberAnswer{user, req.Role, after, StateAccepted, s.stamp()})
}

type memberAnswer struct {
	User         protocol.UserID       `json:"user"`
	Role         store.Role            `json:"role"`
	Capabilities []protocol.Capability `json:"capabilities"`
	State        string                `json:"state"`
	revised
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
func (s *Server) capabilitiesIn(r *http.Request, dashboard string, user protocol.UserID) ([]protocol.Capability, error) {
	_, as, err := s.store.Boards.DashboardFor(r.Context(), user, dashboard)
	switch {
	case err == nil:
		return capabilitiesOf(as.Role, as.Capabilities), nil
	case protocol.KindOf(err) == protocol.KindNotFound:
		return nil, nil
	}
	return nil, err
}

// deleteMember takes a user out of a dashboard, or an invitation back: by an
// owner, or the user themself. The last owner stays.
func (s *Server) deleteMember(w http.ResponseWriter, r *http.Request) error {
	m, err := s.member(w, r, protocol.CapView)
	if err != nil {
		return err
	}
	user, err := pathUser(r)
	if err != nil {
		return err
	}
	if m.role != store.RoleOwner && user != m.user.ID {
		return protocol.Errorf(protocol.KindForbidden, "only an owner may do this")
	}
	if err := s.store.Boards.RemoveMember(r.Context(), m.dashboard.ID, user); err != nil {
		return err
	}
	s.logger.Info("member removed", "dashboard", m.dashboard.ID, "member", user, "user", m.user.ID)
	if err := s.revokeGrantsOf(r.Context(), user, m.dashboard.ID); err != nil {
		return err
	}
	if err := s.detachAll(r.Context(), user, m.dashboard.ID); err != nil {
		return err
	}
	return none(w)
}

package controlplane

import (
	"net/http"
	"slices"
)

// routes are those of the plain listener: for people, who come through a relay,
// and for relays. openapi.json documents each of them.
func (s *Server) routes() []route {
	return slices.Concat(s.peopleRoutes(), s.integrationRoutes(), s.authorityRoutes())
}

// peopleRoutes take a user's token, or lead to one.
func (s *Server) peopleRoutes() []route {
	return []route{
		{http.MethodGet, "/healthz", s.getHealth},
		{http.MethodGet, "/openapi.json", s.getOpenAPI},
		{http.MethodGet, "/auth/config", s.getLoginConfig},
		{http.MethodGet, "/auth/login", s.getLogin},
		{http.MethodGet, "/auth/callback", s.getLoginCallback},
		{http.MethodPost, "/auth/logout", s.postLogout},
		{http.MethodGet, "/auth/me", s.getMe},
		{http.MethodPost, "/grants", s.postGrant},
		{http.MethodGet, "/commands", s.getCommands},
		{http.MethodPost, "/commands", s.postCommand},
		{http.MethodGet, "/commands/{id}", s.getCommand},
		{http.MethodPost, "/sessions", s.postSession},
		{http.MethodDelete, "/sessions/{id}", s.deleteSession},
		{http.MethodGet, "/dashboards", s.getDashboards},
		{http.MethodPost, "/dashboards", s.postDashboard},
		{http.MethodGet, "/dashboards/{id}", s.getDashboard},
		{http.MethodPatch, "/dashboards/{id}", s.patchDashboard},
		{http.MethodDelete, "/dashboards/{id}", s.deleteDashboard},
		{http.MethodGet, "/dashboards/{id}/members", s.getMembers},
		{http.MethodPut, "/dashboards/{id}/members/{user}", s.putMember},
		{http.MethodDelete, "/dashboards/{id}/members/{user}", s.deleteMember},
		{http.MethodGet, "/invitations", s.getInvitations},
		{http.MethodPost, "/invitations/{dashboard}/accept", s.acceptInvitation},
		{http.MethodPost, "/invitations/{dashboard}/decline", s.declineInvitation},
		{http.MethodGet, "/dashboards/{id}/items", s.getItems},
		{http.MethodPost, "/dashboards/{id}/items", s.postItem},
		{http.MethodGet, "/dashboards/{id}/items/{item}", s.getItem},
		{http.MethodPut, "/dashboards/{id}/items/{item}", s.putItem},
		{http.MethodDelete, "/dashboards/{id}/items/{item}", s.deleteItem},
		{http.MethodGet, "/dashboards/{id}/sessions", s.getSessions},
		{http.MethodGet, "/dashboards/{id}/usage", s.getUsage},
	}
}

// integrationRoutes are about accounts at providers and the terminals that may
// use them; they take a user's token, or bring its user back from a provider.
func (s *Server) integrationRoutes() []route {
	return []route{
		{http.MethodGet, "/integrations", s.getIntegrations},
		{http.MethodPost, "/integrations/{provider}/connect", s.postConnect},
		{http.MethodGet, "/integrations/{provider}/callback", s.getConnectCallback},
		{http.MethodDelete, "/integrations/accounts/{id}", s.deleteAccount},
		{http.MethodGet, "/dashboards/{id}/integrations", s.getAttachments},
		{http.MethodGet, "/dashboards/{id}/integrations/audit", s.getGatewayAudit},
		{http.MethodPut, "/dashboards/{id}/terminals/{pty}/integrations/{provider}", s.putAttachment},
		{http.MethodDelete, "/dashboards/{id}/terminals/{pty}/integrations/{provider}", s.deleteAttachment},
		{http.MethodGet, "/dashboards/{id}/turns", s.getTurns},
	}
}

// authorityRoutes are about keys, revocations and what relays ask for.
func (s *Server) authorityRoutes() []route {
	return []route{
		{http.MethodGet, "/.well-known/jwks.json", s.getKeys},
		{http.MethodGet, "/.well-known/revocations", s.getRevocations},
		{http.MethodDelete, "/grants/{id}", s.deleteGrant},
		{http.MethodPost, "/internal/sign", s.postSign},
		{http.MethodPut, "/internal/relays/{id}", s.putRelay},
		{http.MethodPost, "/internal/callback", s.postRelayedCallback},
	}
}

// agentRoutes are those of the second listener, which agents reach through a
// relay that can't read along.
func (s *Server) agentRoutes() []route {
	return []route{
		{http.MethodGet, "/.well-known/jwks.json", s.getKeys},
		{http.MethodGet, "/.well-known/revocations", s.getRevocations},
		{http.MethodPost, "/enrol", s.postEnrol},
		{http.MethodPost, "/certificate", s.postCertificate},
		{http.MethodPost, "/control/callback", s.postCallback},
		{http.MethodPost, "/audit/head", s.postAuditHead},
		{http.MethodPost, "/approvals", s.postApproval},
		{http.MethodGet, "/internal/terminals/{pty}/integrations", s.getTerminalIntegrations},
		{http.MethodPost, "/internal/gateway/{provider}/execute", coded(s, s.postExecute)},
		{http.MethodPost, "/pty-completed", s.postPTYCompleted},
	}
}

package notices

import "github.com/fairlead/fairlead/deploy/controlplane/internal/web"

// Routes take a user's token.
func (n *Notices) Routes() []web.Route {
	return []web.Route{web.Get("/dashboards/{id}/turns", n.getTurns)}
}

// AgentRoutes take a sandbox's signature.
func (n *Notices) AgentRoutes() []web.Route {
	return []web.Route{web.Post("/approvals", n.postApproval), web.Post("/pty-completed", n.postPTYCompleted)}
}

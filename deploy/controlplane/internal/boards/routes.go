package boards

import "github.com/fairlead/fairlead/deploy/controlplane/internal/web"

// Routes returns the routes of dashboards. They take a user token.
func (b *Boards) Routes() []web.Route {
	return []web.Route{
		web.Get("/dashboards", b.getDashboards),
		web.Post("/dashboards", b.postDashboard),
		web.Get("/dashboards/{id}", b.getDashboard),
		web.Patch("/dashboards/{id}", b.patchDashboard),
		web.Delete("/dashboards/{id}", b.deleteDashboard),
		web.Get("/dashboards/{id}/members", b.getMembers),
		web.Put("/dashboards/{id}/members/{user}", b.putMember),
		web.Delete("/dashboards/{id}/members/{user}", b.deleteMember),
		web.Get("/invitations", b.getInvitations),
		web.Post("/invitations/{dashboard}/accept", b.acceptInvitation),
		web.Post("/invitations/{dashboard}/decline", b.declineInvitation),
		web.Get("/dashboards/{id}/sessions", b.getSessions),
		web.Get("/dashboards/{id}/usage", b.getUsage),
	}
}

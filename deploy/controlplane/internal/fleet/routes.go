package fleet

import "github.com/fairlead/fairlead/deploy/controlplane/internal/web"

// Routes take a relay's credential.
func (f *Fleet) Routes() []web.Route {
	return []web.Route{web.Put("/internal/relays/{id}", f.putRelay).For(web.Relays)}
}

// AgentRoutes take an invitation or a sandbox's signature.
func (f *Fleet) AgentRoutes() []web.Route {
	return []web.Route{
		web.Post("/enrol", f.postEnrol),
		web.Post("/certificate", f.postCertificate),
		web.Post("/audit/head", f.postAuditHead),
	}
}

package controlplane

import (
	"net/http"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/oauth"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
)

// routes are those of the first listener: for people, who come through a relay,
// and for relays. openapi.json documents each of them.
func (s *Server) routes() []web.Route {
	return slices.Concat(
		s.peopleRoutes(), s.people.Routes(), s.grants.Routes(), s.commands.Routes(), s.boards.Routes(), s.contents.Routes(),
		s.integrations.Routes(), s.notices.Routes(), s.list.Routes(), s.fleet.Routes(), s.tabs.Routes(),
	)
}

func (s *Server) handler() http.Handler { return s.web.Handler(web.People, eachProvider(s.routes())) }

func (s *Server) agentHandler() http.Handler { return s.web.Handler(web.Agents, s.agentRoutes()) }

// peopleRoutes take a user's token, or lead to one.
func (s *Server) peopleRoutes() []web.Route {
	return []web.Route{
		web.Get("/healthz", s.getHealth).For(web.Probes),
		web.Get("/openapi.json", s.getOpenAPI),
	}
}

// agentRoutes are those of the second listener, which agents reach through a
// relay that can't read along.
func (s *Server) agentRoutes() []web.Route {
	all := slices.Concat(s.list.Routes(), s.commands.AgentRoutes(), s.integrations.AgentRoutes(), s.notices.AgentRoutes(), s.fleet.AgentRoutes())
	for i, rt := range all {
		all[i] = rt.For(web.Agents)
	}
	return all
}

// eachProvider names each provider in the routes below /integrations, where a
// mux couldn't tell a wildcard from "accounts".
func eachProvider(routes []web.Route) (all []web.Route) {
	const wildcard = "/integrations/{provider}/"
	for _, rt := range routes {
		rest, is := strings.CutPrefix(rt.Path, wildcard)
		if !is {
			all = append(all, rt)
			continue
		}
		for _, name := range oauth.Providers() {
			one := rt
			one.Path = "/integrations/" + name + "/" + rest
			one.Serve = func(w *web.Writer, r *http.Request) error {
				r.SetPathValue("provider", name)
				return rt.Serve(w, r)
			}
			all = append(all, one)
		}
	}
	return all
}

package commands

import (
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
)

// maxCallback bounds a callback, in bytes: what a RESULT can carry.
const maxCallback = protocol.MaxFramePayload

// Routes returns the routes of the listener for people and relays.
func (c *Commands) Routes() []web.Route {
	return []web.Route{
		web.Get("/commands", c.getCommands),
		web.Post("/commands", c.postCommand).For(web.Commands),
		web.Get("/commands/{id}", c.getCommand),
		web.Post("/sessions", c.postSession),
		web.Delete("/sessions/{id}", c.deleteSession),
		web.Post("/internal/sign", c.postSign).For(web.Signing),
		web.Post("/internal/callback", c.postRelayedCallback).For(web.Relays).Limit(maxCallback),
	}
}

// AgentRoutes returns the routes of the listener for agents.
func (c *Commands) AgentRoutes() []web.Route {
	return []web.Route{
		web.Post("/control/callback", c.postCallback).Limit(maxCallback),
	}
}

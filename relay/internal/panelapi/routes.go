package panelapi

import "github.com/fairlead/fairlead/relay/internal/access"

// Register adds the routes that are the panel's alone. POST /pty-session without a
// body, [API.Mint], and GET /ws of an extension, [API.Socket], are beside others.
func (a *API) Register(mux access.Router) {
	mux.HandleFunc("POST /pty-session/reattach", a.reattach)
	mux.HandleFunc("POST /pty-restart", a.restart)
	mux.HandleFunc("POST /pty-dispose", a.dispose)
	mux.HandleFunc("GET /claude-available", a.claudeAvailable)
}

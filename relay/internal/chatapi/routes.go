package chatapi

import (
	"net/http"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/access"
)

// Register adds the routes. It is called once, before any is used.
func (a *API) Register(mux access.Router) {
	a.proxy = a.toAgent()
	mux.HandleFunc("POST /app-session", a.openApp)
	mux.HandleFunc("POST /chat-session", a.issueTicket)
	mux.HandleFunc("GET /ws", a.socket())
	mux.HandleFunc("GET /api/auth/status", a.authStatus)
	mux.HandleFunc("GET /api/auth/user", a.authUser)
	mux.HandleFunc("POST /api/auth/logout", a.logOut)
	mux.HandleFunc("POST /api/auth/login", a.accountsElsewhere)
	mux.HandleFunc("POST /api/auth/register", a.accountsElsewhere)
	mux.HandleFunc("POST /api/providers/sessions", a.createConversation)
	mux.HandleFunc("GET /api/", a.pass(protocol.CapView))
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		mux.HandleFunc(method+" /api/", a.pass(protocol.CapChat))
	}
}

package environment

import (
	"net/http"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/route"
)

// Routes serves the names of a session's variables, and no values.
func (s *Store) Routes(mux *http.ServeMux) {
	route.GetJSON(mux, "env", protocol.CapEnv, func(session protocol.SessionID) any { return s.Names(session) })
}

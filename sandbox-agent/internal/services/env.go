package services

import (
	"net/http"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// Env serves the names of the variables of a session. Names and Grant must be
// set.
type Env struct {
	Names func(session protocol.SessionID) protocol.EnvList
	Grant func(*http.Request) *jws.Grant // under which a request came, verified
}

// Register adds the route to mux.
func (s *Env) Register(mux *http.ServeMux) {
	serveSession(mux, s.Grant, "env", protocol.CapEnv, func(session protocol.SessionID) any {
		list := s.Names(session)
		list.Variables = present(list.Variables)
		return list
	})
}

// present returns list, or an empty one that JSON doesn't spell as null.
func present[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

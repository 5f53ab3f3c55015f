package services

import (
	"net/http"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// Egress serves the rules by which a session reaches the network. Rules and
// Grant must be set.
type Egress struct {
	Rules func(session protocol.SessionID) protocol.EgressRules
	Grant func(*http.Request) *jws.Grant // under which a request came, verified
}

// Register adds the route to mux.
func (s *Egress) Register(mux *http.ServeMux) {
	serveSession(mux, s.Grant, "egress/allowlist", protocol.CapApprove, func(session protocol.SessionID) any {
		rules := s.Rules(session)
		rules.Defaults, rules.User, rules.Denied = present(rules.Defaults), present(rules.User), present(rules.Denied)
		return rules
	})
}

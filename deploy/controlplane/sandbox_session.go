package controlplane

import (
	"context"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
)

// sessionIn returns an active session of a sandbox. Those of others don't exist
// for it.
func (s *Server) sessionIn(ctx context.Context, sandbox protocol.SandboxID, id protocol.SessionID) (store.Session, error) {
	missing := protocol.Errorf(protocol.KindNotFound, "no such session")
	if !protocol.ValidID(id) {
		return store.Session{}, missing
	}
	session, err := s.store.Sessions.FindSession(ctx, id)
	switch {
	case err != nil:
		return store.Session{}, err
	case session.Sandbox != sandbox || session.State == store.StatePending:
		return store.Session{}, missing
	case session.State == store.StateEnded:
		return store.Session{}, protocol.Errorf(protocol.KindEnded, "session ended")
	}
	return session, nil
}

package device

import (
	"context"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
)

// Sessions finds the sessions of all sandboxes.
type Sessions interface {
	FindSession(ctx context.Context, id protocol.SessionID) (store.Session, error)
}

// SessionOf returns an active session of a sandbox. Those of others don't exist
// for it.
func SessionOf(ctx context.Context, all Sessions, sandbox protocol.SandboxID, id protocol.SessionID) (store.Session, error) {
	missing := protocol.Errorf(protocol.KindNotFound, "no such session")
	if !protocol.ValidID(id) {
		return store.Session{}, missing
	}
	session, err := all.FindSession(ctx, id)
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

package store

import (
	"context"
	"database/sql"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/db"
	"github.com/fairlead/fairlead/protocol"
)

// KnownUser fails with KindNotFound unless there is, or was, such a user.
func (s *People) KnownUser(ctx context.Context, id protocol.UserID) error {
	return known(ctx, s.db.Reads(), "user", `SELECT 1 FROM users WHERE id = ?`, id)
}

// KnownDashboard fails with KindNotFound unless there is, or was, such a
// dashboard.
func (s *Boards) KnownDashboard(ctx context.Context, id string) error {
	return known(ctx, s.db.Reads(), "dashboard", `SELECT 1 FROM dashboards WHERE id = ?`, id)
}

// KnownSession fails with KindNotFound unless there is, or was, such a session.
func (s *Sessions) KnownSession(ctx context.Context, id protocol.SessionID) error {
	return known(ctx, s.db.Reads(), "session", `SELECT 1 FROM sessions WHERE id = ?`, id)
}

func known(ctx context.Context, r db.Runner, what, query string, id any) error {
	ok, err := r.Exists(ctx, query, id)
	if err == nil && !ok {
		err = absent(sql.ErrNoRows, what)
	}
	return err
}

package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/db"
	"github.com/fairlead/fairlead/protocol"
)

// A Session is a session, as one member sees it where that is said.
type Session struct {
	ID        protocol.SessionID
	Dashboard string
	Sandbox   protocol.SandboxID
	State     string
	CreatedAt time.Time // zero: not known

	// The member's.
	Role               Role
	MemberCapabilities string // separated by spaces, they narrow Role; empty: all of it
}

// The states of a session.
const (
	StatePending = "pending" // the sandbox hasn't confirmed that it exists
	StateActive  = "active"
	StateEnded   = "ended"
)

const memberSessions = `
	SELECT s.id, s.dashboard_id, d.sandbox_id, s.state, s.created_at, m.role, m.capabilities
	FROM sessions s
	JOIN dashboards d ON d.id = s.dashboard_id
	JOIN members m ON m.dashboard_id = s.dashboard_id
	WHERE m.user_id = ?`

// Active lists the active sessions of the user's dashboards, in order of id.
func (s *Sessions) Active(ctx context.Context, user protocol.UserID) ([]Session, error) {
	return db.Collect(ctx, s.db.Reads(), scanMemberSession, memberSessions+` AND s.state = ? ORDER BY s.id LIMIT ?`,
		user, StateActive, MaxLimit)
}

// SessionsOf lists the sessions of a dashboard, those that have ended last, as
// no member sees them.
func (s *Sessions) SessionsOf(ctx context.Context, dashboard string) ([]Session, error) {
	return db.Collect(ctx, s.db.Reads(), func(row db.Scanner) (Session, error) { return scanSession(row) }, `
		SELECT s.id, s.dashboard_id, d.sandbox_id, s.state, s.created_at
		FROM sessions s JOIN dashboards d ON d.id = s.dashboard_id
		WHERE s.dashboard_id = ?
		ORDER BY CASE s.state WHEN 'ended' THEN 1 ELSE 0 END, s.id LIMIT ?`, dashboard, MaxLimit)
}

// FindSession returns a session whatever its state, as no member sees it;
// KindNotFound if there is none. Its sandbox is that of its dashboard now.
func (s *Sessions) FindSession(ctx context.Context, id protocol.SessionID) (Session, error) {
	session, err := scanSession(s.db.Reads().Row(ctx, `
		SELECT s.id, s.dashboard_id, d.sandbox_id, s.state, s.created_at
		FROM sessions s JOIN dashboards d ON d.id = s.dashboard_id
		WHERE s.id = ?`, id))
	return session, absent(err, "session")
}

// Session returns one active session. It is KindNotFound for whoever isn't a
// member of its dashboard, and KindEnded after its end.
func (s *Sessions) Session(ctx context.Context, user protocol.UserID, id protocol.SessionID) (Session, error) {
	return sessionOf(ctx, s.db.Reads(), user, id)
}

func sessionOf(ctx context.Context, r db.Runner, user protocol.UserID, id protocol.SessionID) (Session, error) {
	session, err := scanMemberSession(r.Row(ctx, memberSessions+` AND s.id = ?`, user, id))
	switch {
	case errors.Is(err, sql.ErrNoRows), err == nil && session.State == StatePending:
		return Session{}, protocol.Errorf(protocol.KindNotFound, "no such session")
	case err == nil && session.State == StateEnded:
		return Session{}, protocol.Errorf(protocol.KindEnded, "session ended")
	}
	return session, err
}

// scanSession reads a session, and what follows its columns into more.
func scanSession(row db.Scanner, more ...any) (session Session, err error) {
	var sandbox sql.NullString
	var created sql.NullInt64
	err = row.Scan(append([]any{&session.ID, &session.Dashboard, &sandbox, &session.State, &created}, more...)...)
	session.Sandbox, session.CreatedAt = protocol.SandboxID(sandbox.String), db.TimeOf(created)
	return session, err
}

func scanMemberSession(row db.Scanner) (Session, error) {
	var role Role
	var capabilities string
	session, err := scanSession(row, &role, &capabilities)
	session.Role, session.MemberCapabilities = role, capabilities
	return session, err
}

// EndSession marks a session as ended.
func (s *Sessions) EndSession(ctx context.Context, id protocol.SessionID) error {
	_, err := s.db.Exec(ctx, `UPDATE sessions SET state = ? WHERE id = ?`, StateEnded, id)
	return err
}

// ActivateSession marks a pending session as active.
func (s *Sessions) ActivateSession(ctx context.Context, id protocol.SessionID) error {
	_, err := s.db.Exec(ctx, `UPDATE sessions SET state = ? WHERE id = ? AND state = ?`, StateActive, id, StatePending)
	return err
}

// endSessions ends every session of a dashboard.
func endSessions(ctx context.Context, tx db.Runner, dashboard string) error {
	_, err := tx.Exec(ctx, `UPDATE sessions SET state = ? WHERE dashboard_id = ? AND state <> ?`, StateEnded, dashboard, StateEnded)
	return err
}

package store

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"database/sql"
	"errors"

	"github.com/fairlead/fairlead/protocol"
)

// A User is a person.
type User struct {
	ID   protocol.UserID
	Name string
}

// A Role says what a member may do in a dashboard's sessions.
type Role string

const (
	RoleOwner      Role = "owner"
	RoleController Role = "controller"
	RoleViewer     Role = "viewer"
)

// Known reports whether r is a role.
func (r Role) Known() bool { return r == RoleOwner || r == RoleController || r == RoleViewer }

// A Session is a session as one member sees it.
type Session struct {
	ID        protocol.SessionID
	Dashboard string
	Sandbox   protocol.SandboxID
	Role      Role // the member's
}

// The states of a session.
const (
	statePending = "pending"
	stateActive  = "active"
	stateEnded   = "ended"
)

func hashToken(token string) []byte {
	h := sha256.Sum256([]byte(token))
	return h[:]
}

// UserByToken returns the user whose token it is; KindUnauthenticated if nobody's.
func (s *Store) UserByToken(ctx context.Context, token string) (User, error) {
	var u User
	var hash []byte
	err := s.read.QueryRowContext(ctx, `SELECT id, name, token_hash FROM users WHERE token_hash = ?`,
		hashToken(token)).Scan(&u.ID, &u.Name, &hash)
	if err := matched(err, hash, token); err != nil {
		return User{}, err
	}
	return u, nil
}

// RelayByCredential returns the relay whose credential it is;
// KindUnauthenticated if no relay's.
func (s *Store) RelayByCredential(ctx context.Context, credential string) (protocol.RelayID, error) {
	var id protocol.RelayID
	var hash []byte
	err := s.read.QueryRowContext(ctx, `SELECT id, credential_hash FROM relays WHERE credential_hash = ?`,
		hashToken(credential)).Scan(&id, &hash)
	if err := matched(err, hash, credential); err != nil {
		return "", err
	}
	return id, nil
}

// matched turns the outcome of a search by hash into an error. The index can
// leak by its timing only how a hash begins, which helps nobody find a token;
// the last word is a comparison in constant time all the same.
func matched(err error, hash []byte, token string) error {
	switch {
	case errors.Is(err, sql.ErrNoRows):
	case err != nil:
		return err
	case subtle.ConstantTimeCompare(hash, hashToken(token)) == 1:
		return nil
	}
	return protocol.Errorf(protocol.KindUnauthenticated, "not authenticated")
}

const memberSessions = `
	SELECT s.id, s.dashboard_id, d.sandbox_id, m.role, s.state
	FROM sessions s
	JOIN dashboards d ON d.id = s.dashboard_id
	JOIN members m ON m.dashboard_id = s.dashboard_id
	WHERE m.user_id = ?`

// Sessions lists the active sessions of the user's dashboards, in order of id.
func (s *Store) Sessions(ctx context.Context, user protocol.UserID) ([]Session, error) {
	rows, err := s.read.QueryContext(ctx, memberSessions+` AND s.state = ? ORDER BY s.id`, user, stateActive)
	if err != nil {
		return nil, err
	}
	return collect(rows, func(rows *sql.Rows) (Session, error) {
		session, _, err := scanSession(rows)
		return session, err
	})
}

// Session returns one session. It is KindNotFound for whoever isn't a member
// of its dashboard, and KindEnded after its end.
func (s *Store) Session(ctx context.Context, user protocol.UserID, id protocol.SessionID) (Session, error) {
	session, state, err := scanSession(s.read.QueryRowContext(ctx, memberSessions+` AND s.id = ?`, user, id))
	switch {
	case errors.Is(err, sql.ErrNoRows), err == nil && state == statePending:
		return Session{}, protocol.Errorf(protocol.KindNotFound, "no such session")
	case err == nil && state == stateEnded:
		return Session{}, protocol.Errorf(protocol.KindEnded, "session ended")
	}
	return session, err
}

func scanSession(row interface{ Scan(...any) error }) (session Session, state string, err error) {
	err = row.Scan(&session.ID, &session.Dashboard, &session.Sandbox, &session.Role, &state)
	return session, state, err
}

// Dashboard returns the dashboard of a sandbox and the user's role there;
// KindNotFound for whoever isn't a member.
func (s *Store) Dashboard(ctx context.Context, user protocol.UserID, sandbox protocol.SandboxID) (dashboard string, role Role, err error) {
	err = s.read.QueryRowContext(ctx, `
		SELECT d.id, m.role FROM dashboards d JOIN members m ON m.dashboard_id = d.id
		WHERE m.user_id = ? AND d.sandbox_id = ?`, user, sandbox).Scan(&dashboard, &role)
	if errors.Is(err, sql.ErrNoRows) {
		err = protocol.Errorf(protocol.KindNotFound, "no such sandbox")
	}
	return dashboard, role, err
}

// EndSession marks a session as ended.
func (s *Store) EndSession(ctx context.Context, id protocol.SessionID) error {
	_, err := s.write.ExecContext(ctx, `UPDATE sessions SET state = ? WHERE id = ?`, stateEnded, id)
	return err
}

// ActivateSession marks a pending session as active.
func (s *Store) ActivateSession(ctx context.Context, id protocol.SessionID) error {
	_, err := s.write.ExecContext(ctx, `UPDATE sessions SET state = ? WHERE id = ? AND state = ?`,
		stateActive, id, statePending)
	return err
}

package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/db"
	"github.com/fairlead/fairlead/protocol"
)

// A Role says what a member may do in a dashboard's sessions.
type Role string

const (
	RoleOwner  Role = "owner"
	RoleEditor Role = "editor"
	RoleViewer Role = "viewer"
)

// Known reports whether r is a role.
func (r Role) Known() bool { return r == RoleOwner || r == RoleEditor || r == RoleViewer }

// A Member is a user of a dashboard.
type Member struct {
	User         protocol.UserID
	Name         string
	Role         Role
	Capabilities string // separated by spaces; empty: all of the role
}

const (
	maxDashboards = 500 // that one user owns
	maxMembers    = 500 // of one dashboard
)

// Members lists the members of a dashboard in order of id.
func (s *Boards) Members(ctx context.Context, dashboard string) ([]Member, error) {
	return db.Collect(ctx, s.db.Reads(), func(row db.Scanner) (m Member, err error) {
		return m, row.Scan(&m.User, &m.Name, &m.Role, &m.Capabilities)
	}, `
		SELECT u.id, u.name, m.role, m.capabilities FROM members m JOIN users u ON u.id = m.user_id
		WHERE m.dashboard_id = ? ORDER BY u.id LIMIT ?`, dashboard, MaxLimit)
}

// roleOf returns what a user is in a dashboard, "" for nothing.
func roleOf(ctx context.Context, tx db.Runner, dashboard string, user protocol.UserID) (role Role, err error) {
	err = tx.Row(ctx, `SELECT role FROM members WHERE dashboard_id = ? AND user_id = ?`, dashboard, user).Scan(&role)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return role, err
}

// setMember makes a user a member, or another one. Who joins counts against the
// dashboard's limit; against a user's count only those that they own.
func setMember(ctx context.Context, tx db.Runner, dashboard string, user protocol.UserID, role Role, capabilities string) error {
	was, err := roleOf(ctx, tx, dashboard, user)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `
		INSERT INTO members (dashboard_id, user_id, role, capabilities) VALUES (?, ?, ?, ?)
		ON CONFLICT (dashboard_id, user_id) DO UPDATE SET role = excluded.role, capabilities = excluded.capabilities`,
		dashboard, user, role, capabilities); err != nil {
		return err
	}
	var members, owned int
	if err := tx.Row(ctx, `
		SELECT (SELECT count(*) FROM members WHERE dashboard_id = ?), (SELECT count(*) FROM members WHERE user_id = ? AND role = ?)`,
		dashboard, user, RoleOwner).Scan(&members, &owned); err != nil {
		return err
	}
	if was == "" && members > maxMembers {
		return protocol.Errorf(protocol.KindTooMany, "the dashboard has %d members already", maxMembers)
	}
	if was != RoleOwner && role == RoleOwner && owned > maxDashboards {
		return protocol.Errorf(protocol.KindTooMany, "user %s owns %d dashboards already", user, maxDashboards)
	}
	return nil
}

// keepOwner runs change, which must not take the last owner away.
func keepOwner(ctx context.Context, tx db.Runner, dashboard string, change func() error) error {
	owned := func() (bool, error) {
		ok, err := tx.Exists(ctx, `SELECT 1 FROM members WHERE dashboard_id = ? AND role = ? AND capabilities = '' LIMIT 1`,
			dashboard, RoleOwner)
		if err != nil {
			return false, fmt.Errorf("owners of a dashboard: %w", err)
		}
		return ok, nil
	}
	before, err := owned()
	if err != nil {
		return err
	}
	if err := change(); err != nil {
		return err
	}
	after, err := owned()
	if err == nil && before && !after {
		err = protocol.Errorf(protocol.KindConflict, "the last owner of a dashboard stays its owner")
	}
	return err
}

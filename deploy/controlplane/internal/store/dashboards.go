package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/db"
	"github.com/fairlead/fairlead/protocol"
)

// A Dashboard is what users share. Its sessions run in its one sandbox.
type Dashboard struct {
	ID        string
	Name      string
	Sandbox   protocol.SandboxID // empty: none yet
	CreatedAt time.Time
}

// A Membership is a dashboard as one member sees it.
type Membership struct {
	Dashboard
	Member
}

// AddDashboard adds a dashboard that belongs to owner. KindConflict says that
// its id, or its sandbox, is taken.
func (s *Boards) AddDashboard(ctx context.Context, d Dashboard, owner protocol.UserID) error {
	if err := checkID("the dashboard's id", d.ID); err != nil {
		return err
	}
	if err := checkText("the name", d.Name); err != nil {
		return err
	}
	return s.db.Transact(ctx, func(tx db.Runner) error {
		if err := requireUser(ctx, tx, owner); err != nil {
			return err
		}
		return addDashboard(ctx, tx, d, owner)
	})
}

func addDashboard(ctx context.Context, tx db.Runner, d Dashboard, owner protocol.UserID) error {
	n, err := tx.Exec(ctx, `INSERT INTO dashboards (id, name, created_at) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING`,
		d.ID, d.Name, tx.Now().UnixMilli())
	if err != nil {
		return err
	}
	if n == 0 {
		return protocol.Errorf(protocol.KindConflict, "dashboard %s exists already", d.ID)
	}
	if d.Sandbox != "" {
		if err := bindSandbox(ctx, tx, d.ID, d.Sandbox); err != nil {
			return err
		}
	}
	return setMember(ctx, tx, d.ID, owner, RoleOwner, "")
}

const dashboardColumns = `d.id, d.name, d.sandbox_id, d.created_at`

func scanDashboard(row db.Scanner) (d Dashboard, err error) {
	var sandbox sql.NullString
	var created sql.NullInt64
	err = row.Scan(&d.ID, &d.Name, &sandbox, &created)
	d.Sandbox, d.CreatedAt = protocol.SandboxID(sandbox.String), db.TimeOf(created)
	return d, err
}

// Dashboards lists the dashboards of a user in order of id.
func (s *Boards) Dashboards(ctx context.Context, user protocol.UserID) ([]Membership, error) {
	return db.Collect(ctx, s.db.Reads(), func(row db.Scanner) (m Membership, err error) {
		m.Dashboard, m.Member, err = scanMemberDashboard(row)
		return m, err
	}, memberDashboard+` ORDER BY d.id LIMIT ?`, user, MaxLimit)
}

// AllDashboards lists at most limit dashboards in order of id, those after an id.
func (s *Boards) AllDashboards(ctx context.Context, after string, limit int) ([]Dashboard, error) {
	return db.Collect(ctx, s.db.Reads(), scanDashboard, `
		SELECT `+dashboardColumns+` FROM dashboards d
		WHERE d.removed_at IS NULL AND d.id > ? ORDER BY d.id LIMIT ?`, after, limited(limit))
}

// SandboxOf returns the sandbox of a dashboard, empty while it has none;
// KindNotFound if there is no such dashboard.
func (s *Boards) SandboxOf(ctx context.Context, dashboard string) (protocol.SandboxID, error) {
	var sandbox sql.NullString
	err := s.db.Reads().Row(ctx, `SELECT sandbox_id FROM dashboards WHERE id = ? AND removed_at IS NULL`, dashboard).Scan(&sandbox)
	return protocol.SandboxID(sandbox.String), absent(err, "dashboard")
}

// DashboardsNamed returns the ids of dashboards whose name it is, in whatever
// case.
func (s *Boards) DashboardsNamed(ctx context.Context, name string) ([]string, error) {
	return db.Collect(ctx, s.db.Reads(), func(row db.Scanner) (id string, err error) { return id, row.Scan(&id) }, `
		SELECT d.id FROM dashboards d
		WHERE d.removed_at IS NULL AND lower(d.name) = lower(?) ORDER BY d.id LIMIT ?`, name, maxNamesakes)
}

const memberDashboard = `
	SELECT ` + dashboardColumns + `, u.id, u.name, m.role, m.capabilities
	FROM dashboards d
	JOIN members m ON m.dashboard_id = d.id
	JOIN users u ON u.id = m.user_id
	WHERE m.user_id = ?`

func scanMemberDashboard(row db.Scanner) (d Dashboard, m Member, err error) {
	var sandbox sql.NullString
	var created sql.NullInt64
	err = row.Scan(&d.ID, &d.Name, &sandbox, &created, &m.User, &m.Name, &m.Role, &m.Capabilities)
	d.Sandbox, d.CreatedAt = protocol.SandboxID(sandbox.String), db.TimeOf(created)
	return d, m, err
}

// DashboardFor returns a dashboard and what the user is there; KindNotFound for
// whoever isn't a member.
func (s *Boards) DashboardFor(ctx context.Context, user protocol.UserID, id string) (Dashboard, Member, error) {
	d, m, err := scanMemberDashboard(s.db.Reads().Row(ctx, memberDashboard+` AND d.id = ?`, user, id))
	return d, m, absent(err, "dashboard")
}

// DashboardOf returns the dashboard of a sandbox and what the user is there;
// KindNotFound for whoever isn't a member.
func (s *Boards) DashboardOf(ctx context.Context, user protocol.UserID, sandbox protocol.SandboxID) (Dashboard, Member, error) {
	d, m, err := scanMemberDashboard(s.db.Reads().Row(ctx, memberDashboard+` AND d.sandbox_id = ?`, user, sandbox))
	return d, m, absent(err, "sandbox")
}

// requireDashboard fails with KindNotFound unless the dashboard exists, and
// returns its sandbox.
func requireDashboard(ctx context.Context, tx db.Runner, id string) (protocol.SandboxID, error) {
	var sandbox sql.NullString
	err := tx.Row(ctx, `SELECT sandbox_id FROM dashboards WHERE id = ? AND removed_at IS NULL`, id).Scan(&sandbox)
	return protocol.SandboxID(sandbox.String), absent(err, "dashboard")
}

// RenameDashboard gives a dashboard another name.
func (s *Boards) RenameDashboard(ctx context.Context, id, name string) error {
	if err := checkText("the name", name); err != nil {
		return err
	}
	n, err := s.db.Exec(ctx, `UPDATE dashboards SET name = ? WHERE id = ? AND removed_at IS NULL`, name, id)
	if err == nil && n == 0 {
		err = absent(sql.ErrNoRows, "dashboard")
	}
	return err
}

// RemoveDashboard takes a dashboard from its members, with its items, tasks
// and memory; its sessions end and its sandbox is free for another. Grants stay valid: see
// [Grants.RevokeGrantsOf].
func (s *Boards) RemoveDashboard(ctx context.Context, id string) error {
	return s.db.Transact(ctx, func(tx db.Runner) error {
		if _, err := requireDashboard(ctx, tx, id); err != nil {
			return err
		}
		if err := endSessions(ctx, tx, id); err != nil {
			return err
		}
		for _, query := range []string{
			`DELETE FROM members WHERE dashboard_id = ?`,
			`DELETE FROM member_invitations WHERE dashboard_id = ?`,
			`DELETE FROM items WHERE dashboard_id = ?`,
			`DELETE FROM tasks WHERE dashboard_id = ?`,
			`DELETE FROM memory WHERE dashboard_id = ?`,
			`DELETE FROM attachments WHERE session_id IN (SELECT id FROM sessions WHERE dashboard_id = ?)`,
		} {
			if _, err := tx.Exec(ctx, query, id); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, `UPDATE dashboards SET name = '', sandbox_id = NULL, removed_at = ? WHERE id = ?`,
			s.db.Now().UnixMilli(), id)
		return err
	})
}

// BindSandbox makes sandbox the one of a dashboard; an empty one unbinds. The
// sessions in another sandbox end. KindConflict says that it is another
// dashboard's. Who may have which sandbox is for the caller to know.
func (s *Boards) BindSandbox(ctx context.Context, dashboard string, sandbox protocol.SandboxID) error {
	return s.db.Transact(ctx, func(tx db.Runner) error { return bindSandbox(ctx, tx, dashboard, sandbox) })
}

func bindSandbox(ctx context.Context, tx db.Runner, dashboard string, sandbox protocol.SandboxID) error {
	old, err := requireDashboard(ctx, tx, dashboard)
	if err != nil || old == sandbox {
		return err
	}
	if sandbox != "" {
		if err := addSandbox(ctx, tx, sandbox); err != nil {
			return err
		}
		taken, err := tx.Exists(ctx, `SELECT 1 FROM dashboards WHERE sandbox_id = ? AND id <> ?`, sandbox, dashboard)
		if err != nil {
			return err
		}
		if taken {
			return protocol.Errorf(protocol.KindConflict, "sandbox %s belongs to another dashboard", sandbox)
		}
	}
	if old != "" {
		if err := endSessions(ctx, tx, dashboard); err != nil {
			return err
		}
	}
	_, err = tx.Exec(ctx, `UPDATE dashboards SET sandbox_id = ? WHERE id = ?`, db.Nullable(sandbox), dashboard)
	return err
}

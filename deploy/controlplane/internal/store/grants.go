package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/db"
	"github.com/fairlead/fairlead/protocol"
)

// grantsKeptFor is how long a grant is remembered after its expiry.
const grantsKeptFor = 24 * time.Hour

// A Grant is a grant that was handed out.
type Grant struct {
	ID           protocol.GrantID
	User         protocol.UserID
	Session      protocol.SessionID
	Dashboard    string             // in grants that were read
	Sandbox      protocol.SandboxID // in grants that were read; empty: not known
	PTY          protocol.PTYID     // empty: every terminal
	Capabilities string             // separated by spaces
	IssuedAt     time.Time
	ExpiresAt    time.Time
	RevokedAt    time.Time // zero: it wasn't

	// For AddGrant: what the user was when the grant was decided upon. With an
	// empty role that isn't checked.
	Role               Role
	MemberCapabilities string
	// Most is how many live grants the user may have with this one; 0: any number.
	Most int
}

// revokedPerLive is how many grants that haven't expired a user may have for each
// live one: what is revoked makes room for another, but not for any number. It
// bounds what one person can put on the revocation list.
const revokedPerLive = 4

// A FullError says that a user has as many grants as they may.
type FullError struct {
	Err   error     // of KindTooMany
	Until time.Time // when the first of them expires
}

func (e *FullError) Error() string { return e.Err.Error() }
func (e *FullError) Unwrap() error { return e.Err }

// AddGrant remembers a grant, and forgets those that expired long ago. The user
// must still be a member of the session's dashboard, as for [Sessions.Session], and
// still be what g says: KindConflict. So no grant appears after what it rests on
// was taken away and what was handed out was revoked. Who has too many gets a
// [FullError].
func (s *Grants) AddGrant(ctx context.Context, g Grant) error {
	return s.db.Transact(ctx, func(tx db.Runner) error {
		session, err := sessionOf(ctx, tx, g.User, g.Session)
		if err != nil {
			return err
		}
		if g.Role != "" && (g.Role != session.Role || g.MemberCapabilities != session.MemberCapabilities) {
			return protocol.Errorf(protocol.KindConflict, "what you may do here has just changed")
		}
		if _, err := tx.Exec(ctx, `DELETE FROM grants WHERE expires_at < ?`,
			g.IssuedAt.Add(-grantsKeptFor).UnixMilli()); err != nil {
			return err
		}
		if err := checkRoom(ctx, tx, g); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `
			INSERT INTO grants (id, user_id, session_id, pty_id, capabilities, issued_at, expires_at, sandbox_id)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
			g.ID, g.User, g.Session, db.Nullable(g.PTY), g.Capabilities, g.IssuedAt.UnixMilli(), g.ExpiresAt.UnixMilli(),
			db.Nullable(session.Sandbox))
		return err
	})
}

// checkRoom fails with a [FullError] when the user has as many grants as they
// may when g is issued.
func checkRoom(ctx context.Context, tx db.Runner, g Grant) error {
	if g.Most <= 0 {
		return nil
	}
	for _, bound := range []struct {
		most  int
		which string
		what  string
	}{
		{g.Most, ` AND revoked_at IS NULL`, "valid grants"},
		{g.Most * revokedPerLive, ``, "grants, revoked ones among them, that haven't expired"},
	} {
		var count int
		var first sql.NullInt64
		// The index is by the time of issue, and no grant lives longer than that.
		err := tx.Row(ctx, `SELECT count(*), min(expires_at) FROM grants WHERE user_id = ? AND issued_at >= ? AND expires_at > ?`+bound.which,
			g.User, g.IssuedAt.Add(-protocol.MaxGrantTTL).UnixMilli(), g.IssuedAt.UnixMilli()).Scan(&count, &first)
		if err != nil {
			return err
		}
		if count >= bound.most {
			return &FullError{protocol.Errorf(protocol.KindTooMany, "you have %d %s already", count, bound.what), db.TimeOf(first)}
		}
	}
	return nil
}

// Grant returns a grant; KindNotFound if none is remembered.
func (s *Grants) Grant(ctx context.Context, id protocol.GrantID) (Grant, error) {
	g, err := scanGrant(s.db.Reads().Row(ctx, grantColumns+` WHERE g.id = ?`, id))
	return g, absent(err, "grant")
}

// GrantHolders lists the users who hold a grant for a dashboard that is valid at
// a time, or was up to the skew of clocks before.
func (s *Grants) GrantHolders(ctx context.Context, dashboard string, at time.Time) ([]protocol.UserID, error) {
	return db.Collect(ctx, s.db.Reads(), func(row db.Scanner) (id protocol.UserID, err error) { return id, row.Scan(&id) }, `
		SELECT DISTINCT g.user_id FROM grants g JOIN sessions s ON s.id = g.session_id
		WHERE s.dashboard_id = ? AND g.expires_at >= ? AND g.revoked_at IS NULL ORDER BY g.user_id`,
		dashboard, at.Add(-protocol.ClockSkew).UnixMilli())
}

// A GrantFilter says which grants to list; what is empty says nothing.
type GrantFilter struct {
	User      protocol.UserID
	Session   protocol.SessionID
	Dashboard string
	Live      time.Time // only those that are valid at this time
	Limit     int
}

// List returns the grants that match the whole of f, the newest first. Grants
// are remembered for a day after their expiry.
func (s *Grants) List(ctx context.Context, f GrantFilter) ([]Grant, error) {
	query, args := grantColumns+` WHERE 1 = 1`, []any(nil)
	add := func(used bool, condition string, values ...any) {
		if used {
			query, args = query+condition, append(args, values...)
		}
	}
	add(f.User != "", ` AND g.user_id = ?`, f.User)
	add(f.Session != "", ` AND g.session_id = ?`, f.Session)
	add(f.Dashboard != "", ` AND s.dashboard_id = ?`, f.Dashboard)
	add(!f.Live.IsZero(), ` AND g.expires_at > ? AND g.revoked_at IS NULL`, f.Live.UnixMilli())
	return db.Collect(ctx, s.db.Reads(), scanGrant, query+` ORDER BY g.issued_at DESC, g.id DESC LIMIT ?`, append(args, limited(f.Limit))...)
}

const grantColumns = `
	SELECT g.id, g.user_id, g.session_id, s.dashboard_id, g.sandbox_id, g.pty_id, g.capabilities, g.issued_at, g.expires_at, g.revoked_at
	FROM grants g JOIN sessions s ON s.id = g.session_id`

func scanGrant(row db.Scanner) (g Grant, err error) {
	var sandbox, pty sql.NullString
	var issued, expires, revoked sql.NullInt64
	err = row.Scan(&g.ID, &g.User, &g.Session, &g.Dashboard, &sandbox, &pty, &g.Capabilities, &issued, &expires, &revoked)
	g.Sandbox = protocol.SandboxID(sandbox.String)
	g.PTY, g.IssuedAt, g.ExpiresAt, g.RevokedAt = protocol.PTYID(pty.String), db.TimeOf(issued), db.TimeOf(expires), db.TimeOf(revoked)
	return g, err
}

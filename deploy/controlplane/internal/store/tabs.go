package store

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/db"
	"github.com/fairlead/fairlead/protocol"
)

// A TabShare is a tab of a person's own browser that the agents of a session may
// use.
type TabShare struct {
	Session   protocol.SessionID
	User      protocol.UserID
	Browser   string // the installation of the extension
	Extension string
	Tab       int64
	Title     string
	URL       string // without its query
	ExpiresAt time.Time
	SharedAt  time.Time

	// The grant under which it was reported. The share ends with it, if it isn't
	// reported again.
	Grant     protocol.GrantID
	GrantedAt time.Time
	HeldUntil time.Time

	// In shares that were read.
	Name      string // of User
	Dashboard string
}

// MaxTabShares bounds the tabs that one person shares at a time.
const MaxTabShares = 32

// ShareTabs has a browser of a user share these tabs with a session, and no
// others; of what stays, SharedAt stays. It reports whether the tabs are others
// than before. KindTooMany says that the user would share more than
// [MaxTabShares]: then nothing changes.
func (s *Tabs) ShareTabs(ctx context.Context, session protocol.SessionID, user protocol.UserID, browser string, tabs []TabShare) (changed bool, err error) {
	err = s.db.Transact(ctx, func(tx db.Runner) error {
		now := tx.Now().UnixMilli()
		if _, err := tx.Exec(ctx, `DELETE FROM tab_shares WHERE user_id = ? AND (expires_at <= ? OR held_until <= ?)`, user, now, now); err != nil {
			return err
		}
		of := []any{session, user, browser}
		was, err := db.Collect(ctx, tx, scanSharedAt, `
			SELECT tab_id, shared_at FROM tab_shares WHERE session_id = ? AND user_id = ? AND browser_id = ?`, of...)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM tab_shares WHERE session_id = ? AND user_id = ? AND browser_id = ?`, of...); err != nil {
			return err
		}
		var others int
		if err := tx.Row(ctx, `SELECT count(*) FROM tab_shares WHERE user_id = ?`, user).Scan(&others); err != nil {
			return err
		}
		if others+len(tabs) > MaxTabShares {
			return protocol.Errorf(protocol.KindTooMany, "one person shares at most %d tabs", MaxTabShares)
		}
		changed = len(tabs) != len(was)
		for _, t := range tabs {
			since := now
			if i := slices.IndexFunc(was, func(w TabShare) bool { return w.Tab == t.Tab }); i >= 0 {
				since = was[i].SharedAt.UnixMilli()
			} else {
				changed = true
			}
			if _, err := tx.Exec(ctx, `
				INSERT INTO tab_shares (session_id, user_id, browser_id, tab_id, extension_id, title, url, expires_at, shared_at,
					grant_id, granted_at, held_until) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
				session, user, browser, t.Tab, t.Extension, db.CleanText(t.Title), db.CleanText(t.URL), t.ExpiresAt.UnixMilli(),
				since, t.Grant, t.GrantedAt.UnixMilli(), t.HeldUntil.UnixMilli()); err != nil {
				return err
			}
		}
		return nil
	})
	return changed && err == nil, err
}

func scanSharedAt(row db.Scanner) (t TabShare, err error) {
	var shared sql.NullInt64
	err = row.Scan(&t.Tab, &shared)
	t.SharedAt = db.TimeOf(shared)
	return t, err
}

// SharedTabs lists what is shared with an active session now, by people who are
// still members of its dashboard.
func (s *Tabs) SharedTabs(ctx context.Context, session protocol.SessionID, now time.Time) ([]TabShare, error) {
	return db.Collect(ctx, s.db.Reads(), scanTabShare, `
		SELECT t.session_id, t.user_id, u.name, t.browser_id, t.extension_id, t.tab_id, t.title, t.url, t.expires_at, t.shared_at,
			t.grant_id, t.granted_at, t.held_until, s.dashboard_id
		FROM tab_shares t
		JOIN users u ON u.id = t.user_id
		JOIN sessions s ON s.id = t.session_id
		JOIN members m ON m.dashboard_id = s.dashboard_id AND m.user_id = t.user_id
		WHERE s.state = 'active' AND t.session_id = ? AND t.expires_at > ? AND t.held_until > ?
		ORDER BY t.shared_at, t.user_id, t.browser_id, t.tab_id LIMIT ?`,
		session, now.UnixMilli(), now.UnixMilli(), MaxLimit)
}

// CountShared returns how many tabs are shared now, with whatever sessions.
func (s *Tabs) CountShared(ctx context.Context, now time.Time) (n int, err error) {
	err = s.db.Reads().Row(ctx, `SELECT COUNT(*) FROM tab_shares WHERE expires_at > ? AND held_until > ?`,
		now.UnixMilli(), now.UnixMilli()).Scan(&n)
	return n, err
}

func scanTabShare(row db.Scanner) (t TabShare, err error) {
	var expires, shared, granted, held sql.NullInt64
	err = row.Scan(&t.Session, &t.User, &t.Name, &t.Browser, &t.Extension, &t.Tab, &t.Title, &t.URL, &expires, &shared,
		&t.Grant, &granted, &held, &t.Dashboard)
	t.ExpiresAt, t.SharedAt = db.TimeOf(expires), db.TimeOf(shared)
	t.GrantedAt, t.HeldUntil = db.TimeOf(granted), db.TimeOf(held)
	return t, err
}

// PageCommands lists the newest commands of a session that went to people's own
// browsers.
func (s *Tabs) PageCommands(ctx context.Context, session protocol.SessionID, limit int) ([]Command, error) {
	return db.Collect(ctx, s.db.Reads(), scanCommand, commandColumns+`
		WHERE c.session_id = ? AND c.sandbox_id IS NULL AND c.user_id IS NOT NULL
		ORDER BY c.issued_at DESC, c.id DESC LIMIT ?`, session, limited(limit))
}

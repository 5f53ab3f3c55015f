package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/db"
	"github.com/fairlead/fairlead/protocol"
)

// A GatewayRecord is one request of the integration gateway, and what became of
// it, without its contents.
type GatewayRecord struct {
	ID            string // made by AddGatewayRecord
	At            time.Time
	Dashboard     string
	Session       protocol.SessionID
	PTY           protocol.PTYID  // empty: none was named
	User          protocol.UserID // empty: a program in the sandbox
	Account       string          // empty: none was needed
	Provider      string
	Action        string
	Decision      protocol.GatewayDecision
	Reason        string
	Outcome       string // empty: done; else why not
	PolicyID      string // empty: none
	PolicyVersion int64
}

// GatewayRecordLife is how long a record is kept.
const GatewayRecordLife = 90 * 24 * time.Hour

// AddGatewayRecord keeps a record and forgets those that are too old.
func (s *Integrations) AddGatewayRecord(ctx context.Context, r GatewayRecord) error {
	r.ID = "gw_" + strings.ToLower(rand.Text())
	return s.db.Concurrently(ctx, func(tx db.Runner) error {
		if _, err := tx.Exec(ctx, `
			INSERT INTO gateway_audit (id, at, dashboard_id, session_id, pty_id, user_id, account_id, provider, action,
				decision, reason, outcome, policy_id, policy_version)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			r.ID, r.At.UnixMilli(), r.Dashboard, r.Session, db.Nullable(r.PTY), db.Nullable(r.User), db.Nullable(r.Account),
			r.Provider, r.Action, string(r.Decision), db.CleanText(r.Reason), db.CleanText(r.Outcome),
			db.Nullable(r.PolicyID), sql.NullInt64{Int64: r.PolicyVersion, Valid: r.PolicyID != ""}); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `DELETE FROM gateway_audit WHERE dashboard_id = ? AND at < ?`,
			r.Dashboard, r.At.Add(-GatewayRecordLife).UnixMilli())
		return err
	})
}

// GatewayRecords lists at most limit records of a dashboard, the newest first;
// those before an id, unless that is empty.
func (s *Integrations) GatewayRecords(ctx context.Context, dashboard, before string, limit int) ([]GatewayRecord, error) {
	query, args := `
		SELECT id, at, dashboard_id, session_id, pty_id, user_id, account_id, provider, action, decision, reason, outcome,
			policy_id, policy_version
		FROM gateway_audit WHERE dashboard_id = ?`, []any{dashboard}
	if before != "" {
		query, args = query+` AND (at, id) < (SELECT at, id FROM gateway_audit WHERE id = ?)`, append(args, before)
	}
	return db.Collect(ctx, s.db.Reads(), scanGatewayRecord, query+` ORDER BY at DESC, id DESC LIMIT ?`, append(args, limited(limit))...)
}

func scanGatewayRecord(row db.Scanner) (r GatewayRecord, err error) {
	var at, version sql.NullInt64
	var pty, user, account, policy sql.NullString
	err = row.Scan(&r.ID, &at, &r.Dashboard, &r.Session, &pty, &user, &account, &r.Provider, &r.Action, &r.Decision,
		&r.Reason, &r.Outcome, &policy, &version)
	r.At, r.PTY, r.User = db.TimeOf(at), protocol.PTYID(pty.String), protocol.UserID(user.String)
	r.Account, r.PolicyID, r.PolicyVersion = account.String, policy.String, version.Int64
	return r, err
}

package store

import (
	"context"
	"crypto/subtle"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/db"
	"github.com/fairlead/fairlead/protocol"
)

// invitationsKeptFor is how long a used invitation is remembered.
const invitationsKeptFor = 30 * 24 * time.Hour

// An Invitation lets a sandbox enrol, once.
type Invitation struct {
	Sandbox   protocol.SandboxID
	Token     string // kept as its SHA-256
	Expires   time.Time
	Replace   bool   // of another device key
	Dashboard string // that the sandbox is bound to; empty: none
}

// AddInvitations makes each the only open invitation of its sandbox: until it
// expires, one device key may become the sandbox's by it. The sandbox is bound
// to the dashboard; KindConflict says that it is another's, or that the
// dashboard has another sandbox. With an owner, who must exist, the dashboards
// are made: they mustn't exist yet. All of that is done, or nothing.
func (s *Fleet) AddInvitations(ctx context.Context, invitations []Invitation, owner protocol.UserID) error {
	for _, i := range invitations {
		if len(i.Token) < MinSecretBytes {
			return protocol.Errorf(protocol.KindInvalid, "the token is shorter than %d bytes", MinSecretBytes)
		}
	}
	return s.db.Transact(ctx, func(tx db.Runner) error {
		if owner != "" {
			if err := requireUser(ctx, tx, owner); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, `DELETE FROM invitations WHERE expires_at < ?`, s.db.Now().Add(-invitationsKeptFor).UnixMilli()); err != nil {
			return err
		}
		for _, i := range invitations {
			if owner != "" {
				if err := addDashboard(ctx, tx, Dashboard{ID: i.Dashboard, Name: string(i.Sandbox)}, owner); err != nil {
					return err
				}
			}
			if err := addInvitation(ctx, tx, i); err != nil {
				return err
			}
		}
		return nil
	})
}

func addInvitation(ctx context.Context, tx db.Runner, i Invitation) error {
	if err := addSandbox(ctx, tx, i.Sandbox); err != nil {
		return err
	}
	if i.Dashboard != "" {
		if err := joinSandbox(ctx, tx, i.Dashboard, i.Sandbox); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, `DELETE FROM invitations WHERE sandbox_id = ? AND used_at IS NULL`, i.Sandbox); err != nil {
		return err
	}
	var replaces int64
	if i.Replace {
		replaces = 1
	}
	n, err := tx.Exec(ctx, `
		INSERT INTO invitations (token_hash, sandbox_id, replaces, expires_at) VALUES (?, ?, ?, ?)
		ON CONFLICT (token_hash) DO NOTHING`,
		hashToken(i.Token), i.Sandbox, replaces, i.Expires.UnixMilli())
	if err == nil && n == 0 {
		err = protocol.Errorf(protocol.KindConflict, "the token is in use")
	}
	return err
}

// joinSandbox binds a sandbox to a dashboard that has none.
func joinSandbox(ctx context.Context, tx db.Runner, dashboard string, sandbox protocol.SandboxID) error {
	old, err := requireDashboard(ctx, tx, dashboard)
	if err != nil {
		return err
	}
	if old != "" && old != sandbox {
		return protocol.Errorf(protocol.KindConflict, "dashboard %s has another sandbox", dashboard)
	}
	return bindSandbox(ctx, tx, dashboard, sandbox)
}

// UseInvitation binds a device key to a sandbox. Of all calls with one token,
// however many at a time, exactly one succeeds. KindUnauthenticated says that
// the token is unknown, another sandbox's, used or past its time; KindConflict
// that the sandbox has another key, which this invitation doesn't replace: it
// isn't used up by that.
func (s *Fleet) UseInvitation(ctx context.Context, sandbox protocol.SandboxID, token, thumbprint string, jwk json.RawMessage, now time.Time) error {
	return s.db.Transact(ctx, func(tx db.Runner) error {
		var hash []byte
		var id protocol.SandboxID
		var replaces, expires int64
		var used sql.NullInt64
		err := tx.Row(ctx, `SELECT token_hash, sandbox_id, replaces, expires_at, used_at FROM invitations WHERE token_hash = ?`,
			hashToken(token)).Scan(&hash, &id, &replaces, &expires, &used)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if err != nil || subtle.ConstantTimeCompare(hash, hashToken(token)) != 1 ||
			id != sandbox || used.Valid || now.UnixMilli() >= expires {
			return protocol.Errorf(protocol.KindUnauthenticated, "the invitation is not valid, or not any more")
		}
		if err := bindDevice(ctx, tx, sandbox, thumbprint, jwk, replaces != 0, now); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE invitations SET used_at = ?, used_by = ? WHERE token_hash = ?`,
			now.UnixMilli(), thumbprint, hash)
		return err
	})
}

package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/db"
	"github.com/fairlead/fairlead/protocol"
)

// An Attachment is an account that the programs of a terminal may use, and the
// policy that says what for.
type Attachment struct {
	Session       protocol.SessionID
	PTY           protocol.PTYID // only unique within the session
	Provider      string
	Account       string
	PolicyID      string
	PolicyVersion int64
	Policy        json.RawMessage // valid JSON
	AttachedBy    protocol.UserID
	AttachedAt    time.Time

	// In attachments that were read.
	AccountName   string
	AccountUser   protocol.UserID
	AccountFailed time.Time // zero: the provider takes its tokens
	Dashboard     string
	Sandbox       protocol.SandboxID // empty: the dashboard has none
}

const (
	// MaxAttachments bounds those of one session.
	MaxAttachments = 500
	// MaxPolicyBytes bounds a policy.
	MaxPolicyBytes = 32 << 10
)

const attachmentColumns = `t.session_id, t.pty_id, t.provider, t.account_id, t.policy_id, t.policy_version, p.body,
	t.attached_by, t.attached_at, a.name, a.user_id, a.failed_at, s.dashboard_id, d.sandbox_id`

const attachmentTables = `
	FROM attachments t
	JOIN accounts a ON a.id = t.account_id
	JOIN policies p ON p.id = t.policy_id AND p.version = t.policy_version
	JOIN sessions s ON s.id = t.session_id
	JOIN dashboards d ON d.id = s.dashboard_id`

const attachments = `SELECT ` + attachmentColumns + attachmentTables

// usable are the attachments that hold: whoever owns the account may still work
// in the dashboard, whose session isn't over.
const usable = attachments + `
	JOIN members m ON m.dashboard_id = s.dashboard_id AND m.user_id = a.user_id AND m.role IN ('owner', 'editor')
	WHERE s.state = 'active'`

func scanAttachment(row db.Scanner) (t Attachment, err error) {
	var body []byte
	var attached, failed sql.NullInt64
	var sandbox sql.NullString
	err = row.Scan(&t.Session, &t.PTY, &t.Provider, &t.Account, &t.PolicyID, &t.PolicyVersion, &body,
		&t.AttachedBy, &attached, &t.AccountName, &t.AccountUser, &failed, &t.Dashboard, &sandbox)
	t.Policy, t.AttachedAt, t.AccountFailed = body, db.TimeOf(attached), db.TimeOf(failed)
	t.Sandbox = protocol.SandboxID(sandbox.String)
	return t, err
}

// Attachments lists the attachments of a terminal that hold, by provider.
func (s *Integrations) Attachments(ctx context.Context, session protocol.SessionID, pty protocol.PTYID) ([]Attachment, error) {
	return db.Collect(ctx, s.db.Reads(), scanAttachment, usable+`
		AND t.session_id = ? AND t.pty_id = ? ORDER BY t.provider LIMIT ?`, session, pty, MaxAttachments)
}

// Attachment returns the attachment of a provider to a terminal; KindNotFound
// if there is none that holds.
func (s *Integrations) Attachment(ctx context.Context, session protocol.SessionID, pty protocol.PTYID, provider string) (Attachment, error) {
	t, err := scanAttachment(s.db.Reads().Row(ctx, usable+`
		AND t.session_id = ? AND t.pty_id = ? AND t.provider = ?`, session, pty, provider))
	return t, absent(err, "attachment")
}

// AttachmentsIn lists the attachments that hold in a dashboard's sessions, by
// session, terminal and provider.
func (s *Integrations) AttachmentsIn(ctx context.Context, dashboard string) ([]Attachment, error) {
	return db.Collect(ctx, s.db.Reads(), scanAttachment, usable+`
		AND s.dashboard_id = ? ORDER BY t.session_id, t.pty_id, t.provider LIMIT ?`, dashboard, MaxLimit)
}

// Attach attaches an account to a terminal of an active session, in place of the
// one of the same provider. The policy has the version 1 of a new id, or, where
// the same account is attached already, the next version; the same policy again
// changes nothing. Who may do so is for the caller to know. It reports whether
// anything changed.
func (s *Integrations) Attach(ctx context.Context, t Attachment) (attached Attachment, changed bool, err error) {
	if err := checkID("the terminal's id", t.PTY); err != nil {
		return Attachment{}, false, err
	}
	if len(t.Policy) > MaxPolicyBytes {
		return Attachment{}, false, protocol.Errorf(protocol.KindTooLarge, "the policy is longer than %d bytes", MaxPolicyBytes)
	}
	if !json.Valid(t.Policy) {
		return Attachment{}, false, protocol.Errorf(protocol.KindInvalid, "the policy is not JSON")
	}
	err = s.db.Transact(ctx, func(tx db.Runner) error {
		attached, changed, err = attach(ctx, tx, t)
		return err
	})
	if err != nil {
		return Attachment{}, false, err
	}
	return attached, changed, nil
}

func attach(ctx context.Context, tx db.Runner, t Attachment) (Attachment, bool, error) {
	const of = ` WHERE t.session_id = ? AND t.pty_id = ? AND t.provider = ?`
	where := []any{t.Session, t.PTY, t.Provider}
	olds, err := db.Collect(ctx, tx, scanAttachment, attachments+of, where...)
	if err != nil {
		return Attachment{}, false, err
	}
	if len(olds) == 0 {
		if err := requireRoom(ctx, tx, t.Session); err != nil {
			return Attachment{}, false, err
		}
	}
	t.PolicyID, t.PolicyVersion = "pol_"+strings.ToLower(rand.Text()), 1
	if len(olds) == 1 && olds[0].Account == t.Account {
		if string(olds[0].Policy) == string(t.Policy) {
			return olds[0], false, nil
		}
		t.PolicyID, t.PolicyVersion = olds[0].PolicyID, olds[0].PolicyVersion+1
	}
	now := tx.Now().UnixMilli()
	if _, err := tx.Exec(ctx, `INSERT INTO policies (id, version, body, made_by, made_at) VALUES (?, ?, ?, ?, ?)`,
		t.PolicyID, t.PolicyVersion, []byte(t.Policy), t.AttachedBy, now); err != nil {
		return Attachment{}, false, err
	}
	if _, err := tx.Exec(ctx, `
		INSERT INTO attachments (session_id, pty_id, provider, account_id, policy_id, policy_version, attached_by, attached_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (session_id, pty_id, provider) DO UPDATE SET account_id = excluded.account_id,
			policy_id = excluded.policy_id, policy_version = excluded.policy_version,
			attached_by = excluded.attached_by, attached_at = excluded.attached_at`,
		t.Session, t.PTY, t.Provider, t.Account, t.PolicyID, t.PolicyVersion, t.AttachedBy, now); err != nil {
		return Attachment{}, false, err
	}
	attached, err := scanAttachment(tx.Row(ctx, attachments+of, where...))
	return attached, true, err
}

// requireRoom fails unless the session is active and may have one more.
func requireRoom(ctx context.Context, tx db.Runner, session protocol.SessionID) error {
	var state string
	var count int
	if err := tx.Row(ctx, `SELECT state, (SELECT count(*) FROM attachments WHERE session_id = ?) FROM sessions WHERE id = ?`,
		session, session).Scan(&state, &count); err != nil {
		return absent(err, "session")
	}
	switch {
	case state == StateEnded:
		return protocol.Errorf(protocol.KindEnded, "session ended")
	case state != StateActive:
		return absent(sql.ErrNoRows, "session")
	case count >= MaxAttachments:
		return protocol.Errorf(protocol.KindTooMany, "the session has %d attachments already", MaxAttachments)
	}
	return nil
}

// Detach removes an attachment; KindNotFound if there is none.
func (s *Integrations) Detach(ctx context.Context, session protocol.SessionID, pty protocol.PTYID, provider string) error {
	n, err := s.db.Exec(ctx, `DELETE FROM attachments WHERE session_id = ? AND pty_id = ? AND provider = ?`, session, pty, provider)
	if err == nil && n == 0 {
		err = absent(sql.ErrNoRows, "attachment")
	}
	return err
}

// DetachAll takes all accounts of a user from a dashboard's terminals, and
// returns where they were attached.
func (s *Integrations) DetachAll(ctx context.Context, user protocol.UserID, dashboard string) (detached []Attachment, err error) {
	err = s.db.Transact(ctx, func(tx db.Runner) error {
		if detached, err = db.Collect(ctx, tx, scanAttachment, attachments+`
			WHERE a.user_id = ? AND s.dashboard_id = ? LIMIT ?`, user, dashboard, MaxLimit); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `
			DELETE FROM attachments WHERE account_id IN (SELECT id FROM accounts WHERE user_id = ?)
			AND session_id IN (SELECT id FROM sessions WHERE dashboard_id = ?)`, user, dashboard)
		return err
	})
	if err != nil {
		return nil, err
	}
	return detached, nil
}

// PolicyAt returns a version of a policy; KindNotFound if there is none.
func (s *Integrations) PolicyAt(ctx context.Context, id string, version int64) (json.RawMessage, error) {
	var body []byte
	err := s.db.Reads().Row(ctx, `SELECT body FROM policies WHERE id = ? AND version = ?`, id, version).Scan(&body)
	return body, absent(err, "policy")
}

package store

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// grantsKeptFor is how long a grant is remembered after its expiry.
const grantsKeptFor = 24 * time.Hour

// A Grant is a grant that was handed out.
type Grant struct {
	ID           protocol.GrantID
	User         protocol.UserID
	Session      protocol.SessionID
	PTY          protocol.PTYID // empty: every terminal
	Capabilities string         // separated by spaces
	IssuedAt     time.Time
	ExpiresAt    time.Time
}

// AddGrant remembers a grant, and forgets those that expired long ago.
func (s *Store) AddGrant(ctx context.Context, g Grant) error {
	return s.transact(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM grants WHERE expires_at < ?`,
			g.IssuedAt.Add(-grantsKeptFor).UnixMilli()); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `
			INSERT INTO grants (id, user_id, session_id, pty_id, capabilities, issued_at, expires_at)
			VALUES (?, ?, ?, ?, ?, ?, ?)`,
			g.ID, g.User, g.Session, nullable(g.PTY), g.Capabilities, g.IssuedAt.UnixMilli(), g.ExpiresAt.UnixMilli())
		return err
	})
}

// Statuses of a command beside those of [protocol.ExecutionCallback].
const (
	StatusSigned      = "signed"      // nothing is known about its fate
	StatusUndelivered = "undelivered" // no relay took it
)

// A Command is a signed command.
type Command struct {
	User        protocol.UserID
	Key         string // idempotency key; empty: none
	RequestHash []byte // of what was asked for
	Kind        string // op.kind
	Grant       protocol.GrantID
	Envelope    protocol.CommandEnvelope
	Outcome     Outcome

	// NewSession is the dashboard of a session that the command is to make:
	// Envelope.Target.SessionID, pending until ActivateSession.
	NewSession string
}

// An Outcome is what is known of a command's fate.
type Outcome struct {
	Status string
	Result json.RawMessage
	Error  *protocol.ErrorBody
}

// Final reports whether an executor has said what became of the command.
func (o Outcome) Final() bool {
	return o.Status == protocol.StatusOK || o.Status == protocol.StatusError
}

// AddCommand stores cmd, unless the user has used its key before: then it
// returns the command of that time. KindConflict says that that one was asked
// for differently.
func (s *Store) AddCommand(ctx context.Context, cmd Command) (Command, error) {
	envelope, err := json.Marshal(cmd.Envelope)
	if err != nil {
		return Command{}, err
	}
	err = s.transact(ctx, func(tx *sql.Tx) error {
		if cmd.Key != "" {
			switch old, err := commandByKey(ctx, tx, cmd.User, cmd.Key); {
			case errors.Is(err, sql.ErrNoRows):
			case err != nil:
				return err
			case !bytes.Equal(cmd.RequestHash, old.RequestHash):
				return protocol.Errorf(protocol.KindConflict, "the idempotency key was used for another request")
			default:
				cmd = old
				return nil
			}
		}
		target := cmd.Envelope.Target
		if cmd.NewSession != "" {
			if _, err := tx.ExecContext(ctx, `INSERT INTO sessions (id, dashboard_id, state) VALUES (?, ?, ?)`,
				target.SessionID, cmd.NewSession, statePending); err != nil {
				return err
			}
		}
		cmd.Outcome = Outcome{Status: StatusSigned}
		_, err := tx.ExecContext(ctx, `
			INSERT INTO commands (id, user_id, idempotency_key, request_hash, kind, session_id, grant_id, envelope, issued_at, status)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			cmd.Envelope.CommandID, cmd.User, nullable(cmd.Key), cmd.RequestHash, cmd.Kind, target.SessionID,
			nullable(cmd.Grant), string(envelope), cmd.Envelope.IssuedAt, cmd.Outcome.Status)
		return err
	})
	return cmd, err
}

func commandByKey(ctx context.Context, tx *sql.Tx, user protocol.UserID, key string) (Command, error) {
	cmd := Command{User: user, Key: key}
	var envelope string
	var grant, result, name, message sql.NullString
	err := tx.QueryRowContext(ctx, `
		SELECT request_hash, kind, grant_id, envelope, status, result, error_name, error_message
		FROM commands WHERE user_id = ? AND idempotency_key = ?`, user, key).
		Scan(&cmd.RequestHash, &cmd.Kind, &grant, &envelope, &cmd.Outcome.Status, &result, &name, &message)
	if err != nil {
		return Command{}, err
	}
	cmd.Grant = protocol.GrantID(grant.String)
	if result.Valid {
		cmd.Outcome.Result = json.RawMessage(result.String)
	}
	if name.Valid || message.Valid {
		cmd.Outcome.Error = &protocol.ErrorBody{Name: name.String, Message: message.String}
	}
	return cmd, json.Unmarshal([]byte(envelope), &cmd.Envelope)
}

// FinishCommand stores the fate of a command. A final outcome is never
// replaced: what an executor said once stays.
func (s *Store) FinishCommand(ctx context.Context, id protocol.CommandID, o Outcome, at time.Time) error {
	var e protocol.ErrorBody
	if o.Error != nil {
		e = *o.Error
	}
	_, err := s.write.ExecContext(ctx, `
		UPDATE commands SET status = ?, result = ?, error_name = ?, error_message = ?, finished_at = ?
		WHERE id = ? AND status NOT IN (?, ?)`,
		o.Status, nullable(string(o.Result)), nullable(e.Name), nullable(e.Message), at.UnixMilli(),
		id, protocol.StatusOK, protocol.StatusError)
	return err
}

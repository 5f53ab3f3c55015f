package store

import (
	"bytes"
	"context"
	"crypto/subtle"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/db"
	"github.com/fairlead/fairlead/protocol"
)

// Statuses of a command beside those of [protocol.ExecutionCallback].
const (
	StatusSigned      = "signed"      // nothing is known about its fate
	StatusUndelivered = "undelivered" // nothing ran: no relay took it, or its executor refused it before
)

// A Command is a signed command.
type Command struct {
	User        protocol.UserID // empty: the control plane's own
	Key         string          // idempotency key; empty: none
	RequestHash []byte          // of what was asked for
	Kind        string          // op.kind
	Grant       protocol.GrantID
	Envelope    protocol.CommandEnvelope
	Outcome     Outcome

	// CallbackToken is what the executor shows with its callback. It is kept
	// as its SHA-256 alone: a command that was read has none.
	CallbackToken string

	// NewSession is the dashboard of a session that the command is to make:
	// Envelope.Target.SessionID, pending until ActivateSession.
	NewSession string

	// Repeated says, of what AddCommand returns, that the command was there before.
	Repeated bool

	// In commands that were read.
	Dashboard  string    // of its session; empty: it has none
	FinishedAt time.Time // zero: not yet
	Callbacks  int64     // callbacks beside the one of the outcome
	Late       int64     // those of them that came too late
}

// An Outcome is what is known of a command's fate.
type Outcome struct {
	Status string
	Result json.RawMessage
	Error  *protocol.ErrorBody
	Kind   protocol.Kind // of Error where its name doesn't tell, until it is stored; KindInternal: not said

	// The callback that said so, verbatim, and its executor's signature; nil if
	// no executor did, or if it didn't sign.
	Callback  []byte
	Signature []byte
}

// Final reports whether an executor has said what became of the command.
func (o Outcome) Final() bool {
	return o.Status == protocol.StatusOK || o.Status == protocol.StatusError
}

// errKeyUsed undoes the transaction of a command whose key has one already.
var errKeyUsed = errors.New("the idempotency key was used")

// AddCommand stores cmd, unless the user has used its key before: then it
// returns the command of that time. KindConflict says that that one was asked
// for differently, or that the id is another command's.
func (s *Commands) AddCommand(ctx context.Context, cmd Command) (Command, error) {
	if cmd.Key != "" && cmd.User == "" {
		return Command{}, protocol.Errorf(protocol.KindInvalid, "an idempotency key needs a user")
	}
	if cmd.Key != "" {
		// Most repeats come long after the first.
		if old, err := s.repeated(ctx, cmd); !errors.Is(err, sql.ErrNoRows) {
			return old, err
		}
	}
	cmd.Outcome = Outcome{Status: StatusSigned}
	err := s.db.Concurrently(ctx, func(tx db.Runner) error { return insertCommand(ctx, tx, cmd) })
	if errors.Is(err, errKeyUsed) {
		return s.repeated(ctx, cmd)
	}
	return cmd, err
}

func insertCommand(ctx context.Context, tx db.Runner, cmd Command) error {
	envelope, err := json.Marshal(cmd.Envelope)
	if err != nil {
		return err
	}
	env, target := cmd.Envelope, cmd.Envelope.Target
	if cmd.NewSession != "" {
		if _, err := tx.Exec(ctx, `INSERT INTO sessions (id, dashboard_id, state, created_at) VALUES (?, ?, ?, ?)`,
			target.SessionID, cmd.NewSession, StatePending, env.IssuedAt); err != nil {
			return err
		}
	}
	var token []byte
	if cmd.CallbackToken != "" {
		token = hashToken(cmd.CallbackToken)
	}
	// Whoever inserts the same key at the same time is waited for here.
	n, err := tx.Exec(ctx, `
		INSERT INTO commands (id, user_id, idempotency_key, request_hash, kind, sandbox_id, session_id, grant_id,
			envelope, issued_at, expires_at, callback_token_hash, status)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (user_id, idempotency_key) DO NOTHING`,
		env.CommandID, db.Nullable(cmd.User), db.Nullable(cmd.Key), cmd.RequestHash, cmd.Kind,
		db.Nullable(target.SandboxID), db.Nullable(target.SessionID), db.Nullable(cmd.Grant),
		string(envelope), env.IssuedAt, env.IssuedAt+env.TTLMs, db.NullableBytes(token), cmd.Outcome.Status)
	if err == nil && n == 0 {
		err = errKeyUsed
	}
	return err
}

// repeated returns the command that the user's key stands for, and
// sql.ErrNoRows if it stands for none.
func (s *Commands) repeated(ctx context.Context, cmd Command) (Command, error) {
	old, err := scanCommand(s.db.Reads().Row(ctx, commandColumns+` WHERE c.user_id = ? AND c.idempotency_key = ?`, cmd.User, cmd.Key))
	switch {
	case err != nil:
		return Command{}, err
	case !bytes.Equal(cmd.RequestHash, old.RequestHash):
		return Command{}, protocol.Errorf(protocol.KindConflict, "the idempotency key was used for another request")
	}
	old.Repeated = true
	return old, nil
}

// CommandOfKey returns the command that a user's key stands for; KindNotFound if
// it stands for none, KindConflict if for another request.
func (s *Commands) CommandOfKey(ctx context.Context, user protocol.UserID, key string, requestHash []byte) (Command, error) {
	if key == "" {
		return Command{}, absent(sql.ErrNoRows, "command")
	}
	cmd, err := s.repeated(ctx, Command{User: user, Key: key, RequestHash: requestHash})
	return cmd, absent(err, "command")
}

const commandColumns = `
	SELECT c.user_id, c.idempotency_key, c.request_hash, c.kind, c.grant_id, c.envelope, c.status, c.result,
		c.error_name, c.error_message, c.callback, c.executor_signature, c.finished_at, c.callbacks, c.late, s.dashboard_id
	FROM commands c LEFT JOIN sessions s ON s.id = c.session_id`

func scanCommand(row db.Scanner) (Command, error) {
	var cmd Command
	var envelope string
	var user, key, grant, name, message, dashboard sql.NullString
	var result []byte
	var finished sql.NullInt64
	o := &cmd.Outcome
	if err := row.Scan(&user, &key, &cmd.RequestHash, &cmd.Kind, &grant, &envelope, &o.Status, &result, &name,
		&message, &o.Callback, &o.Signature, &finished, &cmd.Callbacks, &cmd.Late, &dashboard); err != nil {
		return Command{}, err
	}
	cmd.User, cmd.Key, cmd.Grant = protocol.UserID(user.String), key.String, protocol.GrantID(grant.String)
	o.Result, cmd.FinishedAt, cmd.Dashboard = json.RawMessage(result), db.TimeOf(finished), dashboard.String
	if name.Valid || message.Valid {
		o.Error = &protocol.ErrorBody{Name: name.String, Message: message.String}
	}
	return cmd, json.Unmarshal([]byte(envelope), &cmd.Envelope)
}

// Command returns a command; KindNotFound if there is none. Who may see it is
// for the caller to know.
func (s *Commands) Command(ctx context.Context, id protocol.CommandID) (Command, error) {
	cmd, err := scanCommand(s.db.Reads().Row(ctx, commandColumns+` WHERE c.id = ?`, id))
	return cmd, absent(err, "command")
}

// A CommandFilter says which commands to list; what is empty says nothing.
type CommandFilter struct {
	Session protocol.SessionID
	User    protocol.UserID
	Before  protocol.CommandID // only those that are older
	Limit   int
}

// CommandsOf lists the commands that match the whole of f, the newest first.
func (s *Commands) CommandsOf(ctx context.Context, f CommandFilter) ([]Command, error) {
	query, args := commandColumns+` WHERE 1 = 1`, []any(nil)
	if f.Session != "" {
		query, args = query+` AND c.session_id = ?`, append(args, f.Session)
	}
	if f.User != "" {
		query, args = query+` AND c.user_id = ?`, append(args, f.User)
	}
	if f.Before != "" {
		query, args = query+` AND (c.issued_at, c.id) < (SELECT issued_at, id FROM commands WHERE id = ?)`, append(args, f.Before)
	}
	return db.Collect(ctx, s.db.Reads(), scanCommand, query+` ORDER BY c.issued_at DESC, c.id DESC LIMIT ?`, append(args, limited(f.Limit))...)
}

// News is what an outcome was to the store.
type News uint8

const (
	NothingNew   News = iota // the command had a final outcome: that one stays
	FirstOutcome             // nothing had been known
	NextOutcome              // it took the place of one that wasn't final
)

// FinishCommand stores the fate of a command. A final outcome is never
// replaced: what an executor said once stays. Of several calls at once for a
// command one alone is told FirstOutcome, and one alone has the final outcome
// and isn't told NothingNew.
func (s *Commands) FinishCommand(ctx context.Context, id protocol.CommandID, o Outcome, at time.Time) (News, error) {
	var e protocol.ErrorBody
	if o.Error != nil {
		e = protocol.ErrorBody{Name: db.CleanText(o.Error.Name), Message: db.CleanText(o.Error.Message)}
	}
	const update = `
		UPDATE commands SET status = ?, result = ?, error_name = ?, error_message = ?, callback = ?,
			executor_signature = ?, finished_at = ?
		WHERE id = ? AND status `
	args := []any{
		o.Status, db.NullableBytes(o.Result), db.Nullable(e.Name), db.Nullable(e.Message), db.NullableBytes(o.Callback),
		db.NullableBytes(o.Signature), at.UnixMilli(), id,
	}
	// No command is ever StatusSigned again: between the two nothing is lost.
	n, err := s.db.Exec(ctx, update+`= ?`, append(args, StatusSigned)...)
	if err != nil {
		return NothingNew, err
	}
	if n > 0 {
		return FirstOutcome, nil
	}
	n, err = s.db.Exec(ctx, update+`NOT IN (?, ?, ?)`, append(args, StatusSigned, protocol.StatusOK, protocol.StatusError)...)
	if err != nil || n == 0 {
		return NothingNew, err
	}
	return NextOutcome, nil
}

// A Callback is what the callback of a command is checked against.
type Callback struct {
	Command   protocol.CommandID
	TokenHash []byte // SHA-256; nil: the command takes no callback
	Sandbox   protocol.SandboxID
	DeviceKey string          // thumbprint of the sandbox's key as it is now; empty: none
	DeviceJWK json.RawMessage // nil: not known
	ExpiresAt time.Time       // of the command, without the skew
	Final     bool            // the outcome is known
}

// Answers reports whether token is the one that the executor was given.
func (c Callback) Answers(token string) bool {
	return len(c.TokenHash) > 0 && subtle.ConstantTimeCompare(c.TokenHash, hashToken(token)) == 1
}

// CallbackFor returns what the callback of a command must match; KindNotFound
// if there is no such command.
func (s *Commands) CallbackFor(ctx context.Context, id protocol.CommandID) (Callback, error) {
	c := Callback{Command: id}
	var sandbox, device sql.NullString
	var expires sql.NullInt64
	var jwk []byte
	var status string
	err := s.db.Reads().Row(ctx, `
		SELECT c.callback_token_hash, c.sandbox_id, b.device_key, b.device_jwk, c.expires_at, c.status
		FROM commands c LEFT JOIN sandboxes b ON b.id = c.sandbox_id WHERE c.id = ?`, id).
		Scan(&c.TokenHash, &sandbox, &device, &jwk, &expires, &status)
	c.Sandbox, c.DeviceKey, c.DeviceJWK = protocol.SandboxID(sandbox.String), device.String, jwk
	c.ExpiresAt = db.TimeOf(expires)
	c.Final = Outcome{Status: status}.Final()
	return c, absent(err, "command")
}

// RecordCallback counts a callback beside the one that said what became of the
// command. It changes nothing else, but that the first is kept where no outcome
// brought one.
func (s *Commands) RecordCallback(ctx context.Context, id protocol.CommandID, body, signature []byte, late bool) error {
	var tooLate int64
	if late {
		tooLate = 1
	}
	n, err := s.db.Exec(ctx, `
		UPDATE commands SET callbacks = callbacks + 1, late = late + ?,
			executor_signature = CASE WHEN callback IS NULL THEN ? ELSE executor_signature END,
			callback = COALESCE(callback, ?)
		WHERE id = ?`, tooLate, db.NullableBytes(signature), db.NullableBytes(body), id)
	if err == nil && n == 0 {
		err = absent(sql.ErrNoRows, "command")
	}
	return err
}

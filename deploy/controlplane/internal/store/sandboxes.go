package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/db"
	"github.com/fairlead/fairlead/protocol"
)

// A Sandbox is what is known of a sandbox.
type Sandbox struct {
	ID         protocol.SandboxID
	DeviceKey  string          // thumbprint; empty: not enrolled, or revoked
	DeviceJWK  json.RawMessage // public; nil: only the thumbprint is known
	EnrolledAt time.Time       // zero: never
	RevokedAt  time.Time       // zero: it wasn't, or was enrolled again
	Dashboard  string          // empty: none
	Head       AuditHead       // of the device's audit log; zero: none yet
}

// An AuditHead is the newest head of a sandbox's audit log.
type AuditHead struct {
	protocol.AuditHead
	Signature []byte // of the sandbox's device key
}

const maxJWKBytes = 4 << 10

// addSandbox makes a sandbox known.
func addSandbox(ctx context.Context, tx db.Runner, id protocol.SandboxID) error {
	if err := checkID("the sandbox's id", id); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `INSERT INTO sandboxes (id) VALUES (?) ON CONFLICT (id) DO NOTHING`, id)
	return err
}

// EnrolSandbox binds a sandbox to a device key, whose public JWK may be nil.
// KindConflict says that the sandbox has another key already, which only replace
// overrides. The old key's certificates can't be renewed then, but hold until
// they expire: whoever uses one is disturbed by [Fleet.RevokeSandbox] alone.
func (s *Fleet) EnrolSandbox(ctx context.Context, id protocol.SandboxID, thumbprint string, jwk json.RawMessage, replace bool, now time.Time) error {
	return s.db.Transact(ctx, func(tx db.Runner) error { return bindDevice(ctx, tx, id, thumbprint, jwk, replace, now) })
}

func bindDevice(ctx context.Context, tx db.Runner, id protocol.SandboxID, thumbprint string, jwk json.RawMessage, replace bool, now time.Time) error {
	if thumbprint == "" || len(jwk) > maxJWKBytes {
		return protocol.Errorf(protocol.KindInvalid, "the device key is none")
	}
	if err := addSandbox(ctx, tx, id); err != nil {
		return err
	}
	old, err := deviceOf(ctx, tx, id)
	if err != nil {
		return err
	}
	if old != "" && old != thumbprint && !replace {
		return protocol.Errorf(protocol.KindConflict, "sandbox %s is enrolled with another device key", id)
	}
	_, err = tx.Exec(ctx, `
		UPDATE sandboxes SET device_key = ?, device_jwk = ?, enrolled_at = ?, revoked_at = NULL WHERE id = ?`,
		thumbprint, db.NullableBytes(jwk), now.UnixMilli(), id)
	return err
}

// deviceOf returns the thumbprint of a sandbox's key; empty if it has none.
func deviceOf(ctx context.Context, r db.Runner, id protocol.SandboxID) (string, error) {
	var device sql.NullString
	err := r.Row(ctx, `SELECT device_key FROM sandboxes WHERE id = ?`, id).Scan(&device)
	return device.String, absent(err, "sandbox")
}

const sandboxColumns = `
	SELECT b.id, b.device_key, b.device_jwk, b.enrolled_at, b.revoked_at, d.id, h.sequence, h.hash, h.at, h.signature
	FROM sandboxes b
	LEFT JOIN dashboards d ON d.sandbox_id = b.id
	LEFT JOIN audit_heads h ON h.sandbox_id = b.id AND h.device_key = b.device_key`

func scanSandbox(row db.Scanner) (b Sandbox, err error) {
	var device, dashboard, hash sql.NullString
	var enrolled, revoked, sequence, at sql.NullInt64
	var jwk []byte
	err = row.Scan(&b.ID, &device, &jwk, &enrolled, &revoked, &dashboard, &sequence, &hash, &at, &b.Head.Signature)
	b.DeviceKey, b.DeviceJWK, b.Dashboard = device.String, jwk, dashboard.String
	b.EnrolledAt, b.RevokedAt = db.TimeOf(enrolled), db.TimeOf(revoked)
	if sequence.Valid {
		b.Head.AuditHead = protocol.AuditHead{SandboxID: b.ID, Sequence: uint64(sequence.Int64), Hash: hash.String, At: at.Int64}
	}
	return b, err
}

// Sandbox returns a sandbox; KindNotFound if none has the id.
func (s *Fleet) Sandbox(ctx context.Context, id protocol.SandboxID) (Sandbox, error) {
	b, err := scanSandbox(s.db.Reads().Row(ctx, sandboxColumns+` WHERE b.id = ?`, id))
	return b, absent(err, "sandbox")
}

// Sandboxes lists at most limit sandboxes in order of id, those after an id.
func (s *Fleet) Sandboxes(ctx context.Context, after protocol.SandboxID, limit int) ([]Sandbox, error) {
	return db.Collect(ctx, s.db.Reads(), scanSandbox, sandboxColumns+` WHERE b.id > ? ORDER BY b.id LIMIT ?`, after, limited(limit))
}

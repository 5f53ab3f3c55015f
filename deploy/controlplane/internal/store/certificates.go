package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/db"
	"github.com/fairlead/fairlead/protocol"
)

// A Certificate is a sandbox's certificate that was handed out.
type Certificate struct {
	ID        string // jti
	Sandbox   protocol.SandboxID
	DeviceKey string // thumbprint
	ExpiresAt time.Time
	RevokedAt time.Time // zero: it wasn't
}

// maxCertificates bounds a sandbox's certificates that haven't expired, and so
// what a revocation puts on the list.
const maxCertificates = 64

// AddCertificate remembers a certificate, and forgets those that have expired.
// The sandbox must have the device key: KindForbidden.
func (s *Fleet) AddCertificate(ctx context.Context, c Certificate) error {
	if err := checkID("the certificate's id", c.ID); err != nil {
		return err
	}
	return s.db.Transact(ctx, func(tx db.Runner) error {
		device, err := deviceOf(ctx, tx, c.Sandbox)
		if err != nil {
			return err
		}
		if device == "" || device != c.DeviceKey {
			return protocol.Errorf(protocol.KindForbidden, "the device key is not the sandbox's")
		}
		if _, err := tx.Exec(ctx, `DELETE FROM certificates WHERE sandbox_id = ? AND expires_at < ?`,
			c.Sandbox, s.db.Now().Add(-2*protocol.ClockSkew).UnixMilli()); err != nil {
			return err
		}
		var count int
		if err := tx.Row(ctx, `SELECT count(*) FROM certificates WHERE sandbox_id = ? AND revoked_at IS NULL`,
			c.Sandbox).Scan(&count); err != nil {
			return err
		}
		if count >= maxCertificates {
			return protocol.Errorf(protocol.KindTooMany, "sandbox %s has %d certificates that haven't expired", c.Sandbox, maxCertificates)
		}
		n, err := tx.Exec(ctx, `
			INSERT INTO certificates (id, sandbox_id, device_key, expires_at) VALUES (?, ?, ?, ?)
			ON CONFLICT (id) DO NOTHING`, c.ID, c.Sandbox, c.DeviceKey, c.ExpiresAt.UnixMilli())
		if err == nil && n == 0 {
			err = protocol.Errorf(protocol.KindConflict, "certificate %s exists already", c.ID)
		}
		return err
	})
}

const certificateColumns = `SELECT id, sandbox_id, device_key, expires_at, revoked_at FROM certificates`

func scanCertificate(row db.Scanner) (c Certificate, err error) {
	var expires, revoked sql.NullInt64
	err = row.Scan(&c.ID, &c.Sandbox, &c.DeviceKey, &expires, &revoked)
	c.ExpiresAt, c.RevokedAt = db.TimeOf(expires), db.TimeOf(revoked)
	return c, err
}

// Certificate returns a certificate, revoked or not; KindNotFound if it was never
// handed out, or expired long ago.
func (s *Fleet) Certificate(ctx context.Context, id string) (Certificate, error) {
	c, err := scanCertificate(s.db.Reads().Row(ctx, certificateColumns+` WHERE id = ?`, id))
	return c, absent(err, "certificate")
}

// revokeCertificates puts a sandbox's certificates on the revocation list.
func revokeCertificates(ctx context.Context, tx db.Runner, sandbox protocol.SandboxID, now time.Time) error {
	certificates, err := db.Collect(ctx, tx, scanCertificate,
		certificateColumns+` WHERE sandbox_id = ? AND revoked_at IS NULL ORDER BY id`, sandbox)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `UPDATE certificates SET revoked_at = ? WHERE sandbox_id = ? AND revoked_at IS NULL`,
		now.UnixMilli(), sandbox); err != nil {
		return err
	}
	var voids []void
	for _, c := range certificates {
		voids = append(voids, void{kind: voidCertificate, id: c.ID, expires: secondsUp(c.ExpiresAt)})
	}
	return addVoids(ctx, tx, now, voids...)
}

// RevokeSandbox takes its key from a sandbox: its certificates and its open
// invitation are void. It can be enrolled again, by a new invitation.
func (s *Fleet) RevokeSandbox(ctx context.Context, id protocol.SandboxID, now time.Time) error {
	return s.db.Transact(ctx, func(tx db.Runner) error {
		if _, err := deviceOf(ctx, tx, id); err != nil {
			return err
		}
		if err := revokeCertificates(ctx, tx, id, now); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM invitations WHERE sandbox_id = ? AND used_at IS NULL`, id); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE sandboxes SET device_key = NULL, device_jwk = NULL, revoked_at = ? WHERE id = ?`,
			now.UnixMilli(), id)
		return err
	})
}

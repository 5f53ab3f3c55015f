package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// A Relay is a relay's address as it registered it.
type Relay struct {
	ID           protocol.RelayID
	URL          string // for the control plane
	Tunnel       string // for agents, "host:port"
	PublicOrigin string // for browsers
}

// RegisterRelay stores a relay's address, seen at now.
func (s *Store) RegisterRelay(ctx context.Context, r Relay, now time.Time) error {
	_, err := s.write.ExecContext(ctx, `
		UPDATE relays SET url = ?, tunnel = ?, public_origin = ?, seen_at = ? WHERE id = ?`,
		r.URL, r.Tunnel, r.PublicOrigin, now.UnixMilli(), r.ID)
	return err
}

// Relays lists the relays that registered at since or later, the latest first.
func (s *Store) Relays(ctx context.Context, since time.Time) ([]Relay, error) {
	rows, err := s.read.QueryContext(ctx, `
		SELECT id, url, tunnel, public_origin FROM relays
		WHERE url <> '' AND seen_at >= ? ORDER BY seen_at DESC, id`, since.UnixMilli())
	if err != nil {
		return nil, err
	}
	return collect(rows, func(rows *sql.Rows) (r Relay, err error) {
		return r, rows.Scan(&r.ID, &r.URL, &r.Tunnel, &r.PublicOrigin)
	})
}

// Relay returns a relay as it last registered, however long ago; its fields
// are empty if it never did.
func (s *Store) Relay(ctx context.Context, id protocol.RelayID) (Relay, error) {
	r := Relay{ID: id}
	err := s.read.QueryRowContext(ctx, `SELECT url, tunnel, public_origin FROM relays WHERE id = ?`, id).
		Scan(&r.URL, &r.Tunnel, &r.PublicOrigin)
	return r, err
}

// EnrolSandbox binds a sandbox id to a device key, given by its thumbprint.
// KindConflict says that the sandbox has another key already, which only
// replace overrides.
func (s *Store) EnrolSandbox(ctx context.Context, id protocol.SandboxID, thumbprint string, replace bool, now time.Time) error {
	return s.transact(ctx, func(tx *sql.Tx) error {
		var old sql.NullString
		err := tx.QueryRowContext(ctx, `SELECT device_key FROM sandboxes WHERE id = ?`, id).Scan(&old)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if old.Valid && old.String != thumbprint && !replace {
			return protocol.Errorf(protocol.KindConflict, "sandbox %s is enrolled with another device key", id)
		}
		_, err = tx.ExecContext(ctx, `
			INSERT INTO sandboxes (id, device_key, enrolled_at) VALUES (?, ?, ?)
			ON CONFLICT (id) DO UPDATE SET device_key = excluded.device_key, enrolled_at = excluded.enrolled_at`,
			id, thumbprint, now.UnixMilli())
		return err
	})
}

package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/db"
	"github.com/fairlead/fairlead/protocol"
)

// A Relay is a relay's address as it registered it.
type Relay struct {
	ID           protocol.RelayID
	URL          string // for the control plane
	Tunnel       string // for agents, "host:port"
	PublicOrigin string // for browsers
}

// RelayByCredential returns the relay whose credential it is;
// KindUnauthenticated if no relay's.
func (s *Fleet) RelayByCredential(ctx context.Context, credential string) (protocol.RelayID, error) {
	var id protocol.RelayID
	var hash []byte
	err := s.db.Reads().Row(ctx, `SELECT id, credential_hash FROM relays WHERE credential_hash = ?`,
		hashToken(credential)).Scan(&id, &hash)
	if err := matched(err, hash, credential); err != nil {
		return "", err
	}
	return id, nil
}

// RegisterRelay stores a relay's address, seen at now.
func (s *Fleet) RegisterRelay(ctx context.Context, r Relay, now time.Time) error {
	_, err := s.db.Exec(ctx, `
		UPDATE relays SET url = ?, tunnel = ?, public_origin = ?, seen_at = ? WHERE id = ?`,
		r.URL, r.Tunnel, r.PublicOrigin, now.UnixMilli(), r.ID)
	return err
}

// Relays lists the relays that registered at since or later, the latest first.
func (s *Fleet) Relays(ctx context.Context, since time.Time) ([]Relay, error) {
	return db.Collect(ctx, s.db.Reads(), func(row db.Scanner) (r Relay, err error) {
		return r, row.Scan(&r.ID, &r.URL, &r.Tunnel, &r.PublicOrigin)
	}, `
		SELECT id, url, tunnel, public_origin FROM relays
		WHERE url <> '' AND seen_at >= ? ORDER BY seen_at DESC, id LIMIT ?`, since.UnixMilli(), MaxLimit)
}

// Relay returns a relay as it last registered, however long ago; its fields
// are empty if it never did.
func (s *Fleet) Relay(ctx context.Context, id protocol.RelayID) (Relay, error) {
	r := Relay{ID: id}
	err := s.db.Reads().Row(ctx, `SELECT url, tunnel, public_origin FROM relays WHERE id = ?`, id).
		Scan(&r.URL, &r.Tunnel, &r.PublicOrigin)
	return r, err
}

// AddRelay adds a relay with the credential that stands for it; KindConflict if
// there is one of this id.
func (s *Fleet) AddRelay(ctx context.Context, id protocol.RelayID, credential string) error {
	if err := checkID("the relay's id", id); err != nil {
		return err
	}
	n, err := s.db.Exec(ctx, `INSERT INTO relays (id, credential_hash) VALUES (?, ?) ON CONFLICT (id) DO NOTHING`, id, hashToken(credential))
	if err == nil && n == 0 {
		err = protocol.Errorf(protocol.KindConflict, "relay %s exists already", id)
	}
	return err
}

// SetRelayCredential gives a relay another credential: the one before is void.
func (s *Fleet) SetRelayCredential(ctx context.Context, id protocol.RelayID, credential string) error {
	n, err := s.db.Exec(ctx, `UPDATE relays SET credential_hash = ? WHERE id = ?`, hashToken(credential), id)
	if err == nil && n == 0 {
		err = absent(sql.ErrNoRows, "relay")
	}
	return err
}

// RemoveRelay removes a relay: its credential is void, and nobody is sent there.
func (s *Fleet) RemoveRelay(ctx context.Context, id protocol.RelayID) error {
	n, err := s.db.Exec(ctx, `DELETE FROM relays WHERE id = ?`, id)
	if err == nil && n == 0 {
		err = absent(sql.ErrNoRows, "relay")
	}
	return err
}

// A KnownRelay is a relay and when it last registered; zero: it never did, or
// took that back.
type KnownRelay struct {
	Relay
	Seen time.Time
}

// AllRelays lists all relays in order of id.
func (s *Fleet) AllRelays(ctx context.Context) ([]KnownRelay, error) {
	return db.Collect(ctx, s.db.Reads(), func(row db.Scanner) (r KnownRelay, err error) {
		var seen int64
		err = row.Scan(&r.ID, &r.URL, &r.Tunnel, &r.PublicOrigin, &seen)
		if seen > 0 {
			r.Seen = time.UnixMilli(seen)
		}
		return r, err
	}, `SELECT id, url, tunnel, public_origin, seen_at FROM relays ORDER BY id LIMIT ?`, MaxLimit)
}

package store

import (
	"context"
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

// RelayByCredential returns the relay whose credential it is;
// KindUnauthenticated if no relay's.
func (s *Store) RelayByCredential(ctx context.Context, credential string) (protocol.RelayID, error) {
	var id protocol.RelayID
	var hash []byte
	err := s.reads().row(ctx, `SELECT id, credential_hash FROM relays WHERE credential_hash = ?`,
		hashToken(credential)).Scan(&id, &hash)
	if err := matched(err, hash, credential); err != nil {
		return "", err
	}
	return id, nil
}

// RegisterRelay stores a relay's address, seen at now.
func (s *Store) RegisterRelay(ctx context.Context, r Relay, now time.Time) error {
	_, err := s.exec(ctx, `
		UPDATE relays SET url = ?, tunnel = ?, public_origin = ?, seen_at = ? WHERE id = ?`,
		r.URL, r.Tunnel, r.PublicOrigin, now.UnixMilli(), r.ID)
	return err
}

// Relays lists the relays that registered at since or later, the latest first.
func (s *Store) Relays(ctx context.Context, since time.Time) ([]Relay, error) {
	return collect(ctx, s.reads(), func(row scanner) (r Relay, err error) {
		return r, row.Scan(&r.ID, &r.URL, &r.Tunnel, &r.PublicOrigin)
	}, `
		SELECT id, url, tunnel, public_origin FROM relays
		WHERE url <> '' AND seen_at >= ? ORDER BY seen_at DESC, id LIMIT ?`, since.UnixMilli(), MaxLimit)
}

// Relay returns a relay as it last registered, however long ago; its fields
// are empty if it never did.
func (s *Store) Relay(ctx context.Context, id protocol.RelayID) (Relay, error) {
	r := Relay{ID: id}
	err := s.reads().row(ctx, `SELECT url, tunnel, public_origin FROM relays WHERE id = ?`, id).
		Scan(&r.URL, &r.Tunnel, &r.PublicOrigin)
	return r, err
}

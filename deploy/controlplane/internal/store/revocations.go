package store

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/db"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// The kinds of rows in the table of revocations.
const (
	voidGrant       = "grant"
	voidSubject     = "subject"
	voidCertificate = "certificate"
)

// A void is an entry of the list.
type void struct {
	kind      string
	id        string
	dashboard string // of a subject
	before    int64  // of a subject, Unix seconds
	expires   int64  // Unix seconds
}

// addVoids puts entries on the list and takes those off it that have expired.
// The number rises if anything was new; it is at least the time, so that a list
// from a restored backup is newer than what was seen before.
func addVoids(ctx context.Context, tx db.Runner, now time.Time, voids ...void) error {
	if _, err := tx.Exec(ctx, `DELETE FROM revocations WHERE expires_at < ?`, expiredBefore(now)); err != nil {
		return err
	}
	var changed int64
	for _, v := range voids {
		n, err := tx.Exec(ctx, `
			INSERT INTO revocations (kind, id, dashboard_id, before, expires_at) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (kind, id, dashboard_id) DO UPDATE SET
				before = CASE WHEN revocations.before < excluded.before THEN excluded.before ELSE revocations.before END,
				expires_at = CASE WHEN revocations.expires_at < excluded.expires_at THEN excluded.expires_at ELSE revocations.expires_at END
			WHERE revocations.before < excluded.before OR revocations.expires_at < excluded.expires_at`,
			v.kind, v.id, v.dashboard, v.before, v.expires)
		if err != nil {
			return err
		}
		changed += n
	}
	if changed == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `UPDATE revocation_number SET number = CASE WHEN number < ? THEN ? ELSE number + 1 END`,
		now.Unix(), now.Unix())
	return err
}

// expiredBefore returns the Unix second before which what expired needs no
// revocation any more: verifiers allow for the skew, and theirs may be the clock
// that is behind.
func expiredBefore(now time.Time) int64 { return now.Add(-2*protocol.ClockSkew).Unix() - 1 }

// secondsUp returns t in Unix seconds, rounded up.
func secondsUp(t time.Time) int64 { return t.Add(time.Second - 1).Unix() }

// RevokeGrant voids one grant. It is KindNotFound if no such grant is
// remembered, and does nothing if it has expired or was revoked before.
func (s *Grants) RevokeGrant(ctx context.Context, id protocol.GrantID, now time.Time) error {
	return s.db.Transact(ctx, func(tx db.Runner) error {
		g, err := scanGrant(tx.Row(ctx, grantColumns+` WHERE g.id = ?`, id))
		if err != nil {
			return absent(err, "grant")
		}
		if !g.RevokedAt.IsZero() || now.After(g.ExpiresAt.Add(protocol.ClockSkew)) {
			return nil
		}
		if _, err := tx.Exec(ctx, `UPDATE grants SET revoked_at = ? WHERE id = ?`, now.UnixMilli(), id); err != nil {
			return err
		}
		return addVoids(ctx, tx, now, void{kind: voidGrant, id: string(id), expires: secondsUp(g.ExpiresAt)})
	})
}

// RevokeGrantsOf voids the grants of a user in a dashboard, or everywhere if
// that is empty, and returns those that were still valid: where there are none,
// nothing is put on the list. A grant that is issued afterwards is valid, in the
// same second too.
func (s *Grants) RevokeGrantsOf(ctx context.Context, user protocol.UserID, dashboard string, now time.Time) (ids []protocol.GrantID, err error) {
	err = s.db.Transact(ctx, func(tx db.Runner) error {
		ids, err = revokeGrantsOf(ctx, tx, user, dashboard, now)
		return err
	})
	if err != nil {
		return nil, err
	}
	return ids, nil
}

func revokeGrantsOf(ctx context.Context, tx db.Runner, user protocol.UserID, dashboard string, now time.Time) ([]protocol.GrantID, error) {
	query, args := ` WHERE g.user_id = ? AND g.expires_at >= ? AND g.revoked_at IS NULL`,
		[]any{user, now.Add(-protocol.ClockSkew).UnixMilli()}
	if dashboard != "" {
		query, args = query+` AND s.dashboard_id = ?`, append(args, dashboard)
	}
	live, err := db.Collect(ctx, tx, scanGrant, grantColumns+query+` ORDER BY g.id`, args...)
	if err != nil {
		return nil, err
	}
	var voids []void
	var ids []protocol.GrantID
	earlier := void{kind: voidSubject, id: string(user), dashboard: dashboard, before: now.Unix()}
	for _, g := range live {
		ids = append(ids, g.ID)
		// Grants count whole seconds: the subject's entry covers those of earlier
		// ones, those of this one must be named.
		if g.IssuedAt.Unix() >= now.Unix() {
			voids = append(voids, void{kind: voidGrant, id: string(g.ID), expires: secondsUp(g.ExpiresAt)})
		} else {
			earlier.expires = max(earlier.expires, secondsUp(g.ExpiresAt))
		}
		if _, err := tx.Exec(ctx, `UPDATE grants SET revoked_at = ? WHERE id = ?`, now.UnixMilli(), g.ID); err != nil {
			return nil, err
		}
	}
	if earlier.expires > 0 {
		voids = append(voids, earlier)
	}
	return ids, addVoids(ctx, tx, now, voids...)
}

// RevocationNumber returns the number of the list as it is now: as long as it
// stays the same, no entry was added.
func (s *Grants) RevocationNumber(ctx context.Context) (uint64, error) {
	var n int64
	err := s.db.Reads().Row(ctx, `SELECT number FROM revocation_number`).Scan(&n)
	return uint64(max(n, 0)), err
}

// Revocations returns the list of what is void at now, without issuer, audience
// and time. What has expired by itself, whoever's clock is behind by
// [protocol.ClockSkew], isn't on it.
func (s *Grants) Revocations(ctx context.Context, now time.Time) (list jws.Revocations, err error) {
	// An entry that is added after the number was read comes again with the next.
	if list.Number, err = s.RevocationNumber(ctx); err != nil {
		return list, err
	}
	voids, err := db.Collect(ctx, s.db.Reads(), func(row db.Scanner) (v void, err error) {
		return v, row.Scan(&v.kind, &v.id, &v.dashboard, &v.before, &v.expires)
	}, `
		SELECT kind, id, dashboard_id, before, expires_at FROM revocations
		WHERE expires_at >= ? ORDER BY kind, id, dashboard_id`, expiredBefore(now))
	for _, v := range voids {
		switch v.kind {
		case voidGrant:
			list.Grants = append(list.Grants, jws.RevokedGrant{ID: protocol.GrantID(v.id), ExpiresAt: v.expires})
		case voidSubject:
			list.Subjects = append(list.Subjects, jws.RevokedSubject{
				Subject: protocol.UserID(v.id), Dashboard: v.dashboard, Before: v.before, ExpiresAt: v.expires,
			})
		case voidCertificate:
			list.Certificates = append(list.Certificates, jws.RevokedCertificate{ID: v.id, ExpiresAt: v.expires})
		}
	}
	return list, err
}

// RevokedGrants lists the grants that were revoked, one by one or with their
// user, and that would still be valid at now, in order of id. A clock may be
// behind, so they count some minutes longer than they live.
func (s *Grants) RevokedGrants(ctx context.Context, now time.Time) ([]Grant, error) {
	return db.Collect(ctx, s.db.Reads(), scanGrant, grantColumns+`
		WHERE g.expires_at >= ? AND g.revoked_at IS NOT NULL ORDER BY g.id`, now.Add(-2*protocol.ClockSkew).UnixMilli())
}

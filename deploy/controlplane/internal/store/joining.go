package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/db"
	"github.com/fairlead/fairlead/protocol"
)

// What became of somebody whom an owner wants as a member.
const (
	MemberAccepted = "accepted" // is one
	MemberInvited  = "invited"  // was asked, and may do nothing yet that they couldn't before
)

// A MemberInvitation asks a user to be a member of a dashboard, or its owner. It
// gives nothing until it is accepted.
type MemberInvitation struct {
	Dashboard     string
	DashboardName string
	Member        // what the user would be
	InvitedBy     protocol.UserID
	InvitedByName string
	InvitedAt     time.Time
}

// MaxInvitations bounds the open invitations that one user has made.
const MaxInvitations = 100

// Invite makes user what an owner wants them to be in a dashboard: who is a
// member already is that at once (true); who isn't, or isn't its owner and is to
// be, is asked. KindTooMany says that the owner has MaxInvitations open.
func (s *Boards) Invite(ctx context.Context, by protocol.UserID, dashboard string, user protocol.UserID, role Role, capabilities string) (member bool, err error) {
	if capabilities, err = checkStanding(role, capabilities); err != nil {
		return false, err
	}
	err = s.db.Transact(ctx, func(tx db.Runner) error {
		if err := requirePair(ctx, tx, dashboard, user); err != nil {
			return err
		}
		asks, err := roleOf(ctx, tx, dashboard, by)
		if err == nil && asks != RoleOwner {
			err = protocol.Errorf(protocol.KindForbidden, "only an owner may do this")
		}
		if err != nil {
			return err
		}
		is, err := roleOf(ctx, tx, dashboard, user)
		if err != nil {
			return err
		}
		if member = is == RoleOwner || is != "" && role != RoleOwner; member {
			return putMember(ctx, tx, dashboard, user, role, capabilities)
		}
		return invite(ctx, tx, by, dashboard, user, role, capabilities)
	})
	return member, err
}

func invite(ctx context.Context, tx db.Runner, by protocol.UserID, dashboard string, user protocol.UserID, role Role, capabilities string) error {
	if _, err := tx.Exec(ctx, `
		INSERT INTO member_invitations (dashboard_id, user_id, role, capabilities, invited_by, invited_at) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT (dashboard_id, user_id) DO UPDATE SET role = excluded.role, capabilities = excluded.capabilities,
			invited_by = excluded.invited_by, invited_at = excluded.invited_at`,
		dashboard, user, role, capabilities, by, tx.Now().UnixMilli()); err != nil {
		return err
	}
	var open int
	if err := tx.Row(ctx, `SELECT count(*) FROM member_invitations WHERE invited_by = ?`, by).Scan(&open); err != nil {
		return err
	}
	if open > MaxInvitations {
		return protocol.Errorf(protocol.KindTooMany, "%d of your invitations haven't been answered: take some back", MaxInvitations)
	}
	return nil
}

const memberInvitations = `
	SELECT i.dashboard_id, d.name, i.user_id, u.name, i.role, i.capabilities, i.invited_by, b.name, i.invited_at
	FROM member_invitations i
	JOIN dashboards d ON d.id = i.dashboard_id
	JOIN users u ON u.id = i.user_id
	JOIN users b ON b.id = i.invited_by`

func scanMemberInvitation(row db.Scanner) (i MemberInvitation, err error) {
	var at sql.NullInt64
	err = row.Scan(&i.Dashboard, &i.DashboardName, &i.User, &i.Name, &i.Role, &i.Capabilities, &i.InvitedBy, &i.InvitedByName, &at)
	i.InvitedAt = db.TimeOf(at)
	return i, err
}

// InvitationsOf lists what a user was asked and hasn't answered, the newest
// first.
func (s *Boards) InvitationsOf(ctx context.Context, user protocol.UserID) ([]MemberInvitation, error) {
	return db.Collect(ctx, s.db.Reads(), scanMemberInvitation, memberInvitations+`
		WHERE i.user_id = ? ORDER BY i.invited_at DESC, i.dashboard_id LIMIT ?`, user, MaxLimit)
}

// InvitedTo lists who was asked to join a dashboard, in order of id.
func (s *Boards) InvitedTo(ctx context.Context, dashboard string) ([]MemberInvitation, error) {
	return db.Collect(ctx, s.db.Reads(), scanMemberInvitation, memberInvitations+`
		WHERE i.dashboard_id = ? ORDER BY i.user_id LIMIT ?`, dashboard, MaxLimit)
}

// AcceptInvitation makes a user what they were asked to be; KindNotFound if they
// weren't. KindTooMany says that they own too many dashboards, or that this one
// is full.
func (s *Boards) AcceptInvitation(ctx context.Context, user protocol.UserID, dashboard string) (MemberInvitation, error) {
	var i MemberInvitation
	err := s.db.Transact(ctx, func(tx db.Runner) (err error) {
		i, err = scanMemberInvitation(tx.Row(ctx, memberInvitations+` WHERE i.user_id = ? AND i.dashboard_id = ?`, user, dashboard))
		if err != nil {
			return absent(err, "invitation")
		}
		return putMember(ctx, tx, dashboard, user, i.Role, i.Capabilities)
	})
	return i, err
}

// DeclineInvitation forgets an invitation; KindNotFound if there is none.
func (s *Boards) DeclineInvitation(ctx context.Context, user protocol.UserID, dashboard string) error {
	n, err := s.db.Exec(ctx, `DELETE FROM member_invitations WHERE user_id = ? AND dashboard_id = ?`, user, dashboard)
	if err == nil && n == 0 {
		err = absent(sql.ErrNoRows, "invitation")
	}
	return err
}

// SetMember makes a user a member of a dashboard without asking them, or changes
// what they are there; capabilities narrow the role unless they are empty. The
// last owner who isn't narrowed can't be changed: KindConflict. Grants stay
// valid: see [Grants.RevokeGrantsOf].
func (s *Boards) SetMember(ctx context.Context, dashboard string, user protocol.UserID, role Role, capabilities string) error {
	capabilities, err := checkStanding(role, capabilities)
	if err != nil {
		return err
	}
	return s.db.Transact(ctx, func(tx db.Runner) error {
		if err := requirePair(ctx, tx, dashboard, user); err != nil {
			return err
		}
		return putMember(ctx, tx, dashboard, user, role, capabilities)
	})
}

// checkStanding refuses what nobody can be, and returns the capabilities as they
// are kept.
func checkStanding(role Role, capabilities string) (string, error) {
	if !role.Known() {
		return "", protocol.Errorf(protocol.KindInvalid, "unknown role")
	}
	return normalCapabilities(capabilities)
}

// requirePair fails with KindNotFound unless both exist.
func requirePair(ctx context.Context, tx db.Runner, dashboard string, user protocol.UserID) error {
	if _, err := requireDashboard(ctx, tx, dashboard); err != nil {
		return err
	}
	return requireUser(ctx, tx, user)
}

// putMember is setMember for a dashboard that keeps an owner. What the user was
// asked is answered by it, and what they asked others as an owner ends with that.
func putMember(ctx context.Context, tx db.Runner, dashboard string, user protocol.UserID, role Role, capabilities string) error {
	if _, err := tx.Exec(ctx, `DELETE FROM member_invitations WHERE dashboard_id = ? AND user_id = ?`, dashboard, user); err != nil {
		return err
	}
	if role != RoleOwner {
		if err := withdrawInvitations(ctx, tx, dashboard, user); err != nil {
			return err
		}
	}
	return keepOwner(ctx, tx, dashboard, func() error { return setMember(ctx, tx, dashboard, user, role, capabilities) })
}

// withdrawInvitations takes back what a user asked others to be in a dashboard.
func withdrawInvitations(ctx context.Context, tx db.Runner, dashboard string, by protocol.UserID) error {
	_, err := tx.Exec(ctx, `DELETE FROM member_invitations WHERE dashboard_id = ? AND invited_by = ?`, dashboard, by)
	return err
}

// RemoveMember takes a dashboard from a user, who needn't be a member: an
// invitation is taken back. The last owner can't go: KindConflict. Grants stay
// valid: see [Grants.RevokeGrantsOf].
func (s *Boards) RemoveMember(ctx context.Context, dashboard string, user protocol.UserID) error {
	return s.db.Transact(ctx, func(tx db.Runner) error {
		if _, err := tx.Exec(ctx, `DELETE FROM member_invitations WHERE dashboard_id = ? AND user_id = ?`, dashboard, user); err != nil {
			return err
		}
		if err := withdrawInvitations(ctx, tx, dashboard, user); err != nil {
			return err
		}
		return keepOwner(ctx, tx, dashboard, func() error {
			_, err := tx.Exec(ctx, `DELETE FROM members WHERE dashboard_id = ? AND user_id = ?`, dashboard, user)
			return err
		})
	})
}

package store

import (
	"context"
	"crypto/subtle"
	"database/sql"
	"errors"
	"net/mail"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/db"
	"github.com/fairlead/fairlead/protocol"
)

// A User is a person.
type User struct {
	ID    protocol.UserID
	Name  string
	Email string // may be empty
}

// maxTokens bounds the tokens of one user.
const maxTokens = 100

// AddUser adds a user. KindConflict says that the id is taken, if only by a user
// who was removed, or that the e-mail address is another user's, in whatever
// case.
func (s *People) AddUser(ctx context.Context, u User) error {
	if u.Email != "" {
		if a, err := mail.ParseAddress(u.Email); err != nil || a.Address != u.Email {
			return protocol.Errorf(protocol.KindInvalid, "the e-mail address is not one")
		}
	}
	return s.db.Transact(ctx, func(tx db.Runner) error {
		if err := requireFreeEmail(ctx, tx, u); err != nil {
			return err
		}
		return addUser(ctx, tx, u)
	})
}

// requireFreeEmail keeps an invitation clear: by an address that several have,
// nobody would be invited. Users that providers vouch for may share one.
func requireFreeEmail(ctx context.Context, tx db.Runner, u User) error {
	if u.Email == "" {
		return nil
	}
	taken, err := tx.Exists(ctx, `
		SELECT 1 FROM users WHERE lower(email) = lower(?) AND removed_at IS NULL AND id <> ? LIMIT 1`, u.Email, u.ID)
	if err == nil && taken {
		err = protocol.Errorf(protocol.KindConflict, "another user has this e-mail address")
	}
	return err
}

func addUser(ctx context.Context, tx db.Runner, u User) error {
	if err := u.check(); err != nil {
		return err
	}
	n, err := tx.Exec(ctx, `INSERT INTO users (id, name, email, created_at) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`,
		u.ID, u.Name, u.Email, tx.Now().UnixMilli())
	if err == nil && n == 0 {
		err = protocol.Errorf(protocol.KindConflict, "user %s exists already", u.ID)
	}
	return err
}

// reservedUser is the holder of a terminal's lease that is no user.
const reservedUser = protocol.AgentHolder

func (u User) check() error {
	if err := checkID("the user's id", u.ID); err != nil {
		return err
	}
	if u.ID == reservedUser {
		return protocol.Errorf(protocol.KindInvalid, "no user may have the id %s", u.ID)
	}
	if u.Name == "" {
		return protocol.Errorf(protocol.KindInvalid, "a user needs a name")
	}
	if err := checkText("the name", u.Name); err != nil {
		return err
	}
	return checkText("the e-mail address", u.Email)
}

const userColumns = `u.id, u.name, u.email`

func scanUser(row db.Scanner) (u User, err error) {
	return u, row.Scan(&u.ID, &u.Name, &u.Email)
}

// User returns a user who wasn't removed; KindNotFound if there is none.
func (s *People) User(ctx context.Context, id protocol.UserID) (User, error) {
	u, err := scanUser(s.db.Reads().Row(ctx, `SELECT `+userColumns+` FROM users u WHERE u.id = ? AND u.removed_at IS NULL`, id))
	return u, absent(err, "user")
}

// Users lists at most limit users in order of id, those after an id.
func (s *People) Users(ctx context.Context, after protocol.UserID, limit int) ([]User, error) {
	return db.Collect(ctx, s.db.Reads(), scanUser, `
		SELECT `+userColumns+` FROM users u WHERE u.removed_at IS NULL AND u.id > ?
		ORDER BY u.id LIMIT ?`, after, limited(limit))
}

// maxNamesakes bounds those that are told of one name.
const maxNamesakes = 10

// UsersNamed returns users whose name or e-mail address it is, in whatever case.
func (s *People) UsersNamed(ctx context.Context, name string) ([]User, error) {
	return db.Collect(ctx, s.db.Reads(), scanUser, `
		SELECT `+userColumns+` FROM users u
		WHERE u.removed_at IS NULL AND (lower(u.name) = lower(?) OR lower(u.email) = lower(?)) ORDER BY u.id LIMIT ?`,
		name, name, maxNamesakes)
}

// RemoveUser takes a user's tokens and memberships away, their name and accounts
// too. It doesn't void their grants: see [Grants.RevokeGrantsOf]. To lose access
// must never have to wait: dashboards may be left without an owner, and those are
// returned.
func (s *People) RemoveUser(ctx context.Context, id protocol.UserID) (ownerless []string, err error) {
	err = s.db.Transact(ctx, func(tx db.Runner) error {
		var err error
		if ownerless, err = ownedBy(ctx, tx, id); err != nil {
			return err
		}
		n, err := tx.Exec(ctx, `UPDATE users SET name = '', email = '', removed_at = ? WHERE id = ? AND removed_at IS NULL`,
			s.db.Now().UnixMilli(), id)
		if err != nil {
			return err
		}
		if n == 0 {
			return absent(sql.ErrNoRows, "user")
		}
		for _, query := range []string{
			`DELETE FROM tokens WHERE user_id = ?`,
			`DELETE FROM members WHERE user_id = ?`,
			`DELETE FROM member_invitations WHERE user_id = ?`,
			`DELETE FROM member_invitations WHERE invited_by = ?`,
			`DELETE FROM connects WHERE user_id = ?`,
			`DELETE FROM attachments WHERE account_id IN (SELECT id FROM accounts WHERE user_id = ?)`,
			`DELETE FROM accounts WHERE user_id = ?`,
		} {
			if _, err := tx.Exec(ctx, query, id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ownerless, nil
}

// requireUser fails with KindNotFound unless the user exists.
func requireUser(ctx context.Context, tx db.Runner, id protocol.UserID) error {
	ok, err := tx.Exists(ctx, `SELECT 1 FROM users WHERE id = ? AND removed_at IS NULL`, id)
	if err == nil && !ok {
		err = absent(sql.ErrNoRows, "user")
	}
	return err
}

// MinSecretBytes is the shortest token, credential or invitation.
const MinSecretBytes = 16

// AddToken lets token stand for a user until expires; the zero time is never.
// Tokens that have expired are forgotten.
func (s *People) AddToken(ctx context.Context, user protocol.UserID, token, label string, expires time.Time) error {
	if len(token) < MinSecretBytes {
		return protocol.Errorf(protocol.KindInvalid, "the token is shorter than %d bytes", MinSecretBytes)
	}
	if err := checkText("the label", label); err != nil {
		return err
	}
	now := s.db.Now()
	return s.db.Transact(ctx, func(tx db.Runner) error {
		if err := requireUser(ctx, tx, user); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM tokens WHERE user_id = ? AND expires_at <= ?`, user, now.UnixMilli()); err != nil {
			return err
		}
		var count int
		if err := tx.Row(ctx, `SELECT count(*) FROM tokens WHERE user_id = ?`, user).Scan(&count); err != nil {
			return err
		}
		if count >= maxTokens {
			return protocol.Errorf(protocol.KindTooMany, "user %s has %d tokens already", user, maxTokens)
		}
		n, err := tx.Exec(ctx, `
			INSERT INTO tokens (token_hash, user_id, label, created_at, expires_at) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (token_hash) DO NOTHING`,
			hashToken(token), user, label, now.UnixMilli(), db.NullableTime(expires))
		if err == nil && n == 0 {
			err = protocol.Errorf(protocol.KindConflict, "the token is in use")
		}
		return err
	})
}

// RemoveToken has token stand for nobody; it is no error if it didn't.
func (s *People) RemoveToken(ctx context.Context, token string) error {
	_, err := s.db.Exec(ctx, `DELETE FROM tokens WHERE token_hash = ?`, hashToken(token))
	return err
}

// UserByToken returns the user whose token it is; KindUnauthenticated if
// nobody's, or if it has expired.
func (s *People) UserByToken(ctx context.Context, token string) (User, error) {
	var u User
	var hash []byte
	err := s.db.Reads().Row(ctx, `
		SELECT `+userColumns+`, t.token_hash FROM tokens t JOIN users u ON u.id = t.user_id
		WHERE t.token_hash = ? AND (t.expires_at IS NULL OR t.expires_at > ?) AND u.removed_at IS NULL`,
		hashToken(token), s.db.Now().UnixMilli()).Scan(&u.ID, &u.Name, &u.Email, &hash)
	if err := matched(err, hash, token); err != nil {
		return User{}, err
	}
	return u, nil
}

// matched turns the outcome of a search by hash into an error. The index can
// leak by its timing only how a hash begins, which helps nobody find a token;
// the last word is a comparison in constant time all the same.
func matched(err error, hash []byte, token string) error {
	switch {
	case errors.Is(err, sql.ErrNoRows):
	case err != nil:
		return err
	case subtle.ConstantTimeCompare(hash, hashToken(token)) == 1:
		return nil
	}
	return protocol.Errorf(protocol.KindUnauthenticated, "not authenticated")
}

// UserByIdentity returns the user that an OpenID provider knows as subject:
// KindNotFound if nobody was linked, KindForbidden if that user was removed.
func (s *People) UserByIdentity(ctx context.Context, issuer, subject string) (User, error) {
	return userByIdentity(ctx, s.db.Reads(), issuer, subject)
}

func userByIdentity(ctx context.Context, r db.Runner, issuer, subject string) (u User, err error) {
	var removed sql.NullInt64
	err = r.Row(ctx, `
		SELECT `+userColumns+`, u.removed_at FROM identities i JOIN users u ON u.id = i.user_id
		WHERE i.issuer = ? AND i.subject = ?`, issuer, subject).Scan(&u.ID, &u.Name, &u.Email, &removed)
	if err == nil && removed.Valid {
		return User{}, protocol.Errorf(protocol.KindForbidden, "this user was removed")
	}
	return u, absent(err, "user")
}

// InvitedUser returns the one user of an e-mail address, in whatever case, whom
// no provider was linked to; KindNotFound if there is none, or several.
func (s *People) InvitedUser(ctx context.Context, email string) (User, error) {
	invited, err := db.Collect(ctx, s.db.Reads(), scanUser, `
		SELECT `+userColumns+` FROM users u
		WHERE lower(u.email) = lower(?) AND u.email <> '' AND u.removed_at IS NULL
			AND NOT EXISTS (SELECT 1 FROM identities i WHERE i.user_id = u.id)
		LIMIT 2`, email)
	if err != nil {
		return User{}, err
	}
	if len(invited) != 1 {
		return User{}, protocol.Errorf(protocol.KindNotFound, "nobody was invited by this address")
	}
	return invited[0], nil
}

func checkIdentity(issuer, subject string) error {
	if err := checkText("the issuer", issuer); err != nil {
		return err
	}
	return checkText("the subject", subject)
}

// LinkIdentity makes u who an OpenID provider knows as subject; it adds u if no
// user has the id. When another call was faster it returns that one's user
// instead. KindConflict says that u is somebody else to that provider.
func (s *People) LinkIdentity(ctx context.Context, issuer, subject string, u User) (User, error) {
	if err := checkIdentity(issuer, subject); err != nil {
		return User{}, err
	}
	linked := u
	err := s.db.Transact(ctx, func(tx db.Runner) error {
		old, err := userByIdentity(ctx, tx, issuer, subject)
		switch {
		case err == nil:
			linked = old
			return nil
		case protocol.KindOf(err) != protocol.KindNotFound:
			return err
		}
		if linked, err = unlinkedUser(ctx, tx, issuer, u); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO identities (issuer, subject, user_id) VALUES (?, ?, ?)`, issuer, subject, u.ID)
		return err
	})
	if err != nil {
		return User{}, err
	}
	return linked, nil
}

// unlinkedUser returns the user with u's id, who is new or not yet known to the
// provider.
func unlinkedUser(ctx context.Context, tx db.Runner, issuer string, u User) (User, error) {
	old, err := scanUser(tx.Row(ctx, `SELECT `+userColumns+` FROM users u WHERE u.id = ? AND u.removed_at IS NULL`, u.ID))
	if errors.Is(err, sql.ErrNoRows) {
		return u, addUser(ctx, tx, u)
	}
	if err != nil {
		return User{}, err
	}
	linked, err := tx.Exists(ctx, `SELECT 1 FROM identities WHERE user_id = ? AND issuer = ? LIMIT 1`, u.ID, issuer)
	if err == nil && linked {
		err = protocol.Errorf(protocol.KindConflict, "user %s is somebody else to this provider", u.ID)
	}
	return old, err
}

// ownedBy lists the dashboards, in order of id, that have no other owner.
func ownedBy(ctx context.Context, tx db.Runner, user protocol.UserID) ([]string, error) {
	return db.Collect(ctx, tx, func(row db.Scanner) (id string, err error) { return id, row.Scan(&id) }, `
		SELECT m.dashboard_id FROM members m
		WHERE m.user_id = ? AND m.role = ? AND NOT EXISTS (
			SELECT 1 FROM members o
			WHERE o.dashboard_id = m.dashboard_id AND o.user_id <> m.user_id AND o.role = ? AND o.capabilities = '')
		ORDER BY m.dashboard_id`, user, RoleOwner, RoleOwner)
}

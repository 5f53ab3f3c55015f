package store

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/db"
	"github.com/fairlead/fairlead/protocol"
)

// An Account is an account at a provider that a user has connected.
type Account struct {
	ID        string
	User      protocol.UserID
	Provider  string
	Name      string // e-mail address or login at the provider
	Scopes    string // separated by spaces, as the provider granted them
	KeyID     string // of the vault's key
	Sealed    []byte // tokens
	Version   int64  // of the tokens: 1, and one more with each change
	FailedAt  time.Time
	CreatedAt time.Time
	UpdatedAt time.Time
}

const (
	// MaxAccounts bounds the accounts of one user.
	MaxAccounts = 50
	// MaxSealedBytes bounds what is kept of an account's tokens.
	MaxSealedBytes = 64 << 10
	// maxConnects bounds those of one user that are under way.
	maxConnects = 20
)

// NewAccountID returns an id for a new account: what is sealed is bound to it.
func NewAccountID() string { return "acc_" + strings.ToLower(rand.Text()) }

func (a Account) check() error {
	if err := checkID("the account's id", a.ID); err != nil {
		return err
	}
	if a.Name == "" {
		return protocol.Errorf(protocol.KindInvalid, "the account has no name")
	}
	if err := checkText("the account's name", a.Name); err != nil {
		return err
	}
	if len(a.Scopes) > 4096 {
		return protocol.Errorf(protocol.KindInvalid, "the account has too many scopes")
	}
	if len(a.Sealed) > MaxSealedBytes {
		return protocol.Errorf(protocol.KindTooLarge, "the account's tokens are longer than %d bytes", MaxSealedBytes)
	}
	return nil
}

const accountColumns = `a.id, a.user_id, a.provider, a.name, a.scopes, a.key_id, a.sealed, a.version, a.failed_at, a.created_at, a.updated_at`

const accounts = `SELECT ` + accountColumns + ` FROM accounts a`

func scanAccount(row db.Scanner, more ...any) (a Account, err error) {
	var failed, created, updated sql.NullInt64
	err = row.Scan(append([]any{
		&a.ID, &a.User, &a.Provider, &a.Name, &a.Scopes, &a.KeyID, &a.Sealed, &a.Version, &failed, &created, &updated,
	}, more...)...)
	a.FailedAt, a.CreatedAt, a.UpdatedAt = db.TimeOf(failed), db.TimeOf(created), db.TimeOf(updated)
	return a, err
}

func scanOneAccount(row db.Scanner) (Account, error) { return scanAccount(row) }

// Accounts lists the accounts of a user, by provider and name.
func (s *Integrations) Accounts(ctx context.Context, user protocol.UserID) ([]Account, error) {
	return db.Collect(ctx, s.db.Reads(), scanOneAccount, accounts+` WHERE a.user_id = ? ORDER BY a.provider, a.name, a.id LIMIT ?`, user, MaxLimit)
}

// AllAccounts lists at most limit accounts in order of id, those after an id.
func (s *Integrations) AllAccounts(ctx context.Context, after string, limit int) ([]Account, error) {
	return db.Collect(ctx, s.db.Reads(), scanOneAccount, accounts+` WHERE a.id > ? ORDER BY a.id LIMIT ?`, after, limited(limit))
}

// Account returns an account; KindNotFound if there is none. Whose it is is for
// the caller to look at.
func (s *Integrations) Account(ctx context.Context, id string) (Account, error) {
	a, err := scanOneAccount(s.db.Reads().Row(ctx, accounts+` WHERE a.id = ?`, id))
	return a, absent(err, "account")
}

// FindAccount returns a user's account of that name at a provider; KindNotFound
// if there is none.
func (s *Integrations) FindAccount(ctx context.Context, user protocol.UserID, provider, name string) (Account, error) {
	a, err := scanOneAccount(s.db.Reads().Row(ctx, accounts+` WHERE a.user_id = ? AND a.provider = ? AND a.name = ?`, user, provider, name))
	return a, absent(err, "account")
}

// PutAccount adds an account, or gives the one of the same id, user, provider
// and name new tokens. KindConflict says that the user has another one of that
// name, KindTooMany that they have MaxAccounts.
func (s *Integrations) PutAccount(ctx context.Context, a Account) (Account, error) {
	if err := a.check(); err != nil {
		return Account{}, err
	}
	now := s.db.Now().UTC().Truncate(time.Millisecond)
	err := s.db.Transact(ctx, func(tx db.Runner) error {
		if err := requireUser(ctx, tx, a.User); err != nil {
			return err
		}
		var others int64
		if err := tx.Row(ctx, `SELECT count(*) FROM accounts WHERE user_id = ? AND id <> ?`, a.User, a.ID).Scan(&others); err != nil {
			return err
		}
		if others >= MaxAccounts {
			return protocol.Errorf(protocol.KindTooMany, "you have %d accounts already", MaxAccounts)
		}
		n, err := tx.Exec(ctx, `
			INSERT INTO accounts (id, user_id, provider, name, scopes, key_id, sealed, version, created_at, updated_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, 1, ?, ?)
			ON CONFLICT (id) DO UPDATE SET scopes = excluded.scopes, key_id = excluded.key_id, sealed = excluded.sealed,
				version = accounts.version + 1, failed_at = NULL, updated_at = excluded.updated_at
			WHERE accounts.user_id = excluded.user_id AND accounts.provider = excluded.provider AND accounts.name = excluded.name`,
			a.ID, a.User, a.Provider, a.Name, a.Scopes, a.KeyID, a.Sealed, now.UnixMilli(), now.UnixMilli())
		if err == nil && n == 0 {
			err = protocol.Errorf(protocol.KindConflict, "the account is another one")
		}
		if err != nil {
			return err
		}
		a, err = scanOneAccount(tx.Row(ctx, accounts+` WHERE a.id = ?`, a.ID))
		return err
	})
	if err != nil {
		return Account{}, err
	}
	return a, nil
}

// SetTokens gives an account that still has tokens of the expected version new
// ones; KindConflict if it has others by now, KindNotFound if it is gone.
func (s *Integrations) SetTokens(ctx context.Context, id string, expectVersion int64, keyID string, sealed []byte) error {
	if len(sealed) > MaxSealedBytes {
		return protocol.Errorf(protocol.KindTooLarge, "the account's tokens are longer than %d bytes", MaxSealedBytes)
	}
	return s.changeAccount(ctx, id, `
		UPDATE accounts SET key_id = ?, sealed = ?, version = version + 1, updated_at = ? WHERE id = ? AND version = ?`,
		keyID, sealed, s.db.Now().UnixMilli(), id, expectVersion)
}

// FailAccount notes that the provider takes the account's tokens no more, if
// they are still of that version.
func (s *Integrations) FailAccount(ctx context.Context, id string, expectVersion int64) error {
	return s.changeAccount(ctx, id, `UPDATE accounts SET failed_at = ? WHERE id = ? AND version = ?`,
		s.db.Now().UnixMilli(), id, expectVersion)
}

func (s *Integrations) changeAccount(ctx context.Context, id, query string, args ...any) error {
	n, err := s.db.Exec(ctx, query, args...)
	if err != nil || n > 0 {
		return err
	}
	if _, err := s.Account(ctx, id); err != nil {
		return err
	}
	return protocol.Errorf(protocol.KindConflict, "the account has other tokens by now")
}

// RemoveAccount removes an account of a user and returns where it was attached;
// KindNotFound if it isn't theirs.
func (s *Integrations) RemoveAccount(ctx context.Context, user protocol.UserID, id string) (detached []Attachment, err error) {
	err = s.db.Transact(ctx, func(tx db.Runner) error {
		owned, err := tx.Exists(ctx, `SELECT 1 FROM accounts WHERE id = ? AND user_id = ?`, id, user)
		if err != nil {
			return err
		}
		if !owned {
			return absent(sql.ErrNoRows, "account")
		}
		if detached, err = db.Collect(ctx, tx, scanAttachment, attachments+` WHERE t.account_id = ? LIMIT ?`, id, MaxLimit); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM attachments WHERE account_id = ?`, id); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `DELETE FROM accounts WHERE id = ?`, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	return detached, nil
}

// A Connect is a user on the way to a provider and back.
type Connect struct {
	User      protocol.UserID
	Provider  string
	Origin    string // where the browser comes back
	ReturnTo  string
	ExpiresAt time.Time

	State   string // the provider brings it back; kept as its SHA-256 alone
	Browser string // the browser keeps it meanwhile; kept as its SHA-256 alone
}

// AddConnect notes that a user goes to a provider. KindTooMany says that they
// have done so too often without coming back.
func (s *Integrations) AddConnect(ctx context.Context, c Connect) error {
	return s.db.Transact(ctx, func(tx db.Runner) error {
		if err := requireUser(ctx, tx, c.User); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM connects WHERE expires_at <= ?`, s.db.Now().UnixMilli()); err != nil {
			return err
		}
		var open int
		if err := tx.Row(ctx, `SELECT count(*) FROM connects WHERE user_id = ?`, c.User).Scan(&open); err != nil {
			return err
		}
		if open >= maxConnects {
			return protocol.Errorf(protocol.KindTooMany, "%d accounts are being connected already: try again in some minutes", maxConnects)
		}
		_, err := tx.Exec(ctx, `
			INSERT INTO connects (state_hash, browser_hash, user_id, provider, origin, return_to, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?)`,
			hashToken(c.State), hashToken(c.Browser), c.User, c.Provider, c.Origin, c.ReturnTo, c.ExpiresAt.UnixMilli())
		return err
	})
}

// TakeConnect returns what state stands for, once. KindUnauthenticated says that
// it stands for nothing, or was begun in another browser, KindExpired that it
// took too long.
func (s *Integrations) TakeConnect(ctx context.Context, state, browser string) (Connect, error) {
	c := Connect{State: state, Browser: browser}
	var expires sql.NullInt64
	var hash []byte
	err := s.db.Transact(ctx, func(tx db.Runner) error {
		if err := tx.Row(ctx, `
			SELECT user_id, provider, origin, return_to, expires_at, browser_hash FROM connects WHERE state_hash = ?`, hashToken(state)).
			Scan(&c.User, &c.Provider, &c.Origin, &c.ReturnTo, &expires, &hash); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `DELETE FROM connects WHERE state_hash = ?`, hashToken(state))
		return err
	})
	c.ExpiresAt = db.TimeOf(expires)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return Connect{}, protocol.Errorf(protocol.KindUnauthenticated, "no account is being connected under this state, or not any more")
	case err != nil:
		return Connect{}, err
	case browser == "" || subtle.ConstantTimeCompare(hash, hashToken(browser)) != 1:
		return Connect{}, protocol.Errorf(protocol.KindUnauthenticated, "another browser began to connect this account")
	case !s.db.Now().Before(c.ExpiresAt):
		return Connect{}, protocol.Errorf(protocol.KindExpired, "it took too long to connect the account: begin again")
	}
	return c, nil
}

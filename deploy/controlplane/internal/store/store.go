// Package store keeps the control plane's users, dashboards, sessions, grants,
// commands, sandboxes, revocations, relays and connected accounts in a database:
// an SQLite file, or Postgres.
//
// Failures that a caller can do something about are [protocol.Error]s, of
// KindUnavailable while the database can't be asked; all others mean that the
// store itself failed. No error quotes a secret.
package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// A Store is safe for concurrent use, by several processes too.
type Store struct {
	// Static after construction. Reads have connections of their own, so that
	// they never queue behind writes.
	write *sql.DB
	read  *sql.DB
	sql   dialect
	now   func() time.Time
}

// An Option changes how a store works.
type Option func(*Store)

// WithClock has the store take the time from now instead of time.Now.
func WithClock(now func() time.Time) Option { return func(s *Store) { s.now = now } }

// Open opens the database at url and brings it to this build's schema: a
// "postgres://…" URL, or the path of an SQLite file, with or without "sqlite:"
// before it. A file that doesn't exist is made, for its owner alone. A pooler in
// front of Postgres must leave sessions whole: a migration holds a lock of one.
func Open(ctx context.Context, url string, options ...Option) (*Store, error) {
	name, open := place(url)
	s, err := open(ctx)
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", name, oneLine(err))
	}
	s.now = time.Now
	for _, option := range options {
		option(s)
	}
	return s, nil
}

// Close closes the database.
func (s *Store) Close() error { return errors.Join(s.read.Close(), s.write.Close()) }

// transact runs f in a write transaction, one at a time over all processes: what
// f reads stays as it is until its writes are there. The transaction is undone
// when f fails. f must use nothing but tx: it may have the only connection.
func (s *Store) transact(ctx context.Context, f func(tx runner) error) error {
	return s.concurrently(ctx, func(tx runner) error {
		if err := s.sql.waitForTurn(ctx, tx); err != nil {
			return err
		}
		return f(tx)
	})
}

// concurrently runs f in a write transaction that others may run beside: what f
// read may have changed when it writes, so uniqueness must be a constraint's.
func (s *Store) concurrently(ctx context.Context, f func(tx runner) error) error {
	tx, err := s.write.BeginTx(ctx, s.sql.txOptions())
	if err != nil {
		return explain(err)
	}
	if err := f(runner{tx, s.sql}); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return explain(tx.Commit())
}

// Ping asks the database something; KindUnavailable if it doesn't answer.
func (s *Store) Ping(ctx context.Context) error {
	_, err := s.reads().exists(ctx, `SELECT 1 FROM users LIMIT 1`)
	return err
}

// exec runs one statement that writes, and returns how many rows it changed.
func (s *Store) exec(ctx context.Context, query string, args ...any) (int64, error) {
	return runner{s.write, s.sql}.exec(ctx, query, args...)
}

// reads runs statements that read.
func (s *Store) reads() runner { return runner{s.read, s.sql} }

// hashToken returns what is kept of a secret. Secrets are random and long, so a
// plain digest doesn't help to guess them.
func hashToken(token string) []byte {
	h := sha256.Sum256([]byte(token))
	return h[:]
}

// A querier is a database or a transaction.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// A runner runs statements, which have "?" for each argument and nowhere else.
type runner struct {
	on  querier
	sql dialect
}

func (r runner) exec(ctx context.Context, query string, args ...any) (int64, error) {
	result, err := r.on.ExecContext(ctx, r.sql.rebind(query), args...)
	if err != nil {
		return 0, explain(err)
	}
	return result.RowsAffected()
}

// A row is one answer, scanned once.
type row struct{ *sql.Row }

func (r runner) row(ctx context.Context, query string, args ...any) row {
	return row{r.on.QueryRowContext(ctx, r.sql.rebind(query), args...)}
}

// Scan fails with sql.ErrNoRows when there is no answer.
func (r row) Scan(dest ...any) error { return explain(r.Row.Scan(dest...)) }

// exists reports whether query has an answer, whose one column is a number.
func (r runner) exists(ctx context.Context, query string, args ...any) (bool, error) {
	var one int64
	err := r.row(ctx, query, args...).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// A scanner is a row that can be read into variables.
type scanner interface{ Scan(dest ...any) error }

// collect returns scan of every row of query.
func collect[T any](ctx context.Context, r runner, scan func(scanner) (T, error), query string, args ...any) (all []T, err error) {
	rows, err := r.on.QueryContext(ctx, r.sql.rebind(query), args...)
	if err != nil {
		return nil, explain(err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, explain(rows.Err())
}

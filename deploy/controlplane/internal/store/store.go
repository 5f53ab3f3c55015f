// Package store keeps the control plane's users, dashboards, sessions, grants,
// relays and commands in one SQLite file.
//
// Failures that a caller can do something about are [protocol.Error]s; all
// others mean that the store itself failed.
package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite" // registers the driver "sqlite"
)

//go:embed migrations/*.sql
var migrations embed.FS

const (
	maxReaders    = 4
	busyTimeoutMs = 5000 // how long a statement waits for another process's write
)

// A Store is safe for concurrent use, by several processes too.
type Store struct {
	// Static after construction. SQLite takes one writer at a time: writes queue
	// here for its one connection instead of polling a lock.
	write *sql.DB
	read  *sql.DB
}

// Open opens the database at path and brings it to this build's schema. A file
// that doesn't exist is made, for its owner alone.
func Open(ctx context.Context, path string) (*Store, error) {
	s, err := open(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", path, err)
	}
	return s, nil
}

func open(ctx context.Context, path string) (*Store, error) {
	// SQLite gives its -wal and -shm files the mode of the main file.
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := file.Close(); err != nil {
		return nil, err
	}
	s := &Store{}
	if s.write, err = sql.Open("sqlite", dsn(path, "immediate")); err != nil {
		return nil, err
	}
	if s.read, err = sql.Open("sqlite", dsn(path, "deferred")); err != nil {
		return nil, errors.Join(err, s.write.Close())
	}
	s.write.SetMaxOpenConns(1)
	s.read.SetMaxOpenConns(maxReaders)
	if err := migrate(ctx, s.write); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// dsn asks for durable commits: a command that was handed out must be known
// after a power failure too.
func dsn(path, txLock string) string {
	q := url.Values{"_txlock": {txLock}, "_pragma": {
		fmt.Sprintf("busy_timeout(%d)", busyTimeoutMs),
		"journal_mode(WAL)",
		"synchronous(FULL)",
		"foreign_keys(1)",
	}}
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: q.Encode()}).String()
}

func migrate(ctx context.Context, db *sql.DB) error {
	dir, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, dir)
	if err != nil {
		return err
	}
	current, newest, err := p.GetVersions(ctx)
	if err != nil {
		return err
	}
	if current > newest {
		return fmt.Errorf("schema %d is of a newer build; this one knows %d", current, newest)
	}
	_, err = p.Up(ctx)
	return err
}

// Close closes the database.
func (s *Store) Close() error { return errors.Join(s.read.Close(), s.write.Close()) }

// transact runs f in a write transaction, which is undone when f fails. f must
// use nothing but tx: there is only one connection to write with.
func (s *Store) transact(ctx context.Context, f func(tx *sql.Tx) error) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// collect returns scan of every row.
func collect[T any](rows *sql.Rows, scan func(*sql.Rows) (T, error)) (all []T, err error) {
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, rows.Err()
}

// nullable makes an empty text NULL.
func nullable[T ~string](s T) sql.NullString {
	return sql.NullString{String: string(s), Valid: s != ""}
}

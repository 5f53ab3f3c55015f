package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	modernc "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

const (
	sqliteReaders = 4
	busyTimeoutMs = 5000 // how long a statement waits for another process's write
	busyPause     = 20 * time.Millisecond
)

// sqlitePath returns the path that a URL names.
func sqlitePath(url string) string { return strings.TrimPrefix(url, "sqlite:") }

func openSQLite(ctx context.Context, url string, schema fs.FS) (*DB, error) {
	path := sqlitePath(url)
	// SQLite gives its -wal and -shm files the mode of the main file. A file
	// that is there isn't opened: closing it would take this process's locks.
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = file.Close()
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err := whileBusy(ctx, func() error { return migrateSQLite(ctx, path, schema) }); err != nil {
		return nil, err
	}
	db := &DB{sql: sqlite}
	if db.write, err = sql.Open("sqlite", sqliteDSN(path, "immediate", true)); err != nil {
		return nil, err
	}
	if db.read, err = sql.Open("sqlite", sqliteDSN(path, "deferred", true)); err != nil {
		return nil, errors.Join(err, db.write.Close())
	}
	// SQLite takes one writer at a time: writes queue here for its one
	// connection instead of polling a lock.
	db.write.SetMaxOpenConns(1)
	db.read.SetMaxOpenConns(sqliteReaders)
	return db, nil
}

// whileBusy calls open again while another process that opens or closes the
// database is in the way, which the busy timeout of a connection doesn't cover.
func whileBusy(ctx context.Context, open func() error) error {
	deadline := time.NewTimer(busyTimeoutMs * time.Millisecond)
	defer deadline.Stop()
	again := time.NewTicker(busyPause)
	defer again.Stop()
	for {
		err := open()
		if e, ok := errors.AsType[*modernc.Error](err); !ok || e.Code()&0xff != sqlite3.SQLITE_BUSY {
			return err
		}
		select {
		case <-again.C:
		case <-deadline.C:
			return err
		case <-ctx.Done():
			return err
		}
	}
}

// sqliteDSN asks for durable commits: a command that was handed out must be
// known after a power failure too.
func sqliteDSN(path, txLock string, foreignKeys bool) string {
	q := url.Values{"_txlock": {txLock}, "_pragma": {
		fmt.Sprintf("busy_timeout(%d)", busyTimeoutMs),
		"journal_mode(WAL)",
		"synchronous(FULL)",
		fmt.Sprintf("foreign_keys(%t)", foreignKeys),
	}}
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: q.Encode()}).String()
}

// migrateSQLite has a connection of its own, without foreign keys: a migration
// may make a table anew that others refer to.
func migrateSQLite(ctx context.Context, path string, schema fs.FS) (err error) {
	db, err := sql.Open("sqlite", sqliteDSN(path, "immediate", false))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	changed, err := migrate(ctx, db, goose.DialectSQLite3, schema, "sqlite")
	if err != nil || !changed {
		return err
	}
	broken, err := Runner{db, &DB{sql: sqlite}}.Exists(ctx, `SELECT 1 FROM pragma_foreign_key_check`)
	if err == nil && broken {
		err = errors.New("the migration left a row that refers to nothing")
	}
	return err
}

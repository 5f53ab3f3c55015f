package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
)

const (
	postgresReaders = 8
	postgresWriters = 8
	postgresIdle    = 5 * time.Minute // an unused connection is closed
	postgresLife    = time.Hour       // and any other, for the sake of failovers
	connectTimeout  = 10 * time.Second
	migrationKey    = turnKey + 1 // the advisory lock of whoever migrates
)

// errPostgresURL quotes nothing: where a URL is wrong, nobody knows which part
// of it is the password.
var errPostgresURL = errors.New("the Postgres URL is malformed (a special character in a password is written as %XX)")

// isPostgres reports whether a URL is one of Postgres.
func isPostgres(url string) bool {
	return strings.HasPrefix(url, "postgres://") || strings.HasPrefix(url, "postgresql://")
}

// postgresConfig parses a URL. An "@" that isn't the end of the credentials is
// refused: what follows it would be taken for a host, and be shown.
func postgresConfig(url string) (*pgx.ConnConfig, error) {
	_, rest, _ := strings.Cut(url, "://")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	if strings.Count(rest[:end], "@") > 1 || strings.Contains(rest[end:], "@") {
		return nil, errPostgresURL
	}
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, errPostgresURL
	}
	if cfg.ConnectTimeout <= 0 {
		cfg.ConnectTimeout = connectTimeout
	}
	return cfg, nil
}

// postgresName names a database without its credentials.
func postgresName(url string) string {
	cfg, err := postgresConfig(url)
	if err != nil {
		return "postgres"
	}
	if strings.HasPrefix(cfg.Host, "/") {
		return fmt.Sprintf("postgres %s in %s", cfg.Database, cfg.Host)
	}
	return fmt.Sprintf("postgres %s at %s", cfg.Database, net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port))))
}

func openPostgres(ctx context.Context, url string, schema fs.FS) (*DB, error) {
	cfg, err := postgresConfig(url)
	if err != nil {
		return nil, err
	}
	db := &DB{sql: postgres, write: postgresPool(cfg, postgresWriters), read: postgresPool(cfg, postgresReaders)}
	if err := migratePostgres(ctx, db.write, schema); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

func postgresPool(cfg *pgx.ConnConfig, conns int) *sql.DB {
	db := stdlib.OpenDB(*cfg)
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	db.SetConnMaxIdleTime(postgresIdle)
	db.SetConnMaxLifetime(postgresLife)
	return db
}

// migratePostgres lets one process migrate at a time. The lock is its
// connection's, which therefore isn't one of those that migrate.
func migratePostgres(ctx context.Context, db *sql.DB, schema fs.FS) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	locked := Runner{conn, &DB{sql: postgres}}
	if _, err := locked.Exec(ctx, `SELECT pg_advisory_lock(?)`, int64(migrationKey)); err != nil {
		return err
	}
	_, err = migrate(ctx, db, goose.DialectPostgres, schema, "postgres")
	_, unlockErr := locked.Exec(context.WithoutCancel(ctx), `SELECT pg_advisory_unlock(?)`, int64(migrationKey))
	return errors.Join(err, unlockErr)
}

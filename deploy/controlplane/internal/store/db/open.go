package db

import (
	"context"
	"fmt"
	"io/fs"
	"time"
)

// Open opens the database at url and brings it to a schema: goose's migrations,
// in the folders "sqlite" and "postgres". The URL is "postgres://…", or the path
// of an SQLite file, with or without "sqlite:" before it; a file that doesn't
// exist is made, for its owner alone. now is the database's clock. Errors name
// the database without its secrets.
func Open(ctx context.Context, url string, schema fs.FS, now func() time.Time) (*DB, error) {
	name, open := sqlitePath, openSQLite
	if isPostgres(url) {
		name, open = postgresName, openPostgres
	}
	db, err := open(ctx, url, schema)
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", name(url), oneLine(err))
	}
	db.clock = now
	return db, nil
}

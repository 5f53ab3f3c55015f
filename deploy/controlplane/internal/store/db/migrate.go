package db

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
)

// migrate brings db to the schema in dir and reports whether it had to. A schema
// of a newer build is refused.
func migrate(ctx context.Context, db *sql.DB, dialect goose.Dialect, schema fs.FS, dir string) (changed bool, err error) {
	files, err := fs.Sub(schema, dir)
	if err != nil {
		return false, err
	}
	p, err := goose.NewProvider(dialect, db, files)
	if err != nil {
		return false, err
	}
	current, newest, err := p.GetVersions(ctx)
	if err != nil {
		return false, err
	}
	if current > newest {
		return false, fmt.Errorf("schema %d is of a newer build; this one knows %d", current, newest)
	}
	for current < newest {
		_, err := p.Up(ctx)
		if err == nil {
			return true, nil
		}
		// Another process may have been faster, and may still be at it.
		now, _, e := p.GetVersions(ctx)
		if e != nil || now == current {
			return changed, err
		}
		current, changed = now, true
	}
	return changed, nil
}

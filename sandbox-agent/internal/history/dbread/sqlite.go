package dbread

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite" // the driver
)

// open opens a database where no link leads elsewhere. By then one may: then it
// leads to nothing that the home's user can't read.
func open(name string, readOnly bool) (*sql.DB, error) {
	if !filepath.IsLocal(name) {
		return nil, fmt.Errorf("%q is not in the home", name)
	}
	path := "."
	for part := range strings.SplitSeq(filepath.Clean(name), "/") {
		path = filepath.Join(path, part)
		st, err := os.Lstat(path)
		if err != nil {
			return nil, err
		}
		if regular := path == filepath.Clean(name); regular != st.Mode().IsRegular() || !regular && !st.IsDir() {
			return nil, fmt.Errorf("%s is no file of a home", path)
		}
	}
	values := url.Values{"mode": {"rw"}, "_pragma": {
		"busy_timeout(1000)", "trusted_schema(0)", "cell_size_check(1)", "foreign_keys(1)", fmt.Sprintf("hard_heap_limit(%d)", maxMemory/4),
	}}
	if readOnly {
		values.Set("mode", "ro")
		values.Add("_pragma", "query_only(1)")
	}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: name}).EscapedPath(), RawQuery: values.Encode()}).String())
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return db, err
}

// query calls scan for each row of a query.
func query(ctx context.Context, db *sql.DB, scan func(*sql.Rows) error, text string, args ...any) error {
	found, err := db.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer found.Close()
	for found.Next() {
		if err := scan(found); err != nil {
			return err
		}
	}
	return found.Err()
}

// value returns an id and JSON, nil for what is none.
func value(found *sql.Rows, left *budget) (id string, data []byte, err error) {
	if err := found.Scan(&id, &data); err != nil {
		return "", nil, err
	}
	if !json.Valid(data) {
		return id, nil, nil
	}
	return id, data, left.take(len(data))
}

// Package cookiefile reads the cookies of a browser of Chromium's family from its
// database, while the browser runs.
package cookiefile

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/deploy/program/cookieform"
	"github.com/fairlead/fairlead/protocol/seal"

	_ "modernc.org/sqlite" // the driver
)

// maxValue bounds an encrypted value, in bytes: Chromium's own are 4,096 and a little
// more.
const maxValue = 64 << 10

// ErrSchema says that a file isn't one whose form is known.
var ErrSchema = errors.New("not a form of cookie file that is known")

// Options say how to read.
type Options struct {
	Path     string // of the file Cookies
	Scratch  string // a folder of ours, where the copy is for a moment
	Platform Platform
	Keyring  Keyring
	Policy   Policy
	Now      time.Time
}

// A Policy says of which hosts cookies are read. Others aren't decrypted.
type Policy interface{ Passes(hostKey string) bool }

// A Set is what a file has.
type Set struct {
	Cookies []seal.Cookie
	Schema  int

	// What was left out.
	Dropped     map[string]int // by host_key: they don't pass
	Partitioned int            // an envelope has no place for where they belong
	Expired     int
	Unreadable  map[string]int // why values couldn't be decrypted
}

// Whole reports whether the cookies are all that the person has of the sites that
// pass, so that what isn't among them may go.
func (s Set) Whole() bool { return len(s.Unreadable) == 0 }

// Read returns the cookies of a file. It fails as a whole with ErrSchema, ErrBusy,
// an error of the file system, or SQLite's for a file that is cut off or damaged. A
// value that can't be decrypted is counted, and doesn't keep others back.
func Read(ctx context.Context, o Options) (Set, error) {
	dir, err := os.MkdirTemp(o.Scratch, "cookies-")
	if err != nil {
		return Set{}, err
	}
	defer os.RemoveAll(dir)
	path, err := snapshot(ctx, o.Path, dir)
	if err != nil {
		return Set{}, err
	}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: path, RawQuery: url.Values{"_pragma": {"trusted_schema(0)", "cell_size_check(1)"}}.Encode()}).String())
	if err != nil {
		return Set{}, err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	schema, err := check(ctx, db)
	if err != nil {
		return Set{}, fmt.Errorf("%s: %w", o.Path, err)
	}
	set, err := o.read(ctx, db, schema)
	if err != nil {
		return Set{}, fmt.Errorf("%s: %w", o.Path, err)
	}
	return set, nil
}

// check returns the schema of a database that is sound.
func check(ctx context.Context, db *sql.DB) (schema int, err error) {
	var sound string
	if err := db.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&sound); err != nil {
		return 0, err
	}
	if sound != "ok" {
		return 0, errors.New("the file is damaged")
	}
	if err := db.QueryRowContext(ctx, "SELECT value FROM meta WHERE key = 'version'").Scan(&schema); err != nil {
		return 0, fmt.Errorf("%w: it doesn't say which one it is", ErrSchema)
	}
	if schema < cookieform.Oldest || schema > cookieform.Newest {
		return 0, fmt.Errorf("%w: schema %d, and %d to %d are", ErrSchema, schema, cookieform.Oldest, cookieform.Newest)
	}
	var names []string
	rows, err := db.QueryContext(ctx, "SELECT name FROM pragma_table_info('cookies')")
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return 0, err
		}
		names = append(names, name)
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	for _, name := range columns {
		if !slices.Contains(names, name) {
			return 0, fmt.Errorf("%w: schema %d without the column %s", ErrSchema, schema, name)
		}
	}
	return schema, nil
}

// columns are those that are read, in this order.
var columns = []string{
	"host_key", "name", "value", "encrypted_value", "path", "expires_utc", "is_secure", "is_httponly", "last_access_utc",
	"has_expires", "is_persistent", "priority", "samesite", "source_scheme", "source_port", "top_frame_site_key",
}

// read reads the rows, a later one of the same cookie last.
func (o Options) read(ctx context.Context, db *sql.DB, schema int) (Set, error) {
	set := Set{Schema: schema, Dropped: map[string]int{}, Unreadable: map[string]int{}}
	values := decrypter{platform: o.Platform, keyring: o.Keyring, schema: schema}
	rows, err := db.QueryContext(ctx, "SELECT "+strings.Join(columns, ", ")+" FROM cookies ORDER BY host_key, path, name, creation_utc")
	if err != nil {
		return Set{}, err
	}
	defer rows.Close()
	for rows.Next() {
		var c seal.Cookie
		var sealed sql.RawBytes
		var site string
		if err := rows.Scan(&c.HostKey, &c.Name, &c.Value, &sealed, &c.Path, &c.Expires, &c.Secure, &c.HTTPOnly, &c.LastAccess,
			&c.HasExpires, &c.Persistent, &c.Priority, &c.SameSite, &c.SourceScheme, &c.SourcePort, &site); err != nil {
			return Set{}, errors.New("a row doesn't have the types that it should")
		}
		switch {
		case !o.Policy.Passes(c.HostKey):
			set.Dropped[c.HostKey]++
			continue
		case site != "":
			set.Partitioned++
			continue
		case c.HasExpires != 0 && c.Expires.Time().Before(o.Now):
			set.Expired++
			continue
		case len(sealed) > maxValue:
			set.Unreadable["it is longer than a value can be"]++
			continue
		}
		if len(sealed) > 0 {
			if c.Value, err = values.value(ctx, c.HostKey, sealed); err != nil {
				set.Unreadable[err.Error()]++
				continue
			}
		}
		if !utf8.ValidString(c.HostKey+c.Path) || !utf8.ValidString(c.Name) || !utf8.ValidString(c.Value) {
			set.Unreadable["it isn't UTF-8, which an envelope is"]++
			continue
		}
		set.Cookies = append(set.Cookies, c)
	}
	if len(set.Cookies) > seal.MaxCookies {
		return Set{}, fmt.Errorf("%d cookies, and an envelope takes %d", len(set.Cookies), seal.MaxCookies)
	}
	return set, rows.Err()
}

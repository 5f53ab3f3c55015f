package jarfile

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"syscall"
	"time"

	_ "modernc.org/sqlite" // the driver

	"github.com/fairlead/fairlead/deploy/program/cookieform"
	"github.com/fairlead/fairlead/protocol/seal"
)

const (
	// folder and name are those of Chromium's database in a profile on Linux.
	folder, name = "Default", "Default/Cookies"

	// sourceOther says that neither a server nor a script has set a cookie.
	sourceOther = 3
	// maxLife is how long Chromium keeps a cookie at most.
	maxLife = 400 * 24 * time.Hour

	// headerBytes is as much as is read of a file's header, in which formatAt has the
	// two versions of its format: 1 is a file with a rollback journal.
	headerBytes, formatAt = 20, 18
)

// look fails for what isn't files of a database as Chromium leaves it, and opens none
// that it could wait for. Nothing of its user runs that could change them meanwhile,
// and if it did, the process had the user's rights alone.
func look() error {
	if st, err := os.Lstat(folder); errors.Is(err, fs.ErrNotExist) {
		return NoFile
	} else if err != nil || !st.IsDir() {
		return NotAs
	}
	for _, suffix := range []string{"", "-journal", "-wal"} {
		st, err := os.Lstat(name + suffix)
		switch {
		case errors.Is(err, fs.ErrNotExist) && suffix == "":
			return NoFile
		case errors.Is(err, fs.ErrNotExist):
		case err != nil || !st.Mode().IsRegular() || st.Size() > maxFile || suffix == "-wal":
			return NotAs
		}
	}
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return NotAs
	}
	defer f.Close()
	header := make([]byte, headerBytes)
	if _, err := io.ReadFull(f, header); err != nil || !bytes.HasPrefix(header, []byte("SQLite format 3\x00")) {
		return Damaged
	}
	if header[formatAt] != 1 || header[formatAt+1] != 1 {
		return NotAs
	}
	return nil
}

// open opens the database. It makes none.
func open() (*sql.DB, error) {
	values := url.Values{"mode": {"rw"}, "_txlock": {"immediate"}, "_pragma": {
		"busy_timeout(500)", "trusted_schema(0)", "cell_size_check(1)", fmt.Sprintf("hard_heap_limit(%d)", maxMemory/4),
	}}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Opaque: name, RawQuery: values.Encode()}).String())
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return db, err
}

// check fails for a database that isn't sound or has more than Chromium has made: a
// trigger would do something else with cookies.
func check(ctx context.Context, tx *sql.Tx) error {
	want := cookieform.Objects()
	rows, err := tx.QueryContext(ctx, "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema LIMIT ?", len(want)+1)
	if err != nil {
		return err
	}
	defer rows.Close()
	found := 0
	for ; rows.Next(); found++ {
		var o cookieform.Object
		if rows.Scan(&o.Type, &o.Name, &o.Table, &o.SQL) != nil || !slices.Contains(want, o) {
			return Schema
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if found != len(want) {
		return Schema
	}
	var sound string
	if err := tx.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&sound); err != nil {
		return err
	}
	if sound != "ok" {
		return Damaged
	}
	var version int
	if tx.QueryRowContext(ctx, "SELECT value FROM meta WHERE key = 'version'").Scan(&version) != nil || version != cookieform.Written {
		return Schema
	}
	return nil
}

const (
	// deleteRow spares partitioned cookies, which no laptop sends. It takes all that
	// differ in scheme and port alone.
	deleteRow = "DELETE FROM cookies WHERE host_key = ? AND top_frame_site_key = '' AND name = ? AND path = ?"
	insertRow = `INSERT INTO cookies (creation_utc, host_key, top_frame_site_key, name, value, encrypted_value, path,
		expires_utc, is_secure, is_httponly, last_access_utc, has_expires, is_persistent, priority, samesite, source_scheme, source_port,
		last_update_utc, source_type, has_cross_site_ancestor) VALUES (?, ?, '', ?, '', ?, ?, ?, ?, ?, ?, 1, 1, ?, ?, ?, ?, ?, ?, 1)`
)

// apply takes out the cookies that a change is about, and puts in those that can stand
// there.
func apply(ctx context.Context, tx *sql.Tx, change Change, now time.Time) (written int, err error) {
	remove, err := tx.PrepareContext(ctx, deleteRow)
	if err != nil {
		return 0, err
	}
	defer remove.Close()
	insert, err := tx.PrepareContext(ctx, insertRow)
	if err != nil {
		return 0, err
	}
	defer insert.Close()
	for _, id := range change.Remove {
		if _, err := remove.ExecContext(ctx, id.HostKey, id.Name, id.Path); err != nil {
			return 0, err
		}
	}
	key := cookieform.NewKey(cookieform.KnownPassword, cookieform.LinuxRounds)
	at, latest := seal.ToMicros(now), seal.ToMicros(now.Add(maxLife))
	for i, c := range change.Set {
		if _, err := remove.ExecContext(ctx, c.HostKey, c.Name, c.Path); err != nil {
			return 0, err
		}
		if !fits(c) {
			continue
		}
		value := append([]byte(cookieform.KnownTag), key.Seal(cookieform.Written, c.HostKey, c.Value)...)
		created := int64(at) - int64(len(change.Set)-i) // no two are made at once
		if _, err := insert.ExecContext(ctx, created, c.HostKey, c.Name, value, c.Path, int64(min(c.Expires, latest)), c.Secure, c.HTTPOnly,
			int64(at), c.Priority, c.SameSite, c.SourceScheme, port(c), int64(at), sourceOther); err != nil {
			return 0, err
		}
		written++
	}
	return written, nil
}

// fits reports whether a database can hold a cookie: Chromium deletes those that end
// with its session when it starts.
func fits(c seal.Cookie) bool { return !c.Session() && !shared(c) }

// port returns a port as Chromium has it: 0 is none.
func port(c seal.Cookie) int64 {
	if c.SourcePort <= 0 {
		return -1
	}
	return c.SourcePort
}

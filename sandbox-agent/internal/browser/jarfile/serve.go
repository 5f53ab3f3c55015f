package jarfile

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/fairlead/fairlead/sandbox-agent/internal/process/helper"
)

// Serve does what one request on in asks for, in the profile where the process works,
// and prints the answer. It is for a process that does nothing else, and bounds what
// that may use.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	var q request
	if json.NewDecoder(in).Decode(&q) != nil {
		return errors.New("not a request") // without what was read
	}
	if err := (helper.Limits{Patience: q.Patience, MaxMemory: maxMemory, MaxFile: maxFile}).Set(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, q.Patience) // who asks may be gone
	defer cancel()
	var a answer
	var err error
	if a.Written, err = write(ctx, q.Change); err != nil {
		a = answer{Why: reason(err)}
	}
	return json.NewEncoder(out).Encode(a)
}

// write makes a change in the database of the profile.
func write(ctx context.Context, change Change) (written int, err error) {
	if err := look(); err != nil {
		return 0, err
	}
	db, err := open()
	if err != nil {
		return 0, err
	}
	defer db.Close()
	tx, err := db.BeginTx(ctx, nil) // immediate: nobody else writes from here on
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	if err := check(ctx, tx); err != nil {
		return 0, err
	}
	if written, err = apply(ctx, tx, change, time.Now()); err != nil {
		return 0, err
	}
	return written, tx.Commit()
}

// reason returns what is said of an error: SQLite's own texts may have what a hostile
// database says.
func reason(err error) Reason {
	if r, ok := errors.AsType[Reason](err); ok {
		return r
	}
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		switch e.Code() & 0xff {
		case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
			return Locked
		case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
			return Damaged
		}
	}
	return Failed
}

package db

import (
	"database/sql"
	"errors"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	modernc "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/fairlead/fairlead/protocol"
)

// A dialect is what differs between the databases.
type dialect uint8

const (
	sqlite dialect = iota
	postgres
)

// rebind writes the arguments of a query, each "?", as the dialect has them.
func (d dialect) rebind(query string) string {
	if d == sqlite {
		return query
	}
	var b strings.Builder
	b.Grow(len(query) + 16)
	for n := 1; ; n++ {
		before, after, found := strings.Cut(query, "?")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteByte('$')
		b.WriteString(strconv.Itoa(n))
		query = after
	}
}

// txOptions are those of a write transaction. Of SQLite's there is one at a time.
func (d dialect) txOptions() *sql.TxOptions {
	if d == sqlite {
		return nil
	}
	return &sql.TxOptions{Isolation: sql.LevelReadCommitted}
}

const (
	// turnKey is the advisory lock of whoever runs a transaction alone.
	turnKey = 0x6661_6972_6c65_6164
	// A process that stops in the middle of a transaction loses its turn, and
	// the transaction, after this long.
	turnIdleMs = "10000"
)

// How Postgres calls what a caller caused (SQLSTATE).
const (
	stateForeignKey = "23503"
	stateUnique     = "23505"
	stateEncoding   = "22021" // a character that the database can't hold
)

// explain gives a kind to those failures that a caller caused, and to those that
// last only as long as the database is away.
func explain(err error) error {
	if away(err) {
		return &protocol.Error{Kind: protocol.KindUnavailable, Message: "the database can't be asked now", Err: err}
	}
	kind := protocol.KindInternal
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch e.Code {
		case stateEncoding:
			kind = protocol.KindInvalid
		case stateForeignKey, stateUnique:
			kind = protocol.KindConflict
		}
	}
	if e, ok := errors.AsType[*modernc.Error](err); ok {
		switch e.Code() {
		case sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY:
			kind = protocol.KindConflict
		}
	}
	switch kind {
	case protocol.KindInvalid:
		return &protocol.Error{Kind: kind, Message: "a text holds characters that can't be kept", Err: err}
	case protocol.KindConflict:
		return &protocol.Error{Kind: kind, Message: "this exists already, or what it refers to doesn't", Err: err}
	}
	return err
}

// oneLine puts an error's text on one line: a driver lists every address it
// tried on its own.
func oneLine(err error) error {
	text := err.Error()
	if !strings.ContainsAny(text, "\n\t") {
		return err
	}
	return lineError{strings.Join(strings.Fields(text), " "), err}
}

type lineError struct {
	text string
	err  error
}

func (e lineError) Error() string { return e.text }
func (e lineError) Unwrap() error { return e.err }

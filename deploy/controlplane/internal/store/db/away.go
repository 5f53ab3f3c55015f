package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	modernc "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// The classes of SQLSTATE in which Postgres says that it can't be asked.
var awayStates = []string{
	"08",  // the connection failed
	"53",  // it has no connection, memory or room left
	"57P", // it stops, starts, or has ended the connection
}

// closedPool is how database/sql calls a pool after its Close; it exports no
// error for that.
const closedPool = "sql: database is closed"

// away reports whether err says no more than that the database can't be asked
// now: what was asked isn't at fault, and may succeed later.
func away(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false // whoever asked doesn't wait any more
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return awayState(e.Code)
	}
	if e, ok := errors.AsType[*modernc.Error](err); ok {
		return awaySQLite(e.Code())
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	if _, ok := errors.AsType[net.Error](err); ok { // context.DeadlineExceeded is one
		return true
	}
	for _, lost := range []error{driver.ErrBadConn, sql.ErrConnDone, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed} {
		if errors.Is(err, lost) {
			return true
		}
	}
	return pgconn.SafeToRetry(err) || err.Error() == closedPool
}

func awayState(code string) bool {
	for _, class := range awayStates {
		if strings.HasPrefix(code, class) {
			return true
		}
	}
	return false
}

// awaySQLite takes an extended result code.
func awaySQLite(code int) bool {
	switch code & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN:
		return true
	}
	return false
}

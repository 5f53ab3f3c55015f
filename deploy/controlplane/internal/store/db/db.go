// Package db runs statements and transactions on an SQLite file or on Postgres,
// and brings either to a schema.
//
// Its failures are [protocol.Error]s where a caller can do something about them,
// of KindUnavailable while the database can't be asked.
package db

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// A DB is an open database. It is safe for concurrent use.
type DB struct {
	// Static after construction. Reads have connections of their own, so that
	// they never queue behind writes.
	write *sql.DB
	read  *sql.DB
	sql   dialect
	clock func() time.Time
}

// Close closes the database.
func (db *DB) Close() error { return errors.Join(db.read.Close(), db.write.Close()) }

// Stats returns how the connections for reading, and those for writing, are used.
func (db *DB) Stats() (read, write sql.DBStats) { return db.read.Stats(), db.write.Stats() }

// Now returns the time by the database's clock.
func (db *DB) Now() time.Time { return db.clock() }

// Transact runs f in a write transaction, one at a time over all processes: what
// f reads stays as it is until its writes are there. The transaction is undone
// when f fails. f must use nothing but tx: it may have the only connection.
func (db *DB) Transact(ctx context.Context, f func(tx Runner) error) error {
	return db.Concurrently(ctx, func(tx Runner) error {
		if err := tx.waitForTurn(ctx); err != nil {
			return err
		}
		return f(tx)
	})
}

// Concurrently runs f in a write transaction that others may run beside: what f
// read may have changed when it writes, so uniqueness must be a constraint's.
func (db *DB) Concurrently(ctx context.Context, f func(tx Runner) error) error {
	tx, err := db.write.BeginTx(ctx, db.sql.txOptions())
	if err != nil {
		return explain(err)
	}
	if err := f(Runner{tx, db}); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return explain(tx.Commit())
}

// Exec runs one statement that writes, and returns how many rows it changed.
func (db *DB) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	return Runner{db.write, db}.Exec(ctx, query, args...)
}

// Reads runs statements that read.
func (db *DB) Reads() Runner { return Runner{db.read, db} }

// A querier is a database or a transaction.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// A Runner runs statements, in a transaction or each by itself. They have "?" for each argument and nowhere else.
type Runner struct {
	on querier
	db *DB
}

// Now returns the time by the database's clock.
func (r Runner) Now() time.Time { return r.db.clock() }

// Exec runs a statement that writes, and returns how many rows it changed.
func (r Runner) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	result, err := r.on.ExecContext(ctx, r.db.sql.rebind(query), args...)
	if err != nil {
		return 0, explain(err)
	}
	return result.RowsAffected()
}

// A Row is one answer, scanned once.
type Row struct{ row *sql.Row }

// Row runs a query for one answer.
func (r Runner) Row(ctx context.Context, query string, args ...any) Row {
	return Row{r.on.QueryRowContext(ctx, r.db.sql.rebind(query), args...)}
}

// Scan fails with sql.ErrNoRows when there is no answer.
func (r Row) Scan(dest ...any) error { return explain(r.row.Scan(dest...)) }

// Exists reports whether query has an answer, whose one column is a number.
func (r Runner) Exists(ctx context.Context, query string, args ...any) (bool, error) {
	var one int64
	err := r.Row(ctx, query, args...).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// A Scanner is a row that can be read into variables.
type Scanner interface{ Scan(dest ...any) error }

// Collect returns scan of every row of query.
func Collect[T any](ctx context.Context, r Runner, scan func(Scanner) (T, error), query string, args ...any) (all []T, err error) {
	rows, err := r.on.QueryContext(ctx, r.db.sql.rebind(query), args...)
	if err != nil {
		return nil, explain(err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, explain(rows.Err())
}

// waitForTurn holds a transaction back until no other one that waited for its
// turn runs, in whatever process. SQLite does so with every write transaction.
// In Postgres each statement that follows sees all that was committed before.
func (r Runner) waitForTurn(ctx context.Context) error {
	if r.db.sql == sqlite {
		return nil
	}
	_, err := r.Exec(ctx, `SELECT set_config('idle_in_transaction_session_timeout', ?, true), pg_advisory_xact_lock(?)`,
		turnIdleMs, int64(turnKey))
	return err
}

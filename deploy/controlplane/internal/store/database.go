package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// A database runs statements and transactions. It is safe for concurrent use.
type database struct {
	// Static after construction. Reads have connections of their own, so that
	// they never queue behind writes.
	write *sql.DB
	read  *sql.DB
	sql   dialect
	clock func() time.Time
}

func openDatabase(ctx context.Context, url string) (*database, error) {
	name, open := locate(url)
	db, err := open(ctx)
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", name, oneLine(err))
	}
	db.clock = time.Now
	return db, nil
}

func (db *database) close() error { return errors.Join(db.read.Close(), db.write.Close()) }

// now returns the time by the store's clock.
func (db *database) now() time.Time { return db.clock() }

// transact runs f in a write transaction, one at a time over all processes: what
// f reads stays as it is until its writes are there. The transaction is undone
// when f fails. f must use nothing but tx: it may have the only connection.
func (db *database) transact(ctx context.Context, f func(tx runner) error) error {
	return db.concurrently(ctx, func(tx runner) error {
		if err := db.sql.waitForTurn(ctx, tx); err != nil {
			return err
		}
		return f(tx)
	})
}

// concurrently runs f in a write transaction that others may run beside: what f
// read may have changed when it writes, so uniqueness must be a constraint's.
func (db *database) concurrently(ctx context.Context, f func(tx runner) error) error {
	tx, err := db.write.BeginTx(ctx, db.sql.txOptions())
	if err != nil {
		return explain(err)
	}
	if err := f(runner{tx, db}); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return explain(tx.Commit())
}

// exec runs one statement that writes, and returns how many rows it changed.
func (db *database) exec(ctx context.Context, query string, args ...any) (int64, error) {
	return runner{db.write, db}.exec(ctx, query, args...)
}

// reads runs statements that read.
func (db *database) reads() runner { return runner{db.read, db} }

// A querier is a database or a transaction.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// A runner runs statements, which have "?" for each argument and nowhere else.
type runner struct {
	on querier
	db *database
}

// now returns the time by the store's clock.
func (r runner) now() time.Time { return r.db.clock() }

func (r runner) exec(ctx context.Context, query string, args ...any) (int64, error) {
	result, err := r.on.ExecContext(ctx, r.db.sql.rebind(query), args...)
	if err != nil {
		return 0, explain(err)
	}
	return result.RowsAffected()
}

// A row is one answer, scanned once.
type row struct{ *sql.Row }

func (r runner) row(ctx context.Context, query string, args ...any) row {
	return row{r.on.QueryRowContext(ctx, r.db.sql.rebind(query), args...)}
}

// Scan fails with sql.ErrNoRows when there is no answer.
func (r row) Scan(dest ...any) error { return explain(r.Row.Scan(dest...)) }

// exists reports whether query has an answer, whose one column is a number.
func (r runner) exists(ctx context.Context, query string, args ...any) (bool, error) {
	var one int64
	err := r.row(ctx, query, args...).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// A scanner is a row that can be read into variables.
type scanner interface{ Scan(dest ...any) error }

// collect returns scan of every row of query.
func collect[T any](ctx context.Context, r runner, scan func(scanner) (T, error), query string, args ...any) (all []T, err error) {
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

package dbread

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/fairlead/fairlead/sandbox-agent/internal/history/rows"
)

// opencode is the database of opencode 1.18.
type opencode struct{}

// sessions reads the table session. A session has changed when one of its messages
// has.
func (opencode) sessions(ctx context.Context, db *sql.DB, _ budget) (list []Session, err error) {
	err = query(ctx, db, func(found *sql.Rows) error {
		var s Session
		if err := found.Scan(&s.ID, &s.Parent, &s.Dir, &s.Title, &s.Updated); err != nil {
			return err
		}
		list = append(list, s)
		return nil
	}, `SELECT id, coalesce(parent_id, ''), substr(directory, 1, 4096), substr(title, 1, 500),
		max(time_updated, coalesce((SELECT max(m.time_updated) FROM message m WHERE m.session_id = session.id), 0))
		FROM session ORDER BY time_updated DESC LIMIT ?`, MaxSessions)
	return list, err
}

// messages reads the tables message and part, from the end as far as there is
// room.
func (opencode) messages(ctx context.Context, db *sql.DB, session string, most budget) (list []rows.Stored, err error) {
	left := most
	err = query(ctx, db, func(found *sql.Rows) error {
		id, data, err := value(found, &left)
		if err == nil && data != nil {
			list = append(list, rows.Stored{ID: id, Data: data})
		}
		return err
	}, `SELECT id, data FROM message WHERE session_id = ? AND length(data) <= ? ORDER BY time_created DESC, id DESC`, session, maxValue)
	if errors.Is(err, errFull) {
		left, err = most, nil
	}
	for i := 0; i < len(list) && err == nil; i++ {
		m := &list[i]
		err = query(ctx, db, func(found *sql.Rows) error {
			id, data, err := value(found, &left)
			if err == nil && data != nil {
				m.IDs, m.Parts = append(m.IDs, id), append(m.Parts, data)
			}
			return err
		}, `SELECT id, data FROM part WHERE message_id = ? AND length(data) <= ? ORDER BY id`, m.ID, maxValue)
		if err != nil {
			list = list[:i]
		}
	}
	slices.Reverse(list)
	if errors.Is(err, errFull) {
		err = nil
	}
	return list, err
}

// remove deletes a session with those of its subagents. What else belongs to a
// session refers to it, and goes with it.
func (opencode) remove(ctx context.Context, db *sql.DB, session string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, of := range []string{"part WHERE session_id", "message WHERE session_id", "session WHERE id"} {
		_, err := tx.ExecContext(ctx, `WITH RECURSIVE gone(id) AS (
			SELECT id FROM session WHERE id = ? UNION SELECT session.id FROM session JOIN gone ON session.parent_id = gone.id)
			DELETE FROM `+of+` IN (SELECT id FROM gone)`, session)
		if err != nil {
			return err
		}
	}
	return tx.Commit()
}

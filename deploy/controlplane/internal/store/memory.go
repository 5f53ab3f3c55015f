package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/db"
	"github.com/fairlead/fairlead/protocol"
)

// A TaskStatus says how far a task is.
type TaskStatus string

const (
	TaskPending    TaskStatus = "pending"
	TaskInProgress TaskStatus = "in_progress"
	TaskCompleted  TaskStatus = "completed"
	TaskCancelled  TaskStatus = "cancelled"
)

// TaskStatuses lists every status.
var TaskStatuses = []TaskStatus{TaskPending, TaskInProgress, TaskCompleted, TaskCancelled}

// Known reports whether s is a status.
func (s TaskStatus) Known() bool { return slices.Contains(TaskStatuses, s) }

// A Task is something that agents have to do in a dashboard.
type Task struct {
	ID        string
	Dashboard string
	Title     string // 1 to 256 bytes
	Status    TaskStatus
	Notes     string // at most MaxNotesBytes
	CreatedAt time.Time
	UpdatedAt time.Time
}

// A Memo is what agents remember of a dashboard under a key.
type Memo struct {
	Key       string // 1 to 256 bytes
	Value     string // at most MaxMemoBytes
	UpdatedAt time.Time
}

const (
	MaxNotesBytes = 16 << 10
	MaxTasks      = 1000 // of one dashboard
	MaxMemoBytes  = 64 << 10
	MaxMemos      = 1000 // of one dashboard
)

func (t Task) check() error {
	if t.Title == "" {
		return protocol.Errorf(protocol.KindInvalid, "the task has no title")
	}
	if err := checkText("the title", t.Title); err != nil {
		return err
	}
	if !t.Status.Known() {
		return protocol.Errorf(protocol.KindInvalid, "unknown status: want pending, in_progress, completed or cancelled")
	}
	return checkLongText("the notes", t.Notes, MaxNotesBytes)
}

// checkLongText refuses a text of several lines that can't be kept.
func checkLongText(what, s string, most int) error {
	if len(s) > most {
		return protocol.Errorf(protocol.KindTooLarge, "%s: longer than %d bytes", what, most)
	}
	if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
		return protocol.Errorf(protocol.KindInvalid, "%s: not a text", what)
	}
	return nil
}

const taskColumns = `SELECT id, dashboard_id, title, status, notes, created_at, updated_at FROM tasks`

func scanTask(row db.Scanner) (t Task, err error) {
	var created, updated sql.NullInt64
	err = row.Scan(&t.ID, &t.Dashboard, &t.Title, &t.Status, &t.Notes, &created, &updated)
	t.CreatedAt, t.UpdatedAt = db.TimeOf(created), db.TimeOf(updated)
	return t, err
}

// Tasks lists the tasks of a dashboard in the order in which they were added,
// all or those of one status.
func (s *Contents) Tasks(ctx context.Context, dashboard string, status TaskStatus) ([]Task, error) {
	return db.Collect(ctx, s.db.Reads(), scanTask, taskColumns+`
		WHERE dashboard_id = ? AND (status = ? OR ? = '') ORDER BY position, id LIMIT ?`, dashboard, status, status, MaxTasks)
}

// Task returns one task of a dashboard; KindNotFound if it has none of the id.
func (s *Contents) Task(ctx context.Context, dashboard, id string) (Task, error) {
	t, err := scanTask(s.db.Reads().Row(ctx, taskColumns+` WHERE dashboard_id = ? AND id = ?`, dashboard, id))
	return t, absent(err, "task")
}

// AddTask adds a task, pending unless it says otherwise, and gives it an id.
// KindTooMany says that the dashboard has MaxTasks already.
func (s *Contents) AddTask(ctx context.Context, t Task) (Task, error) {
	t.ID = "tsk_" + strings.ToLower(rand.Text())
	if t.Status == "" {
		t.Status = TaskPending
	}
	if err := t.check(); err != nil {
		return Task{}, err
	}
	t.CreatedAt = s.db.Now().UTC().Truncate(time.Millisecond)
	t.UpdatedAt = t.CreatedAt
	err := s.db.Transact(ctx, func(tx db.Runner) error {
		if _, err := requireDashboard(ctx, tx, t.Dashboard); err != nil {
			return err
		}
		var count, last int64
		if err := tx.Row(ctx, `SELECT count(*), coalesce(max(position), 0) FROM tasks WHERE dashboard_id = ?`, t.Dashboard).
			Scan(&count, &last); err != nil {
			return err
		}
		if count >= MaxTasks {
			return protocol.Errorf(protocol.KindTooMany, "the dashboard has %d tasks already", MaxTasks)
		}
		_, err := tx.Exec(ctx, `
			INSERT INTO tasks (id, dashboard_id, title, status, notes, position, created_at, updated_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
			t.ID, t.Dashboard, t.Title, t.Status, t.Notes, last+1, t.CreatedAt.UnixMilli(), t.UpdatedAt.UnixMilli())
		return err
	})
	if err != nil {
		return Task{}, err
	}
	return t, nil
}

// UpdateTask has change work on a task and keeps its title, status and notes.
// change must not use the store.
func (s *Contents) UpdateTask(ctx context.Context, dashboard, id string, change func(*Task)) (Task, error) {
	var updated Task
	err := s.db.Transact(ctx, func(tx db.Runner) error {
		t, err := scanTask(tx.Row(ctx, taskColumns+` WHERE dashboard_id = ? AND id = ?`, dashboard, id))
		if err != nil {
			return absent(err, "task")
		}
		updated = t
		change(&updated)
		updated.ID, updated.Dashboard, updated.CreatedAt = t.ID, t.Dashboard, t.CreatedAt
		updated.UpdatedAt = s.db.Now().UTC().Truncate(time.Millisecond)
		if err := updated.check(); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE tasks SET title = ?, status = ?, notes = ?, updated_at = ? WHERE id = ?`,
			updated.Title, updated.Status, updated.Notes, updated.UpdatedAt.UnixMilli(), id)
		return err
	})
	if err != nil {
		return Task{}, err
	}
	return updated, nil
}

// RemoveTask removes a task of a dashboard; KindNotFound if it has none of the id.
func (s *Contents) RemoveTask(ctx context.Context, dashboard, id string) error {
	n, err := s.db.Exec(ctx, `DELETE FROM tasks WHERE dashboard_id = ? AND id = ?`, dashboard, id)
	if err == nil && n == 0 {
		err = absent(sql.ErrNoRows, "task")
	}
	return err
}

func scanMemo(row db.Scanner) (m Memo, err error) {
	var updated sql.NullInt64
	err = row.Scan(&m.Key, &m.Value, &updated)
	m.UpdatedAt = db.TimeOf(updated)
	return m, err
}

// Memos lists what is remembered of a dashboard, in order of key.
func (s *Contents) Memos(ctx context.Context, dashboard string) ([]Memo, error) {
	return db.Collect(ctx, s.db.Reads(), scanMemo, `
		SELECT key, value, updated_at FROM memory WHERE dashboard_id = ? ORDER BY key LIMIT ?`, dashboard, MaxMemos)
}

// Memo returns what is remembered under a key; KindNotFound if nothing is.
func (s *Contents) Memo(ctx context.Context, dashboard, key string) (Memo, error) {
	m, err := scanMemo(s.db.Reads().Row(ctx, `
		SELECT key, value, updated_at FROM memory WHERE dashboard_id = ? AND key = ?`, dashboard, key))
	return m, absent(err, "memory")
}

// SetMemo has a value remembered under a key, in place of what was. KindTooMany
// says that the dashboard has MaxMemos already.
func (s *Contents) SetMemo(ctx context.Context, dashboard, key, value string) error {
	if key == "" {
		return protocol.Errorf(protocol.KindInvalid, "the key is empty")
	}
	if err := checkText("the key", key); err != nil {
		return err
	}
	if err := checkLongText("the value", value, MaxMemoBytes); err != nil {
		return err
	}
	return s.db.Transact(ctx, func(tx db.Runner) error {
		if _, err := requireDashboard(ctx, tx, dashboard); err != nil {
			return err
		}
		var others int64
		if err := tx.Row(ctx, `SELECT count(*) FROM memory WHERE dashboard_id = ? AND key <> ?`, dashboard, key).
			Scan(&others); err != nil {
			return err
		}
		if others >= MaxMemos {
			return protocol.Errorf(protocol.KindTooMany, "%d things are remembered already", MaxMemos)
		}
		_, err := tx.Exec(ctx, `
			INSERT INTO memory (dashboard_id, key, value, updated_at) VALUES (?, ?, ?, ?)
			ON CONFLICT (dashboard_id, key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at`,
			dashboard, key, value, s.db.Now().UnixMilli())
		return err
	})
}

// RemoveMemo forgets what was under a key; KindNotFound if nothing was.
func (s *Contents) RemoveMemo(ctx context.Context, dashboard, key string) error {
	n, err := s.db.Exec(ctx, `DELETE FROM memory WHERE dashboard_id = ? AND key = ?`, dashboard, key)
	if err == nil && n == 0 {
		err = absent(sql.ErrNoRows, "memory")
	}
	return err
}

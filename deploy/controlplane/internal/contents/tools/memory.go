package tools

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
)

// taskOut is a task as agents see it.
type taskOut struct {
	ID        string           `json:"id"`
	Title     string           `json:"title"`
	Status    store.TaskStatus `json:"status"`
	Notes     string           `json:"notes,omitempty"`
	CreatedAt time.Time        `json:"created_at"`
	UpdatedAt time.Time        `json:"updated_at"`
}

func newTaskOut(t store.Task) taskOut {
	return taskOut{t.ID, t.Title, t.Status, t.Notes, t.CreatedAt.UTC(), t.UpdatedAt.UTC()}
}

func shownTask(t store.Task, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return newTaskOut(t), nil
}

func listTasks(ctx context.Context, b *board, args *struct {
	Status store.TaskStatus `json:"status,omitempty"`
	After  string           `json:"after,omitempty"`
}) (any, error) {
	if args.Status != "" && !args.Status.Known() {
		return nil, protocol.Errorf(protocol.KindInvalid, "status: want pending, in_progress, completed or cancelled")
	}
	tasks, err := b.contents.Tasks(ctx, b.dashboard, args.Status)
	if err != nil {
		return nil, err
	}
	shown, err := part(tasks, args.After, func(t store.Task) string { return t.ID }, newTaskOut)
	if err != nil {
		return nil, err
	}
	return struct {
		Tasks []taskOut `json:"tasks"`
		Next  string    `json:"next,omitempty"`
	}{shown.list, shown.next}, nil
}

func createTask(ctx context.Context, b *board, args *struct {
	Title  string           `json:"title"`
	Notes  string           `json:"notes,omitempty"`
	Status store.TaskStatus `json:"status,omitempty"`
}) (any, error) {
	return shownTask(b.contents.AddTask(ctx, store.Task{
		Dashboard: b.dashboard, Title: args.Title, Notes: args.Notes, Status: args.Status,
	}))
}

func updateTask(ctx context.Context, b *board, args *struct {
	Task   string            `json:"task_id"`
	Title  *string           `json:"title,omitempty"`
	Notes  *string           `json:"notes,omitempty"`
	Status *store.TaskStatus `json:"status,omitempty"`
}) (any, error) {
	if args.Title == nil && args.Notes == nil && args.Status == nil {
		return nil, protocol.Errorf(protocol.KindInvalid, "nothing is to be changed")
	}
	return shownTask(b.contents.UpdateTask(ctx, b.dashboard, args.Task, func(t *store.Task) {
		if args.Title != nil {
			t.Title = *args.Title
		}
		if args.Notes != nil {
			t.Notes = *args.Notes
		}
		if args.Status != nil {
			t.Status = *args.Status
		}
	}))
}

type taskID struct {
	Task string `json:"task_id"`
}

func getTask(ctx context.Context, b *board, args *taskID) (any, error) {
	return shownTask(b.contents.Task(ctx, b.dashboard, args.Task))
}

func deleteTask(ctx context.Context, b *board, args *taskID) (any, error) {
	return removal{true}, b.contents.RemoveTask(ctx, b.dashboard, args.Task)
}

// memoOut is what is remembered under a key. A list tells no values.
type memoOut struct {
	Key       string    `json:"key"`
	Value     *string   `json:"value,omitempty"`
	Bytes     int       `json:"bytes"`
	UpdatedAt time.Time `json:"updated_at"`
}

type memoKey struct {
	Key string `json:"key"`
}

func getMemo(ctx context.Context, b *board, args *memoKey) (any, error) {
	m, err := b.contents.Memo(ctx, b.dashboard, args.Key)
	if err != nil {
		return nil, err
	}
	return memoOut{m.Key, &m.Value, len(m.Value), m.UpdatedAt.UTC()}, nil
}

func setMemo(ctx context.Context, b *board, args *struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}) (any, error) {
	return struct {
		Key    string `json:"key"`
		Stored bool   `json:"stored"`
	}{args.Key, true}, b.contents.SetMemo(ctx, b.dashboard, args.Key, args.Value)
}

func listMemos(ctx context.Context, b *board, args *struct {
	Prefix string `json:"prefix,omitempty"`
}) (any, error) {
	memos, err := b.contents.Memos(ctx, b.dashboard)
	if err != nil {
		return nil, err
	}
	memos = slices.DeleteFunc(memos, func(m store.Memo) bool { return !strings.HasPrefix(m.Key, args.Prefix) })
	keys := make([]memoOut, len(memos))
	for i, m := range memos {
		keys[i] = memoOut{m.Key, nil, len(m.Value), m.UpdatedAt.UTC()}
	}
	return struct {
		Memory []memoOut `json:"memory"`
	}{keys}, nil
}

func deleteMemo(ctx context.Context, b *board, args *memoKey) (any, error) {
	return removal{true}, b.contents.RemoveMemo(ctx, b.dashboard, args.Key)
}

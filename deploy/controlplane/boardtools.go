package controlplane

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
)

// maxBoardAnswer bounds a list that an action answers with; the rest is to be
// had with "after".
const maxBoardAnswer = 512 << 10

// A board is a dashboard with whoever works on it.
type board struct {
	store     *store.Store
	dashboard string
	by        protocol.UserID // AgentHolder: a program in the sandbox
}

// A boardAction is one that needs no integration.
type boardAction struct {
	writes bool
	run    func(ctx context.Context, b *board, args json.RawMessage) (any, error)
}

// boardReads and boardWrites return an action whose arguments are those of A.
func boardReads[A any](run func(context.Context, *board, *A) (any, error)) boardAction {
	return boardAction{run: func(ctx context.Context, b *board, raw json.RawMessage) (any, error) {
		args := new(A)
		if err := protocol.UnmarshalStrict(raw, args); err != nil {
			return nil, protocol.Errorf(protocol.KindInvalid, "arguments: %s", strings.TrimPrefix(err.Error(), "json: "))
		}
		return run(ctx, b, args)
	}}
}

func boardWrites[A any](run func(context.Context, *board, *A) (any, error)) boardAction {
	a := boardReads(run)
	a.writes = true
	return a
}

// boardActions returns the actions of dashboard, tasks and memory.
func boardActions() map[string]boardAction {
	return map[string]boardAction{
		"dashboard.create_browser":     boardWrites(createBrowser),
		"dashboard.create_todo":        boardWrites(createTodo),
		"dashboard.create_note":        boardWrites(createNote),
		"dashboard.create_terminal":    boardWrites(createTerminal),
		"dashboard.create_integration": boardWrites(createIntegration),
		"dashboard.update_item":        boardWrites(updateBoardItem),
		"dashboard.delete_item":        boardWrites(deleteBoardItem),
		"dashboard.connect_nodes":      boardWrites(connectNodes),
		"dashboard.disconnect_nodes":   boardWrites(disconnectNodes),
		"dashboard.navigate_browser":   boardWrites(navigateBrowser),
		"dashboard.add_todo_item":      boardWrites(addTodoItem),
		"dashboard.toggle_todo_item":   boardWrites(toggleTodoItem),
		"dashboard.list_items":         boardReads(listBoardItems),

		"tasks.list":   boardReads(listTasks),
		"tasks.create": boardWrites(createTask),
		"tasks.update": boardWrites(updateTask),
		"tasks.get":    boardReads(getTask),
		"tasks.delete": boardWrites(deleteTask),

		"memory.get":    boardReads(getMemo),
		"memory.set":    boardWrites(setMemo),
		"memory.list":   boardReads(listMemos),
		"memory.delete": boardWrites(deleteMemo),
	}
}

// executeBoard runs an action of the providers that need no integration:
// dashboard, tasks and memory. Viewers only read.
func (s *Server) executeBoard(ctx context.Context, call boardCall) (json.RawMessage, error) {
	action, ok := boardActions()[call.Action]
	if prefix, _, _ := strings.Cut(call.Action, "."); !ok || prefix != call.Provider {
		return nil, protocol.Errorf(protocol.KindInvalid, "%s has no such action", call.Provider)
	}
	b := &board{s.store, call.Session.Dashboard, protocol.AgentHolder}
	if call.User != "" {
		b.by = call.User
		if action.writes && call.Role != store.RoleOwner && call.Role != store.RoleEditor {
			return nil, protocol.Errorf(protocol.KindForbidden, "viewers may only read")
		}
	}
	result, err := action.run(ctx, b, call.Args)
	if err != nil {
		return nil, err
	}
	return json.Marshal(result)
}

// A cut is part of a list.
type cut[T any] struct {
	list []T
	next string // to be named as "after" for the rest; empty: there is none
}

// part returns what fits an answer of all that comes behind the one of the id
// after, or of all if that is empty.
func part[S, T any](all []S, after string, id func(S) string, out func(S) T) (cut[T], error) {
	if after != "" {
		found := false
		for i, one := range all {
			if found = id(one) == after; found {
				all = all[i+1:]
				break
			}
		}
		if !found {
			return cut[T]{}, protocol.Errorf(protocol.KindNotFound, "after: no such id")
		}
	}
	c := cut[T]{list: []T{}}
	size := 0
	for i, one := range all {
		shown := out(one)
		data, err := json.Marshal(shown)
		if err != nil {
			return c, err
		}
		if size += len(data); size > maxBoardAnswer && i > 0 {
			c.next = id(all[i-1])
			break
		}
		c.list = append(c.list, shown)
	}
	return c, nil
}

// Package tools lets agents work on a dashboard: its items, its tasks and its
// memory. No action needs an account at a provider.
package tools

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/access"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
)

// Providers are the names that the actions begin with.
var Providers = []string{"dashboard", "tasks", "memory"}

// A Call asks for an action.
type Call struct {
	Dashboard string
	User      protocol.UserID // empty: a program in the sandbox
	Role      store.Role      // of User
	Provider  string          // one of Providers
	Action    string          // "tasks.create", …
	Args      json.RawMessage // an object
}

// Run carries out an action on what kept has. Viewers only read.
func Run(ctx context.Context, kept *store.Contents, call Call) (json.RawMessage, error) {
	run, ok := actions()[call.Action]
	if prefix, _, _ := strings.Cut(call.Action, "."); !ok || prefix != call.Provider {
		return nil, protocol.Errorf(protocol.KindInvalid, "%s has no such action", call.Provider)
	}
	b := &board{kept, call.Dashboard, call.User, nil}
	if call.User == "" {
		b.by = protocol.AgentHolder
	} else {
		b.readOnly = access.Edits(call.Role)
	}
	result, err := run(ctx, b, call.Args)
	if err != nil {
		return nil, err
	}
	return json.Marshal(result)
}

// actions returns the actions of dashboard, tasks and memory.
func actions() map[string]action {
	return map[string]action{
		"dashboard.create_browser":     writes(createBrowser),
		"dashboard.create_todo":        writes(createTodo),
		"dashboard.create_note":        writes(createNote),
		"dashboard.create_terminal":    writes(createTerminal),
		"dashboard.create_integration": writes(createIntegration),
		"dashboard.update_item":        writes(updateBoardItem),
		"dashboard.delete_item":        writes(deleteBoardItem),
		"dashboard.connect_nodes":      writes(connectNodes),
		"dashboard.disconnect_nodes":   writes(disconnectNodes),
		"dashboard.navigate_browser":   writes(navigateBrowser),
		"dashboard.add_todo_item":      writes(addTodoItem),
		"dashboard.toggle_todo_item":   writes(toggleTodoItem),
		"dashboard.list_items":         reads(listBoardItems),

		"tasks.list":   reads(listTasks),
		"tasks.create": writes(createTask),
		"tasks.update": writes(updateTask),
		"tasks.get":    reads(getTask),
		"tasks.delete": writes(deleteTask),

		"memory.get":    reads(getMemo),
		"memory.set":    writes(setMemo),
		"memory.list":   reads(listMemos),
		"memory.delete": writes(deleteMemo),
	}
}

package tools

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/contents"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/pgtest"
	"github.com/fairlead/fairlead/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main{M: m}) }

// TestOnPostgres runs the test in which the database has the most to do on the
// other database.
func TestOnPostgres(t *testing.T) {
	t.Run("BoardAtOnce", TestBoardAtOnce)
}

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// A desk is a dashboard of Alice's that programs in its sandbox work on.
type desk struct {
	t        *testing.T
	contents *store.Contents
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	url := filepath.Join(t.TempDir(), "test.db")
	if strings.HasPrefix(t.Name(), "TestOnPostgres/") {
		url = pgtest.New(t)
	}
	st, err := store.Open(t.Context(), url, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	err = st.Load(t.Context(), &store.Seed{
		Users: []store.SeedUser{
			{ID: "usr_alice", Name: "Alice", Token: "token-of-alice-0123456789"},
			{ID: "usr_bob", Name: "Bob", Token: "token-of-bob-0123456789"},
		},
		Dashboards: []store.SeedDashboard{{
			ID: "dash_1", SandboxID: "sb_1", SessionID: "ses_1",
			Members: []store.SeedMember{{UserID: "usr_alice", Role: store.RoleOwner}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &desk{t, st.Contents}
}

// writes reports whether an action is none for viewers.
func (p *desk) writes(action string) bool {
	_, err := p.boardAs("usr_carol", store.RoleViewer, action, "{}")
	return err != nil && protocol.KindOf(err) == protocol.KindForbidden
}

// board has an action of dashboard, tasks or memory carried out as a program in
// the sandbox asks for it.
func (p *desk) board(action, args string) (map[string]any, error) {
	return p.boardAs("", "", action, args)
}

func (p *desk) boardAs(user protocol.UserID, role store.Role, action, args string) (map[string]any, error) {
	p.t.Helper()
	provider, _, _ := strings.Cut(action, ".")
	answer, err := Run(p.t.Context(), p.contents, Call{
		Dashboard: "dash_1", User: user, Role: role, Provider: provider, Action: action, Args: json.RawMessage(args),
	})
	if err != nil {
		return nil, err
	}
	var out map[string]any
	if err := json.Unmarshal(answer, &out); err != nil {
		p.t.Fatalf("%s: %s: %v", action, answer, err)
	}
	return out, nil
}

// boarded is board for what must succeed.
func (p *desk) boarded(action, format string, args ...any) map[string]any {
	p.t.Helper()
	out, err := p.board(action, fmt.Sprintf(format, args...))
	if err != nil {
		p.t.Fatalf("%s %s: %v", action, fmt.Sprintf(format, args...), err)
	}
	return out
}

// unboarded is board for what must fail.
func (p *desk) unboarded(kind protocol.Kind, action, format string, args ...any) {
	p.t.Helper()
	text := fmt.Sprintf(format, args...)
	if len(text) > 100 {
		text = text[:100]
	}
	if out, err := p.board(action, fmt.Sprintf(format, args...)); err == nil || protocol.KindOf(err) != kind {
		p.t.Errorf("%s %s: %v, %v; want kind %v", action, text, out, err, kind)
	}
}

func body(item map[string]any) map[string]any { return item["body"].(map[string]any) }

// TestBoardTools walks through all that agents do on a dashboard.
func TestBoardTools(t *testing.T) {
	p := newDesk(t)
	note := p.boarded("dashboard.create_note", `{"text":"hello","color":"teal","x":1,"y":-2.5}`)
	want := map[string]any{
		"id": note["id"], "kind": "note", "version": 1.0, "updated_by": "agent", "updated_at": "2026-11-20T12:00:00Z",
		"body": map[string]any{"text": "hello", "color": "teal", "x": 1.0, "y": -2.5},
	}
	if !reflect.DeepEqual(note, want) {
		t.Errorf("%v", note)
	}
	page := p.boarded("dashboard.create_browser", `{"url":"https://example.com/a?b#c","title":"Example"}`)
	todo := p.boarded("dashboard.create_todo", `{"title":"t","items":["one","two"],"x":3}`)
	if got := fmt.Sprint(body(todo)); got != "map[items:[map[done:false text:one] map[done:false text:two]] title:t x:3]" {
		t.Error(got)
	}
	terminal := p.boarded("dashboard.create_terminal", `{"name":"tests","command":"make test"}`)
	if said, _ := terminal["note"].(string); !strings.Contains(said, "nothing has been started") || body(terminal)["command"] != "make test" {
		t.Errorf("%v", terminal)
	}
	gmail := p.boarded("dashboard.create_integration", `{"provider":"gmail"}`)
	if said, _ := gmail["note"].(string); !strings.Contains(said, "nothing has been attached") {
		t.Errorf("%v", gmail)
	}

	page = p.boarded("dashboard.navigate_browser", `{"item_id":%q,"url":"http://localhost:3000/"}`, page["id"])
	if got := fmt.Sprint(body(page), page["version"]); got != "map[url:http://localhost:3000/] 2" {
		t.Error(got)
	}
	todo = p.boarded("dashboard.add_todo_item", `{"item_id":%q,"text":"three","done":true}`, todo["id"])
	todo = p.boarded("dashboard.toggle_todo_item", `{"item_id":%q,"text":"one"}`, todo["id"])
	todo = p.boarded("dashboard.toggle_todo_item", `{"item_id":%q,"index":2}`, todo["id"])
	todo = p.boarded("dashboard.toggle_todo_item", `{"item_id":%q,"index":1,"text":"two","done":false}`, todo["id"])
	if got := fmt.Sprint(body(todo)["items"], todo["version"]); got != "[map[done:true text:one] map[done:false text:two] map[done:false text:three]] 5" {
		t.Error(got)
	}
	note = p.boarded("dashboard.update_item", `{"item_id":%q,"changes":{"text":"bye","color":null},"version":1}`, note["id"])
	if got := fmt.Sprint(body(note)); got != "map[text:bye x:1 y:-2.5]" {
		t.Error(got)
	}

	edge := p.boarded("dashboard.connect_nodes", `{"source_id":%q,"target_id":%q,"label":"runs"}`, note["id"], terminal["id"])
	again := p.boarded("dashboard.connect_nodes", `{"source_id":%q,"target_id":%q}`, note["id"], terminal["id"])
	if again["id"] != edge["id"] || body(again)["label"] != "runs" {
		t.Errorf("%v, then %v", edge, again)
	}
	back := p.boarded("dashboard.connect_nodes", `{"source_id":%q,"target_id":%q}`, terminal["id"], note["id"])
	p.boarded("dashboard.disconnect_nodes", `{"source_id":%q,"target_id":%q}`, terminal["id"], note["id"])
	p.unboarded(protocol.KindNotFound, "dashboard.disconnect_nodes", `{"source_id":%q,"target_id":%q}`, terminal["id"], note["id"])
	p.unboarded(protocol.KindNotFound, "dashboard.delete_item", `{"item_id":%q}`, back["id"])

	if got := p.kinds(`{}`); !slices.Equal(got, []string{"note", "browser", "todo", "terminal", "integration", "edge"}) {
		t.Errorf("%q", got)
	}
	if got := p.kinds(`{"kind":"edge"}`); !slices.Equal(got, []string{"edge"}) {
		t.Errorf("%q", got)
	}
	p.boarded("dashboard.delete_item", `{"item_id":%q}`, terminal["id"])
	if got := p.kinds(`{}`); !slices.Equal(got, []string{"note", "browser", "todo", "integration"}) {
		t.Errorf("%q: an edge leads nowhere", got)
	}
}

func (p *desk) kinds(args string) []string {
	p.t.Helper()
	var kinds []string
	for _, item := range p.boarded("dashboard.list_items", "%s", args)["items"].([]any) {
		kinds = append(kinds, item.(map[string]any)["kind"].(string))
	}
	return kinds
}

// TestBoardRefusals: what is wrong is said, and changes nothing.
func TestBoardRefusals(t *testing.T) {
	p := newDesk(t)
	note := p.boarded("dashboard.create_note", `{"text":"n"}`)["id"]
	todo := p.boarded("dashboard.create_todo", `{"title":"t","items":["a","a"]}`)["id"]
	layout, err := p.contents.AddItem(t.Context(), store.Item{Dashboard: "dash_1", Kind: store.ItemLayout, Body: []byte(`{}`), UpdatedBy: "usr_alice"})
	if err != nil {
		t.Fatal(err)
	}
	edge := p.boarded("dashboard.connect_nodes", `{"source_id":%q,"target_id":%q}`, note, todo)["id"]
	long := strings.Repeat("x", contents.MaxNoteBytes+1)
	for _, bad := range []struct {
		action string
		args   []string
	}{
		{"create_browser", []string{`{}`, `{"url":"javascript:alert(1)"}`, `{"url":"file:///etc/passwd"}`, `{"url":"//host/"}`, `{"url":"http://:80/"}`, `{"url":"https://user:pw@host/"}`,
			`{"url":"https://a b/"}`, `{"url":"https://a/\u202e"}`, `{"url":"https://a/` + long + `"}`, `{"url":"https://a","title":"a\nb"}`, `{"url":"https://a","x":1e7}`}},
		{"create_note", []string{`{"text":"` + long + `"}`, `{"text":"a","color":"url(x)"}`, `{"txt":"a"}`, `[]`, `{"text":1}`}},
		{"create_todo", []string{`{"title":"` + long + `"}`, `{"title":"t","items":[1]}`, `{"title":"t","y":-1e7}`}},
		{"create_terminal", []string{`{"name":"a","command":"ls\nrm -rf /"}`, `{"name":"a\u0007"}`, `{"name":"a","command":"echo \u202e"}`, `{"name":"a","command":"` + long + `"}`, `{"name":"a","pty_id":"p"}`}},
		{"create_integration", []string{`{"provider":"yahoo"}`, `{}`}},
		{"update_item", []string{fmt.Sprintf(`{"item_id":%q,"changes":{}}`, note), fmt.Sprintf(`{"item_id":%q,"changes":{"size":3}}`, note),
			fmt.Sprintf(`{"item_id":%q,"changes":{"text":"a"},"version":-1}`, note), fmt.Sprintf(`{"item_id":%q,"changes":{"to":%q}}`, edge, note)}},
		{"connect_nodes", []string{fmt.Sprintf(`{"source_id":%q,"target_id":%q}`, note, note), fmt.Sprintf(`{"source_id":%q,"target_id":%q}`, note, edge),
			fmt.Sprintf(`{"source_id":%q,"target_id":%q}`, layout.ID, note), `{"source_id":"","target_id":"a/b"}`}},
		{"navigate_browser", []string{fmt.Sprintf(`{"item_id":%q,"url":"https://a"}`, note)}},
		{"toggle_todo_item", []string{fmt.Sprintf(`{"item_id":%q}`, todo), fmt.Sprintf(`{"item_id":%q,"text":"a"}`, todo)}},
		{"add_todo_item", []string{fmt.Sprintf(`{"item_id":%q,"text":%q}`, todo, long)}},
		{"list_items", []string{`{"kind":"layout"}`, `{"kind":"picture"}`}},
		{"fly", []string{`{}`}},
	} {
		for _, args := range bad.args {
			p.unboarded(protocol.KindInvalid, "dashboard."+bad.action, "%s", args)
		}
	}
	for _, missing := range [][2]string{
		{"dashboard.update_item", `{"item_id":"itm_x","changes":{"text":"a"}}`}, {"dashboard.delete_item", `{"item_id":"itm_x"}`},
		{"dashboard.connect_nodes", fmt.Sprintf(`{"source_id":"itm_x","target_id":%q}`, note)},
		{"dashboard.toggle_todo_item", fmt.Sprintf(`{"item_id":%q,"index":2}`, todo)}, {"dashboard.list_items", `{"after":"itm_x"}`},
		{"tasks.get", `{"task_id":"tsk_x"}`}, {"tasks.update", `{"task_id":"tsk_x","title":"a"}`}, {"tasks.delete", `{"task_id":"tsk_x"}`},
		{"memory.get", `{"key":"x"}`}, {"memory.delete", `{"key":"x"}`},
	} {
		p.unboarded(protocol.KindNotFound, missing[0], "%s", missing[1])
	}
	p.unboarded(protocol.KindConflict, "dashboard.update_item", `{"item_id":%q,"changes":{"text":"a"},"version":7}`, note)
	p.unboarded(protocol.KindForbidden, "dashboard.update_item", `{"item_id":%q,"changes":{"a":1}}`, layout.ID)
	p.unboarded(protocol.KindForbidden, "dashboard.delete_item", `{"item_id":%q}`, layout.ID)
	p.unboarded(protocol.KindInvalid, "tasks.create", `{"title":""}`)
	p.unboarded(protocol.KindInvalid, "tasks.create", `{"title":"a","status":"soon"}`)
	p.unboarded(protocol.KindInvalid, "tasks.list", `{"status":"soon"}`)
	p.unboarded(protocol.KindInvalid, "memory.set", `{"key":"","value":"a"}`)
	p.unboarded(protocol.KindTooLarge, "memory.set", `{"key":"a","value":%q}`, strings.Repeat("x", store.MaxMemoBytes+1))
	if got := p.kinds(`{}`); !slices.Equal(got, []string{"note", "todo", "edge"}) {
		t.Errorf("%q", got)
	}
}

// TestBoardPeople: what a person does through a relay is theirs, and viewers
// only read.
func TestBoardPeople(t *testing.T) {
	p := newDesk(t)
	item, err := p.boardAs("usr_bob", store.RoleEditor, "dashboard.create_note", `{"text":"n"}`)
	if err != nil || item["updated_by"] != "usr_bob" {
		t.Errorf("%v, %v", item, err)
	}
	for action := range actions() {
		_, err := p.boardAs("usr_carol", store.RoleViewer, action, `{"unknown":1}`)
		want := protocol.KindForbidden
		if slices.Contains([]string{"dashboard.list_items", "tasks.list", "tasks.get", "memory.get", "memory.list"}, action) {
			want = protocol.KindInvalid
		}
		if protocol.KindOf(err) != want {
			t.Errorf("%s: %v", action, err)
		}
	}
}

// TestBoardAtOnce: of many who change the same list, each is heard.
func TestBoardAtOnce(t *testing.T) {
	p := newDesk(t)
	todo := p.boarded("dashboard.create_todo", `{"title":"t"}`)["id"]
	var all sync.WaitGroup
	for i := range boardTries {
		all.Go(func() {
			if _, err := p.board("dashboard.add_todo_item", fmt.Sprintf(`{"item_id":%q,"text":"%d"}`, todo, i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	items := p.boarded("dashboard.list_items", `{"kind":"todo"}`)["items"].([]any)
	if entries := body(items[0].(map[string]any))["items"].([]any); len(entries) != boardTries {
		t.Errorf("%v", entries)
	}
}

// TestBoardParts: a list that is too long for an answer comes in parts, and all
// of it comes.
func TestBoardParts(t *testing.T) {
	p := newDesk(t)
	text := strings.Repeat("x", contents.MaxNoteBytes)
	n := 2*maxBoardAnswer/contents.MaxNoteBytes + 3
	for i := range n {
		p.boarded("dashboard.create_note", `{"text":%q,"x":%d}`, text, i)
	}
	var seen []float64
	after, answers := "", 0
	for {
		out := p.boarded("dashboard.list_items", `{"after":%q}`, after)
		answers++
		for _, item := range out["items"].([]any) {
			seen = append(seen, body(item.(map[string]any))["x"].(float64))
		}
		next, more := out["next"].(string)
		if !more {
			break
		}
		after = next
	}
	if len(seen) != n || !slices.IsSorted(seen) || answers < 3 {
		t.Errorf("%v of %d in %d answers", seen, n, answers)
	}
}

func TestBoardTasks(t *testing.T) {
	p := newDesk(t)
	made := p.boarded("tasks.create", `{"title":"build","notes":"a\nb"}`)
	want := map[string]any{
		"id": made["id"], "title": "build", "status": "pending", "notes": "a\nb",
		"created_at": "2026-11-20T12:00:00Z", "updated_at": "2026-11-20T12:00:00Z",
	}
	if !reflect.DeepEqual(made, want) {
		t.Errorf("%v", made)
	}
	p.boarded("tasks.create", `{"title":"test","status":"in_progress"}`)
	changed := p.boarded("tasks.update", `{"task_id":%q,"status":"completed","notes":""}`, made["id"])
	if got := p.boarded("tasks.get", `{"task_id":%q}`, made["id"]); !reflect.DeepEqual(got, changed) || got["status"] != "completed" || got["notes"] != nil {
		t.Errorf("%v, %v", got, changed)
	}
	titles := func(args string) (list []string) {
		for _, task := range p.boarded("tasks.list", "%s", args)["tasks"].([]any) {
			list = append(list, task.(map[string]any)["title"].(string))
		}
		return list
	}
	if got := fmt.Sprint(titles(`{}`), titles(`{"status":"completed"}`), titles(`{"status":"pending"}`)); got != "[build test] [build] []" {
		t.Error(got)
	}
	p.boarded("tasks.delete", `{"task_id":%q}`, made["id"])
	if got := titles(`{}`); len(got) != 1 {
		t.Errorf("%q", got)
	}
}

func TestBoardMemory(t *testing.T) {
	p := newDesk(t)
	p.boarded("memory.set", `{"key":"build/command","value":"make"}`)
	p.boarded("memory.set", `{"key":"build/command","value":"make all"}`)
	p.boarded("memory.set", `{"key":"owner","value":"ä"}`)
	if m := p.boarded("memory.get", `{"key":"build/command"}`); m["value"] != "make all" {
		t.Errorf("%v", m)
	}
	if list := p.boarded("memory.list", `{}`)["memory"].([]any); len(list) != 2 || strings.Contains(fmt.Sprint(list), "make") {
		t.Errorf("%v", list)
	}
	if list := p.boarded("memory.list", `{"prefix":"own"}`)["memory"].([]any); len(list) != 1 || list[0].(map[string]any)["bytes"] != 2.0 {
		t.Errorf("%v", list)
	}
	p.boarded("memory.delete", `{"key":"owner"}`)
	p.unboarded(protocol.KindNotFound, "memory.get", `{"key":"owner"}`)
}

// TestBoardDescribed: the agent describes each action there is, and as it is.
func TestBoardDescribed(t *testing.T) {
	p := newDesk(t)
	described := make(map[string]bool)
	for _, provider := range Providers {
		data, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "..", "sandbox-agent", "internal", "integration", "tools", provider+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var tools []struct {
			Action   string `json:"action"`
			ReadOnly bool   `json:"readOnly"`
			Schema   struct {
				Properties map[string]struct {
					Type string `json:"type"`
				} `json:"properties"`
			} `json:"inputSchema"`
		}
		if err := json.Unmarshal(data, &tools); err != nil {
			t.Fatal(err)
		}
		for _, tool := range tools {
			described[tool.Action] = true
			if _, ok := actions()[tool.Action]; !ok || p.writes(tool.Action) == tool.ReadOnly {
				t.Errorf("%s: there %t, writes %t", tool.Action, ok, !tool.ReadOnly)
			}
			args := make(map[string]any)
			for name, property := range tool.Schema.Properties {
				args[name] = map[string]any{"string": "", "integer": 0, "number": 0, "boolean": false, "array": []string{}, "object": map[string]any{}}[property.Type]
			}
			all, err := json.Marshal(args)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.board(tool.Action, string(all)); err != nil && strings.HasPrefix(err.Error(), "arguments:") {
				t.Errorf("%s %s: %v", tool.Action, all, err)
			}
		}
	}
	for action := range actions() {
		if !described[action] {
			t.Errorf("%s is not described", action)
		}
	}
}

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A gateway stands for the control plane.
type gateway struct {
	mu       sync.Mutex
	attached map[string][]string // providers by terminal
	lists    map[string]int      // how often each was asked for
	err      error               // in place of lists
	status   int                 // in place of 200
	requests []protocol.GatewayRequest
	targets  []string
	execute  func(ctx context.Context) ([]byte, int, error)
	before   func() // runs before a list is answered, after it was read
}

func (g *gateway) Do(ctx context.Context, method, target string, body []byte) ([]byte, int, error) {
	if method == http.MethodPost {
		var req protocol.GatewayRequest
		if err := json.Unmarshal(body, &req); err != nil {
			return nil, 0, err
		}
		g.mu.Lock()
		g.requests, g.targets = append(g.requests, req), append(g.targets, target)
		g.mu.Unlock()
		return g.execute(ctx)
	}
	pty, _, _ := strings.Cut(strings.TrimPrefix(target, "/internal/terminals/"), "/")
	g.mu.Lock()
	g.lists[pty]++
	list := protocol.IntegrationList{}
	for _, p := range g.attached[pty] {
		list.Integrations = append(list.Integrations, protocol.Integration{Provider: p})
	}
	err, status, before := g.err, g.status, g.before
	g.mu.Unlock()
	if before != nil {
		before()
	}
	data, _ := json.Marshal(list)
	return data, statusOr(status), err
}

func (g *gateway) set(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
}

func (g *gateway) asked(pty string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lists[pty]
}

type changes struct {
	mu   sync.Mutex
	list []protocol.PTYID
}

// Changed implements [Listener].
func (c *changes) Changed(_ protocol.SessionID, pty protocol.PTYID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, pty)
}

func (c *changes) take() []protocol.PTYID {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.list
	c.list = nil
	return list
}

func newSet(t *testing.T) (*Set, *gateway, *changes) {
	t.Helper()
	g := &gateway{attached: make(map[string][]string), lists: make(map[string]int)}
	c := &changes{}
	s, err := New(Options{Client: Client{g}, Listener: c, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s, g, c
}

func names(tools []toolbox.Tool) []string {
	var list []string
	for _, t := range tools {
		list = append(list, t.Name)
	}
	return list
}

var program = toolbox.Caller{Session: "ses_1", PTY: "pty_1"}

func person(caps ...protocol.Capability) toolbox.Caller {
	return toolbox.Caller{Session: "ses_1", PTY: "pty_1", Grant: &jws.Grant{Subject: "usr_alice", PTYs: []string{jws.AllPTYs}, Caps: caps}}
}

// TestTools: the tools of seed 001 and the reference, as many as they name.
func TestTools(t *testing.T) {
	s, g, _ := newSet(t)
	base := names(s.Tools(toolbox.Caller{Session: "ses_1"}))
	want := strings.Fields(`create_browser create_todo create_note create_terminal create_integration update_item delete_item
		connect_nodes disconnect_nodes navigate_browser add_todo_item toggle_todo_item list_items
		task_list task_create task_update task_get task_delete memory_get memory_set memory_list memory_delete`)
	if !slices.Equal(base, want) {
		t.Errorf("%q", base)
	}
	s.Track("ses_1", "pty_1")
	g.attached["pty_1"] = []string{"google_calendar", "unknown", "gmail", "github", "google_drive"}
	if err := s.Refresh(t.Context(), "ses_1", "pty_1"); err != nil {
		t.Fatal(err)
	}
	all := names(s.Tools(program))
	want = append(want, strings.Fields(`gmail_search gmail_get gmail_send gmail_archive gmail_trash gmail_mark_read
		github_list_repos github_get_repo github_list_issues github_create_issue github_list_prs github_create_pr github_get_file github_search_code
		drive_list drive_get drive_download drive_create drive_update drive_delete
		calendar_list_events calendar_get_event calendar_create_event calendar_update_event calendar_delete_event calendar_search_events`)...)
	if !slices.Equal(all, want) {
		t.Errorf("%q", all)
	}
	if got := names(s.Tools(toolbox.Caller{Session: "ses_1", PTY: "pty_2"})); len(got) != 22 {
		t.Errorf("another terminal has %d tools", len(got))
	}
}

// TestDefinitions: what MCP clients get can be read by them.
func TestDefinitions(t *testing.T) {
	all, err := catalogue()
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for provider, list := range all {
		for _, d := range list {
			var schema struct {
				Type       string                     `json:"type"`
				Properties map[string]json.RawMessage `json:"properties"`
				Required   []string                   `json:"required"`
				More       *bool                      `json:"additionalProperties"`
			}
			if err := protocol.UnmarshalStrict(d.InputSchema, &schema); err != nil || schema.Type != "object" || schema.More == nil || *schema.More {
				t.Errorf("%s: %+v, %v", d.Name, schema, err)
			}
			for _, name := range schema.Required {
				if schema.Properties[name] == nil {
					t.Errorf("%s: %s is required and not described", d.Name, name)
				}
			}
			for _, id := range []string{d.Name, d.Action} {
				if id == "" || seen[id] {
					t.Errorf("%q is there twice", id)
				}
				seen[id] = true
			}
			if !strings.HasPrefix(d.Action, provider+".") || len(d.Description) < 20 || !strings.HasSuffix(d.Description, ".") {
				t.Errorf("%s: %s, %q", d.Name, d.Action, d.Description)
			}
		}
	}
}

// TestNobodyStarts: who places a terminal or an integration reads that this
// starts and attaches nothing.
func TestNobodyStarts(t *testing.T) {
	s, _, _ := newSet(t)
	for _, tool := range s.Tools(program) {
		said := map[string]string{"create_terminal": "Nothing is started", "create_integration": "Nothing is attached"}[tool.Name]
		if !strings.Contains(tool.Description, said) {
			t.Errorf("%s: %q", tool.Name, tool.Description)
		}
	}
}

func TestNeeds(t *testing.T) {
	s, g, _ := newSet(t)
	s.Track("ses_1", "pty_1")
	g.attached["pty_1"] = []string{"gmail"}
	if err := s.Refresh(t.Context(), "ses_1", "pty_1"); err != nil {
		t.Fatal(err)
	}
	needs := make(map[string]protocol.Capability)
	for _, tool := range s.Tools(person()) {
		needs[tool.Name] = tool.Needs
	}
	for name, want := range map[string]protocol.Capability{
		"list_items": protocol.CapView, "task_get": protocol.CapView, "memory_list": protocol.CapView,
		"create_note": protocol.CapControl, "memory_set": protocol.CapControl,
		"gmail_search": protocol.CapControl, "gmail_send": protocol.CapControl, // somebody's mail, not the dashboard's
	} {
		if needs[name] != want {
			t.Errorf("%s needs %q, want %q", name, needs[name], want)
		}
	}
}

// TestRefresh: a change is told once, and an answer that is late doesn't undo a
// later one.
func TestRefresh(t *testing.T) {
	s, g, c := newSet(t)
	refresh := func() {
		t.Helper()
		if err := s.Refresh(t.Context(), "ses_1", "pty_1"); err != nil {
			t.Error(err)
		}
	}
	refresh()
	if g.asked("pty_1") != 0 {
		t.Error("asked about a terminal that isn't known")
	}
	s.Track("ses_1", "pty_1")
	refresh()
	if list := c.take(); list != nil {
		t.Errorf("nothing was attached, and %q changed", list)
	}
	g.attached["pty_1"] = []string{"gmail", "github"}
	refresh()
	refresh()
	if list := c.take(); !slices.Equal(list, []protocol.PTYID{"pty_1"}) || len(s.Tools(program)) != 36 {
		t.Errorf("%q changed, %d tools", list, len(s.Tools(program)))
	}

	late, asked := make(chan struct{}), make(chan struct{})
	g.before = sync.OnceFunc(func() { close(asked); <-late })
	done := make(chan error)
	go func() { done <- s.Refresh(t.Context(), "ses_1", "pty_1") }()
	<-asked
	g.set(func() { g.attached["pty_1"], g.before = nil, nil })
	refresh()
	close(late)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if list := c.take(); !slices.Equal(list, []protocol.PTYID{"pty_1"}) || len(s.Tools(program)) != 22 {
		t.Errorf("%q changed, %d tools", list, len(s.Tools(program)))
	}
}

// TestRefreshFails: what was known stays known, but for a terminal that the
// control plane says is none.
func TestRefreshFails(t *testing.T) {
	s, g, c := newSet(t)
	s.Track("ses_1", "pty_1")
	g.attached["pty_1"] = []string{"gmail"}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.Refresh(t.Context(), "ses_1", "pty_1"))
	c.take()
	g.err = errors.New("unreachable")
	if s.Refresh(t.Context(), "ses_1", "pty_1") == nil || len(s.Tools(program)) != 28 {
		t.Errorf("%d tools", len(s.Tools(program)))
	}
	g.err, g.status = nil, http.StatusInternalServerError
	if s.Refresh(t.Context(), "ses_1", "pty_1") == nil || len(s.Tools(program)) != 28 || c.take() != nil {
		t.Errorf("%d tools", len(s.Tools(program)))
	}
	g.status = http.StatusNotFound
	must(s.Refresh(t.Context(), "ses_1", "pty_1"))
	if len(s.Tools(program)) != 22 || len(c.take()) != 1 {
		t.Errorf("%d tools", len(s.Tools(program)))
	}
}

// TestRun: a terminal's integrations are asked for when it is first seen, every
// minute, sooner after a failure, at once after a reconnect, and not any more
// once it is forgotten.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g, c := newSet(t)
		g.attached["pty_1"] = []string{"gmail"}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); s.Run(ctx) }()
		synctest.Wait()

		check := func(what string, asked, tools int) {
			t.Helper()
			synctest.Wait()
			if n, k := g.asked("pty_1"), len(s.Tools(program)); n != asked || k != tools {
				t.Errorf("%s: asked %d times, %d tools; want %d, %d", what, n, k, asked, tools)
			}
		}
		check("first sight", 0, 22)
		check("then", 1, 28)
		if list := c.take(); len(list) != 1 {
			t.Errorf("%q", list)
		}
		time.Sleep(RefreshEvery - time.Second)
		check("within the minute", 1, 28)
		g.set(func() { g.attached["pty_1"] = nil })
		time.Sleep(time.Second)
		check("after a minute", 2, 22)
		g.set(func() { g.err = errors.New("away") })
		s.RefreshAll()
		check("reconnect", 3, 22)
		g.set(func() { g.err, g.attached["pty_1"] = nil, []string{"github"} })
		time.Sleep(RetryEvery)
		check("after a failure", 4, 30)
		s.Forget("ses_1", "pty_1")
		time.Sleep(10 * RefreshEvery)
		if n := g.asked("pty_1"); n != 4 {
			t.Errorf("asked %d times about a terminal that was forgotten", n)
		}
		if len(s.Tools(person())) != 22 {
			t.Error("tools of a terminal that was forgotten")
		}
		time.Sleep(RefreshEvery)
		if n := g.asked("pty_1"); n != 4 {
			t.Error("a person's word made a terminal known")
		}
		cancel()
		<-done
	})
}

func TestForgetSession(t *testing.T) {
	s, _, _ := newSet(t)
	for _, pty := range []protocol.PTYID{"a", "b"} {
		s.Track("ses_1", pty)
		s.Track("ses_2", pty)
	}
	s.Forget("ses_1", "")
	if len(s.terminals) != 2 {
		t.Errorf("%d terminals", len(s.terminals))
	}
}

func TestTooManyTerminals(t *testing.T) {
	s, _, _ := newSet(t)
	for i := range MaxTerminals + 10 {
		s.Track("ses_1", protocol.PTYID("pty_"+strings.Repeat("x", i)))
	}
	if len(s.terminals) != MaxTerminals {
		t.Errorf("%d terminals", len(s.terminals))
	}
}

func statusOr(status int) int {
	if status == 0 {
		return http.StatusOK
	}
	return status
}

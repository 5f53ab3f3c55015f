package history

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chat"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chatlog"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/history/rows"
	"github.com/fairlead/fairlead/sandbox-agent/internal/provider"
	"github.com/fairlead/fairlead/sandbox-agent/internal/route"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	// patience is what only a hang reaches.
	patience = time.Minute

	session1 = protocol.SessionID("ses_1")
	session2 = protocol.SessionID("ses_2")
	native1  = "11111111-1111-4111-8111-111111111111"
	native2  = "22222222-2222-4222-8222-222222222222"
)

// A rig is a History with a workspace, a home of conversations for each session,
// and the real list of conversations.
type rig struct {
	*History
	t             *testing.T
	dir           string
	workspace     string
	conversations *chat.Conversations
	runs          *fakeRuns
	mux           *http.ServeMux
	terminals     []*os.Root
}

// fakeRuns says that some conversations run.
type fakeRuns struct {
	mu      sync.Mutex
	running []protocol.ConversationID
	deleted []protocol.ConversationID
	outside []string
	said    chatlog.Said
	refuses error // of Delete
}

func (f *fakeRuns) Running(protocol.SessionID) []protocol.ConversationID {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.running
}

func (f *fakeRuns) Delete(_ protocol.SessionID, id protocol.ConversationID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuses != nil {
		return f.refuses
	}
	f.deleted = append(f.deleted, id)
	return nil
}

func (f *fakeRuns) Said(protocol.SessionID, protocol.ConversationID) (chatlog.Said, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return chatlog.Said{Sayings: slices.Clone(f.said.Sayings), Window: f.said.Window}, nil
}

func (f *fakeRuns) Outside(_ protocol.SessionID, _, native string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.outside = append(f.outside, native)
}

func newRig(t *testing.T, change ...func(*Options)) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), runs: &fakeRuns{}, mux: http.NewServeMux()}
	r.workspace = filepath.Join(r.dir, "workspace")
	r.mkdir(r.workspace + "/project")
	for _, session := range []protocol.SessionID{session1, session2} {
		r.mkdir(r.ChatHome(session))
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	var err error
	if r.conversations, err = chat.OpenConversations(filepath.Join(r.dir, "chats"), log); err != nil {
		t.Fatal(err)
	}
	assets, err := OpenAssets(filepath.Join(r.dir, "assets"))
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		Workspace: r.workspace, Conversations: r.conversations, Runs: r.runs, Providers: provider.All(provider.Options{}),
		ChatHomes: r, Assets: assets, Log: log,
	}
	for _, c := range change {
		c(&o)
	}
	if r.History, err = New(o); err != nil {
		t.Fatal(err)
	}
	r.Routes(r.mux)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		r.Close()
		for _, root := range r.terminals {
			root.Close()
		}
	})
	return r
}

func (r *rig) ChatHome(session protocol.SessionID) string {
	return filepath.Join(r.dir, "homes", string(session))
}

func (r *rig) Hold(protocol.SessionID) error { return nil }

func (r *rig) mkdir(dir string) {
	r.t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) write(name, content string) {
	r.t.Helper()
	r.mkdir(filepath.Dir(name))
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// terminal starts a terminal and returns its home.
func (r *rig) terminal(session protocol.SessionID, id protocol.PTYID) string {
	r.t.Helper()
	home := filepath.Join(r.dir, "homes", string(id))
	r.mkdir(home)
	root, err := os.OpenRoot(home)
	if err != nil {
		r.t.Fatal(err)
	}
	r.terminals = append(r.terminals, root)
	if err := r.FurnishHome(feature.Home{Terminal: feature.Terminal{Session: session, PTY: id, UID: -1}, Root: root}); err != nil {
		r.t.Fatal(err)
	}
	return home
}

// transcript returns the path of a transcript of claude in a home.
func (r *rig) transcript(home, dir, native string) string {
	return filepath.Join(home, ".claude/projects", dashed(dir), native+".jsonl")
}

// row is a line of such a transcript.
func row(n int, dir, native, role, text string) string {
	content, _ := json.Marshal(text)
	return fmt.Sprintf(`{"type":%q,"uuid":"u%d","sessionId":%q,"cwd":%q,"timestamp":"2026-06-11T10:00:%02d.000Z","message":{"role":%q,"content":%s}}`+"\n",
		role, n, native, dir, n%60, role, content)
}

// conversation makes a conversation that is mapped to native.
func (r *rig) conversation(session protocol.SessionID, native string) chat.ConversationInfo {
	r.t.Helper()
	info, err := r.conversations.Create(chat.ConversationInfo{
		Session: session, Provider: "claude", ProjectPath: r.workspace + "/project", Native: native,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return info
}

// found returns the conversation of what a provider knows as native, which isn't
// its id.
func (r *rig) found(provider, native string) protocol.ConversationID {
	r.t.Helper()
	info, known := r.conversations.ByNative(session1, provider, native)
	if !known || string(info.ID) == native {
		r.t.Fatalf("%s: %+v", native, info)
	}
	return info.ID
}

// do sends a request under a grant with all capabilities but those in without.
func (r *rig) do(method, path string, body io.Reader, header http.Header, caps ...protocol.Capability) *httptest.ResponseRecorder {
	r.t.Helper()
	if caps == nil {
		caps = []protocol.Capability{protocol.CapView, protocol.CapChat}
	}
	request := httptest.NewRequest(method, "/sessions/"+string(session1)+"/api/"+path, body)
	for name, values := range header {
		request.Header[name] = values
	}
	w := httptest.NewRecorder()
	grant := &jws.Grant{Session: session1, Caps: caps}
	r.mux.ServeHTTP(w, request.WithContext(route.WithGrant(request.Context(), grant)))
	return w
}

// get decodes the answer of a GET into v, and expects a status.
func (r *rig) get(path string, status int, v any) string {
	r.t.Helper()
	w := r.do(http.MethodGet, path, nil, nil)
	if w.Code != status {
		r.t.Errorf("%s: %d instead of %d: %s", path, w.Code, status, w.Body)
	}
	if v != nil {
		if err := json.Unmarshal(w.Body.Bytes(), v); err != nil {
			r.t.Fatalf("%s: %v: %s", path, err, w.Body)
		}
	}
	return w.Body.String()
}

// A messages is an answer with messages.
type messages struct {
	Success bool `json:"success"`
	Data    struct {
		Messages   []rows.Row            `json:"messages"`
		Total      int                   `json:"total"`
		HasMore    bool                  `json:"hasMore"`
		Offset     int                   `json:"offset"`
		Limit      *int                  `json:"limit"`
		TokenUsage *protocol.TokenBudget `json:"tokenUsage"`
	} `json:"data"`
}

// texts returns what the messages say, and checks what each has.
func (m *messages) texts(t *testing.T, id protocol.ConversationID) string {
	t.Helper()
	var all []string
	for _, row := range m.Data.Messages {
		if row.SessionID != id || row.Provider != "claude" || row.Seq != 0 {
			t.Errorf("%+v", row)
		}
		all = append(all, *row.Content)
	}
	return strings.Join(all, ",")
}

// follow follows the news of a session until the test ends.
func (r *rig) follow(session protocol.SessionID) feature.Events {
	r.t.Helper()
	grant := &jws.Grant{Session: session, Caps: []protocol.Capability{protocol.CapView}}
	events, _, err := r.Follow(grant, json.RawMessage(`{"session_id":"`+string(session)+`"}`))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(events.Close)
	return events
}

// next returns the next news of a kind.
func next(t *testing.T, events feature.Events, kind protocol.ChatKind) (upserted, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		m, err := events.Next(ctx)
		if err != nil {
			t.Fatalf("no %s: %v", kind, err)
		}
		var u upserted
		text := m.(protocol.ChatNews).Message
		if err := json.Unmarshal(text, &u); err != nil {
			t.Fatal(err)
		}
		if u.Kind == kind {
			return u, string(text)
		}
	}
}

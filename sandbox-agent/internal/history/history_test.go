package history

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/history/rows"
)

// TestMessages: pages come from the newest end, with the ids and bounds of seed
// 002.
func TestMessages(t *testing.T) {
	r := newRig(t)
	info := r.conversation(session1, native1)
	project := r.workspace + "/project"
	name := r.transcript(r.ChatHome(session1), project, native1)
	content := ""
	for i := 1; i <= 5; i++ {
		content += row(i, project, native1, "user", fmt.Sprint("m", i))
	}
	r.write(name, content)
	path := "providers/sessions/" + string(info.ID) + "/messages"
	for _, c := range []struct {
		query, want string
		more        bool
	}{
		{"", "m1,m2,m3,m4,m5", false}, {"?limit=2", "m4,m5", true}, {"?limit=2&offset=2", "m2,m3", true},
		{"?limit=2&offset=4", "m1", false}, {"?limit=0", "", true}, {"?limit=9&offset=9", "", false}, {"?offset=1", "m1,m2,m3,m4", false},
	} {
		var m messages
		r.get(path+c.query, 200, &m)
		if got := m.texts(t, info.ID); got != c.want || m.Data.HasMore != c.more || m.Data.Total != 5 || !m.Success {
			t.Errorf("%q: %s, %+v", c.query, got, m.Data)
		}
	}
	r.write(name, content+row(6, project, native1, "assistant", "m6"))
	var m messages
	if text := r.get(path+"?limit=1", 200, &m); m.texts(t, info.ID) != "m6" || strings.Contains(text, native1) || strings.Contains(text, `"seq"`) {
		t.Errorf("what has come since: %s", text)
	}
	r.write(name, row(9, project, native1, "user", "m9"))
	var shrunk messages
	if r.get(path, 200, &shrunk); shrunk.texts(t, info.ID) != "m9" || shrunk.Data.Total != 1 {
		t.Errorf("a transcript that has shrunk: %+v", shrunk)
	}
	for query, code := range map[string]string{"?limit=-1": "INVALID_QUERY_PARAMETER", "?limit=x": "INVALID_QUERY_PARAMETER", "?offset=1.5": "INVALID_QUERY_PARAMETER"} {
		if text := r.get(path+query, 400, nil); !strings.Contains(text, `"success":false,"error":{"code":"`+code+`","message":"`) {
			t.Errorf("%s: %s", query, text)
		}
	}
	for id, want := range map[string]string{
		"none": `{"success":false,"error":{"code":"SESSION_NOT_FOUND","message":"Session \"none\" was not found."}}`,
		"a,b":  `{"success":false,"error":{"code":"INVALID_SESSION_ID","message":"Invalid session ID."}}`,
	} {
		status := map[string]int{"none": 404, "a,b": 400}[id]
		if text := r.get("providers/sessions/"+id+"/messages", status, nil); strings.TrimSpace(text) != want {
			t.Error(text)
		}
	}
	if empty := r.conversation(session1, ""); empty.ID != "" {
		var m messages
		if r.get("providers/sessions/"+string(empty.ID)+"/messages", 200, &m); m.Data.Total != 0 || m.Data.Messages == nil {
			t.Errorf("without a session of the provider: %+v", m)
		}
	}
}

// TestSubagents: a tool that was a subagent's work shows what that has done.
func TestSubagents(t *testing.T) {
	r := newRig(t)
	info := r.conversation(session1, native1)
	project := r.workspace + "/project"
	name := r.transcript(r.ChatHome(session1), project, native1)
	use := func(id, tool, sidechain string) string {
		return fmt.Sprintf(`{"uuid":"u%s","sessionId":%q,"cwd":%q,"isSidechain":%s,"message":{"role":"assistant","content":[{"type":"tool_use","id":%q,"name":%q,"input":{}}]}}`+"\n",
			id, native1, project, sidechain, id, tool)
	}
	result := func(id, more string) string {
		return fmt.Sprintf(`{"uuid":"r%s","sessionId":%q,"cwd":%q,"message":{"role":"user","content":[{"type":"tool_result","tool_use_id":%q,"content":"out"}]}%s}`+"\n",
			id, native1, project, id, more)
	}
	r.write(name, row(1, project, native1, "user", "go")+use("task", "Task", "false")+result("task", `,"toolUseResult":{"agentId":"a1"}`))
	r.write(strings.TrimSuffix(name, ".jsonl")+"/subagents/agent-a1.jsonl", use("inner", "Bash", "true")+result("inner", ""))
	var m messages
	r.get("providers/sessions/"+string(info.ID)+"/messages", 200, &m)
	if len(m.Data.Messages) != 3 || !strings.Contains(string(m.Data.Messages[1].SubagentTools), `"toolName":"Bash"`) ||
		!strings.Contains(string(m.Data.Messages[2].SubagentTools), `"content":"out"`) {
		t.Errorf("%+v", m.Data.Messages)
	}
	if all := r.conversations.List(session1); len(all) != 1 {
		t.Errorf("the subagent is a conversation: %+v", all)
	}
}

// TestForeign: nothing of another session is shown, and nothing without the
// capability.
func TestForeign(t *testing.T) {
	r := newRig(t)
	other := r.conversation(session2, native2)
	project := r.workspace + "/project"
	r.write(r.transcript(r.ChatHome(session2), project, native2), row(1, project, native2, "user", "secret"))
	for _, path := range []string{"", "/messages", "/token-usage"} {
		r.get("providers/sessions/"+string(other.ID)+path, 404, nil)
	}
	if text := r.get("projects", 200, nil); strings.Contains(text, string(other.ID)) || strings.Contains(text, "secret") {
		t.Error(text)
	}
	own := r.conversation(session1, native1)
	if w := r.do("PUT", "providers/sessions/"+string(own.ID), strings.NewReader(`{"summary":"x"}`), nil, protocol.CapView); w.Code != 403 {
		t.Errorf("renamed without the capability: %d", w.Code)
	}
	if w := r.do("GET", "projects", nil, nil, protocol.CapFilesRead); w.Code != 403 {
		t.Errorf("read without the capability: %d", w.Code)
	}
	r.get("providers/sessions/"+string(own.ID)+"/provider-id", 404, nil)
	if w := r.do("PATCH", "projects", nil, nil); w.Code != 405 {
		t.Errorf("another method: %d", w.Code)
	}
}

// TestSessions: rename, archive, restore, delete.
func TestSessions(t *testing.T) {
	r := newRig(t)
	info := r.conversation(session1, native1)
	project := r.workspace + "/project"
	name := r.transcript(r.ChatHome(session1), project, native1)
	r.write(name, row(1, project, native1, "user", "hello world"))
	path := "providers/sessions/" + string(info.ID)
	for body, want := range map[string]int{`{"summary":"  My talk "}`: 200, `{"summary":" "}`: 400, `{}`: 400, `[`: 400, `{"summary":"` + strings.Repeat("x", 501) + `"}`: 400} {
		if w := r.do("PUT", path, strings.NewReader(body), nil); w.Code != want {
			t.Errorf("%.30s: %d %s", body, w.Code, w.Body)
		}
	}
	if text := r.get(path, 200, nil); !strings.Contains(text, `"sessionTitle":"My talk"`) {
		t.Error(text)
	}
	if w := r.do("DELETE", path+"?force=maybe", nil, nil); w.Code != 400 {
		t.Error(w.Code)
	}
	if w := r.do("DELETE", path, nil, nil); !strings.Contains(w.Body.String(), `"action":"archived","deletedFromDisk":false`) {
		t.Error(w.Body)
	}
	if text := r.get("providers/sessions/archived", 200, nil); !strings.Contains(text, string(info.ID)) {
		t.Error(text)
	}
	if text := r.get("projects", 200, nil); strings.Contains(text, string(info.ID)) {
		t.Errorf("an archived one is listed: %s", text)
	}
	if w := r.do("POST", path+"/restore", nil, nil); !strings.Contains(w.Body.String(), `"isArchived":false`) {
		t.Error(w.Body)
	}
	r.runs.running = []protocol.ConversationID{info.ID}
	if text := r.get("providers/sessions/running", 200, nil); !strings.Contains(text, string(info.ID)) {
		t.Error(text)
	}
	if w := r.do("DELETE", path+"?force=true", nil, nil); !strings.Contains(w.Body.String(), `"action":"deleted","deletedFromDisk":true`) {
		t.Error(w.Body)
	}
	if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) || len(r.runs.deleted) != 1 {
		t.Errorf("it is still there: %v", err)
	}
}

// TestTerminal: a session that somebody has begun in a terminal gets a row, all
// are told, once it settles, and it is brought along when it goes on by chat.
func TestTerminal(t *testing.T) {
	r := newRig(t)
	events := r.follow(session1)
	home := r.terminal(session1, "pty_1")
	project := r.workspace + "/project"
	name := r.transcript(home, project, native2)
	r.write(name, row(1, project, native2, "user", "from a terminal"))
	u, text := next(t, events, protocol.ChatSessionUpserted)
	id := r.found("claude", native2)
	if u.SessionID != id || u.Provider != "claude" || u.Session.Summary != "from a terminal" || u.Session.ID != id ||
		u.Project == nil || u.Project.Path != project || u.Project.DisplayName != "project" || strings.Contains(text, native2) {
		t.Errorf("%s", text)
	}
	var m messages
	if r.get("providers/sessions/"+string(id)+"/messages", 200, &m); m.texts(t, id) != "from a terminal" {
		t.Errorf("%+v", m)
	}
	info, err := r.conversations.Get(session1, id)
	if err != nil || !info.Adopted {
		t.Fatal(info, err)
	}
	r.write(r.transcript(home, project, native1), row(1, project, native1, "user", "stays there"))
	r.scan(t.Context(), r.sessions[session1].homes["pty_1"])
	other := r.found("claude", native1)
	if text := r.get("projects", 200, nil); !strings.Contains(text, string(id)) || !strings.Contains(text, string(other)) {
		t.Error(text)
	}
	if err := r.Bring(session1, info.ID); err != nil {
		t.Fatal(err)
	}
	r.TerminalEnded(feature.Terminal{Session: session1, PTY: "pty_1"})
	if err := os.RemoveAll(home); err != nil {
		t.Fatal(err)
	}
	var after messages
	if r.get("providers/sessions/"+string(id)+"/messages", 200, &after); after.texts(t, id) != "from a terminal" {
		t.Errorf("when the terminal is gone: %+v", after)
	}
	for _, path := range []string{"projects", "providers/sessions/recent", "projects/" + projectID(project) + "/sessions"} {
		if text := r.get(path, 200, nil); !strings.Contains(text, string(id)) || strings.Contains(text, string(other)) {
			t.Errorf("%s: %s", path, text)
		}
	}
	if !slices.Equal(r.runs.deleted, []protocol.ConversationID{other}) {
		t.Errorf("deleted %v", r.runs.deleted)
	}
}

// TestBegunAtHome: a session that people have begun in the home of conversations,
// in a terminal where one goes on, gets a conversation of its own a minute later:
// by then one that had begun it would have said so.
func TestBegunAtHome(t *testing.T) {
	r := newRig(t)
	project := r.workspace + "/project"
	name := r.transcript(r.ChatHome(session1), project, native2)
	r.write(name, row(1, project, native2, "user", "begun there"))
	almost := time.Now().Add(time.Second - time.Minute)
	if err := os.Chtimes(name, almost, almost); err != nil {
		t.Fatal(err)
	}
	events := r.follow(session1)
	r.look(session1)
	if u, text := next(t, events, protocol.ChatSessionUpserted); u.SessionID != r.found("claude", native2) || u.Session.Summary != "begun there" {
		t.Errorf("%s", text)
	}
}

// TestUpserted: what a conversation's provider writes is told, under the app's id.
func TestUpserted(t *testing.T) {
	r := newRig(t)
	events := r.follow(session1)
	info := r.conversation(session1, native1)
	if u, _ := next(t, events, protocol.ChatSessionUpserted); u.SessionID != info.ID || u.Session.Summary != untitled {
		t.Errorf("%+v", u)
	}
	project := r.workspace + "/project"
	r.write(r.transcript(r.ChatHome(session1), project, native1), row(1, project, native1, "user", "hello"))
	u, text := next(t, events, protocol.ChatSessionUpserted)
	if u.SessionID != info.ID || u.Session.Summary != "hello" || strings.Contains(text, native1) {
		t.Errorf("%s", text)
	}
	if _, err := r.conversations.Rename(session1, info.ID, "renamed"); err != nil {
		t.Fatal(err)
	}
	if u, _ := next(t, events, protocol.ChatSessionUpserted); u.Session.Summary != "renamed" {
		t.Errorf("%+v", u)
	}
	told := r.counts.told.Load()
	if _, err := r.conversations.Archive(session1, info.ID, true); err != nil {
		t.Fatal(err)
	}
	r.tellOfAll([]*transcript{r.transcriptOf(info)}) // it has changed
	r.mu.Lock()
	fresh := len(r.fresh)
	r.mu.Unlock()
	if fresh != 0 || r.counts.told.Load() != told {
		t.Error("a conversation that was put aside is told of")
	}
	if _, err := r.conversations.Archive(session1, info.ID, false); err != nil {
		t.Fatal(err)
	}
	if u, _ := next(t, events, protocol.ChatSessionUpserted); u.SessionID != info.ID || u.Session.Summary != "renamed" {
		t.Errorf("%+v", u)
	}
	if all := r.conversations.List(session1); len(all) != 1 {
		t.Errorf("the app's own session has %d rows", len(all))
	}
	grant := &jws.Grant{Session: session2, Caps: []protocol.Capability{protocol.CapView}}
	if _, _, err := r.Follow(grant, json.RawMessage(`{"session_id":"ses_1"}`)); protocol.AsError(err).Kind != protocol.KindForbidden {
		t.Errorf("another session's grant: %v", err)
	}
	if err := r.SessionEnded(session1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		if _, err := events.Next(ctx); err != nil {
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			return
		}
	}
}

// TestHostileTranscripts: what isn't a transcript of its place is refused, and
// nobody waits for it.
func TestHostileTranscripts(t *testing.T) {
	r := newRig(t)
	project := r.workspace + "/project"
	home := r.terminal(session1, "pty_1")
	good := row(1, project, native1, "user", "good")
	r.write(r.transcript(home, project, native1), good)
	outside := r.dir + "/outside.jsonl"
	r.write(outside, row(1, project, native2, "user", "outside"))
	ids := []string{"33333333-3333-4333-8333-333333333331", "33333333-3333-4333-8333-333333333332", "33333333-3333-4333-8333-333333333333", "33333333-3333-4333-8333-333333333334", "33333333-3333-4333-8333-333333333335"}
	link := r.transcript(home, project, ids[0])
	if err := os.Symlink(outside, link); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(r.transcript(home, project, ids[1]), 0o666); err != nil {
		t.Fatal(err)
	}
	r.write(r.transcript(home, project, ids[2]), row(1, r.workspace, ids[2], "user", "another project's cwd"))
	r.write(r.transcript(home, "/etc", ids[3]), row(1, "/etc", ids[3], "user", "outside of the workspace"))
	r.write(r.transcript(home, project, ids[4]), row(1, project, native1, "user", "another session's id"))
	r.look(session1)
	all := r.conversations.List(session1)
	if len(all) != 1 || all[0].Native != native1 {
		t.Errorf("%+v", all)
	}
	// A transcript that is replaced by a link isn't read any more.
	name := r.transcript(home, project, native1)
	var m messages
	id := r.found("claude", native1)
	if r.get("providers/sessions/"+string(id)+"/messages", 200, &m); m.texts(t, id) != "good" {
		t.Errorf("%+v", m)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, name); err != nil {
		t.Fatal(err)
	}
	if w := r.do("GET", "providers/sessions/"+string(id)+"/messages", nil, nil); w.Code == 200 && strings.Contains(w.Body.String(), "outside") {
		t.Errorf("the link was followed: %s", w.Body)
	}
	if r.counts.refused.Load() == 0 {
		t.Error("nothing was refused")
	}
}

// TestProjects: the workspace, each folder with conversations, pages, progress.
func TestProjects(t *testing.T) {
	r := newRig(t)
	for range 25 {
		r.conversation(session1, "")
	}
	events := r.follow(session1)
	var list []struct {
		ProjectID string            `json:"projectId"`
		Path      string            `json:"path"`
		Sessions  []json.RawMessage `json:"sessions"`
		Codex     []json.RawMessage `json:"codexSessions"`
		Meta      struct {
			HasMore bool `json:"hasMore"`
			Total   int  `json:"total"`
		} `json:"sessionMeta"`
	}
	text := r.get("projects", 200, &list)
	if len(list) != 2 || list[0].Path != r.workspace || list[1].Path != r.workspace+"/project" || len(list[1].Sessions) != 20 ||
		!list[1].Meta.HasMore || list[1].Meta.Total != 25 || list[0].Codex == nil || !strings.Contains(text, `"messageCount":0`) {
		t.Fatalf("%s", text)
	}
	for _, want := range []string{
		`{"kind":"loading_progress","phase":"loading","current":1,"total":2,"currentProject":"` + r.workspace + `"}`,
		`{"kind":"loading_progress","phase":"loading","current":2,"total":2,"currentProject":"` + r.workspace + `/project"}`,
		`{"kind":"loading_progress","phase":"complete","current":2,"total":2}`,
	} {
		if _, got := next(t, events, protocol.ChatLoadingProgress); got != want {
			t.Errorf("%s instead of %s", got, want)
		}
	}
	var page struct {
		Sessions []json.RawMessage `json:"sessions"`
	}
	if r.get("projects/"+list[1].ProjectID+"/sessions?limit=10&offset=20", 200, &page); len(page.Sessions) != 5 {
		t.Errorf("%d sessions", len(page.Sessions))
	}
	r.get("projects/none/sessions", 404, nil)
}

// upload returns a body with files.
func upload(files ...[3]string) (io.Reader, http.Header) {
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	for _, f := range files {
		part, _ := w.CreatePart(textproto.MIMEHeader{
			"Content-Disposition": {fmt.Sprintf("form-data; name=\"images\"; filename=%q", f[0])}, "Content-Type": {f[1]},
		})
		_, _ = io.WriteString(part, f[2])
	}
	w.Close()
	return &body, http.Header{"Content-Type": {w.FormDataContentType()}}
}

const (
	png = "\x89PNG\r\n\x1a\nimage"
	svg = `<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>`
)

// TestUpload: images come back as URLs that a message may name; a name is a label.
func TestUpload(t *testing.T) {
	r := newRig(t)
	path := "projects/" + projectID(r.workspace) + "/upload-images"
	body, header := upload([3]string{"../../etc/passwd.png", "image/png", png}, [3]string{"x.svg", "image/svg+xml", svg})
	w := r.do("POST", path, body, header)
	var answer struct {
		Images []protocol.ChatImage `json:"images"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != 200 || len(answer.Images) != 2 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if first := answer.Images[0]; first.Name != "passwd.png" || first.Size != int64(len(png)) || first.MimeType != "image/png" || !strings.HasPrefix(first.Data, "/api/assets/") {
		t.Errorf("%+v", first)
	}
	for i, image := range answer.Images {
		w := r.do("GET", strings.TrimPrefix(image.Data, "/api/"), nil, nil)
		disposition := w.Header().Get("Content-Disposition")
		if w.Code != 200 || w.Header().Get("X-Content-Type-Options") != "nosniff" || !strings.HasPrefix(w.Header().Get("Content-Security-Policy"), "sandbox") ||
			strings.HasPrefix(disposition, "attachment") != (i == 1) {
			t.Errorf("%d %v", w.Code, w.Header())
		}
		content, mime, err := r.o.Assets.Get(session1, image.Data)
		if err != nil || mime != image.MimeType || string(content) != []string{png, svg}[i] {
			t.Errorf("%q %s %v", content, mime, err)
		}
		if _, _, err := r.o.Assets.Get(session2, image.Data); protocol.AsError(err).Kind != protocol.KindNotFound {
			t.Errorf("another session's: %v", err)
		}
	}
	for name, c := range map[string]struct {
		files [][3]string
		want  string
	}{
		"nothing":   {nil, `{"error":"No image files provided"}`},
		"six":       {make([][3]string, 6), `{"error":"Too many files"}`},
		"text":      {[][3]string{{"a.txt", "text/plain", "hello"}}, `{"error":"` + invalidType + `"}`},
		"disguised": {[][3]string{{"a.png", "image/png", svg}}, `{"error":"` + invalidType + `"}`},
		"begun":     {[][3]string{{"a.webp", "image/webp", "RIFF"}}, `{"error":"` + invalidType + `"}`},
		"large":     {[][3]string{{"a.png", "image/png", png + strings.Repeat("x", MaxImage)}}, `{"error":"File too large"}`},
	} {
		for i := range c.files {
			if c.files[i][1] == "" {
				c.files[i] = [3]string{"a.png", "image/png", png}
			}
		}
		body, header := upload(c.files...)
		if w := r.do("POST", path, body, header); w.Code != 400 || strings.TrimSpace(w.Body.String()) != c.want {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	if w := r.do("POST", path, strings.NewReader("x"), nil); w.Code != 400 {
		t.Error(w.Code)
	}
	if kept, err := os.ReadDir(filepath.Join(r.dir, "assets", string(session1))); err != nil || len(kept) != len(answer.Images) {
		t.Errorf("images of refused uploads stay: %d, %v", len(kept), err)
	}
	for _, id := range []string{"none", "../../x", strings.Repeat("0", 32)} {
		if _, _, err := r.o.Assets.Get(session1, "/api/assets/"+id); protocol.AsError(err).Kind != protocol.KindNotFound {
			t.Errorf("%s: %v", id, err)
		}
	}
	if err := r.SessionEnded(session1); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.o.Assets.Get(session1, answer.Images[0].Data); err == nil {
		t.Error("an image outlives its session")
	}
}

// fakeVariables are names.
type fakeVariables []string

func (v fakeVariables) Names(protocol.SessionID) []string { return v }

// A hunter hides one password.
type hunter struct{}

func (h hunter) Row(r rows.Row) rows.Row {
	r.Content = new(h.Text(*r.Content))
	return r
}

func (hunter) Text(s string) string { return strings.ReplaceAll(s, "hunter2", "*******") }

// TestProviders: capabilities, models, logins.
func TestProviders(t *testing.T) {
	bin := t.TempDir()
	r := newRig(t, func(o *Options) {
		o.Programs = &Installation{SearchPath: "/nowhere:" + bin}
		o.Variables = fakeVariables{"ANTHROPIC_API_KEY"}
	})
	if text := r.get("providers/claude/auth/status", 200, nil); !strings.Contains(text, `"installed":false`) || !strings.Contains(text, "not installed") {
		t.Error(text)
	}
	if err := os.WriteFile(bin+"/claude", []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.write(bin+"/package.json", `{"version":"2.1.197"}`)
	if text := r.get("providers/CLAUDE/capabilities", 200, nil); !strings.Contains(text, `"permissionModes":["default","auto","acceptEdits","bypassPermissions","plan"]`) ||
		!strings.Contains(text, `"installed":true,"version":"2.1.197"`) {
		t.Error(text)
	}
	if text := r.get("providers/claude/auth/status", 200, nil); !strings.Contains(text, `"authenticated":true`) || !strings.Contains(text, "api_key") {
		t.Error(text)
	}
	if text := r.get("providers/capabilities", 200, nil); !strings.Contains(text, `"providers":[{"provider":"claude"`) {
		t.Error(text)
	}
	if text := r.get("providers/claude/models", 200, nil); !strings.Contains(text, `"DEFAULT":"default"`) {
		t.Error(text)
	}
	if text := r.get("providers/nobody/models", 400, nil); !strings.Contains(text, `"UNSUPPORTED_PROVIDER","message":"Unsupported provider \"nobody\"."`) {
		t.Error(text)
	}
}

// fakeStarter is a program that prints its help.
type fakeStarter struct {
	mu      sync.Mutex
	printed string
	code    int
	err     error
	started []string
}

func (f *fakeStarter) Probe(_ context.Context, program string, args []string) ([]byte, int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.started = append(f.started, filepath.Base(program)+" "+strings.Join(args, " "))
	return []byte(f.printed), f.code, f.err
}

// TestUsable: capabilities are those of the program that is installed: it is asked
// once, and again when it is another one.
func TestUsable(t *testing.T) {
	bin := t.TempDir()
	starter := &fakeStarter{printed: "usage: --experimental-acp"}
	r := newRig(t, func(o *Options) { o.Programs = &Installation{SearchPath: bin, Starter: starter} })
	capable := func(name string) (can struct {
		Data struct {
			Installed bool     `json:"installed"`
			Usable    bool     `json:"usable"`
			Problem   string   `json:"problem"`
			Abort     bool     `json:"supportsAbort"`
			Modes     []string `json:"permissionModes"`
		} `json:"data"`
	}) {
		t.Helper()
		r.get("providers/"+name+"/capabilities", 200, &can)
		return can
	}
	if can := capable("gemini").Data; can.Installed || can.Usable || !strings.Contains(can.Problem, "npm install") || len(can.Modes) != 4 {
		t.Errorf("missing: %+v", can)
	}
	install := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(bin, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"claude", "codex", "gemini", "opencode", "cursor-agent"} {
		install(name, "#!/bin/sh\n")
	}
	starter.err = errors.New("busy")
	if can := capable("gemini").Data; !can.Usable || !strings.Contains(can.Problem, "busy") {
		t.Errorf("nobody knows: %+v", can)
	}
	starter.err = nil
	starter.printed = "usage: --experimental"
	for range 2 {
		if can := capable("gemini").Data; !can.Installed || can.Usable || can.Abort || !strings.Contains(can.Problem, "too old") {
			t.Errorf("old: %+v", can)
		}
	}
	starter.printed = "usage: --acp"
	install("gemini", "#!/bin/sh\n# newer\n")
	if can := capable("gemini").Data; !can.Usable || !can.Abort || can.Problem != "" {
		t.Errorf("newer: %+v", can)
	}
	if fmt.Sprint(starter.started) != "[gemini --help gemini --help gemini --help]" {
		t.Error(starter.started)
	}
	starter.started, starter.code = nil, 1
	text := r.get("providers/capabilities", 200, nil)
	slices.Sort(starter.started)
	if fmt.Sprint(starter.started) != "[codex app-server --help cursor-agent --help opencode acp --help]" || strings.Count(text, `"usable":false`) != 3 {
		t.Errorf("%v: %s", starter.started, text)
	}
}

// TestSearch: what was said is found, whatever its case, with secrets hidden.
func TestSearch(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Masker = hunter{} })
	info := r.conversation(session1, native1)
	project := r.workspace + "/project"
	r.write(r.transcript(r.ChatHome(session1), project, native1), row(1, project, native1, "user", "über den WALD mit hunter2")+row(2, project, native1, "assistant", "nichts"))
	text := r.get("providers/search/sessions?q=Wald", 200, nil)
	if !strings.Contains(text, "event: result\n") || !strings.Contains(text, string(info.ID)) || !strings.Contains(text, `"highlights":[{"start":9,"end":13}]`) ||
		!strings.HasSuffix(text, "event: done\ndata: {}\n\n") || strings.Contains(text, "hunter2") {
		t.Error(text)
	}
	if text := r.get("providers/search/sessions?q=hunter2", 200, nil); strings.Contains(text, string(info.ID)) {
		t.Errorf("a secret is found: %s", text)
	}
	r.get("providers/search/sessions?q=x", 400, nil)
	r.get("providers/search/sessions?q=xx&limit=y", 400, nil)
}

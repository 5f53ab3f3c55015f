package history

import (
	"context"
	"crypto/md5" //nolint:gosec // cursor names folders by it
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chat"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chatlog"
	"github.com/fairlead/fairlead/sandbox-agent/internal/history/dbread"
	"github.com/fairlead/fairlead/sandbox-agent/internal/history/rows"
)

// fakeDatabase has the same content in all files.
type fakeDatabase struct {
	mu       sync.Mutex
	sessions []dbread.Session
	messages []rows.Stored
	fails    error
	read     int      // contents
	deleted  []string // sessions
}

func (f *fakeDatabase) Sessions(context.Context, dbread.File) ([]dbread.Session, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]dbread.Session(nil), f.sessions...), f.fails
}

func (f *fakeDatabase) Messages(context.Context, dbread.File, string) ([]rows.Stored, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read++
	return append([]rows.Stored(nil), f.messages...), f.fails
}

func (f *fakeDatabase) Delete(_ context.Context, _ dbread.File, session string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deleted = append(f.deleted, session)
	return f.fails
}

// say adds a message of a text.
func (f *fakeDatabase) say(role, text string, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := fmt.Sprintf("msg_%d", len(f.messages))
	f.messages = append(f.messages, rows.Stored{
		ID: id, IDs: []string{"prt_" + id},
		Data:  json.RawMessage(fmt.Sprintf(`{"role":%q,"time":{"created":%d}}`, role, at.UnixMilli())),
		Parts: []json.RawMessage{json.RawMessage(fmt.Sprintf(`{"type":"text","text":%q}`, text))},
	})
}

const (
	opencodeFile = ".local/share/opencode/opencode.db"
	opencode1    = "ses_1b2c3d"
)

// opencodeRig is a rig in whose terminal opencode has a session.
func opencodeRig(t *testing.T) (r *rig, db *fakeDatabase, home string) {
	db = &fakeDatabase{}
	r = newRig(t, func(o *Options) { o.Database = db })
	db.sessions = []dbread.Session{
		{ID: opencode1, Dir: r.workspace + "/project", Title: "A talk", Updated: 1781172000000},
		{ID: "ses_sub", Parent: opencode1, Dir: r.workspace + "/project", Title: "of a subagent", Updated: 1},
		{ID: "ses_out", Dir: "/etc", Title: "outside", Updated: 1},
		{ID: "../../x", Dir: r.workspace, Title: "no id", Updated: 1},
		{ID: "ses_blank", Dir: r.workspace, Updated: 1},
	}
	for i := range 5 {
		db.say([]string{"user", "assistant"}[i%2], fmt.Sprint("m", i), time.UnixMilli(1781172000000))
	}
	home = r.terminal(session1, "pty_1")
	r.write(filepath.Join(home, opencodeFile), "db")
	r.look(session1)
	return r, db, home
}

// TestOpencodeHistory: sessions in a database are found, paged, told of and
// deleted as those in files are.
func TestOpencodeHistory(t *testing.T) {
	r, db, home := opencodeRig(t)
	all := r.conversations.List(session1)
	if len(all) != 1 || all[0].Native != opencode1 || all[0].Provider != "opencode" || !all[0].Adopted || all[0].ProjectPath != r.workspace+"/project" {
		t.Fatalf("%+v", all)
	}
	id := string(all[0].ID)
	path := "providers/sessions/" + id
	for query, want := range map[string]string{"": "m0,m1,m2,m3,m4", "?limit=2": "m3,m4", "?limit=2&offset=2": "m1,m2"} {
		var m messages
		r.get(path+"/messages"+query, 200, &m)
		var texts []string
		for _, row := range m.Data.Messages {
			texts = append(texts, *row.Content)
		}
		if got := strings.Join(texts, ","); got != want || m.Data.Total != 5 || m.Data.HasMore != (query != "") {
			t.Errorf("%q: %s %+v", query, got, m.Data)
		}
	}
	if db.read != 1 {
		t.Errorf("it was read %d times", db.read)
	}
	if text := r.get("projects", 200, nil); !strings.Contains(text, `"opencodeSessions":[{"id":"`+id+`","summary":"A talk"`) {
		t.Error(text)
	}
	if err := r.Bring(session1, all[0].ID); protocol.AsError(err).Kind != protocol.KindUnsupported {
		t.Errorf("it goes on elsewhere: %v", err)
	}
	events := r.follow(session1)
	db.say("user", "m5", time.UnixMilli(1781172000001))
	db.mu.Lock()
	db.sessions[0].Title, db.sessions[0].Updated = "Another title", 1781172000001
	db.mu.Unlock()
	r.write(filepath.Join(home, opencodeFile+"-wal"), "log")
	if u, _ := next(t, events, protocol.ChatSessionUpserted); u.SessionID != all[0].ID || u.Session.Summary != "Another title" {
		t.Errorf("%+v", u)
	}
	if text := r.get(path+"/messages?limit=1", 200, nil); !strings.Contains(text, `"m5"`) {
		t.Errorf("what has come since: %s", text)
	}
	if w := r.do("DELETE", path+"?force=true", nil, nil); !strings.Contains(w.Body.String(), `"action":"deleted","deletedFromDisk":true`) {
		t.Error(w.Body)
	}
	if fmt.Sprint(db.deleted) != "["+opencode1+"]" || len(r.runs.deleted) == 0 {
		t.Errorf("%v %v", db.deleted, r.runs.deleted)
	}
	if _, err := os.Stat(filepath.Join(home, opencodeFile)); err != nil {
		t.Errorf("the other sessions are gone: %v", err)
	}
}

// TestDatabaseGone: a session that its program has deleted isn't shown any more,
// and a database that can't be read says so.
func TestDatabaseGone(t *testing.T) {
	r, db, home := opencodeRig(t)
	path := "providers/sessions/" + string(r.found("opencode", opencode1)) + "/messages"
	r.get(path, 200, nil)
	db.mu.Lock()
	db.fails = errors.New("it is no database")
	db.mu.Unlock()
	r.write(filepath.Join(home, opencodeFile), "changed")
	if text := r.get(path, 503, nil); !strings.Contains(text, `"code":"UNAVAILABLE"`) {
		t.Error(text)
	}
	db.mu.Lock()
	db.fails, db.sessions = nil, nil
	db.mu.Unlock()
	r.examine(t.Context(), place{r.sessions[session1].homes["pty_1"], opencodeFile})
	var m messages
	if r.get(path, 200, &m); m.Data.Total != 0 {
		t.Errorf("%+v", m.Data)
	}
	without := newRig(t)
	without.write(filepath.Join(without.terminal(session1, "pty_1"), opencodeFile), "db")
	without.look(session1)
	if all := without.conversations.List(session1); len(all) != 0 {
		t.Errorf("%+v", all)
	}
}

// TestCursorHistory: a session of cursor is a database of its own, in a folder
// that the project names.
func TestCursorHistory(t *testing.T) {
	db := &fakeDatabase{}
	r := newRig(t, func(o *Options) { o.Database = db })
	db.messages = []rows.Stored{
		{ID: "a", Data: json.RawMessage(`{"role":"user","content":"<user_query>Hi</user_query>"}`)},
		{ID: "b", Data: json.RawMessage(`{"id":"1","role":"assistant","content":[{"type":"text","text":"Hello"}]}`)},
	}
	db.sessions = []dbread.Session{{Head: db.messages}}
	home := r.terminal(session1, "pty_1")
	bucket := func(dir string) string {
		sum := md5.Sum([]byte(dir)) //nolint:gosec // see above
		return hex.EncodeToString(sum[:])
	}
	name := filepath.Join(home, ".cursor/chats", bucket(r.workspace), native1, "store.db")
	r.write(name, "db")
	written := time.Date(2026, 6, 11, 10, 0, 0, 0, time.UTC)
	if err := os.Chtimes(name, written, written); err != nil {
		t.Fatal(err)
	}
	r.write(name+"-wal", "") // by our own reading
	r.write(filepath.Join(home, ".cursor/chats", bucket("/etc"), native2, "store.db"), "db")
	r.look(session1)
	all := r.conversations.List(session1)
	if len(all) != 1 || all[0].Native != native1 || all[0].ProjectPath != r.workspace {
		t.Fatalf("%+v", all)
	}
	if text := r.get("projects", 200, nil); !strings.Contains(text, `"lastActivity":"2026-06-11T10:00:00.000Z"`) {
		t.Error(text)
	}
	var m messages
	if r.get("providers/sessions/"+string(all[0].ID)+"/messages", 200, &m); m.Data.Total != 2 || *m.Data.Messages[1].Content != "Hello" {
		t.Errorf("%+v", m.Data)
	}
	if w := r.do("DELETE", "providers/sessions/"+string(all[0].ID)+"?force=true", nil, nil); !strings.Contains(w.Body.String(), `"deletedFromDisk":true`) {
		t.Error(w.Body)
	}
	if _, err := os.Stat(filepath.Dir(name)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}

// TestDeleteRefused: what can't be deleted now keeps its transcript.
func TestDeleteRefused(t *testing.T) {
	r := newRig(t)
	info := r.conversation(session1, native1)
	project := r.workspace + "/project"
	name := r.transcript(r.ChatHome(session1), project, native1)
	r.write(name, row(1, project, native1, "user", "hello"))
	for want, err := range map[string]error{
		`{"code":"RUN_IN_PROGRESS","message":"It runs."}`: protocol.ChatFault{Code: protocol.ChatRunInProgress, Text: "It runs."}.Error(),
		`{"code":"CONFLICT","message":"not now"}`:         protocol.Errorf(protocol.KindConflict, "not now"),
	} {
		r.runs.refuses = err
		if w := r.do("DELETE", "providers/sessions/"+string(info.ID)+"?force=true", nil, nil); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	if _, err := os.Stat(name); err != nil {
		t.Errorf("the transcript is gone: %v", err)
	}
}

// TestJoined: persons' messages have the ids of their live events, whatever their
// program calls them.
func TestJoined(t *testing.T) {
	r, db, _ := opencodeRig(t)
	at := time.UnixMilli(1781172000000)
	db.mu.Lock()
	db.messages = nil
	db.mu.Unlock()
	for i, text := range []string{"go on", "typed in a terminal", "go on", "go on"} {
		db.say("user", text, at.Add(time.Duration(i)*time.Hour))
		db.say("assistant", "yes", at.Add(time.Duration(i)*time.Hour))
	}
	r.runs.said.Sayings = []chatlog.Saying{
		{ID: "first", Text: chatlog.DigestOf("go on"), At: at.Add(-5 * time.Second), From: &protocol.ChatFrom{UserID: "usr_a", Name: "alice"}},
		{ID: "second", Text: chatlog.DigestOf("go on\n"), At: at.Add(2*time.Hour - time.Second)},
		{ID: "lost", Text: chatlog.DigestOf("go on"), At: at.Add(24 * time.Hour)},
	}
	path := "providers/sessions/" + string(r.found("opencode", opencode1))
	var m messages
	r.get(path+"/messages?limit=7", 200, &m)
	var ids []string
	for _, row := range m.Data.Messages {
		ids = append(ids, row.ID)
	}
	if got := strings.Join(ids, " "); got != "msg_1 msg_2 msg_3 second msg_5 msg_6 msg_7" {
		t.Error(got)
	}
	var all messages
	if r.get(path+"/messages", 200, &all); all.Data.Messages[0].ID != "first" || all.Data.Messages[0].From == nil || all.Data.Messages[0].From.Name != "alice" {
		t.Errorf("%+v", all.Data.Messages[0])
	}
	for _, row := range all.Data.Messages[1:] {
		if row.From != nil {
			t.Errorf("%s is said to be by %+v", row.ID, row.From)
		}
	}
}

// TestJoinedCommands: claude gives the row of a command of its own another id than
// we have given, and perhaps another name.
func TestJoinedCommands(t *testing.T) {
	r := newRig(t)
	info := r.conversation(session1, native1)
	project := r.workspace + "/project"
	command := func(n int, name string) string {
		return row(n, project, native1, "user", "<command-name>"+name+"</command-name><command-message>x</command-message><command-args></command-args>")
	}
	r.write(r.transcript(r.ChatHome(session1), project, native1),
		row(1, project, native1, "user", "hello")+command(2, "/usage")+row(3, project, native1, "user", "/nosuch x")+command(50, "/usage"))
	at := func(second int) time.Time { return time.Date(2026, 6, 11, 10, 0, second, 0, time.UTC) }
	r.runs.said.Sayings = []chatlog.Saying{
		{ID: "u1", Text: chatlog.DigestOf("hello"), At: at(1), From: &protocol.ChatFrom{UserID: "usr_b"}, Own: "m1", Images: []protocol.ChatImage{{Name: "a.png"}}}, {ID: "cost1", Text: chatlog.DigestOf("/cost"), Command: true, At: at(2)}, {ID: "nosuch", Text: chatlog.DigestOf("/nosuch x"), Command: true, At: at(3)}, {ID: "cost2", Text: chatlog.DigestOf("/cost"), Command: true, At: at(49)},
	}
	for query, want := range map[string]string{"": "u1 cost1 nosuch cost2", "?limit=2&offset=1": "cost1 nosuch", "?limit=1": "cost2"} {
		var m messages
		r.get("providers/sessions/"+string(info.ID)+"/messages"+query, 200, &m)
		var ids []string
		for _, row := range m.Data.Messages {
			ids = append(ids, row.ID)
			if by := row.From; (row.ID == "u1") != (by != nil && by.UserID == "usr_b" && row.ClientMessageID == "m1" && len(row.Images) == 1) {
				t.Errorf("%s, %q, is said to be by %+v, with %+v", row.ID, row.ClientMessageID, by, row.Images)
			}
		}
		if got := strings.Join(ids, " "); got != want {
			t.Errorf("%q: %s", query, got)
		}
	}
}

// TestSetApart: gemini doesn't write over the transcript that it goes on with.
func TestSetApart(t *testing.T) {
	r := newRig(t)
	info, err := r.conversations.Create(chat.ConversationInfo{Session: session1, Provider: "gemini", ProjectPath: r.workspace, Native: native1})
	if err != nil {
		t.Fatal(err)
	}
	dir := r.ChatHome(session1) + "/.gemini/tmp/work"
	begun := time.Date(2026, 6, 11, 10, 0, 10, 0, time.UTC)
	name := func(minutes int) string {
		return dir + "/chats/" + begun.Add(time.Duration(minutes)*time.Minute).Format(geminiName) + native1[:8] + ".jsonl"
	}
	r.write(dir+"/.project_root", r.workspace)
	r.write(name(0), `{"sessionId":"`+native1+`","kind":"main"}`+"\n"+`{"id":"m1","timestamp":"2026-06-11T10:00:01.000Z","type":"user","content":"hello"}`+"\n")
	r.write(name(-1), "another one")
	if err := r.setApart(r.transcriptOf(info), begun.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(name(0)); err != nil {
		t.Errorf("in another minute: %v", err)
	}
	if err := r.setApart(r.transcriptOf(info), begun.Add(40*time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(name(0)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	if content, _ := os.ReadFile(name(-1)); string(content) != "another one" {
		t.Errorf("another one was written over: %s", content)
	}
	var m messages
	if r.get("providers/sessions/"+string(info.ID)+"/messages", 200, &m); m.Data.Total != 1 {
		t.Errorf("%+v", m.Data)
	}
}

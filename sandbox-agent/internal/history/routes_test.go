package history

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// TestSeedRefusals: what the routes of seed 002 refuse, with its codes and texts
// (chat-and-shell-2.md 2.2).
func TestSeedRefusals(t *testing.T) {
	r := newRig(t)
	id := string(r.conversation(session1, native1).ID)
	long := strings.Repeat("x", 501)
	for _, c := range []struct {
		method, path, body string
		status             int
		code, message      string
	}{
		{"GET", "providers/sessions/none/messages", "", 404, "SESSION_NOT_FOUND", `Session "none" was not found.`},
		{"GET", "providers/sessions/%20none%20/messages", "", 404, "SESSION_NOT_FOUND", `Session "none" was not found.`},
		{"GET", "providers/sessions/a%2Cb/messages", "", 400, "INVALID_SESSION_ID", ""},
		{"GET", "providers/sessions/" + strings.Repeat("a", 121) + "/messages", "", 400, "INVALID_SESSION_ID", ""},
		{"GET", "providers/sessions/" + id + "/messages?limit=-1", "", 400, "INVALID_QUERY_PARAMETER", "limit must be a non-negative integer."},
		{"GET", "providers/sessions/" + id + "/messages?offset=x", "", 400, "INVALID_QUERY_PARAMETER", "offset must be a non-negative integer."},
		{"GET", "providers/sessions/" + id + "/messages?limit=1e9", "", 400, "INVALID_QUERY_PARAMETER", "limit must be a non-negative integer."},
		{"GET", "providers/sessions/" + id + "/messages?limit=99999999999999999999", "", 400, "INVALID_QUERY_PARAMETER", ""},
		{"GET", "providers/sessions/none/messages?limit=x", "", 400, "INVALID_QUERY_PARAMETER", ""},
		{"PUT", "providers/sessions/none", `{}`, 400, "INVALID_SESSION_SUMMARY", ""},
		{"DELETE", "providers/sessions/none?force=yes", "", 400, "INVALID_QUERY_PARAMETER", ""},
		{"PUT", "providers/sessions/none", `{"summary":"x"}`, 404, "SESSION_NOT_FOUND", `Session "none" was not found.`},
		{"PUT", "providers/sessions/" + id, `{"summary":" "}`, 400, "INVALID_SESSION_SUMMARY", ""},
		{"PUT", "providers/sessions/" + id, `{}`, 400, "INVALID_SESSION_SUMMARY", ""},
		{"PUT", "providers/sessions/" + id, `{"summary":5}`, 400, "INVALID_SESSION_SUMMARY", ""},
		{"PUT", "providers/sessions/" + id, `{"summary":"` + long + `"}`, 400, "INVALID_SESSION_SUMMARY", ""},
		{"DELETE", "providers/sessions/none", "", 404, "SESSION_NOT_FOUND", `Session "none" was not found.`},
		{"DELETE", "providers/sessions/" + id + "?force=yes", "", 400, "INVALID_QUERY_PARAMETER", ""},
		{"DELETE", "providers/sessions/" + id + "?deletedFromDisk=1", "", 400, "INVALID_QUERY_PARAMETER", ""},
		{"POST", "providers/sessions/none/restore", "", 404, "SESSION_NOT_FOUND", `Session "none" was not found.`},
		{"GET", "providers/sessions/none/token-usage", "", 404, "SESSION_NOT_FOUND", ""},
		{"GET", "projects/p/sessions/none/token-usage", "", 404, "SESSION_NOT_FOUND", ""},
		{"GET", "projects/p/sessions/" + id + "/token-usage", "", 404, "PROJECT_NOT_FOUND", `Project "p" was not found.`},
		{"GET", "projects/p/sessions", "", 404, "PROJECT_NOT_FOUND", `Project "p" was not found.`},
		{"GET", "providers/%20X%20/capabilities", "", 400, "UNSUPPORTED_PROVIDER", `Unsupported provider "x".`},
		{"GET", "providers/x/models", "", 400, "UNSUPPORTED_PROVIDER", `Unsupported provider "x".`},
		{"GET", "providers/x/auth/status", "", 400, "UNSUPPORTED_PROVIDER", `Unsupported provider "x".`},
		{"GET", "nothing", "", 404, "NOT_FOUND", ""},
	} {
		w := r.do(c.method, c.path, strings.NewReader(c.body), nil)
		var answer struct {
			Success *bool `json:"success"`
			Error   struct{ Code, Message string }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != c.status || answer.Success == nil || *answer.Success ||
			answer.Error.Code != c.code || answer.Error.Message == "" || c.message != "" && answer.Error.Message != c.message {
			t.Errorf("%s %.60s: %d %s", c.method, c.path, w.Code, w.Body)
		}
	}
	if len(r.runs.deleted) != 0 {
		t.Error("something was deleted")
	}
}

// TestSeedAnswers: which members answers have, at least (chat-and-shell-2.md 2.2
// to 2.4).
func TestSeedAnswers(t *testing.T) {
	r := newRig(t)
	info := r.conversation(session1, native1)
	project := r.workspace + "/project"
	r.write(r.transcript(r.ChatHome(session1), project, native1), row(1, project, native1, "user", "hello"))
	path := "providers/sessions/" + string(info.ID)
	if _, err := r.conversations.Archive(session1, info.ID, true); err != nil {
		t.Fatal(err)
	}
	at := func(v any, steps ...any) any {
		for _, s := range steps {
			switch s := s.(type) {
			case string:
				of, _ := v.(map[string]any)
				v = of[s]
			case int:
				of, _ := v.([]any)
				if s >= len(of) {
					return nil
				}
				v = of[s]
			}
		}
		return v
	}
	for _, c := range []struct {
		method, path, body string
		within             []any
		members            string
	}{
		{"GET", "providers/sessions/archived", "", []any{"data", "sessions", 0}, "sessionId provider projectId projectPath projectDisplayName sessionTitle createdAt updatedAt lastActivity isProjectArchived"},
		{"POST", path + "/restore", "", []any{"data"}, "sessionId isArchived"},
		{"GET", path + "/messages", "", []any{"data"}, "messages total hasMore offset limit"},
		{"GET", path + "/messages?limit=1", "", []any{"data", "messages", 0}, "id sessionId timestamp provider kind role content"},
		{"PUT", path, `{"summary":"x"}`, []any{"data"}, "sessionId summary"},
		{"GET", "providers/codex/capabilities", "", []any{"data"}, "provider permissionModes defaultPermissionMode supportsImages supportsAbort supportsPermissionRequests supportsTokenUsage"},
		{"GET", "providers/capabilities", "", []any{"data", "providers", 4}, "provider permissionModes defaultPermissionMode"},
		{"GET", "providers/claude/models", "", []any{"data"}, "provider models cache"},
		{"GET", "providers/claude/models", "", []any{"data", "models"}, "OPTIONS DEFAULT"},
		{"GET", "providers/claude/models", "", []any{"data", "models", "OPTIONS", 0}, "value label"},
		{"GET", "providers/claude/models", "", []any{"data", "cache"}, "updatedAt expiresAt source"},
		{"GET", "providers/claude/auth/status", "", []any{"data"}, "provider installed authenticated email method"},
		{"GET", "projects", "", []any{1}, "projectId path displayName fullPath isStarred sessions cursorSessions codexSessions geminiSessions opencodeSessions sessionMeta"},
		{"GET", "projects", "", []any{1, "sessionMeta"}, "hasMore total"},
		{"GET", "projects", "", []any{1, "sessions", 0}, "id summary messageCount lastActivity"},
		{"GET", "projects/" + projectID(project) + "/sessions?limit=1", "", nil, "sessions sessionMeta"},
		{"GET", "projects/" + projectID(project) + "/sessions/" + string(info.ID) + "/token-usage", "", nil, "used"},
		{"DELETE", path, "", []any{"data"}, "sessionId action deletedFromDisk"},
	} {
		w := r.do(c.method, c.path, strings.NewReader(c.body), nil)
		var answer any
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != http.StatusOK {
			t.Errorf("%s %s: %d %s", c.method, c.path, w.Code, w.Body)
			continue
		}
		if len(c.within) > 0 && c.within[0] == "data" && at(answer, "success") != true {
			t.Errorf("%s %s: no success: %s", c.method, c.path, w.Body)
		}
		got, _ := at(answer, c.within...).(map[string]any)
		for member := range strings.FieldsSeq(c.members) {
			if _, ok := got[member]; !ok {
				t.Errorf("%s %s: no %s in %v", c.method, c.path, member, slices.Sorted(maps.Keys(got)))
			}
		}
		if strings.Contains(w.Body.String(), native1) || strings.Contains(w.Body.String(), `"seq"`) {
			t.Errorf("%s %s: %s", c.method, c.path, w.Body)
		}
	}
}

// TestContextWindow: how large claude's context is, history says as live events do:
// as somebody has set it, or else as the program has said last, or else 160,000.
func TestContextWindow(t *testing.T) {
	for _, c := range []struct{ set, said, want int64 }{{0, 0, 160_000}, {0, 200_000, 200_000}, {77_000, 200_000, 77_000}} {
		r := newRig(t, func(o *Options) { o.ContextWindow = c.set })
		r.runs.said.Window = c.said
		info := r.conversation(session1, native1)
		project := r.workspace + "/project"
		answer := row(2, project, native1, "assistant", "hi")
		r.write(r.transcript(r.ChatHome(session1), project, native1), row(1, project, native1, "user", "hello")+
			strings.Replace(answer, `"message":{`, `"message":{"usage":{"input_tokens":5,"output_tokens":7},`, 1))
		path := "sessions/" + string(info.ID)
		var m messages
		r.get("providers/"+path+"/messages", 200, &m)
		var used struct{ Data protocol.TokenBudget }
		r.get("providers/"+path+"/token-usage", 200, &used)
		var seed protocol.TokenBudget
		r.get("projects/"+projectID(project)+"/"+path+"/token-usage", 200, &seed)
		if m.Data.TokenUsage == nil || m.Data.TokenUsage.Total != c.want || used.Data.Total != c.want || seed.Total != c.want || seed.Used != 12 {
			t.Errorf("%+v: %+v %+v %+v", c, m.Data.TokenUsage, used, seed)
		}
	}
}

// TestWebRoutes: the routes that are answered are those that relays tell of, and
// the one about which nobody hears.
func TestWebRoutes(t *testing.T) {
	var told, answered []protocol.WebRoute
	for _, e := range endpoints {
		if e.path != "providers/sessions/{id}/provider-id" {
			answered = append(answered, protocol.WebRoute{Method: e.method, Path: e.path, Needs: e.needs})
		}
	}
	told = append(told, protocol.WebRoutes...)
	by := func(a, b protocol.WebRoute) int { return strings.Compare(a.Path+a.Method, b.Path+b.Method) }
	slices.SortFunc(told, by)
	slices.SortFunc(answered, by)
	if !slices.Equal(told, answered) {
		t.Errorf("told:\n%+v\nanswered:\n%+v", told, answered)
	}
}

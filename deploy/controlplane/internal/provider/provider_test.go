package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestActions: what there is, and what of it changes nothing.
func TestActions(t *testing.T) {
	for provider, want := range map[string]string{
		Gmail:          "search+ get+ send archive trash mark_read",
		GitHub:         "list_repos+ get_repo+ list_issues+ create_issue list_prs+ create_pr get_file+ search_code+",
		GoogleDrive:    "list+ get+ download+ create update delete",
		GoogleCalendar: "list_events+ get_event+ create_event update_event delete_event search_events+",
	} {
		var got []string
		for _, a := range Actions(provider) {
			name := strings.TrimPrefix(a.Name, provider+".")
			if a.ReadOnly {
				name += "+"
			}
			got = append(got, name)
			if found, ok := ActionOf(provider, a.Name); !ok || found != a {
				t.Errorf("%s: %+v", a.Name, found)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %s", provider, got)
		}
	}
	if len(Providers()) != len(catalogue) {
		t.Errorf("%v", Providers())
	}
	if _, ok := ActionOf(Gmail, "github.get_repo"); ok || Actions("x") != nil {
		t.Error("an action of another provider")
	}
}

// TestDescribed: the agent describes each action as it is: its arguments, those
// that must be there, and whether it only reads.
func TestDescribed(t *testing.T) {
	for provider, actions := range catalogue {
		data, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "sandbox-agent", "internal", "integration", "tools", provider+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var tools []struct {
			Action   string `json:"action"`
			ReadOnly bool   `json:"readOnly"`
			Schema   struct {
				Properties map[string]json.RawMessage `json:"properties"`
				Required   []string                   `json:"required"`
			} `json:"inputSchema"`
		}
		if err := json.Unmarshal(data, &tools); err != nil {
			t.Fatal(err)
		}
		if len(tools) != len(actions) {
			t.Errorf("%s: %d are described, %d are there", provider, len(tools), len(actions))
		}
		for _, tool := range tools {
			act, err := find(provider, tool.Action)
			if err != nil || act.ReadOnly != tool.ReadOnly {
				t.Errorf("%s: %+v, %v", tool.Action, act.Action, err)
				continue
			}
			all, required := members(reflect.TypeOf(act.args()).Elem())
			if described := slices.Sorted(maps.Keys(tool.Schema.Properties)); !slices.Equal(all, described) {
				t.Errorf("%s takes %q, %q are described", tool.Action, all, described)
			}
			slices.Sort(tool.Schema.Required)
			if !slices.Equal(required, tool.Schema.Required) {
				t.Errorf("%s needs %q, %q are described", tool.Action, required, tool.Schema.Required)
			}
		}
	}
}

// members lists the JSON members of a struct, and those that must be there.
func members(typ reflect.Type) (all, required []string) {
	for _, f := range reflect.VisibleFields(typ) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous {
			continue
		}
		all = append(all, name)
		if options == "" {
			required = append(required, name)
		}
	}
	slices.Sort(all)
	slices.Sort(required)
	return all, required
}

// TestArguments: what isn't an argument is named, and asks nothing upstream.
func TestArguments(t *testing.T) {
	u := newUpstream(t)
	for _, test := range []struct{ action, args, want string }{
		{"gmail.get", `{"message_id":"m","colour":1}`, `unknown field "colour"`},
		{"gmail.get", `{"message_id":5}`, "cannot unmarshal number"},
		{"gmail.get", `{"message_id":"m","message_id":"n"}`, "appears twice"},
		{"gmail.get", `[]`, "arguments"},
		{"gmail.get", `{"message_id":"a/b"}`, "message_id is not an id"},
		{"gmail.get", ``, "message_id is missing"},
		{"gmail.fly", `{}`, "no such action"},
		{"yahoo.get", `{}`, "no such provider"},
	} {
		e := u.refused(test.action, test.args)
		if e.Code != CodeInvalid || !strings.Contains(e.Message, test.want) {
			t.Errorf("%s %s: %+v", test.action, test.args, e)
		}
		provider, _, _ := strings.Cut(test.action, ".")
		if _, err := Resources(provider, test.action, []byte(test.args)); err == nil {
			t.Errorf("%s %s: resources", test.action, test.args)
		}
	}
	u.asked()
}

// TestRefusals: what a provider says when it doesn't do it, in its own shapes.
func TestRefusals(t *testing.T) {
	u := newUpstream(t)
	const google = `{"error":{"code":%d,"message":%q,"errors":[{"message":"m","domain":"usageLimits","reason":%q}],"status":"S"}}`
	for _, test := range []struct {
		status  int
		body    string
		headers []string
		code    string
		want    string
	}{
		{404, fmt.Sprintf(google, 404, "Requested entity was not found.", "notFound"), nil, CodeAPI, "gmail answered 404: Requested entity was not found."},
		{403, fmt.Sprintf(google, 403, "Insufficient Permission", "insufficientPermissions"), nil, CodeAPI, "gmail answered 403: Insufficient Permission"},
		{403, fmt.Sprintf(google, 403, "Rate", "userRateLimitExceeded"), nil, CodeLimit, "gmail answered 403: Rate"},
		{403, fmt.Sprintf(google, 403, "Rate", "rateLimitExceeded"), nil, CodeLimit, "gmail answered 403: Rate"},
		{429, fmt.Sprintf(google, 429, "Rate", "rateLimitExceeded"), nil, CodeLimit, "gmail answered 429: Rate"},
		{403, `{"message":"API rate limit exceeded for user ID 1."}`, []string{"X-RateLimit-Remaining", "0"}, CodeLimit, "gmail answered 403: API rate limit exceeded for user ID 1."},
		{403, `{"message":"You have exceeded a secondary rate limit"}`, []string{"Retry-After", "60"}, CodeLimit, "gmail answered 403: You have exceeded a secondary rate limit"},
		{401, fmt.Sprintf(google, 401, "token "+token+" is void", "authError"), nil, CodeAPI, "gmail answered 401: the account's authorisation is not valid any more"},
		{301, `{"message":"Moved Permanently","url":"https://api.github.com/repositories/1"}`, []string{"Location", "https://evil.example/"}, CodeAPI, "gmail answered 301: it is somewhere else now"},
		{500, `<html>boom</html>`, []string{"Content-Type", "text/html"}, CodeAPI, "gmail answered 500: internal server error"},
		{503, `{"error":"text"}`, nil, CodeAPI, "gmail answered 503: service unavailable"},
		{400, fmt.Sprintf(google, 400, "a\x1b[31m\nb"+strings.Repeat("x", 1000), "r"), nil, CodeAPI, ""},
		{200, `{"id":`, nil, CodeAPI, "the provider's answer is not what it should be"},
		{200, `[]`, nil, CodeAPI, "the provider's answer is not what it should be"},
		{200, `<html>`, nil, CodeAPI, "the provider's answer is not what it should be"},
		{200, `{"id":"` + strings.Repeat("x", MaxAnswer) + `"}`, nil, CodeAPI, tooLarge().Error()},
	} {
		u.on("GET "+mailRoot+"/m1", test.status, test.body, test.headers...)
		e := u.refused("gmail.get", `{"message_id":"m1"}`)
		if e.Code != test.code || test.want != "" && e.Message != test.want || len(e.Message) > maxMessage+len("…") || strings.ContainsAny(e.Message, "\n\x1b") {
			t.Errorf("%d %.60s: %+v, want %s %q", test.status, test.body, e, test.code, test.want)
		}
		if test.status != 200 && e.Status != test.status {
			t.Errorf("%d: status %d", test.status, e.Status)
		}
	}
}

// TestRedirect: a redirect isn't followed, not even at the same host: the token
// must not go elsewhere, nor the action to something that no policy has seen.
func TestRedirect(t *testing.T) {
	u := newUpstream(t)
	u.on("GET /repos/a/old", 301, `{}`, "Location", "/repos/b/new")
	u.on("GET /repos/b/new", 200, `{"full_name":"b/new"}`)
	if e := u.refused("github.get_repo", `{"owner":"a","repo":"old"}`); e.Status != 301 {
		t.Errorf("%+v", e)
	}
	u.asked("GET /repos/a/old")
}

// TestHang: a provider that hangs is given up, and no address of ours is shown.
func TestHang(t *testing.T) {
	hung := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"id":"m`)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(hung)
	}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	call := Call{Provider: Gmail, Action: "gmail.get", Args: []byte(`{"message_id":"m1"}`), Client: server.Client(), BaseURL: server.URL}
	_, err := Execute(ctx, call)
	var e *Error
	if !errors.As(err, &e) || e.Code != CodeTimeout {
		t.Errorf("%v", err)
	}
	<-hung
	server.Close()
	_, err = Execute(t.Context(), call)
	if !errors.As(err, &e) || e.Code != CodeAPI || e.Message != "the provider can't be reached" {
		t.Errorf("%v", err)
	}
}

func TestAccount(t *testing.T) {
	u := newUpstream(t)
	u.on("GET /gmail/v1/users/me/profile", 200, `{"emailAddress":"ann@example.com","messagesTotal":12,"threadsTotal":5,"historyId":"77"}`)
	u.on("GET /user", 200, `{"login":"octocat","id":1,"email":null,"type":"User"}`)
	u.on("GET /drive/v3/about", 200, `{"user":{"emailAddress":"ann@example.com"}}`)
	u.on("GET /calendar/v3/calendars/primary", 200, `{"kind":"calendar#calendar","id":"ann@example.com","summary":"ann@example.com","timeZone":"Europe/Berlin"}`)
	for provider, want := range map[string]string{Gmail: "ann@example.com", GitHub: "octocat", GoogleDrive: "ann@example.com", GoogleCalendar: "ann@example.com"} {
		name, err := Account(t.Context(), provider, u.call(provider+".x", "").Client, u.server.URL+"/")
		if err != nil || name != want {
			t.Errorf("%s: %q, %v", provider, name, err)
		}
	}
	u.on("GET /user", 200, `{"login":"a\nb"}`)
	if name, err := Account(t.Context(), GitHub, u.call("github.x", "").Client, u.server.URL); err == nil {
		t.Errorf("%q", name)
	}
}

// FuzzUpstream: whatever a provider answers, there is an answer that Filter takes
// from which nothing withheld can be read, or an error of one short line.
func FuzzUpstream(f *testing.F) {
	for _, name := range []string{
		"gmail_list.json", "gmail_full.json", "github_repos.json", "github_issues.json", "github_pulls.json", "github_search.json", "drive_list.json", "calendar_list.json",
	} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		for i := range 26 {
			f.Add(uint8(i), 200, data)
		}
	}
	f.Add(uint8(0), 403, []byte(`{"error":{"errors":[{"reason":"quotaExceeded"}]}}`))
	f.Add(uint8(7), 422, []byte(`{"message":"m","errors":["a",{"field":"f","code":"c"},null]}`))
	var all []action
	for _, provider := range Providers() {
		all = append(all, catalogue[provider]...)
	}
	args := `{"message_id":"m1"}|{"owner":"a","repo":"b"}|{"owner":"a","repo":"b","title":"t","head":"h","base":"b"}|{"file_id":"9"}|{"file_id":"9","name":"n"}|{"name":"n"}|` +
		`{"event_id":"e"}|{"event_id":"e","summary":"s"}|{"summary":"s","start":"2026-01-01","end":"2026-01-02"}|{"query":"q"}|{"to":["a@b.c"],"subject":"s","body":""}|{}`
	f.Fuzz(func(t *testing.T, which uint8, status int, body []byte) {
		if status < 200 || status > 599 {
			return
		}
		act := all[int(which)%len(all)]
		provider, _, _ := strings.Cut(act.Name, ".")
		client := &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(string(body)))}, nil
		})}
		for one := range strings.SplitSeq(args, "|") {
			answer, err := Execute(t.Context(), Call{Provider: provider, Action: act.Name, Args: []byte(one), Client: client})
			if err != nil {
				var e *Error
				if !errors.As(err, &e) || strings.ContainsAny(e.Message, "\n\r\x1b") {
					t.Errorf("%s: %v", act.Name, err)
				}
				continue
			}
			kept, _, err := Filter(provider, act.Name, answer, func(string, string) bool { return false })
			if err != nil || !json.Valid(kept) {
				t.Errorf("%s: %s became %s, %v", act.Name, answer, kept, err)
			}
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

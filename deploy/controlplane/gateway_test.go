package controlplane

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// TestGateway: what a policy makes of requests, and what is recorded of them.
func TestGateway(t *testing.T) {
	p, up := newIntegratedPlane(t)
	b := p.enrolled(p.agentListener(), "sb_1")
	account := p.connectAccount(up, aliceToken, "github")
	up.calls()

	if status, answer := b.execute(p, "pty_1", "github.list_repos", `{}`); status != http.StatusForbidden || codeIn(answer) != "NOT_ATTACHED" {
		t.Errorf("%d %v", status, answer)
	}
	p.want(attachCall(aliceToken, "pty_1", "github", account, ""), http.StatusOK, "")
	if status, answer := b.execute(p, "pty_2", "github.list_repos", `{}`); status != http.StatusForbidden || codeIn(answer) != "NOT_ATTACHED" {
		t.Errorf("another terminal: %d %v", status, answer)
	}

	status, answer := b.execute(p, "pty_1", "github.list_repos", `{}`)
	if status != http.StatusOK || answer["allowed"] != true || answer["decision"] != "allowed" || answer["policyVersion"] != 1.0 ||
		!strings.Contains(fmt.Sprint(answer["filteredResponse"]), "evil/site") {
		t.Errorf("%d %v", status, answer)
	}
	if got := up.calls(); got != "GET /user/repos" {
		t.Errorf("asked %q", got)
	}
	status, answer = b.execute(p, "pty_1", "github.create_issue", `{"owner":"acme","repo":"site","title":"t"}`)
	if status != http.StatusOK || answer["allowed"] != false || answer["decision"] != "denied" || !strings.Contains(answer["reason"].(string), "reading only") {
		t.Errorf("%d %v", status, answer)
	}

	p.want(attachCall(aliceToken, "pty_1", "github", account, `{"github":{"repos":["acme/*"]}}`), http.StatusOK, "")
	status, answer = b.execute(p, "pty_1", "github.list_repos", `{}`)
	if status != http.StatusOK || answer["decision"] != "filtered" || answer["policyVersion"] != 2.0 || !strings.Contains(answer["reason"].(string), "withholds 1") ||
		strings.Contains(fmt.Sprint(answer), "evil") || !strings.Contains(fmt.Sprint(answer), "acme/site") {
		t.Errorf("%d %v", status, answer)
	}
	up.calls()
	status, answer = b.execute(p, "pty_1", "github.get_repo", `{"owner":"evil","repo":"site"}`)
	if status != http.StatusOK || answer["decision"] != "denied" || up.calls() != "" {
		t.Errorf("%d %v", status, answer)
	}

	records := p.want(getAs(aliceToken, "/dashboards/dash_1/integrations/audit"), http.StatusOK, "")["records"].([]any)
	var got []string
	for _, v := range records {
		r := v.(map[string]any)
		got = append(got, fmt.Sprint(r["pty_id"], " ", r["action"], " ", r["decision"], " ", r["policy_version"], " ", r["outcome"]))
		if (r["account_id"] == account) == (r["outcome"] == "NOT_ATTACHED") || r["user_id"] != nil || strings.Contains(fmt.Sprint(r), "title") {
			t.Errorf("%v", r)
		}
	}
	slices.Sort(got) // all are of one moment
	want := []string{
		"pty_1 github.create_issue denied 1 <nil>", "pty_1 github.get_repo denied 2 <nil>", "pty_1 github.list_repos allowed 1 <nil>",
		"pty_1 github.list_repos denied <nil> NOT_ATTACHED", "pty_1 github.list_repos filtered 2 <nil>",
		"pty_2 github.list_repos denied <nil> NOT_ATTACHED",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	first := records[0].(map[string]any)["id"].(string)
	if rest := p.want(getAs(bobToken, "/dashboards/dash_1/integrations/audit?limit=2&before="+first), http.StatusOK, "")["records"].([]any); len(rest) != 2 {
		t.Errorf("%v", rest)
	}
	p.want(getAs(carolToken, "/dashboards/dash_1/integrations/audit"), http.StatusForbidden, "AuthError")
	p.want(getAs(aliceToken, "/dashboards/dash_1/integrations/audit?limit=0"), http.StatusBadRequest, "RequestError")
}

// TestTerminalIntegrations: a sandbox learns what its own terminals have.
func TestTerminalIntegrations(t *testing.T) {
	p, up := newIntegratedPlane(t)
	srv := p.agentListener()
	b, other := p.enrolled(srv, "sb_1"), p.enrolled(srv, "sb_2")
	account := p.connectAccount(up, aliceToken, "github")
	attached := p.want(attachCall(aliceToken, "pty_1", "github", account, ""), http.StatusOK, "")["attachment"].(map[string]any)
	const path = "/internal/terminals/pty_1/integrations?session_id=ses_1"
	status, answer := b.send(p, "GET", path, nil)
	want := map[string]any{"provider": "github", "activePolicyId": attached["policy_id"], "accountEmail": "octo"}
	if list, _ := answer["integrations"].([]any); status != http.StatusOK || len(list) != 1 || fmt.Sprint(list[0]) != fmt.Sprint(want) || len(answer) != 1 {
		t.Errorf("%d %v", status, answer)
	}
	status, answer = b.send(p, "GET", strings.Replace(path, "pty_1", "pty_2", 1), nil)
	if list, ok := answer["integrations"].([]any); status != http.StatusOK || !ok || len(list) != 0 {
		t.Errorf("%d %v", status, answer)
	}
	for target, status := range map[string]int{
		strings.Replace(path, "ses_1", "ses_9", 1): 404,
		"/internal/terminals/pty_1/integrations":   404,
		strings.Replace(path, "pty_1", "a%20b", 1): 400,
	} {
		if got, answer := b.send(p, "GET", target, nil); got != status {
			t.Errorf("%s: %d %v", target, got, answer)
		}
	}
	if status, answer := other.send(p, "GET", path, nil); status != http.StatusNotFound {
		t.Errorf("another sandbox: %d %v", status, answer)
	}
	if err := p.server.store.Sessions.EndSession(t.Context(), "ses_1"); err != nil {
		t.Fatal(err)
	}
	if status, answer := b.send(p, "GET", path, nil); status != http.StatusGone {
		t.Errorf("after its end: %d %v", status, answer)
	}
}

// TestDeviceRequests: a request counts if the whole of it is signed, now.
func TestDeviceRequests(t *testing.T) {
	p, _ := newIntegratedPlane(t)
	srv := p.agentListener()
	b, other := p.enrolled(srv, "sb_1"), p.enrolled(srv, "sb_2")
	const path = "/internal/gateway/tasks/execute"
	body := []byte(`{"session_id":"ses_1","action":"tasks.list"}`)
	now := p.clock.Now()
	good := func() map[string]string { return b.headers(t, "POST", path, body, now) }
	with := func(name, value string) map[string]string {
		h := good()
		h[name] = value
		return h
	}
	for _, tt := range []struct {
		name    string
		body    string
		headers map[string]string
		status  int
	}{
		{"good", string(body), good(), 200},
		{"just in time", string(body), b.headers(t, "POST", path, body, now.Add(-protocol.ClockSkew)), 200},
		{"unsigned", string(body), nil, 401},
		{"no certificate", string(body), with(protocol.CertificateHeader, ""), 401},
		{"another's certificate", string(body), with(protocol.CertificateHeader, other.certificate), 401},
		{"no signature", string(body), with(protocol.SignatureHeader, ""), 401},
		{"not base64", string(body), with(protocol.SignatureHeader, "?"), 401},
		{"no time", string(body), with(protocol.SignedAtHeader, ""), 401},
		{"another time", string(body), with(protocol.SignedAtHeader, "1"), 401},
		{"another body", strings.Replace(string(body), "list", "get", 1), good(), 401},
		{"another method", string(body), b.headers(t, "GET", path, body, now), 401},
		{"another path", string(body), b.headers(t, "POST", strings.Replace(path, "tasks", "memory", 1), body, now), 401},
		{"a query that is not signed", string(body), b.headers(t, "POST", path+"?x=1", body, now), 401},
		{"too old", string(body), b.headers(t, "POST", path, body, now.Add(-protocol.ClockSkew-time.Millisecond)), 401},
		{"of the future", string(body), b.headers(t, "POST", path, body, now.Add(protocol.ClockSkew+time.Millisecond)), 401},
		{"time that overflows", string(body), b.headers(t, "POST", path, body, time.UnixMilli(-1<<63)), 401},
		{"another sandbox", string(body), other.headers(t, "POST", path, body, now), 404},
	} {
		if status, answer := p.sendSigned("POST", path, []byte(tt.body), tt.headers); status != tt.status {
			t.Errorf("%s: %d %v, want %d", tt.name, status, answer, tt.status)
		}
	}
	if err := p.server.store.Fleet.RevokeSandbox(t.Context(), "sb_1", p.clock.Now()); err != nil {
		t.Fatal(err)
	}
	if status, answer := p.sendSigned("POST", path, body, good()); status != http.StatusUnauthorized {
		t.Errorf("after its revocation: %d %v", status, answer)
	}
}

func TestGatewayInvalid(t *testing.T) {
	p, up := newIntegratedPlane(t)
	b := p.enrolled(p.agentListener(), "sb_1")
	account := p.connectAccount(up, aliceToken, "github")
	p.want(attachCall(aliceToken, "pty_1", "github", account, ""), http.StatusOK, "")
	up.calls()
	const of = `"session_id":"ses_1","pty_id":"pty_1","action":"github.get_repo"`
	for _, tt := range []struct {
		name, provider, body string
		status               int
		code                 string
	}{
		{"no body", "github", ``, 400, "INVALID_REQUEST"},
		{"not an object", "github", `[]`, 400, "INVALID_REQUEST"},
		{"unknown member", "github", `{` + of + `,"token":"x"}`, 400, "INVALID_REQUEST"},
		{"a member twice", "github", `{` + of + `,"action":"github.get_repo"}`, 400, "INVALID_REQUEST"},
		{"args that are a list", "github", `{` + of + `,"args":[]}`, 400, "INVALID_REQUEST"},
		{"args that lack something", "github", `{` + of + `,"args":{"owner":"acme"}}`, 400, "INVALID_REQUEST"},
		{"args that are too many", "github", `{` + of + `,"args":{"owner":"acme","repo":"site","x":1}}`, 400, "INVALID_REQUEST"},
		{"no action", "github", `{"session_id":"ses_1","pty_id":"pty_1"}`, 400, "INVALID_REQUEST"},
		{"another provider's action", "github", `{"session_id":"ses_1","pty_id":"pty_1","action":"gmail.search"}`, 400, "INVALID_REQUEST"},
		{"unknown action", "github", `{"session_id":"ses_1","pty_id":"pty_1","action":"github.delete_repo"}`, 400, "INVALID_REQUEST"},
		{"no terminal", "github", `{"session_id":"ses_1","action":"github.list_repos"}`, 400, "INVALID_REQUEST"},
		{"strange terminal", "github", `{"session_id":"ses_1","pty_id":"/","action":"github.list_repos"}`, 400, "INVALID_REQUEST"},
		{"no session", "github", `{"pty_id":"pty_1","action":"github.list_repos"}`, 404, ""},
		{"unknown provider", "gitlab", `{"session_id":"ses_1","pty_id":"pty_1","action":"gitlab.list"}`, 404, ""},
		{"a user who isn't a member", "github", `{` + of + `,"user_id":"usr_dave"}`, 403, "POLICY_DENIED"},
		{"a user without mcp", "github", `{` + of + `,"user_id":"usr_bob"}`, 403, "POLICY_DENIED"},
		{"nested too deep", "github", `{` + of + `,"args":{"owner":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}}`, 400, "INVALID_REQUEST"},
		{"too large", "github", `{"x":"` + strings.Repeat("a", 4<<20) + `"}`, 413, "INVALID_REQUEST"},
	} {
		target := "/internal/gateway/" + tt.provider + "/execute"
		if status, answer := b.send(p, "POST", target, []byte(tt.body)); status != tt.status || codeIn(answer) != tt.code {
			t.Errorf("%s: %d %v, want %d %s", tt.name, status, answer, tt.status, tt.code)
		}
	}
	if got := up.calls(); got != "" {
		t.Errorf("the provider was asked %s", got)
	}
}

// TestGatewayUpstream: whatever a provider answers, no token gets out.
func TestGatewayUpstream(t *testing.T) {
	p, up := newIntegratedPlane(t)
	b := p.enrolled(p.agentListener(), "sb_1")
	account := p.connectAccount(up, aliceToken, "github")
	p.want(attachCall(aliceToken, "pty_1", "github", account, `{}`), http.StatusOK, "")
	for _, tt := range []struct {
		name   string
		answer func(w http.ResponseWriter, r *http.Request)
		status int
		code   string
	}{
		{"garbage", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") }, 502, "API_ERROR"},
		{"nothing", func(http.ResponseWriter, *http.Request) {}, 502, "API_ERROR"},
		{"a fault of its own", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, 502, "API_ERROR"},
		{"an error that echoes the token", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(403)
			fmt.Fprintf(w, `{"message":"not for %s"}`, r.Header.Get("Authorization"))
		}, 502, "API_ERROR"},
		{"an error in which the token is cut", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(400)
			token := strings.ReplaceAll(r.Header.Get("Authorization"), "-", `\u002d`)
			fmt.Fprintf(w, `{"message":"%s %s"}`, strings.Repeat("x", 300-len("github answered 400:  Bearer access-1")), token)
		}, 502, "API_ERROR"},
		{"an answer that echoes the token", func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, `[{"full_name":"acme/site","description":"%s"}]`, r.Header.Get("Authorization"))
		}, 200, ""},
		{"a redirect elsewhere", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/steal", http.StatusFound)
		}, 502, "API_ERROR"},
		{"too much", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `[{"full_name":"a/b","description":"`+strings.Repeat("x", 5<<20)+`"}]`)
		}, 502, "API_ERROR"},
		{"too much beside what is said of it", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `[{"full_name":"a/b","description":"`+strings.Repeat("x", protocol.MaxGatewayAnswer-150)+`"}]`)
		}, 502, "API_ERROR"},
		{"too fast", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) }, 429, "RATE_LIMITED"},
		{"a connection that breaks", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 502, "API_ERROR"},
	} {
		up.set(func() { up.answer = tt.answer })
		status, answer := b.execute(p, "pty_1", "github.list_repos", `{}`)
		if status != tt.status || codeIn(answer) != tt.code || strings.Contains(fmt.Sprint(answer), "access-") {
			t.Errorf("%s: %d %v, want %d %s", tt.name, status, answer, tt.status, tt.code)
		}
	}
	p.checkSecrecy("access-", "refresh-")
}

// TestRenewal: a token is renewed before it ends, and one that is refused, once
// for all who wait.
func TestRenewal(t *testing.T) {
	p, up := newIntegratedPlane(t)
	b := p.enrolled(p.agentListener(), "sb_1")
	account := p.connectAccount(up, aliceToken, "github")
	p.want(attachCall(aliceToken, "pty_1", "github", account, ""), http.StatusOK, "")
	ask := func(status int, code string) {
		t.Helper()
		if got, answer := b.execute(p, "pty_1", "github.list_repos", `{}`); got != status || codeIn(answer) != code {
			t.Errorf("%d %v, want %d %s", got, answer, status, code)
		}
	}
	renewals := func(want int) {
		t.Helper()
		if up.renewals != want {
			t.Errorf("%d renewals, want %d", up.renewals, want)
		}
	}
	ask(http.StatusOK, "")
	renewals(0)
	p.clock.Advance(58 * time.Minute) // of 60
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { ask(http.StatusOK, "") })
	}
	wg.Wait()
	renewals(1)
	up.set(func() { up.valid = "another" }) // refused before its time
	ask(http.StatusOK, "")
	renewals(2)

	// While the provider doesn't renew, the token serves until its end.
	p.clock.Advance(59 * time.Minute)
	up.set(func() { up.refuse = "temporarily_unavailable" })
	ask(http.StatusOK, "")
	p.clock.Advance(2 * time.Minute)
	ask(http.StatusBadGateway, "API_ERROR")
	up.set(func() { up.refuse = "" })
	ask(http.StatusOK, "")

	// A grant that is void is asked about no more, until it is connected again.
	p.clock.Advance(2 * time.Hour)
	up.set(func() { up.refuse, up.renewals = "invalid_grant", 0 })
	ask(http.StatusBadGateway, "API_ERROR")
	ask(http.StatusBadGateway, "API_ERROR")
	renewals(1)
	a := p.want(getAs(aliceToken, "/integrations"), http.StatusOK, "")["accounts"].([]any)[0].(map[string]any)
	if a["needs_reconnect"] != true {
		t.Errorf("%v", a)
	}
	up.set(func() { up.refuse = "" })
	p.connectAccount(up, aliceToken, "github")
	ask(http.StatusOK, "")
}

// TestRenewalAtOnce: of several requests of one action that are refused, each
// is made again with the token that one of them brought.
func TestRenewalAtOnce(t *testing.T) {
	p, up := newIntegratedPlane(t)
	b := p.enrolled(p.agentListener(), "sb_1")
	account := p.connectAccount(up, aliceToken, "gmail")
	p.want(attachCall(aliceToken, "pty_1", "gmail", account, ""), http.StatusOK, "")
	up.set(func() {
		up.answer = func(w http.ResponseWriter, r *http.Request) {
			id := path.Base(r.URL.Path)
			if id != "messages" {
				fmt.Fprintf(w, `{"id":%q}`, id)
				return
			}
			io.WriteString(w, `{"messages":[{"id":"m1"},{"id":"m2"},{"id":"m3"},{"id":"m4"},{"id":"m5"},{"id":"m6"}]}`)
			up.set(func() { up.valid = "another" })
		}
	})
	status, answer := b.execute(p, "pty_1", "gmail.search", `{}`)
	response, _ := answer["filteredResponse"].(map[string]any)
	if found, _ := response["messages"].([]any); status != http.StatusOK || len(found) != 6 {
		t.Errorf("%d %v", status, answer)
	}
	if up.renewals != 1 {
		t.Errorf("%d renewals", up.renewals)
	}
}

// TestEcho: an echo of the token that isn't text, or is taken for scopes.
func TestEcho(t *testing.T) {
	p, up := newIntegratedPlane(t)
	b := p.enrolled(p.agentListener(), "sb_1")
	up.set(func() { up.echoScope = true })
	account := p.connectAccount(up, aliceToken, "github")
	if answer := p.want(getAs(aliceToken, "/integrations"), http.StatusOK, ""); strings.Contains(fmt.Sprint(answer), "access-") {
		t.Errorf("%v", answer)
	}
	p.want(attachCall(aliceToken, "pty_1", "github", account, ""), http.StatusOK, "")
	up.set(func() {
		up.answer = func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.Header.Get("Accept"), "raw") {
				io.WriteString(w, "\xff\xff\xff"+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
				return
			}
			io.WriteString(w, `{"type":"file","encoding":"none","content":""}`)
		}
	})
	status, answer := b.execute(p, "pty_1", "github.get_file", `{"owner":"acme","repo":"site","path":"x"}`)
	response, _ := answer["filteredResponse"].(map[string]any)
	content, _ := response["content"].(string)
	data, err := base64.StdEncoding.DecodeString(content)
	if status != http.StatusOK || err != nil || string(data) != "\xff\xff\xff[token]" {
		t.Errorf("%d %v, %v", status, answer, err)
	}
	p.checkSecrecy("access-", "refresh-")
}

// TestBoardCall: what needs no integration is recorded, too.
func TestBoardCall(t *testing.T) {
	p, _ := newIntegratedPlane(t)
	b := p.enrolled(p.agentListener(), "sb_1")
	status, answer := b.execute(p, "", "tasks.create", `{"title":"Write it down"}`)
	if status != http.StatusOK || answer["decision"] != "allowed" || answer["filteredResponse"] == nil {
		t.Fatalf("%d %v", status, answer)
	}
	if tasks, err := p.server.store.Contents.Tasks(t.Context(), "dash_1", ""); err != nil || len(tasks) != 1 || tasks[0].Title != "Write it down" {
		t.Errorf("%+v, %v", tasks, err)
	}
	if status, answer := b.execute(p, "", "tasks.destroy", `{}`); status/100 != 4 && status != 501 || codeIn(answer) != "INVALID_REQUEST" {
		t.Errorf("%d %v", status, answer)
	}
	records := p.want(getAs(aliceToken, "/dashboards/dash_1/integrations/audit"), http.StatusOK, "")["records"].([]any)
	if len(records) != 2 {
		t.Errorf("%v", records)
	}
}

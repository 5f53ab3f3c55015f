package controlplane

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// tabAt is a tab as a page reports it.
func (p *plane) tabAt(id int, until time.Duration) string {
	return fmt.Sprintf(`{"tabId":%d,"title":"Mail","url":"https://mail.example/inbox?token=secret#x","expiresAt":%d}`, id, p.clock.Now().Add(until).UnixMilli())
}

// share reports, as a relay does, what a browser shares with the session.
func (p *plane) share(grant, browser string, tabs ...string) call {
	return call{"POST", "/internal/tabs", relayToken, `{"grant":"` + grant + `","session":"ses_1","browserId":"` + browser +
		`","extensionId":"abc","tabs":[` + strings.Join(tabs, ",") + `]}`, nil}
}

func (p *plane) shared(grant string) []any {
	p.t.Helper()
	list, _ := p.want(call{"POST", "/internal/tabs/list", relayToken, `{"grant":"` + grant + `","session":"ses_1"}`, nil}, http.StatusOK, "")["tabs"].([]any)
	return list
}

// tools returns the providers of a terminal.
func (b *testSandbox) tools(p *plane) string {
	p.t.Helper()
	status, answer := b.send(p, "GET", "/internal/terminals/pty_1/integrations?session_id=ses_1", nil)
	if status != http.StatusOK {
		p.t.Errorf("%d %v", status, answer)
	}
	return fmt.Sprint(answer["integrations"])
}

// TestSharedTabs: while a tab is shared, the session's agents list and use it in
// the sharer's name; each use is recorded.
func TestSharedTabs(t *testing.T) {
	p := newPlane(t)
	b := p.enrolled(p.agentListener(), "sb_1")
	relay := newFakeRelay(t, callback(`"status":"ok","result":{"kind":"cdp.send","tabId":7,"method":"Page.reload","response":{"frameId":"F"}}`))
	p.register("rl_1", relayToken, relay.URL)
	grant := p.grant(aliceToken, `{"session_id":"ses_1"}`)
	if got := b.tools(p); got != "[]" {
		t.Errorf("tools of a session without tabs: %s", got)
	}
	if status, answer := b.execute(p, "pty_1", "tabs.send", `{"tab":"`+laptop+`/7","method":"Page.reload"}`); status != http.StatusForbidden || codeIn(answer) != "NOT_ATTACHED" {
		t.Errorf("what isn't shared: %d %v", status, answer)
	}
	p.want(p.share(grant, laptop, p.tabAt(7, 2*time.Hour), p.tabAt(8, -time.Second)), http.StatusOK, "")
	list := p.shared(p.grant(carolToken, `{"session_id":"ses_1"}`))
	if len(list) != 1 {
		t.Fatalf("shared: %v", list)
	}
	tab := list[0].(map[string]any)
	if tab["user"] != "usr_alice" || tab["tabId"] != 7.0 || tab["url"] != "https://mail.example/inbox" || tab["expiresAt"] != p.clock.Now().Add(time.Hour).UTC().Format(time.RFC3339Nano) {
		t.Errorf("a shared tab: %v", tab)
	}
	if got := b.tools(p); !strings.Contains(got, "tabs") {
		t.Errorf("tools: %s", got)
	}
	if got := p.metrics(); !strings.Contains(got, "fairlead_controlplane_shared_tabs 1\n") {
		t.Error("a shared tab isn't counted, or more are")
	}
	status, answer := b.execute(p, "pty_1", "tabs.list", `{}`)
	if text := fmt.Sprint(answer); status != http.StatusOK || !strings.Contains(text, laptop+"/7") || strings.Contains(text, "secret") {
		t.Errorf("tabs.list: %d %v", status, answer)
	}
	status, answer = b.execute(p, "pty_1", "tabs.send", `{"tab":"`+laptop+`/7","method":"Page.reload"}`)
	if status != http.StatusOK || !strings.Contains(fmt.Sprint(answer), "frameId") {
		t.Errorf("tabs.send: %d %v", status, answer)
	}
	var sent protocol.CommandEnvelope
	for _, env := range relay.got() {
		if env.Target.ExtensionID != "" {
			sent = env
		}
	}
	if want := (protocol.CommandTarget{SessionID: "ses_1", ExtensionID: "abc", BrowserID: laptop, TabID: 7}); sent.Target != want {
		t.Errorf("sent to %+v", sent.Target)
	}
	signed, err := p.keys().Command(t.Context(), sent.JWS, "browser-extension")
	if err != nil || signed.UserID != "usr_alice" || signed.TTLMs != 15_000 {
		t.Errorf("signed %+v, %v", signed, err)
	}
	record := p.want(getAs(aliceToken, "/dashboards/dash_1/integrations/audit?limit=1"), http.StatusOK, "")["records"].([]any)[0].(map[string]any)
	if record["action"] == "tabs.list" { // all are of one moment
		record = p.want(getAs(aliceToken, "/dashboards/dash_1/integrations/audit?limit=3"), http.StatusOK, "")["records"].([]any)[1].(map[string]any)
	}
	if !strings.HasPrefix(fmt.Sprint(record["action"]), "tabs.") {
		t.Errorf("recorded %v", record)
	}
	ran := p.want(call{"POST", "/internal/tabs/list", relayToken, `{"grant":"` + grant + `","session":"ses_1"}`, nil}, http.StatusOK, "")
	first := ran["commands"].([]any)[0].(map[string]any)
	if first["method"] != "Page.reload" || first["by"] != "agent" || first["status"] != "ok" || first["answer"] != `{"frameId":"F"}` {
		t.Errorf("ran: %v", first)
	}
	last, _ := p.shared(grant)[0].(map[string]any)["last"].(map[string]any)
	if last["method"] != "Page.reload" || last["status"] != "ok" {
		t.Errorf("last: %v", last)
	}
	// What ran in alice's browser, others don't read.
	others := p.want(call{"POST", "/internal/tabs/list", relayToken, `{"grant":"` + p.grant(bobToken, `{"session_id":"ses_1"}`) + `","session":"ses_1"}`, nil}, http.StatusOK, "")
	if n := len(others["commands"].([]any)); n != 0 {
		t.Errorf("bob reads %d commands", n)
	}
	p.server.commands.Settlements.Close()
}

// TestWhatAgentsMayNotSend: the list of methods, the time, and tabs of others.
func TestWhatAgentsMayNotSend(t *testing.T) {
	p := newPlane(t)
	b := p.enrolled(p.agentListener(), "sb_1")
	relay := newFakeRelay(t, callback(`"status":"error","error":{"message":"No such tab","name":"TargetError"}`))
	p.register("rl_1", relayToken, relay.URL)
	p.want(p.share(p.grant(aliceToken, `{"session_id":"ses_1"}`), laptop, p.tabAt(7, time.Hour)), http.StatusOK, "")
	for args, c := range map[string]struct {
		status int
		code   string
	}{
		`{"tab":"T","method":"Network.getAllCookies"}`:                             {403, "POLICY_DENIED"},
		`{"tab":"T","method":"Page.navigate","params":{"url":"file:///etc/x"}}`:    {400, "INVALID_REQUEST"},
		`{"tab":"T","method":"Page.navigate","params":{"url":"javascript:1"}}`:     {400, "INVALID_REQUEST"},
		`{"tab":"T","method":"Page.reload","params":{"scriptToEvaluateOnLoad":1}}`: {403, "POLICY_DENIED"},
		`{"tab":"T","method":"Page.reload","timeoutMs":20001}`:                     {400, "INVALID_REQUEST"},
		`{"tab":"T","method":"Page.reload","sessionId":"ses_2"}`:                   {400, "INVALID_REQUEST"},
		`{"tab":"` + tower + `/7","method":"Page.reload"}`:                         {403, "NOT_ATTACHED"},
		`{"tab":"` + laptop + `/8","method":"Page.reload"}`:                        {403, "NOT_ATTACHED"},
		`{"tab":"T","method":"Page.reload"}`:                                       {502, "API_ERROR"}, // the browser says no
	} {
		status, answer := b.execute(p, "pty_1", "tabs.send", strings.Replace(args, `"T"`, `"`+laptop+`/7"`, 1))
		if status != c.status || codeIn(answer) != c.code {
			t.Errorf("%s: %d %v", args, status, answer)
		}
	}
	if status, answer := b.execute(p, "pty_1", "tabs.steal", `{}`); status != http.StatusBadRequest {
		t.Errorf("%d %v", status, answer)
	}
	p.server.commands.Settlements.Close()
}

// TestNoPageIsOpen: nobody answered in time.
func TestNoPageIsOpen(t *testing.T) {
	p := newPlane(t)
	b := p.enrolled(p.agentListener(), "sb_1")
	relay := newFakeRelay(t, func(w http.ResponseWriter, _ protocol.CommandEnvelope) {
		w.WriteHeader(http.StatusUnauthorized)
		json.NewEncoder(w).Encode(map[string]any{"error": protocol.ErrorBody{Message: "nobody answered the command in time", Name: "ExpiredError"}})
	})
	p.register("rl_1", relayToken, relay.URL)
	p.want(p.share(p.grant(aliceToken, `{"session_id":"ses_1"}`), laptop, p.tabAt(7, time.Hour)), http.StatusOK, "")
	status, answer := b.execute(p, "pty_1", "tabs.send", `{"tab":"`+laptop+`/7","method":"Page.reload","timeoutMs":1000}`)
	if status != http.StatusGatewayTimeout || codeIn(answer) != "TIMEOUT" || !strings.Contains(fmt.Sprint(answer), "no answer from the browser of Alice") {
		t.Errorf("%d %v", status, answer)
	}
}

// TestHowSharesEnd: by their person's next report, with time, with the grant, and
// with the membership; by nobody else.
func TestHowSharesEnd(t *testing.T) {
	for name, end := range map[string]func(p *plane, grant string){
		"by their person": func(p *plane, grant string) { p.want(p.share(grant, laptop), http.StatusOK, "") },
		"the tab's time":  func(p *plane, _ string) { p.clock.Advance(5*time.Minute + time.Second) },
		"membership": func(p *plane, _ string) {
			p.nothing(call{"DELETE", "/dashboards/dash_1/members/usr_bob", aliceToken, "", nil})
		},
		"no right to share": func(p *plane, _ string) {
			p.want(call{"PUT", "/dashboards/dash_1/members/usr_bob", aliceToken, `{"role":"viewer"}`, nil}, 200, "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlane(t)
			b := p.enrolled(p.agentListener(), "sb_1")
			p.want(call{"PUT", "/dashboards/dash_1/members/usr_bob", aliceToken, `{"role":"editor","capabilities":["view","mcp"]}`, nil}, 200, "")
			grant := p.grant(bobToken, `{"session_id":"ses_1"}`)
			p.want(p.share(grant, laptop, p.tabAt(7, 5*time.Minute)), http.StatusOK, "")
			p.want(p.share(p.grant(aliceToken, `{"session_id":"ses_1"}`), laptop), http.StatusOK, "") // not alice's to end
			if got := b.tools(p); !strings.Contains(got, "tabs") {
				t.Fatalf("tools: %s", got)
			}
			end(p, grant)
			if got := b.tools(p); got != "[]" {
				t.Errorf("tools: %s", got)
			}
		})
	}
}

// TestSharesOfASleepingPage: a share ends with the grant under which it was reported,
// as a page that sleeps renews none. Agents have the tools no more, and a call is told
// why. The page's next report, under its next grant, brings them back.
func TestSharesOfASleepingPage(t *testing.T) {
	p := newPlane(t)
	b := p.enrolled(p.agentListener(), "sb_1")
	report := func() {
		t.Helper()
		p.want(p.share(p.grant(aliceToken, `{"session_id":"ses_1"}`), laptop, p.tabAt(7, time.Hour)), http.StatusOK, "")
	}
	report()
	p.clock.Advance(protocol.MaxGrantTTL - time.Second)
	if got := b.tools(p); !strings.Contains(got, "tabs") {
		t.Errorf("tools while the grant holds: %s", got)
	}
	p.clock.Advance(2 * time.Second)
	if got := b.tools(p); got != "[]" {
		t.Errorf("tools after the grant: %s", got)
	}
	status, answer := b.execute(p, "pty_1", "tabs.send", `{"tab":"`+laptop+`/7","method":"Page.reload"}`)
	if status != http.StatusForbidden || codeIn(answer) != "NOT_ATTACHED" {
		t.Errorf("a call after the grant: %d %v", status, answer)
	}
	if list := p.shared(p.grant(aliceToken, `{"session_id":"ses_1"}`)); len(list) != 0 {
		t.Errorf("people see %v", list)
	}
	report()
	if got := b.tools(p); !strings.Contains(got, "tabs") {
		t.Errorf("tools when the page is back: %s", got)
	}
	if list := p.shared(p.grant(aliceToken, `{"session_id":"ses_1"}`)); len(list) != 1 {
		t.Errorf("people see %v", list)
	}
}

func TestReportsThatAreRefused(t *testing.T) {
	p := newPlane(t)
	alice, carol := p.grant(aliceToken, `{"session_id":"ses_1"}`), p.grant(carolToken, `{"session_id":"ses_1"}`)
	narrow := p.grant(aliceToken, `{"session_id":"ses_1","capabilities":["view"]}`)
	tab := p.tabAt(7, time.Minute)
	var many []string
	for i := range 33 {
		many = append(many, p.tabAt(i+1, time.Minute))
	}
	for name, c := range map[string]struct {
		call   call
		status int
		name   string
	}{
		"a viewer":          {p.share(carol, laptop, tab), 403, "AuthError"},
		"a narrow grant":    {p.share(narrow, laptop, tab), 403, "AuthError"},
		"no grant":          {p.share("x", laptop, tab), 401, "AuthError"},
		"no browser":        {p.share(alice, "br_1", tab), 400, "RequestError"},
		"one tab twice":     {p.share(alice, laptop, tab, tab), 400, "RequestError"},
		"a file":            {p.share(alice, laptop, strings.Replace(tab, "https://", "file:///", 1)), 400, "RequestError"},
		"a script":          {p.share(alice, laptop, strings.Replace(tab, "https://mail.example/inbox", "javascript:1", 1)), 400, "RequestError"},
		"too many":          {p.share(alice, laptop, many...), 429, "LimitError"},
		"not a relay":       {call{"POST", "/internal/tabs", aliceToken, p.share(alice, laptop).body, nil}, 401, "AuthError"},
		"no list":           {call{"POST", "/internal/tabs", relayToken, strings.Replace(p.share(alice, laptop).body, "[]", "null", 1), nil}, 400, "RequestError"},
		"another's session": {call{"POST", "/internal/tabs", relayToken, strings.Replace(p.share(alice, laptop).body, "ses_1", "ses_2", 1), nil}, 403, "AuthError"},
	} {
		t.Run(name, func(t *testing.T) { p.want(c.call, c.status, c.name) })
	}
	p.want(p.share(alice, laptop, many[:20]...), http.StatusOK, "")
	p.want(p.share(alice, tower, many[:13]...), http.StatusTooManyRequests, "LimitError") // of all browsers together
	p.want(p.share(alice, tower, many[:12]...), http.StatusOK, "")
}

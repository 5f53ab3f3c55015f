package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// A platformScript sends what the API script of the terminal platform of seed
// 001 sends, as curl does: no body where it has none, a form's content type
// where it has one. It has one token for everything; here a user token makes and
// ends sessions and buys the grant that everything in them takes (DESIGN §7).
type platformScript struct {
	t       *testing.T
	ctx     context.Context
	user    User
	grant   string
	session protocol.SessionID
	pty     protocol.PTYID
}

// curl makes a request as "curl -sf" does: ok is false from status 400 on, and
// the body is empty then.
func (p *platformScript) curl(method, path, data string) (status int, body []byte) {
	p.t.Helper()
	var payload io.Reader
	if data != "" {
		payload = strings.NewReader(data)
	}
	req, err := http.NewRequestWithContext(p.ctx, method, p.user.Base+path, payload)
	must(p.t, err)
	if data != "" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	token := p.grant
	if path == "/sessions" || method == http.MethodDelete && strings.Count(path, "/") == 2 {
		token = p.user.Token
	}
	if path != "/health" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	must(p.t, err)
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	must(p.t, err)
	return resp.StatusCode, body
}

// in is curl below the session.
func (p *platformScript) in(method, path, data string) (int, []byte) {
	p.t.Helper()
	return p.curl(method, "/sessions/"+string(p.session)+path, data)
}

// field reads one member of an answer, wherever jq would.
func field(t *testing.T, body []byte, name string) string {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal(body, &object); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	text, _ := object[name].(string)
	return text
}

func (p *platformScript) want(t *testing.T, status, got int, body []byte) {
	t.Helper()
	if got != status {
		t.Fatalf("%d %s, want %d", got, body, status)
	}
}

// count returns how many there are of what a list is called.
func (p *platformScript) count(t *testing.T, path, name string) int {
	t.Helper()
	status, body := p.in(http.MethodGet, path, "")
	p.want(t, http.StatusOK, status, body)
	var lists map[string]json.RawMessage
	must(t, json.Unmarshal(body, &lists))
	var list []any
	must(t, json.Unmarshal(lists[name], &list))
	return len(list)
}

// The 17 checks of the platform's API script, in its order, each of which goes on
// with what the ones before it have made.
func TestFound30APIScript(t *testing.T) {
	s := own(t)
	p := &platformScript{t: t, ctx: within(t), user: s.Ready.User("alice")}
	checks := []struct {
		name  string
		check func(*testing.T)
	}{
		{"01 health", p.health},
		{"02 POST sessions creates a session", p.createSession},
		{"03 POST ptys creates a terminal", p.createPTY},
		{"04 GET ptys lists it", p.listPTYs},
		{"05 DELETE removes a terminal", p.deletePTY},
		{"06 GET files lists an empty workspace", func(t *testing.T) { p.wantFiles(t, 0) }},
		{"07 PUT and GET file", p.file},
		{"08 GET stat", p.stat},
		{"09 GET files shows the file", func(t *testing.T) { p.wantFiles(t, 1) }},
		{"10 DELETE file", p.deleteFile},
		{"11 POST agent starts an agent", p.startAgent},
		{"12 GET agent says running", p.agentRuns},
		{"13 POST pause", func(t *testing.T) { p.steer(t, "pause", "paused") }},
		{"14 POST resume", func(t *testing.T) { p.steer(t, "resume", "running") }},
		{"15 POST stop", p.stopAgent},
		{"16 socket", p.socket},
		{"17 DELETE terminal and session", p.cleanUp},
	}
	for _, c := range checks {
		if !t.Run(c.name, func(t *testing.T) { p.t = t; c.check(t) }) && c.name[:2] == "02" {
			t.Fatal("nothing below works without a session")
		}
	}
}

func (p *platformScript) health(t *testing.T) {
	status, body := p.curl(http.MethodGet, "/health", "")
	p.want(t, http.StatusOK, status, body)
	if field(t, body, "status") != "ok" || field(t, body, "revision") == "" {
		t.Errorf("%s", body)
	}
	var all map[string]any
	must(t, json.Unmarshal(body, &all))
	delete(all, "chatEnabled") // side panels may come here
	if len(all) != 2 {
		t.Errorf("it says more than it should: %s", body)
	}
}

func (p *platformScript) createSession(t *testing.T) {
	status, body := p.curl(http.MethodPost, "/sessions", "")
	p.want(t, http.StatusCreated, status, body)
	p.session = protocol.SessionID(field(t, body, "id"))
	if !protocol.ValidID(p.session) || field(t, body, "machine_id") == "" {
		t.Fatalf("%s", body)
	}
	var err error
	p.grant, err = p.user.Grant(p.ctx, p.session)
	must(t, err)
}

func (p *platformScript) createPTY(t *testing.T) {
	status, body := p.in(http.MethodPost, "/ptys", "")
	p.want(t, http.StatusCreated, status, body)
	p.pty = protocol.PTYID(field(t, body, "id"))
}

func (p *platformScript) listPTYs(t *testing.T) {
	status, body := p.in(http.MethodGet, "/ptys", "")
	p.want(t, http.StatusOK, status, body)
	var list struct{ PTYs []struct{ ID protocol.PTYID } }
	must(t, json.Unmarshal(body, &list))
	if len(list.PTYs) != 1 || list.PTYs[0].ID != p.pty {
		t.Errorf("%s, want %s alone", body, p.pty)
	}
}

func (p *platformScript) deletePTY(t *testing.T) {
	status, body := p.in(http.MethodPost, "/ptys", "")
	p.want(t, http.StatusCreated, status, body)
	status, body = p.in(http.MethodDelete, "/ptys/"+field(t, body, "id"), "")
	p.want(t, http.StatusNoContent, status, body)
	if n := p.count(t, "/ptys", "ptys"); n != 1 {
		t.Errorf("%d terminals, want 1", n)
	}
}

func (p *platformScript) wantFiles(t *testing.T, n int) {
	if got := p.count(t, "/files", "files"); got != n {
		t.Errorf("%d files, want %d", got, n)
	}
}

const platformFile = "Hello from the script!"

func (p *platformScript) file(t *testing.T) {
	status, body := p.in(http.MethodPut, "/file?path=/test.txt", platformFile)
	p.want(t, http.StatusCreated, status, body)
	status, body = p.in(http.MethodGet, "/file?path=/test.txt", "")
	p.want(t, http.StatusOK, status, body)
	if string(body) != platformFile {
		t.Errorf("%q", body)
	}
}

func (p *platformScript) stat(t *testing.T) {
	status, body := p.in(http.MethodGet, "/file/stat?path=/test.txt", "")
	p.want(t, http.StatusOK, status, body)
	if field(t, body, "name") != "test.txt" {
		t.Errorf("%s", body)
	}
}

func (p *platformScript) deleteFile(t *testing.T) {
	status, body := p.in(http.MethodDelete, "/file?path=/test.txt", "")
	p.want(t, http.StatusNoContent, status, body)
	p.wantFiles(t, 0)
}

// startAgent names no agent: such a client gets a shell that has the terminal to
// itself. A second one is a conflict.
func (p *platformScript) startAgent(t *testing.T) {
	status, body := p.in(http.MethodPost, "/agent", "")
	p.want(t, http.StatusCreated, status, body)
	if field(t, body, "state") != "running" || field(t, body, "id") != string(p.session)+"-agent" {
		t.Errorf("%s", body)
	}
	status, body = p.in(http.MethodPost, "/agent", "")
	p.want(t, http.StatusConflict, status, body)
}

func (p *platformScript) agentRuns(t *testing.T) {
	status, body := p.in(http.MethodGet, "/agent", "")
	p.want(t, http.StatusOK, status, body)
	if field(t, body, "state") != "running" || field(t, body, "id") != string(p.session)+"-agent" {
		t.Errorf("%s", body)
	}
}

func (p *platformScript) steer(t *testing.T, verb, state string) {
	status, body := p.in(http.MethodPost, "/agent/"+verb, "")
	p.want(t, http.StatusOK, status, body)
	if field(t, body, "state") != state {
		t.Errorf("%s, want %s", body, state)
	}
}

func (p *platformScript) stopAgent(t *testing.T) {
	status, body := p.in(http.MethodPost, "/agent/stop", "")
	p.want(t, http.StatusNoContent, status, body)
	status, body = p.in(http.MethodGet, "/agent", "")
	p.want(t, http.StatusNotFound, status, body)
	status, body = p.in(http.MethodPost, "/agent/stop", "")
	p.want(t, http.StatusNotFound, status, body)
}

// socket asks for control and types. Seed 001's client reads control_taken next;
// ours come with attached and presence in between, which it doesn't know and
// skips. A ticket takes the place of the token header (DESIGN §7).
func (p *platformScript) socket(t *testing.T) {
	ticket, err := p.user.Ticket(p.ctx, p.grant, p.session, p.pty)
	must(t, err)
	ticket.URL += "?user_id=test-user"
	term, err := Dial(p.ctx, ticket, p.user.Base)
	must(t, err)
	defer term.Close()
	must(t, term.Await(p.ctx, "a first frame", func(_ []byte, m []Message, _ error) bool { return len(m) > 0 }))
	if first := term.Messages()[0]; first.Type() != protocol.ServerControlState {
		t.Errorf("the first frame is %v", first)
	}
	must(t, term.Say(p.ctx, Message{"type": "take_control"}))
	_, err = term.ExpectMessage(p.ctx, protocol.ServerControlTaken, func(m Message) bool { return m["controller"] == string(p.user.ID) })
	must(t, err)
	must(t, term.Type(p.ctx, "echo WS_TEST_$((6*7))\r"))
	must(t, term.Expect(p.ctx, "WS_TEST_42"))
}

func (p *platformScript) cleanUp(t *testing.T) {
	status, body := p.in(http.MethodDelete, "/ptys/"+string(p.pty), "")
	p.want(t, http.StatusNoContent, status, body)
	status, body = p.in(http.MethodDelete, "", "")
	p.want(t, http.StatusNoContent, status, body)
	for _, path := range []string{"", "/nobody"} {
		if status, body = p.curl(http.MethodDelete, "/sessions/"+string(p.session)+path, ""); status < 400 {
			t.Errorf("%d %s", status, body)
		}
	}
	if _, err := p.user.Grant(p.ctx, p.session); err == nil || !strings.Contains(fmt.Sprint(err), "410") {
		t.Errorf("a grant for a session that is over: %v", err)
	}
	if bytes.Contains(body, []byte(p.user.Token)) {
		t.Error("an error holds the token")
	}
}

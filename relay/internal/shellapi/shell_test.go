package shellapi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
)

const (
	bob = protocol.UserID("usr_bob")

	// claudeInit is what seed 002's client sends for a session's shell, plainInit for
	// one of a command.
	claudeInit = `{"type":"init","projectPath":"/workspace/p","sessionId":"s-1","hasSession":false,"provider":"claude","cols":100,"rows":30,"initialCommand":null,"isPlainShell":false}`
	plainInit  = `{"type":"init","projectPath":"/workspace/p","sessionId":null,"hasSession":false,"provider":"plain-shell","cols":80,"rows":24,"initialCommand":"npm test","isPlainShell":true}`
)

var (
	claudeShell = op.Shell{ProjectPath: "/workspace/p", SessionID: "s-1", Provider: "claude"}
	plainShell  = op.Shell{ProjectPath: "/workspace/p", Provider: op.PlainShell, InitialCommand: "npm test", Plain: true}
)

// TestStarts: init starts a shell by a signed operation, whose id any relay finds;
// keys and sizes reach it, what it prints comes as output.
func TestStarts(t *testing.T) {
	w := newWorld(t)
	c := w.user()
	c.send(`{"type":"input","data":"before init"}`)
	c.send(`{"type":"nonsense"}`)
	c.send(claudeInit)
	c.send(`{"type":"input","data":"pwd\r"}`)
	if got := c.output("pwd\r"); got != "pwd\r" {
		t.Errorf("output %q", got)
	}
	var asked struct {
		Kind     string   `json:"kind"`
		Shell    op.Shell `json:"shell"`
		OnDetach string   `json:"on_detach"`
		Cols     int      `json:"cols"`
		Rows     int      `json:"rows"`
	}
	w.mu.Lock()
	request := w.signed[0]
	w.mu.Unlock()
	if err := json.Unmarshal(request.Op, &asked); err != nil || asked.Shell != claudeShell || asked.OnDetach != "30m" || asked.Cols != 100 || asked.Rows != 30 {
		t.Errorf("signed %s, %v", request.Op, err)
	}
	if request.Target.PTYID != claudeShell.PTYID(relaytest.Session) || request.Target.SandboxID != relaytest.Sandbox {
		t.Errorf("target %+v", request.Target)
	}
	c.send(`{"type":"resize","cols":120,"rows":40}`)
	for _, nonsense := range []string{`{"type":"resize","cols":"120","rows":40}`, `{"type":"resize","cols":-1,"rows":1e9}`, `{"type":"resize"}`, `{"type":"input","data":7}`, `{"type":"input"}`} {
		c.send(nonsense)
	}
	w.until(claudeShell, "it has the size", func(term *terminal) bool { return slices.Contains(term.sizes, [2]int{120, 40}) })
	w.with(claudeShell, func(term *terminal) {
		if string(term.typed) != "pwd\r" || slices.Contains(term.sizes, [2]int{80, 24}) {
			t.Errorf("typed %q, sizes %v", term.typed, term.sizes)
		}
	})
}

// TestReconnects: a second client, or the same after a reload, gets a banner and
// what rebuilds the screen, gives the shell its size (weakness 11), and both go on.
func TestReconnects(t *testing.T) {
	w := newWorld(t)
	first := w.user()
	first.send(claudeInit)
	first.send(`{"type":"input","data":"$ ls\r\n"}`)
	first.output("ls\r\n")
	second := w.user()
	second.send(strings.Replace(claudeInit, `"cols":100`, `"cols":90`, 1))
	if f := second.next(); f.Type != "output" || !strings.Contains(f.Data, "Reconnected") {
		t.Errorf("first %+v", f)
	}
	if got := second.output("ls\r\n"); got != "$ ls\r\n" {
		t.Errorf("then %q", got)
	}
	second.send(`{"type":"input","data":"both"}`)
	first.output("both")
	second.output("both")
	if ops := w.ops(); !slices.Equal(ops, []string{op.KindPTYCreate}) {
		t.Errorf("signed %v", ops)
	}
	first.CloseNow()
	w.until(claudeShell, "it has the second window's size", func(term *terminal) bool { return slices.Contains(term.sizes, [2]int{90, 30}) })
}

// TestOtherShell: weakness 10. Two commands that begin alike are two shells; one
// socket may show one after the other, and what the first still prints doesn't come.
func TestOtherShell(t *testing.T) {
	w := newWorld(t)
	c := w.user()
	c.send(strings.Replace(plainInit, "npm test", "npm run test:unit", 1))
	c.send(`{"type":"input","data":"unit"}`)
	c.output("unit")
	c.send(strings.Replace(plainInit, "npm test", "npm run test:e2e", 1))
	c.send(`{"type":"input","data":"e2e"}`)
	c.output("e2e")
	unit := plainShell
	unit.InitialCommand = "npm run test:unit"
	w.says(unit, "more of the first")
	c.send(`{"type":"input","data":"end"}`)
	if got := c.output("end"); got != "end" {
		t.Errorf("output %q", got)
	}
}

// TestExit: the end is text in which the client finds the code, by itself in its
// frame; the socket stays, and the next init starts another shell.
func TestExit(t *testing.T) {
	w := newWorld(t)
	c := w.user()
	for i, end := range []struct {
		how  protocol.Exited
		want string
	}{{protocol.Exited{Code: 0}, "0"}, {protocol.Exited{Code: 3}, "3"}, {protocol.Exited{Code: -1, Signal: "SIGKILL"}, "137"}} {
		c.send(plainInit)
		c.send(`{"type":"input","data":"made"}`)
		c.output("made")
		w.with(plainShell, func(term *terminal) {
			w.print(term, []byte("last \xc3"))
			w.exit(term, end.how)
		})
		f := c.next()
		for ; !strings.Contains(f.Data, "Process"); f = c.next() {
			if strings.Trim(f.Data, "last \uFFFD") != "" {
				t.Errorf("before the end: %+v", f)
			}
		}
		if found := regexp.MustCompile(`Process exited with code (\d+)`).FindStringSubmatch(f.Data); found == nil || found[1] != end.want || f.Type != "output" {
			t.Errorf("%+v ends as %+v", end.how, f)
		}
		w.mu.Lock()
		if w.made != i+1 {
			t.Errorf("%d were started", w.made)
		}
		w.mu.Unlock()
		c.send(`{"type":"resize","cols":10,"rows":10}`)
		c.send(`{"type":"input","data":"too late"}`)
		if f := c.next(); f.Type != "error" || !strings.Contains(f.Message, "ended") {
			t.Errorf("typed at its end: %+v", f)
		}
	}
}

// TestEndsUnseen: weakness 12. A shell that ended while nobody watched is shown with
// its output and its end; the next init starts another.
func TestEndsUnseen(t *testing.T) {
	w := newWorld(t)
	w.mu.Lock()
	term := &terminal{epoch: 1, log: []byte("result: 42\r\n")}
	w.exit(term, protocol.Exited{Code: 7})
	w.running[plainShell.PTYID(relaytest.Session)] = term
	w.mu.Unlock()
	c := w.user()
	c.send(plainInit)
	if got := c.output("\x1b[0m\r\n"); !strings.Contains(got, "Reconnected") {
		t.Errorf("first %q", got)
	}
	if got := c.output("code 7\x1b[0m\r\n"); !strings.HasPrefix(got, "result: 42\r\n") {
		t.Errorf("then %q", got)
	}
	c.send(plainInit)
	c.send(`{"type":"input","data":"anew"}`)
	if got := c.output("anew"); got != "anew" {
		t.Errorf("the next one %q", got)
	}
}

// TestErrors: what can't be started is told in the seed's words, nothing of it runs,
// and the socket may ask again.
func TestErrors(t *testing.T) {
	w := newWorld(t)
	c := w.user()
	for _, id := range []string{`$(id)`, `a b`, `a\"; id; \"`, `../x`, `--help`, `a\nb`, strings.Repeat("a", 200)} {
		c.send(`{"type":"init","provider":"claude","sessionId":"` + id + `","hasSession":true}`)
		if f := c.next(); f != (frame{Type: "error", Message: "Invalid session ID"}) {
			t.Errorf("id %q: %+v", id, f)
		}
	}
	c.send(`{"type":"init","provider":"bash"}`)
	if f := c.next(); f.Type != "error" || f.Message == "" {
		t.Errorf("unknown provider: %+v", f)
	}
	if ops := w.ops(); len(ops) > 0 {
		t.Errorf("signed %v", ops)
	}
	w.mu.Lock()
	w.refuses = func(string) error { return protocol.Errorf(protocol.KindInvalid, op.ShellBadPath) }
	w.mu.Unlock()
	c.send(`{"type":"init","provider":"claude","projectPath":"/nowhere'$(id)"}`)
	if f := c.next(); f != (frame{Type: "error", Message: "Invalid project path"}) {
		t.Errorf("bad path: %+v", f)
	}
	w.mu.Lock()
	w.refuses = nil
	w.mu.Unlock()
	for _, bad := range []string{"", " ", "{", "[]", "7", `"init"`, "null", "{}x"} {
		c.send(bad)
		if f := c.next(); f.Type != "output" || !strings.HasPrefix(f.Data, "\r\n\x1b[31m") {
			t.Errorf("frame %q: %+v", bad, f)
		}
	}
	c.send(claudeInit)
	c.send(`{"type":"input","data":"at last"}`)
	c.output("at last")
}

// TestOnlyTheControllerTypes: who may only watch sees the shell, and is told that
// nothing was typed; who may not start one doesn't.
func TestOnlyTheControllerTypes(t *testing.T) {
	w := newWorld(t)
	watcher := w.dial(allows(bob))
	w.mu.Lock()
	w.refuses = func(string) error { return protocol.Errorf(protocol.KindForbidden, "no") }
	w.mu.Unlock()
	watcher.send(claudeInit)
	if f := watcher.next(); f.Type != "error" {
		t.Errorf("without a shell: %+v", f)
	}
	w.mu.Lock()
	w.refuses = nil
	w.mu.Unlock()
	c := w.user()
	c.send(claudeInit)
	c.send(`{"type":"input","data":"mine"}`)
	c.output("mine")
	watcher.send(claudeInit)
	watcher.output("mine")
	w.mu.Lock()
	w.refuses = func(string) error { return protocol.Errorf(protocol.KindForbidden, "no") }
	w.mu.Unlock()
	watcher.send(strings.Replace(claudeInit, `"type":"init"`, `"type":"init","forceRestart":true`, 1))
	watcher.output("mine")
	watcher.send(`{"type":"input","data":"not mine"}`)
	if f := watcher.next(); f.Type != "error" || !strings.Contains(f.Message, "Nothing was typed") {
		t.Errorf("typed: %+v", f)
	}
	w.with(claudeShell, func(term *terminal) {
		if string(term.typed) != "mine" {
			t.Errorf("typed %q", term.typed)
		}
	})
}

// TestCharactersAreWhole: no frame ends within a character, however the terminal's
// output is cut.
func TestCharactersAreWhole(t *testing.T) {
	w := newWorld(t)
	c := w.user()
	c.send(claudeInit)
	c.send(`{"type":"input","data":"ready"}`)
	c.output("ready")
	const said = `é€😀"\` + "\x1b[1m\r\n\t\x00\u2028end"
	for i := range len(said) {
		w.says(claudeShell, said[i:i+1])
	}
	if got := c.output("end"); got != said {
		t.Errorf("output %q", got)
	}
	w.says(claudeShell, "\xff\xc3", "(\xe2\x82end")
	if got := c.output("end"); got != "\uFFFD\uFFFD(\uFFFDend" && got != "\uFFFD\uFFFD(\uFFFD\uFFFDend" {
		t.Errorf("no characters: %q", got)
	}
}

// TestStartsAnew: weakness 14. Login commands, also the web client's own, and
// forceRestart end the shell that is there.
func TestStartsAnew(t *testing.T) {
	w := newWorld(t)
	c, before := w.user(), w.user()
	for _, init := range []string{
		strings.Replace(plainInit, "npm test", "claude --dangerously-skip-permissions /login", 1),
		strings.Replace(claudeInit, `"type":"init"`, `"type":"init","forceRestart":true`, 1),
	} {
		for i := range 2 {
			c.send(init)
			if i == 0 {
				c.send(`{"type":"input","data":"first"}`)
				c.output("first")
				before.send(init)
				before.send(`{"type":"input","data":"another"}`)
				before.output("another")
				c.output("(SIGHUP)\x1b[0m\r\n") // its own was closed
			}
		}
		c.send(`{"type":"input","data":"second"}`)
		if got := c.output("second"); got != "second" {
			t.Errorf("the new one has %q", got)
		}
	}
	ops := strings.Join(w.ops(), " ")
	if n := strings.Count(ops, op.KindPTYClose); n < 2 {
		t.Errorf("signed %s", ops)
	}
}

// TestAuthURL: weakness 13. An address comes once per socket, with its hint, also to
// who comes later; one from before a new log is found again, and not told again.
func TestAuthURL(t *testing.T) {
	w := newWorld(t)
	c := w.user()
	c.send(claudeInit)
	c.send(`{"type":"input","data":"ready"}`)
	c.output("ready")
	tells := func(m protocol.Address) {
		w.with(claudeShell, func(term *terminal) {
			term.addresses = append(term.addresses, m)
			for stream := range term.streams {
				protocol.Write(stream, m)
			}
		})
	}
	login := protocol.Address{URL: "https://e.com/?a=1&b=<2>", AutoOpen: true}
	tells(login)
	want := frame{Type: "auth_url", URL: login.URL, AutoOpen: true}
	if f := c.next(); f != want {
		t.Errorf("got %+v", f)
	}
	tells(login)
	w.with(claudeShell, func(term *terminal) {
		for stream := range term.streams {
			protocol.Write(stream, protocol.Reset{Epoch: 99, Cols: 80, Rows: 24})
			protocol.Write(stream, login)
		}
		term.epoch, term.log = 99, nil
	})
	w.says(claudeShell, "end")
	for f := c.next(); !strings.HasSuffix(f.Data, "end"); f = c.next() {
		if f.Type != "output" {
			t.Errorf("again: %+v", f)
		}
	}
	c.send(claudeInit)
	late := w.user()
	late.send(claudeInit)
	for f := late.next(); f != want; f = late.next() {
		if f.Type != "output" {
			t.Fatalf("late: %+v", f)
		}
	}
	c.output("end")
	tells(protocol.Address{URL: "https://e.com/b"})
	if f := c.next(); f != (frame{Type: "auth_url", URL: "https://e.com/b"}) {
		t.Errorf("on the same socket: %+v", f)
	}
}

// TestLetIn: a ticket or the cookie opens the socket, nothing else does, and all
// refusals come before the upgrade.
func TestLetIn(t *testing.T) {
	w := newWorld(t)
	_, token := w.authority.Grant(allows(relaytest.User, shellCaps...))
	spent := w.ticket(allows(relaytest.User))
	cookie := w.cookie(token)
	for _, row := range []struct {
		name   string
		header map[string]string
		query  string
		want   int
	}{
		{"a ticket", nil, "?token=" + spent, 101},
		{"a spent ticket", nil, "?token=" + spent, 401},
		{"the cookie", map[string]string{"Cookie": cookie}, "", 101},
		{"a ticket as bearer", map[string]string{"Authorization": "Bearer " + w.ticket(allows(relaytest.User))}, "", 101},
		{"a grant as bearer", map[string]string{"Authorization": "Bearer " + token}, "", 401},
		{"a grant as token", nil, "?token=" + token, 401},
		{"nothing", nil, "", 401},
		{"another site", map[string]string{"Origin": "https://evil.example"}, "?token=" + w.ticket(allows(relaytest.User)), 403},
		{"no socket", map[string]string{"Upgrade": ""}, "?token=" + w.ticket(allows(relaytest.User)), 400},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.origin+SocketPath+row.query, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{
			"Origin": w.origin, "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
		} {
			r.Header.Set(name, value)
		}
		for name, value := range row.header {
			r.Header.Set(name, value)
		}
		resp, err := w.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != row.want {
			t.Errorf("%s: %d, want %d", row.name, resp.StatusCode, row.want)
		}
	}
}

// cookie returns the web client's, for a grant.
func (w *world) cookie(token string) string {
	w.t.Helper()
	grant, err := w.authority.Keys.Grant(w.t.Context(), token)
	if err != nil {
		w.t.Fatal(err)
	}
	value, _, err := w.api.Desk.Apps.Issue(grant, token, relaytest.Session, access.AppSession{})
	if err != nil {
		w.t.Fatal(err)
	}
	return access.AppCookieName + "=" + value
}

// TestEnds: a socket ends with its grant, with its cookie and with the relay, before
// init as well as with a shell.
func TestEnds(t *testing.T) {
	for _, shows := range []bool{false, true} {
		w := newWorld(t)
		opened := func(c *client) *client {
			if shows {
				c.send(claudeInit)
				c.send(`{"type":"input","data":"x"}`)
				c.output("x")
			}
			return c
		}
		_, token := w.authority.Grant(allows(relaytest.User, shellCaps...))
		cookie := w.cookie(token)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		conn, _, err := websocket.Dial(ctx, w.origin+SocketPath, &websocket.DialOptions{HTTPClient: w.client, HTTPHeader: http.Header{"Origin": {w.origin}, "Cookie": {cookie}}})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.CloseNow()
		byCookie := opened(&client{conn, t, ctx})
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Cookie", cookie)
		app, err := w.api.Desk.Apps.Presented(r)
		if err != nil {
			t.Fatal(err)
		}
		w.api.Desk.Apps.LogOut(app)
		if code := byCookie.ended(); code != websocket.StatusCode(protocol.KindUnauthenticated.CloseCode()) {
			t.Errorf("logged out: %d", code)
		}
		revoked := opened(w.user())
		restarting := opened(w.user())
		w.api.Close(canceled())
		if code := restarting.ended(); code != websocket.StatusCode(protocol.KindRestarting.CloseCode()) {
			t.Errorf("the relay ends: %d", code)
		}
		if code := revoked.ended(); code != websocket.StatusCode(protocol.KindRestarting.CloseCode()) {
			t.Errorf("the relay ends: %d", code)
		}
		if code := w.user().ended(); code != websocket.StatusCode(protocol.KindRestarting.CloseCode()) {
			t.Errorf("later: %d", code)
		}
	}
}

// canceled returns a context that is over.
func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// TestExpires: a grant that is over ends the socket; a newer one has it go on.
func TestExpires(t *testing.T) {
	w := newWorld(t)
	c := w.user()
	c.send(claudeInit)
	c.send(`{"type":"input","data":"x"}`)
	c.output("x")
	w.authority.Ahead.Store(int64(time.Hour))
	if code := c.ended(); code < 4400 {
		t.Errorf("closed with %d", code)
	}
}

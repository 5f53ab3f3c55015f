package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// socketScene is a terminal of alice's, and who looks at it by cookie alone.
type socketScene struct {
	t                 *testing.T
	ctx               context.Context
	s                 *Stack
	pty               protocol.PTYID
	alice, bob, carol *CookieClient
}

// The 33 behaviours of the platform's socket client: what it does, what it
// expects, in the order in which a person would notice.
func TestFound30SocketClient(t *testing.T) {
	s := own(t)
	c := &socketScene{t: t, ctx: within(t), s: s}
	c.pty = c.create(t, "")
	c.alice, c.bob, c.carol = c.client(t, "alice", c.pty), c.client(t, "bob", c.pty), c.client(t, "carol", c.pty)
	expiring := c.expire(t)
	for i, b := range []struct {
		name string
		does func(*testing.T)
	}{
		{"opens with its cookie alone", c.opens},
		{"control_state is the first frame", c.stateFirst},
		{"controller and requests are always there", c.stateComplete},
		{"agent_state is there", c.stateAgent},
		{"who one is, the credential says and not the query", c.notTheQuery},
		{"an origin that isn't ours, or none, is refused", c.origins},
		{"a terminal or session that isn't there is refused", c.nowhere},
		{"the creator controls at first", c.creator},
		{"revoke_control frees, and says from whom", c.revoke},
		{"take_control takes what is free", c.take},
		{"a second take_control changes nothing", c.takeHeld},
		{"what the controller types is executed", c.types},
		{"everybody gets the output in binary frames", c.output},
		{"what others type is not executed", c.typesInVain},
		{"the controller's resize counts", c.resize},
		{"another one's resize doesn't", c.resizeInVain},
		{"request_control stands in line", c.request},
		{"asked twice it stands there once", c.requestTwice},
		{"grant_control hands over, both are told", c.grant},
		{"grant_control of others changes nothing", c.grantInVain},
		{"revoke_control of others changes nothing", c.revokeInVain},
		{"request_control takes what is free at once", c.requestFree},
		{"execute types a line", c.execute},
		{"execute of others doesn't", c.executeInVain},
		{"ping is harmless", c.ping},
		{"what isn't known, or no JSON, is harmless", c.nonsense},
		{"who comes later gets the screen first", c.late},
		{"agent_state tells of an agent's start, pause and end", c.agent},
		{"a lost socket comes back by itself", c.comesBack},
		{"and has control again, again and again", c.keepsControl},
		{"a message over 64 KiB ends with 1009", c.tooLarge},
		{"control_expired frees what nobody came back for", expiring},
		{"pty_closed, and the end of the socket, when the program ends", c.closes},
	} {
		if !t.Run(fmt.Sprintf("%02d %s", i+1, b.name), func(t *testing.T) { b.does(t) }) {
			t.FailNow() // what follows goes on where this one ends
		}
	}
}

func (c *socketScene) create(t *testing.T, command string) protocol.PTYID {
	t.Helper()
	id, err := newTerminal(c.ctx, c.s.Ready.User("alice"), c.s.Ready.SessionID, command)
	must(t, err)
	return id
}

// newTerminal makes a terminal, with a shell unless command is something else.
func newTerminal(ctx context.Context, u User, session protocol.SessionID, command string) (protocol.PTYID, error) {
	grant, err := u.Grant(ctx, session)
	if err != nil {
		return "", err
	}
	var made struct{ ID protocol.PTYID }
	body := map[string]any{}
	if command != "" {
		body["command"] = command
	}
	err = call(ctx, http.StatusCreated, &made, http.MethodPost, u.Base+"/sessions/"+string(session)+"/ptys", grant, body)
	return made.ID, err
}

func (c *socketScene) client(t *testing.T, user string, pty protocol.PTYID) *CookieClient {
	t.Helper()
	client, err := NewCookieClient(c.ctx, c.s.Ready.User(user), c.s.Ready.SessionID, pty)
	must(t, err)
	return client
}

func (c *socketScene) connect(t *testing.T, clients ...*CookieClient) {
	t.Helper()
	for _, client := range clients {
		must(t, client.Connect(c.ctx))
		c.t.Cleanup(client.Socket.Close) // sockets outlive the sub-test that opens them
		_, err := client.Socket.ExpectMessage(c.ctx, protocol.ServerControlState, nil)
		must(t, err)
	}
}

// told waits until a client was told something, from its n-th message on.
func (c *socketScene) told(t *testing.T, client *CookieClient, from int, typ string, want Message) Message {
	t.Helper()
	var found Message
	must(t, client.Socket.Await(c.ctx, typ, func(_ []byte, messages []Message, _ error) bool {
		for _, m := range messages[from:] {
			fits := m.Type() == typ
			for name, value := range want {
				fits = fits && fmt.Sprint(m[name]) == fmt.Sprint(value)
			}
			if fits {
				found = m
				return true
			}
		}
		return false
	}))
	return found
}

// say has a client say m, and returns the place of what its socket gets from then on.
func (c *socketScene) say(t *testing.T, client *CookieClient, m Message) int {
	t.Helper()
	from := len(client.Socket.Messages())
	must(t, client.Socket.Say(c.ctx, m))
	return from
}

// controller is who controls by a client's last word, which comes after
// everything that the relay did before: an unknown message is answered in order.
func (c *socketScene) controller(t *testing.T, client *CookieClient) protocol.UserID {
	t.Helper()
	from := c.say(t, client, Message{"type": "where_are_we"})
	c.told(t, client, from, protocol.ServerError, nil)
	holder := ""
	for _, m := range client.Socket.Messages() {
		if id, has := m["controller"].(string); has {
			holder = id
		}
	}
	return protocol.UserID(holder)
}

func (c *socketScene) wantController(t *testing.T, want *CookieClient) {
	t.Helper()
	for _, client := range []*CookieClient{c.alice, c.bob, c.carol} {
		if got := c.controller(t, client); got != want.User.ID {
			t.Errorf("%s has control by %s, want %s", got, client.User.ID, want.User.ID)
		}
	}
}

func (c *socketScene) opens(t *testing.T) {
	before := c.alice.Cookie
	c.connect(t, c.alice)
	if c.alice.Cookie == before {
		t.Error("the upgrade left no cookie to come back with")
	}
}

func (c *socketScene) first(t *testing.T) Message {
	t.Helper()
	messages := c.alice.Socket.Messages()
	if len(messages) == 0 {
		t.Fatal("no frame")
	}
	return messages[0]
}

func (c *socketScene) stateFirst(t *testing.T) {
	if m := c.first(t); m.Type() != protocol.ServerControlState {
		t.Errorf("%v", m)
	}
}

func (c *socketScene) stateComplete(t *testing.T) {
	m := c.first(t)
	if _, is := m["controller"].(string); !is {
		t.Errorf("%v", m)
	}
	if _, is := m["requests"].([]any); !is {
		t.Errorf("%v", m)
	}
}

func (c *socketScene) stateAgent(t *testing.T) {
	if m := c.first(t); m["agent_state"] != "stopped" {
		t.Errorf("%v", m)
	}
}

func (c *socketScene) notTheQuery(t *testing.T) {
	if m := c.first(t); m["you"] != string(c.alice.User.ID) {
		t.Errorf("%v", m)
	}
}

func (c *socketScene) origins(t *testing.T) {
	for _, origin := range []string{"", "https://elsewhere.example", "null"} {
		if _, status, err := c.bob.Dial(c.ctx, c.bob.Cookie, origin); err == nil || status != http.StatusForbidden {
			t.Errorf("%q: %d, %v", origin, status, err)
		}
	}
	c.connect(t, c.bob, c.carol) // none of that has spent the cookie
}

// nowhere: that client expects 404. Without a credential for it nobody learns
// what there is (DESIGN §7): 401; with one, 404.
func (c *socketScene) nowhere(t *testing.T) {
	client := c.client(t, "alice", "pty_none")
	for range 2 { // a cookie that has opened nothing is as good as before
		if _, status, _ := client.Dial(c.ctx, client.Cookie, client.User.Base); status != http.StatusNotFound {
			t.Errorf("a terminal that isn't there: %d", status)
		}
	}
	if _, status, _ := client.Dial(c.ctx, "", client.User.Base); status != http.StatusUnauthorized {
		t.Errorf("a terminal that isn't there, without a cookie: %d", status)
	}
	stranger := *c.alice
	stranger.Session = "ses_none"
	if _, status, _ := stranger.Dial(c.ctx, stranger.Cookie, stranger.User.Base); status != http.StatusUnauthorized {
		t.Errorf("a session that isn't there: %d", status)
	}
}

func (c *socketScene) creator(t *testing.T) { c.wantController(t, c.alice) }

func (c *socketScene) revoke(t *testing.T) {
	from := len(c.bob.Socket.Messages())
	c.say(t, c.alice, Message{"type": "revoke_control"})
	m := c.told(t, c.bob, from, protocol.ServerControlRevoked, Message{"from": c.alice.User.ID})
	if m["controller"] != "" { // that client keeps the old one of a missing member
		t.Errorf("%v", m)
	}
}

func (c *socketScene) take(t *testing.T) {
	from := len(c.alice.Socket.Messages())
	c.say(t, c.bob, Message{"type": "take_control"})
	c.told(t, c.alice, from, protocol.ServerControlTaken, Message{"controller": c.bob.User.ID})
	c.wantController(t, c.bob)
}

func (c *socketScene) takeHeld(t *testing.T) {
	c.say(t, c.alice, Message{"type": "take_control"})
	c.say(t, c.carol, Message{"type": "take_control"})
	c.wantController(t, c.bob)
}

func (c *socketScene) types(t *testing.T) {
	must(t, c.bob.Socket.Type(c.ctx, "echo typed-$((6*7))\r"))
	must(t, c.bob.Socket.Expect(c.ctx, "typed-42"))
}

func (c *socketScene) output(t *testing.T) {
	for _, client := range []*CookieClient{c.alice, c.carol} {
		must(t, client.Socket.Expect(c.ctx, "typed-42"))
	}
}

// typesInVain: that platform drops it without a word, here it is refused with a
// reason (DESIGN §10), in a message that the client skips.
func (c *socketScene) typesInVain(t *testing.T) {
	for _, client := range []*CookieClient{c.alice, c.carol} {
		from := len(client.Socket.Messages())
		must(t, client.Socket.Type(c.ctx, "echo vain-$((1+1))\r"))
		c.told(t, client, from, protocol.ServerInputRefused, nil)
	}
	must(t, c.bob.Socket.Type(c.ctx, "echo after-$((2+2))\r"))
	must(t, c.bob.Socket.Expect(c.ctx, "after-4"))
	if bytes.Contains(c.bob.Socket.Output(), []byte("vain")) {
		t.Error("it reached the terminal")
	}
}

func (c *socketScene) resize(t *testing.T) {
	from := len(c.alice.Socket.Messages())
	c.say(t, c.bob, Message{"type": "resize", "cols": 101, "rows": 31})
	c.told(t, c.alice, from, protocol.ServerResized, Message{"cols": 101, "rows": 31})
	must(t, c.bob.Socket.Type(c.ctx, "stty size\r"))
	must(t, c.bob.Socket.Expect(c.ctx, "31 101"))
}

// resizeInVain: that platform lets anyone; here every window would (DESIGN §4).
func (c *socketScene) resizeInVain(t *testing.T) {
	c.say(t, c.alice, Message{"type": "resize", "cols": 50, "rows": 10})
	c.controller(t, c.alice) // it has been read
	must(t, c.bob.Socket.Type(c.ctx, "echo $(stty size)-still\r"))
	must(t, c.bob.Socket.Expect(c.ctx, "31 101-still"))
}

func (c *socketScene) request(t *testing.T) {
	from := len(c.bob.Socket.Messages())
	c.say(t, c.alice, Message{"type": "request_control"})
	m := c.told(t, c.bob, from, protocol.ServerControlRequested, Message{"from": c.alice.User.ID})
	if requests := fmt.Sprint(m["requests"]); requests != fmt.Sprintf("[%s]", c.alice.User.ID) {
		t.Errorf("%v", m)
	}
	c.wantController(t, c.bob)
}

func (c *socketScene) requestTwice(t *testing.T) {
	c.say(t, c.alice, Message{"type": "request_control"})
	c.controller(t, c.alice)
	c.controller(t, c.bob)
	for _, m := range c.bob.Socket.Messages() {
		if requests, has := m["requests"].([]any); has && len(requests) > 1 {
			t.Errorf("%v", m)
		}
	}
}

func (c *socketScene) grant(t *testing.T) {
	from := len(c.alice.Socket.Messages())
	bobs := c.say(t, c.bob, Message{"type": "grant_control", "to": c.alice.User.ID})
	want := Message{"from": c.bob.User.ID, "to": c.alice.User.ID, "controller": c.alice.User.ID}
	c.told(t, c.alice, from, protocol.ServerControlGranted, want)
	c.told(t, c.bob, bobs, protocol.ServerControlGranted, want)
	c.told(t, c.bob, bobs, protocol.ServerControlState, Message{"requests": "[]"})
	c.wantController(t, c.alice)
}

func (c *socketScene) grantInVain(t *testing.T) {
	for _, client := range []*CookieClient{c.bob, c.carol} {
		c.say(t, client, Message{"type": "grant_control", "to": client.User.ID})
	}
	c.wantController(t, c.alice)
}

func (c *socketScene) revokeInVain(t *testing.T) {
	c.say(t, c.bob, Message{"type": "revoke_control"})
	c.say(t, c.carol, Message{"type": "revoke_control"})
	c.wantController(t, c.alice)
}

func (c *socketScene) requestFree(t *testing.T) {
	from := len(c.bob.Socket.Messages())
	c.say(t, c.alice, Message{"type": "revoke_control"})
	c.told(t, c.bob, from, protocol.ServerControlRevoked, nil)
	from = c.say(t, c.bob, Message{"type": "request_control"})
	c.told(t, c.bob, from, protocol.ServerControlTaken, Message{"controller": c.bob.User.ID})
	for _, m := range c.bob.Socket.Messages()[from:] {
		if m.Type() == protocol.ServerControlRequested {
			t.Errorf("%v", m)
		}
	}
}

func (c *socketScene) execute(t *testing.T) {
	c.say(t, c.bob, Message{"type": "execute", "text": "echo ran-$((20+3))"})
	must(t, c.alice.Socket.Expect(c.ctx, "ran-23"))
}

func (c *socketScene) executeInVain(t *testing.T) {
	from := c.say(t, c.alice, Message{"type": "execute", "text": "echo vain-$((20+3))"})
	c.told(t, c.alice, from, protocol.ServerInputRefused, nil)
	must(t, c.bob.Socket.Type(c.ctx, "echo next-$((30+3))\r"))
	must(t, c.bob.Socket.Expect(c.ctx, "next-33"))
	if bytes.Contains(c.bob.Socket.Output(), []byte("vain")) {
		t.Error("it reached the terminal")
	}
}

func (c *socketScene) ping(t *testing.T) {
	c.say(t, c.bob, Message{"type": "ping"})
	c.wantController(t, c.bob) // it is all as before
}

func (c *socketScene) nonsense(t *testing.T) {
	for _, text := range []string{`{"type":"tomorrow"}`, `{"type":`, `[]`, `"resize"`, `{"type":"resize","cols":-1,"rows":70000}`, ``} {
		must(t, c.bob.Socket.Text(c.ctx, text))
	}
	must(t, c.bob.Socket.Type(c.ctx, "echo alive-$((40+3))\r"))
	must(t, c.bob.Socket.Expect(c.ctx, "alive-43"))
}

// late: the first binary frame is the screen as it is, whole.
func (c *socketScene) late(t *testing.T) {
	late := c.client(t, "carol", c.pty)
	c.connect(t, late)
	must(t, late.Socket.Expect(c.ctx, "alive-43"))
	late.Lose()
}

func (c *socketScene) agent(t *testing.T) {
	states := func(state string) {
		t.Helper()
		for _, client := range []*CookieClient{c.alice, c.bob, c.carol} {
			agentState(c.ctx, t, client.Socket, protocol.AgentState(state))
		}
	}
	steer := func(what string, body any) {
		t.Helper()
		if status, answer := agentOp(c.ctx, t, c.s, "alice", what, c.pty, body); status != http.StatusOK {
			t.Fatalf("%s: %d %s", what, status, answer)
		}
	}
	steer("", map[string]any{"name": "helper", "command": "cat"})
	states("running")
	from := len(c.bob.Socket.Messages())
	must(t, c.bob.Socket.Type(c.ctx, "not now\r"))
	c.told(t, c.bob, from, protocol.ServerInputRefused, nil)
	steer("/pause", nil)
	states("paused")
	steer("/resume", nil)
	states("running")
	steer("/stop", nil)
	states("stopped")
	if bytes.Contains(c.alice.Socket.Output(), []byte("not now")) {
		t.Error("it reached the agent")
	}
}

// comesBack: the same address and what the jar has, nothing else.
func (c *socketScene) comesBack(t *testing.T) {
	from := c.say(t, c.bob, Message{"type": "take_control"})
	c.told(t, c.bob, from, protocol.ServerControlState, Message{"controller": c.bob.User.ID})
	spent := c.bob.Cookie
	c.bob.Lose()
	c.connect(t, c.bob)
	must(t, c.bob.Socket.Expect(c.ctx, "alive-43"))
	if _, status, err := c.bob.Dial(c.ctx, spent, c.bob.User.Base); err == nil || status != http.StatusUnauthorized {
		t.Errorf("what it came back with opens another socket: %d, %v", status, err)
	}
}

func (c *socketScene) keepsControl(t *testing.T) {
	for i := range 5 {
		c.bob.Lose()
		c.connect(t, c.bob)
		c.wantController(t, c.bob)
		must(t, c.bob.Socket.Type(c.ctx, fmt.Sprintf("echo back-$((%d+100))\r", i)))
		must(t, c.bob.Socket.Expect(c.ctx, fmt.Sprintf("back-%d", 100+i)))
	}
}

func (c *socketScene) tooLarge(t *testing.T) {
	must(t, c.carol.Socket.Type(c.ctx, strings.Repeat("x", 64<<10+1)))
	code, err := c.carol.Socket.ExpectClose(c.ctx)
	if err != nil || code != 1009 {
		t.Errorf("%d, %v", code, err)
	}
	c.connect(t, c.carol)
}

// expire begins what takes as long as control is kept, and returns its end.
func (c *socketScene) expire(t *testing.T) func(*testing.T) {
	t.Helper()
	pty := c.create(t, "")
	holder, other := c.client(t, "alice", pty), c.client(t, "bob", pty)
	c.connect(t, holder, other)
	if got := c.controller(t, holder); got != holder.User.ID {
		t.Fatalf("%s controls", got)
	}
	holder.Lose()
	return func(t *testing.T) {
		m := c.told(t, other, 0, protocol.ServerControlExpired, Message{"from": holder.User.ID})
		if m["controller"] != "" {
			t.Errorf("%v", m)
		}
	}
}

// closes: the end of a program is told, then the socket ends with the code that
// says not to come back.
func (c *socketScene) closes(t *testing.T) {
	must(t, c.bob.Socket.Type(c.ctx, "exit\r"))
	for _, client := range []*CookieClient{c.alice, c.bob, c.carol} {
		c.told(t, client, 0, protocol.ServerPTYClosed, nil)
		if code, err := client.Socket.ExpectClose(c.ctx); err != nil || code != 4004 {
			t.Errorf("%d, %v", code, err)
		}
	}
	grant, err := c.s.Ready.User("alice").Grant(c.ctx, c.s.Ready.SessionID)
	must(t, err)
	_, body, err := Call(c.ctx, http.MethodGet, c.alice.User.Base+"/sessions/"+string(c.alice.Session)+"/ptys", grant, nil)
	must(t, err)
	var list protocol.PTYList
	must(t, json.Unmarshal(body, &list))
	for _, info := range list.PTYs {
		if info.ID == c.pty && info.Exited == nil {
			t.Errorf("it goes on: %+v", info)
		}
	}
}

package controlplane

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// Two installations of the extension.
var (
	laptop = "br_" + strings.Repeat("a", 26)
	tower  = "br_" + strings.Repeat("b", 26)
)

// pageCommand asks for a command to a tab; browser may be empty.
func pageCommand(browser string) call {
	if browser != "" {
		browser = `,"browserId":"` + browser + `"`
	}
	return commandCall(aliceToken, `{"target":{"sessionId":"ses_1","extensionId":"abc","tabId":7`+browser+`},"op":{"kind":"cdp.send","method":"Page.reload"}}`)
}

// TestWhichBrowser: a command that names no browser is refused while pages of
// several listen, wherever; with one, no other gets it later. What names a
// browser goes to every relay, signed.
func TestWhichBrowser(t *testing.T) {
	for name, c := range map[string]struct {
		first, second string // browsers at the relays
		named         string
		status        int
		path          string // of what the relays get
	}{
		"one at each":          {`{"browsers":["` + laptop + `"]}`, `{"browsers":["` + tower + `"]}`, "", http.StatusConflict, ""},
		"two at one":           {`{"browsers":["` + laptop + `","` + tower + `"]}`, `{"browsers":[]}`, "", http.StatusConflict, ""},
		"the same at both":     {`{"browsers":["` + laptop + `"]}`, `{"browsers":["` + laptop + `"]}`, "", http.StatusOK, "&browser=" + laptop},
		"one and an old relay": {`{"browsers":["` + tower + `"]}`, "", "", http.StatusOK, "&browser=" + tower},
		"none yet":             {`{"browsers":[]}`, `{"browsers":[]}`, "", http.StatusOK, ""},
		"nonsense":             {`{"browsers":["x","br_1"]}`, `[]`, "", http.StatusOK, ""},
		"named":                {`{"browsers":["` + laptop + `"]}`, `{"browsers":["` + tower + `"]}`, tower, http.StatusOK, "&browser=" + tower},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlane(t)
			answer := callback(`"status":"ok","result":{"kind":"cdp.send"}`)
			first, second := newFakeRelay(t, answer), newFakeRelay(t, answer)
			first.browsers, second.browsers = c.first, c.second
			p.register("rl_1", relayToken, first.URL)
			p.register("rl_2", relay2Token, second.URL)
			errorName := ""
			if c.status == http.StatusConflict {
				errorName = "RequestError"
			}
			p.want(pageCommand(c.named), c.status, errorName)
			p.server.commands.Settlements.Close()
			for _, relay := range []*fakeRelay{first, second} {
				for i, env := range relay.got() {
					if c.status != http.StatusOK || relay.paths[i] != "/control/commands?wait=1"+c.path {
						t.Errorf("a relay got %s", relay.paths[i])
					}
					command, err := p.keys().Command(t.Context(), env.JWS, "browser-extension")
					if err != nil || command.Target.BrowserID != c.named || command.Target.TabID != 7 || command.Target.SandboxID != "" {
						t.Errorf("signed %+v, %v", command, err)
					}
				}
			}
			if n := len(first.got()) + len(second.got()); c.status == http.StatusOK && n == 0 {
				t.Error("nobody got it")
			}
		})
	}
}

// TestTheOnlyRelayDecides: it refuses as conflict what several browsers there
// would run, and who asked hears that.
func TestTheOnlyRelayDecides(t *testing.T) {
	p := newPlane(t)
	relay := newFakeRelay(t, func(w http.ResponseWriter, _ protocol.CommandEnvelope) {
		w.WriteHeader(http.StatusConflict)
		io.WriteString(w, `{"error":{"message":"several browsers of this user are connected","name":"RequestError"}}`)
	})
	p.register("rl_1", relayToken, relay.URL)
	if body := p.want(pageCommand(""), http.StatusConflict, "RequestError"); !strings.Contains(body["error"].(map[string]any)["message"].(string), "several browsers") {
		t.Errorf("answer %v", body)
	}
}

func TestBadBrowserIDs(t *testing.T) {
	p := newPlane(t)
	for _, id := range []string{"br_1", laptop + "a", strings.ToUpper(laptop), "br_" + strings.Repeat("1", 26), "../x"} {
		p.want(pageCommand(id), http.StatusBadRequest, "RequestError")
	}
	p.want(commandCall(aliceToken, `{"target":{"sessionId":"ses_1","browserId":"`+laptop+`"},"op":{"kind":"cdp.send","method":"Page.reload"}}`), http.StatusBadRequest, "RequestError")
	p.want(commandCall(aliceToken, `{"target":{"sessionId":"ses_1","ptyId":"pty_1","browserId":"`+laptop+`"},"op":{"kind":"pty.close"}}`), http.StatusBadRequest, "RequestError")
}

// TestTheBrowserIsNotThere: relays say that nobody has had the command, and so is
// its person told, and the agent; a relay that has the page answers all the same.
func TestTheBrowserIsNotThere(t *testing.T) {
	p := newPlane(t)
	b := p.enrolled(p.agentListener(), "sb_1")
	absent := func(w http.ResponseWriter, _ protocol.CommandEnvelope) {
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, `{"error":{"message":"no page of that browser is connected","name":"InternalError"}}`)
	}
	p.register("rl_1", relayToken, newFakeRelay(t, absent).URL)
	body := p.want(pageCommand(laptop), http.StatusServiceUnavailable, "InternalError")
	if message := body["error"].(map[string]any)["message"]; message != "no page of that browser is connected" {
		t.Errorf("said %v", message)
	}
	p.want(p.share(p.grant(aliceToken, `{"session_id":"ses_1"}`), laptop, p.tabAt(7, time.Hour)), http.StatusOK, "")
	status, answer := b.execute(p, "pty_1", "tabs.send", `{"tab":"`+laptop+`/7","method":"Page.reload"}`)
	if status == http.StatusOK || !strings.Contains(fmt.Sprint(answer), "it never reached the browser: no page of that browser is connected") {
		t.Errorf("%d %v", status, answer)
	}
	p.register("rl_2", relay2Token, newFakeRelay(t, callback(`"status":"ok","result":{"kind":"cdp.send"}`)).URL)
	p.want(pageCommand(laptop), http.StatusOK, "")
	p.server.commands.Settlements.Close()
}

// TestTheRelayComesBack: a relay that is killed with a command for one browser is
// offered it again, until that says what came of it. Which browser has an unnamed one
// nobody knows by then: it isn't offered to another.
func TestTheRelayComesBack(t *testing.T) {
	p := newPlane(t)
	var offers atomic.Int32
	relay := newFakeRelay(t, func(w http.ResponseWriter, env protocol.CommandEnvelope) {
		switch offers.Add(1) {
		case 1: // killed
			panic(http.ErrAbortHandler)
		case 2: // back, and its page isn't
			w.WriteHeader(http.StatusServiceUnavailable)
			io.WriteString(w, `{"error":{"message":"no page of that browser is connected","name":"InternalError"}}`)
		default:
			callback(`"status":"ok","result":{"kind":"cdp.send"}`)(w, env)
		}
	})
	p.register("rl_1", relayToken, relay.URL)
	if body := p.want(pageCommand(laptop), http.StatusOK, ""); body["status"] != "ok" || offers.Load() != 3 {
		t.Errorf("%v after %d offers", body, offers.Load())
	}
	offers.Store(0)
	if body := p.want(pageCommand(""), http.StatusOK, "InternalError"); body["status"] != "unknown" || offers.Load() != 1 {
		t.Errorf("unnamed: %v after %d offers", body, offers.Load())
	}
	p.server.commands.Settlements.Close()
}

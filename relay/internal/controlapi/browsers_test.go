package controlapi

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
)

// Two installations of the extension, of one person.
var (
	laptop = "br_" + strings.Repeat("a", 26)
	tower  = "br_" + strings.Repeat("b", 26)
)

// browserStream opens a stream of a browser and reads its beginning.
func (w *world) browserStream(server *httptest.Server, browser string) func() protocol.CommandEnvelope {
	w.t.Helper()
	_, token := w.authority.Grant(mayMCP)
	resp, lines := w.listen(get(w.t, server.URL+streamPath+"?browser="+browser, "Authorization", "Bearer "+token))
	if resp.StatusCode != http.StatusOK {
		w.t.Fatalf("the stream of %s: %d", browser, resp.StatusCode)
	}
	if line, err := lines.ReadString('\n'); err != nil || line != "retry: 2000\n" {
		w.t.Fatalf("%q, %v", line, err)
	}
	return func() (env protocol.CommandEnvelope) {
		w.t.Helper()
		if err := json.Unmarshal([]byte(nextEvent(w.t, lines)["data"]), &env); err != nil {
			w.t.Fatal(err)
		}
		return env
	}
}

// A person with two browsers: a command goes to the one that it names.
func TestTwoBrowsers(t *testing.T) {
	w := newWorld(t, http.NotFound)
	server := w.served()
	one, other := w.browserStream(server, laptop), w.browserStream(server, tower)
	to := func(browser string) func(*jws.Command) {
		return func(c *jws.Command) {
			forPage(c)
			c.Target.BrowserID = browser
		}
	}
	unclear := w.authority.Command(forPage)
	answer := w.post("/control/browsers", unclear)
	expect(t, answer, http.StatusOK, `{"browsers":["`+laptop+`","`+tower+`"]}`)
	expect(t, w.post("/control/commands", unclear), http.StatusConflict, "RequestError", "several browsers")
	named := w.authority.Command(to(tower))
	expect(t, w.post("/control/commands", named), http.StatusAccepted)
	if got := other(); got.CommandID != named.CommandID || got.Target.BrowserID != tower {
		t.Errorf("got %+v", got)
	}
	// What its sender narrows goes there alone; what is signed wins over it.
	expect(t, w.post("/control/commands?browser="+laptop, unclear), http.StatusAccepted)
	again := w.authority.Command(to(tower))
	expect(t, w.post("/control/commands?browser="+laptop, again), http.StatusAccepted)
	if got := one(); got.CommandID != unclear.CommandID {
		t.Errorf("got %+v", got)
	}
	if got := other(); got.CommandID != again.CommandID {
		t.Errorf("got %+v", got)
	}
	rerouted := w.authority.Command(to(laptop))
	rerouted.Target.BrowserID = tower // by whoever carries it
	expect(t, w.post("/control/commands", rerouted), http.StatusUnauthorized, "AuthError")
}

func TestWhatIsNoBrowser(t *testing.T) {
	w := newWorld(t, http.NotFound)
	server := w.served()
	_, token := w.authority.Grant(mayMCP)
	for _, query := range []string{"?browser=", "?browser=br_1", "?browser=" + strings.ToUpper(laptop), "?browser=" + laptop + "&browser=" + tower} {
		resp, _ := w.listen(get(t, server.URL+streamPath+query, "Authorization", "Bearer "+token))
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %d", query, resp.StatusCode)
		}
	}
	expect(t, w.post("/control/commands?browser=x", w.authority.Command(forPage)), http.StatusBadRequest, "RequestError")
	expect(t, w.post("/control/browsers", protocol.CommandEnvelope{JWS: "a.b.c"}), http.StatusUnauthorized, "AuthError")
	toSandbox := w.authority.Command(nil)
	expect(t, w.post("/control/browsers", toSandbox), http.StatusBadRequest, "RequestError")
	expect(t, w.post("/control/browsers", w.authority.Command(forPage)), http.StatusOK, `{"browsers":[]}`)
}

// That a browser isn't there is said soon: nobody has had the command. A page that
// has lost its stream has time to come back.
func TestTheBrowserIsNotThere(t *testing.T) { synctest.Test(t, testTheBrowserIsNotThere) }

func testTheBrowserIsNotThere(t *testing.T) {
	w := newWorldAt(t, relaytest.NewAuthority(t), "http://plane.example", inMemory(http.NotFound))
	named := w.authority.Command(func(c *jws.Command) {
		forPage(c)
		c.Target.BrowserID = tower
	})
	began := time.Now()
	expect(t, w.post("/control/commands?wait=1", named), http.StatusServiceUnavailable, "no page of that browser is connected")
	if took := time.Since(began); took != 5*time.Second {
		t.Errorf("said after %v", took)
	}
	began = time.Now()
	expect(t, w.post("/control/commands?wait=1", w.authority.Command(forPage)), http.StatusUnauthorized, "ExpiredError")
	if took := time.Since(began); took < 10*time.Second {
		t.Errorf("for whichever comes it waited %v", took)
	}
}

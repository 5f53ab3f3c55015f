package controlapi

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
)

// forPage makes a command for a browser tab of the tests' user.
func forPage(c *jws.Command) {
	c.Audience, c.UserID = jws.AudienceExtension, relaytest.User
	c.Target = protocol.CommandTarget{ExtensionID: "extension", TabID: 7}
	c.Op = json.RawMessage(`{"kind":"cdp.send","method":"Runtime.evaluate"}`)
	c.Reply = &jws.Reply{URL: "https://relay.example/control/callback", CallbackToken: "ct_secret"}
}

func mayMCP(g *jws.Grant) { g.Caps = append(g.Caps, protocol.CapMCP) }

// A report is what the control plane is told of a callback.
type report struct{ path, credential, token, signature, body string }

// keepReports is a control plane that answers with status and keeps what it is
// told.
func keepReports(status int) (http.HandlerFunc, func() []report) {
	var mu sync.Mutex
	var reports []report
	return func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			mu.Lock()
			reports = append(reports, report{
				r.URL.Path, r.Header.Get("Authorization"), r.Header.Get(protocol.CallbackTokenHeader),
				r.Header.Get(protocol.SignatureHeader), string(body),
			})
			mu.Unlock()
			w.WriteHeader(status)
			if status >= 300 {
				io.WriteString(w, `{"error":{"message":"no such command","name":"TargetError"}}`)
			}
		}, func() []report {
			mu.Lock()
			defer mu.Unlock()
			return reports
		}
}

func callbackOf(id protocol.CommandID) string {
	return `{"type":"control.callback","commandId":"` + string(id) + `","status":"ok","result":{"value":"<2>"},"at":1}`
}

// listen opens the stream at a real server and returns its lines.
func (w *world) listen(r *http.Request) (*http.Response, *bufio.Reader) {
	w.t.Helper()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { resp.Body.Close() })
	return resp, bufio.NewReader(resp.Body)
}

// served is the API behind its guards, on a socket.
func (w *world) served() *httptest.Server {
	server := httptest.NewServer(w.api.Origins.Guard(w.api.Origins.Share(w.mux)))
	w.t.Cleanup(func() {
		w.api.Pages.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		server.Close()
	})
	return server
}

func get(t *testing.T, url string, header ...string) *http.Request {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "relay.example"
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

// nextEvent returns the lines of the next event.
func nextEvent(t *testing.T, lines *bufio.Reader) map[string]string {
	t.Helper()
	event := map[string]string{}
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		line = strings.TrimSuffix(line, "\n")
		if name, value, ok := strings.Cut(line, ": "); ok && name != "retry" {
			event[name] = value
		}
		if line == "" && event["data"] != "" {
			return event
		}
	}
}

// The whole way of seed 003: stream, callback, and the answer to whoever waits.
func TestThroughAPage(t *testing.T) {
	plane, reports := keepReports(http.StatusNoContent)
	w := newWorld(t, plane)
	server := w.served()
	_, token := w.authority.Grant(mayMCP)
	resp, lines := w.listen(get(t, server.URL+streamPath, "Authorization", "Bearer "+token))
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	env := w.authority.Command(forPage)
	waiting := make(chan *httptest.ResponseRecorder, 1)
	go func() { waiting <- w.post("/control/commands?wait=1", env) }() // received below
	event := nextEvent(t, lines)
	var got protocol.CommandEnvelope
	if err := json.Unmarshal([]byte(event["data"]), &got); err != nil || got != env || event["event"] != "command" ||
		!strings.HasSuffix(event["id"], "-1") {
		t.Errorf("%v, %v", event, err)
	}
	expect(t, w.do(http.MethodGet, "/control/commands/"+string(env.CommandID), token, ""), http.StatusOK, `"status":"pending"`)

	signature := base64.StdEncoding.EncodeToString([]byte("signature"))
	body := callbackOf(env.CommandID)
	for range 2 { // the second time it is telemetry
		expect(t, w.answer("ct_secret", signature, body), http.StatusNoContent)
	}
	answer := <-waiting
	expect(t, answer, http.StatusOK)
	if answer.Body.String() != body || answer.Header().Get(protocol.SignatureHeader) != signature {
		t.Errorf("%s, %v", answer.Body, answer.Header())
	}
	answer = w.do(http.MethodGet, "/control/commands/"+string(env.CommandID), token, "")
	if answer.Body.String() != body || answer.Header().Get(protocol.SignatureHeader) != signature {
		t.Errorf("%s, %v", answer.Body, answer.Header())
	}
	told := reports()
	if len(told) != 2 || told[0] != (report{"/internal/callback", "Bearer relay-secret", "ct_secret", signature, body}) {
		t.Errorf("the control plane knows %+v", told)
	}
}

// answer posts a callback; signature may be empty.
func (w *world) answer(token, signature, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, callbackPath, strings.NewReader(body))
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if signature != "" {
		r.Header.Set(protocol.SignatureHeader, signature)
	}
	answer := httptest.NewRecorder()
	w.mux.ServeHTTP(answer, r)
	return answer
}

func TestCallbacksThatAreRefused(t *testing.T) {
	plane, reports := keepReports(http.StatusNotFound)
	w := newWorld(t, plane)
	_, token := w.authority.Grant(mayMCP)
	env := w.authority.Command(forPage)
	expect(t, w.post("/control/commands", env), http.StatusAccepted)
	body := callbackOf(env.CommandID)
	for name, c := range map[string]struct {
		token, signature, body string
		want                   int
		name                   string
	}{
		"no token":        {"", "", body, 401, "AuthError"},
		"wrong token":     {"ct_other", "", body, 401, "AuthError"},
		"a grant":         {token, "", body, 401, "AuthError"},
		"not JSON":        {"ct_secret", "", "{", 400, "RequestError"},
		"no object":       {"ct_secret", "", "[]", 400, "RequestError"},
		"deep":            {"ct_secret", "", strings.Repeat(`{"result":`, 12_000), 400, "RequestError"},
		"no type":         {"ct_secret", "", strings.Replace(body, "control.callback", "control.command", 1), 400, "RequestError"},
		"no status":       {"ct_secret", "", strings.Replace(body, `"ok"`, `""`, 1), 400, "RequestError"},
		"error with none": {"ct_secret", "", strings.Replace(body, `"ok"`, `"error"`, 1), 400, "RequestError"},
		"ok with one":     {"ct_secret", "", strings.Replace(body, `"at"`, `"error":{"message":"x"},"at"`, 1), 400, "RequestError"},
		"no id":           {"ct_secret", "", callbackOf("../x"), 400, "RequestError"},
		"another trace":   {"ct_secret", "", strings.Replace(body, `"at"`, `"traceId":"tr_x","at"`, 1), 400, "RequestError"},
		"bad signature":   {"ct_secret", "%", body, 400, "RequestError"},
		"large":           {"ct_secret", "", `{"x":"` + strings.Repeat("a", maxCallback) + `"}`, 413, "LimitError"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, w.answer(c.token, c.signature, c.body), c.want, c.name) })
	}
	if n := len(reports()); n != 0 {
		t.Errorf("the control plane was told of %d", n)
	}
	expect(t, w.do(http.MethodGet, "/control/commands/"+string(env.CommandID), token, ""), http.StatusOK, "pending")
	expect(t, w.answer("ct_other", "", callbackOf("cmd_elsewhere")), http.StatusNotFound, "no such command")
	if told := reports(); len(told) != 0 {
		t.Errorf("the control plane was told %+v", told)
	}
	for _, secret := range []string{"ct_secret", "ct_other", token} {
		if strings.Contains(w.logged.String(), secret) {
			t.Errorf("a secret is in the log: %s", &w.logged)
		}
	}
}

// The waiting hear at once, and the executor learns that it has to come again.
func TestCallbackWhileTheControlPlaneIsAway(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	_, token := w.authority.Grant(mayMCP)
	env := w.authority.Command(forPage)
	expect(t, w.post("/control/commands", env), http.StatusAccepted)
	expect(t, w.answer("ct_secret", "", callbackOf(env.CommandID)), http.StatusServiceUnavailable, "InternalError")
	expect(t, w.do(http.MethodGet, "/control/commands/"+string(env.CommandID), token, ""), http.StatusOK, `"status":"ok"`)
}

func TestCallbacksAtOnceAreBounded(t *testing.T) {
	w := newWorld(t, http.NotFound)
	env := w.authority.Command(forPage)
	expect(t, w.post("/control/commands", env), http.StatusAccepted)
	for range maxReports {
		w.api.reports <- struct{}{}
	}
	expect(t, w.answer("ct_secret", "", callbackOf(env.CommandID)), http.StatusTooManyRequests, "LimitError")
}

// TestFound13CallbacksOfStrangers: nothing of what they post gets to the control
// plane, and one address can't keep the others from theirs.
func TestFound13CallbacksOfStrangers(t *testing.T) {
	plane, reports := keepReports(http.StatusNoContent)
	w := newWorld(t, plane)
	env := w.authority.Command(forPage)
	expect(t, w.post("/control/commands", env), http.StatusAccepted)
	post := func(from, token, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, callbackPath, strings.NewReader(body))
		r.RemoteAddr = from
		r.Header.Set("Authorization", "Bearer "+token)
		answer := httptest.NewRecorder()
		w.mux.ServeHTTP(answer, r)
		return answer
	}
	statuses := map[int]int{}
	for i := range 3 * callbackBurst {
		statuses[post("192.0.2.1:1", "ct_x", callbackOf(protocol.CommandID(fmt.Sprintf("cmd_%d", i)))).Code]++
	}
	if statuses[http.StatusNotFound] < callbackBurst || statuses[http.StatusTooManyRequests] == 0 {
		t.Errorf("answers %v", statuses)
	}
	if told := reports(); len(told) != 0 {
		t.Errorf("the control plane was told of %d", len(told))
	}
	expect(t, post("192.0.2.2:1", "ct_secret", callbackOf(env.CommandID)), http.StatusNoContent)
	if told := reports(); len(told) != 1 {
		t.Errorf("the control plane was told of %d", len(told))
	}
}

// A forwarded request has come whole before the control plane hears of it, which
// is told where it comes from, whatever the client says.
func TestFound13ForwardsWhatIsWhole(t *testing.T) {
	type seen struct {
		body, address string
		length        int64
	}
	var got []seen
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, seen{string(body), r.Header.Get(protocol.ClientAddressHeader), r.ContentLength})
	})
	post := func(body io.Reader) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, "/grants", body)
		r.RemoteAddr = "192.0.2.7:1234"
		r.Header.Set(protocol.ClientAddressHeader, "203.0.113.1")
		r.Header.Set("X-Forwarded-For", "203.0.113.2")
		answer := httptest.NewRecorder()
		w.mux.ServeHTTP(answer, r)
		return answer
	}
	expect(t, post(io.MultiReader(strings.NewReader("{}"))), http.StatusOK) // of a length that isn't said
	if len(got) != 1 || got[0] != (seen{"{}", "192.0.2.7", 2}) {
		t.Errorf("%+v", got)
	}
	expect(t, post(strings.NewReader(strings.Repeat("x", maxForwarded+1))), http.StatusRequestEntityTooLarge, "LimitError")
	expect(t, post(iotest.ErrReader(io.ErrUnexpectedEOF)), http.StatusBadRequest)
	if len(got) != 1 {
		t.Errorf("forwarded all the same: %+v", got[1:])
	}
}

func TestStreamCredentials(t *testing.T) {
	w := newWorld(t, http.NotFound)
	server := w.served()
	body := `{"session_id":"ses_1"}`
	session := func(change func(*jws.Grant)) (*jws.Grant, *http.Cookie, *httptest.ResponseRecorder) {
		grant, token := w.authority.Grant(change)
		r := httptest.NewRequest(http.MethodPost, "/control-session", strings.NewReader(body))
		r.Host = "relay.example"
		r.Header.Set("Authorization", "Bearer "+token)
		answer := httptest.NewRecorder()
		w.mux.ServeHTTP(answer, r)
		if cookies := answer.Result().Cookies(); len(cookies) == 1 {
			return grant, cookies[0], answer
		}
		return grant, nil, answer
	}
	grant, cookie, answer := session(mayMCP)
	expect(t, answer, http.StatusOK, grant.Expires().UTC().Format(time.RFC3339))
	if cookie == nil || cookie.Name != "fairlead_control" || !cookie.HttpOnly || !cookie.Secure || cookie.Path != "/control/stream" ||
		cookie.SameSite != http.SameSiteStrictMode || !cookie.Expires.Equal(grant.Expires()) || cookie.Domain != "" {
		t.Fatalf("%+v", cookie)
	}
	try := func(want int, header ...string) {
		t.Helper()
		resp, _ := w.listen(get(t, server.URL+streamPath, header...))
		if resp.StatusCode != want {
			t.Errorf("%v: %d, want %d", header, resp.StatusCode, want)
		}
		resp.Body.Close()
	}
	mine := "fairlead_control=" + cookie.Value
	try(200, "Cookie", mine)
	try(200, "Cookie", mine, "Sec-Fetch-Site", "same-origin") // EventSource comes again with the same
	try(403, "Cookie", mine, "Sec-Fetch-Site", "same-site")
	try(403, "Cookie", mine, "Sec-Fetch-Site", "cross-site")
	try(403, "Cookie", mine, "Origin", "https://evil.example")
	try(401, "Cookie", mine, "Origin", "https://other.example") // cookies don't come along
	try(401, "Cookie", mine, "Authorization", "Bearer x")       // a bad bearer isn't saved by a good cookie
	try(401, "Cookie", "fairlead_control=x")
	try(401)
	rebound := get(t, server.URL+streamPath, "Cookie", mine)
	rebound.Host = "evil.example"
	if resp, _ := w.listen(rebound); resp.StatusCode != 403 {
		t.Errorf("a foreign host: %d", resp.StatusCode)
	}
	w.authority.Revoked.Add(grant.ID)
	try(401, "Cookie", mine)

	for name, c := range map[string]struct {
		change func(*jws.Grant)
		want   int
	}{
		"may not view":    {func(g *jws.Grant) { g.Caps = []protocol.Capability{protocol.CapMCP} }, 403},
		"another session": {func(g *jws.Grant) { g.Session = "ses_2" }, 403},
		"expired": {func(g *jws.Grant) {
			g.IssuedAt, g.ExpiresAt = time.Now().Add(-20*time.Minute).Unix(), time.Now().Add(-11*time.Minute).Unix()
		}, 401},
		"within the skew": {func(g *jws.Grant) { g.ExpiresAt = time.Now().Add(-time.Second).Unix(); g.IssuedAt = g.ExpiresAt - 60 }, 401},
	} {
		t.Run(name, func(t *testing.T) {
			_, cookie, answer := session(c.change)
			expect(t, answer, c.want, `"error"`)
			if cookie != nil {
				t.Error("a cookie")
			}
		})
	}
	_, token := w.authority.Grant(func(g *jws.Grant) { g.Caps = []protocol.Capability{protocol.CapMCP} })
	try(403, "Authorization", "Bearer "+token)
	body = `{"session_id":"../x"}`
	_, _, answer = session(nil)
	expect(t, answer, http.StatusBadRequest, "session_id")
}

func TestRevocationLists(t *testing.T) {
	w := newWorld(t, http.NotFound)
	grant, token := w.authority.Grant(nil)
	sign := func(a *relaytest.Authority, number uint64, ids ...protocol.GrantID) string {
		list := jws.Revocations{Number: number, IssuedAt: time.Now().Unix()}
		for _, id := range ids {
			list.Grants = append(list.Grants, jws.RevokedGrant{ID: id, ExpiresAt: grant.ExpiresAt})
		}
		signed, err := a.Signer.SignRevocations(list)
		if err != nil {
			t.Fatal(err)
		}
		return signed
	}
	post := func(body string) *httptest.ResponseRecorder {
		return w.do(http.MethodPost, "/control/revocations", "", body)
	}
	expect(t, post(sign(relaytest.NewAuthority(t), 9, grant.ID)), http.StatusUnauthorized, "AuthError")
	expect(t, post(token), http.StatusUnauthorized, "AuthError")
	expect(t, post(""), http.StatusUnauthorized, "AuthError")
	expect(t, post(strings.Repeat("a", protocol.MaxTokenBytes+1)), http.StatusRequestEntityTooLarge, "LimitError")
	path := "/control/commands/cmd_1"
	expect(t, w.do(http.MethodGet, path, token, ""), http.StatusNotFound)
	expect(t, post(sign(w.authority, 2, grant.ID)), http.StatusNoContent)
	expect(t, w.do(http.MethodGet, path, token, ""), http.StatusUnauthorized, "AuthError")
	expect(t, post(sign(w.authority, 1)), http.StatusNoContent) // older: nothing changes
	expect(t, w.do(http.MethodGet, path, token, ""), http.StatusUnauthorized)
}

// What nobody answered in time is not an error of whoever asks, and an answer
// that comes late changes nothing here.
func TestStatusOfWhatExpired(t *testing.T) { synctest.Test(t, testStatusOfWhatExpired) }

func testStatusOfWhatExpired(t *testing.T) {
	plane, reports := keepReports(http.StatusNoContent)
	w := newWorldAt(t, relaytest.NewAuthority(t), "http://plane.example", inMemory(plane))
	_, token := w.authority.Grant(mayMCP)
	env := w.authority.Command(forPage)
	expect(t, w.post("/control/commands?wait=1", env), http.StatusUnauthorized, "ExpiredError")
	path := "/control/commands/" + string(env.CommandID)
	expect(t, w.do(http.MethodGet, path, token, ""), http.StatusOK, `"status":"expired"`)
	expect(t, w.answer("ct_secret", "", callbackOf(env.CommandID)), http.StatusNoContent)
	expect(t, w.do(http.MethodGet, path, token, ""), http.StatusOK, `"status":"expired"`)
	if n := len(reports()); n != 1 {
		t.Errorf("the control plane was told of %d", n)
	}
	_, other := w.authority.Grant(func(g *jws.Grant) { g.Subject = "usr_bob" })
	expect(t, w.do(http.MethodGet, path, other, ""), http.StatusNotFound)
}

// FuzzCallback: whatever is posted is refused, or is a callback.
func FuzzCallback(f *testing.F) {
	f.Add([]byte(callbackOf("cmd_1")), "ct_1", "c2lnbmF0dXJl")
	f.Add([]byte("{"), "", "%")
	f.Fuzz(func(t *testing.T, body []byte, token, signature string) {
		r := httptest.NewRequest(http.MethodPost, callbackPath, bytes.NewReader(body))
		r.Header["Authorization"] = []string{"Bearer " + token}
		r.Header[protocol.SignatureHeader] = []string{signature}
		answer, err := readAnswer(httptest.NewRecorder(), r)
		if err != nil {
			if kind := protocol.KindOf(err); kind == protocol.KindInternal {
				t.Error(err)
			}
			return
		}
		if !protocol.ValidID(answer.Callback.CommandID) || answer.Token == "" || !bytes.Equal(answer.Body, body) {
			t.Errorf("%+v", answer)
		}
	})
}

package egress

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// web serves a handler as a host that a rule allows.
func (h *harness) web(t testing.TB, host string, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	h.serve(host, server.Listener.Addr().String())
	if err := h.rules.Decide(ses, host, protocol.AllowAlways); err != nil {
		t.Fatal(err)
	}
	return server
}

func get(t testing.TB, client *http.Client, url string) (int, string, http.Header) {
	t.Helper()
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body), response.Header
}

func TestForward(t *testing.T) {
	h := start(t, nil)
	var seen *http.Request
	var body []byte
	h.web(t, "a.com:80", func(w http.ResponseWriter, r *http.Request) {
		seen = r
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("X-Kept", "1")
		w.Header().Set("Connection", "X-Gone")
		w.Header().Set("X-Gone", "1")
		w.Header().Set("Proxy-Authenticate", "Basic")
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprint(w, "tea")
	})
	s := h.socket(t)
	s.say("POST http://A.com./p%2Fq?x=%20y HTTP/1.1", "Host: a.com:80", "$AUTH", "Proxy-Connection: keep-alive",
		"Connection: close, X-Api-Key, Te", "X-Api-Key: secret", "Te: trailers", "Keep-Alive: 5", "Cookie: a=b", "Authorization: Bearer x",
		"Content-Length: 3", "", "abc")
	response := s.response("POST")
	got, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusTeapot || string(got) != "tea" {
		t.Fatalf("%d %q %v", response.StatusCode, got, err)
	}
	if string(body) != "abc" || seen.Host != "a.com" || seen.RequestURI != "/p%2Fq?x=%20y" || seen.Header.Get("Cookie") != "a=b" || seen.Header.Get("Authorization") != "Bearer x" {
		t.Errorf("%q %q %q %v", body, seen.Host, seen.RequestURI, seen.Header)
	}
	for _, name := range []string{"Proxy-Authorization", "Proxy-Connection", "X-Api-Key", "Keep-Alive", "User-Agent", "Via", "Accept-Encoding"} {
		if _, ok := seen.Header[name]; ok {
			t.Errorf("the host sees %s", name)
		}
	}
	if seen.Header.Get("Te") != "trailers" {
		t.Error("the wish for trailers is lost")
	}
	if response.Header.Get("X-Kept") != "1" || response.Header.Get("X-Gone") != "" || response.Header.Get("Proxy-Authenticate") != "" {
		t.Errorf("%v", response.Header)
	}
	if got := h.reasons(); !slices.Equal(got, []Reason{AllowedByRule}) {
		t.Errorf("%q", got)
	}
}

// TestForwardKeepsConnections: several requests over one connection to the
// proxy and one to the host, each with its own verdict.
func TestForwardKeepsConnections(t *testing.T) {
	h := start(t, nil)
	h.web(t, "a.com:80", func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, r.Method, n)
	})
	s := h.socket(t)
	rounds := [][]string{
		{"GET http://a.com/ HTTP/1.1", "Host: a.com", "$AUTH", ""},
		{"HEAD http://a.com/ HTTP/1.1", "Host: a.com", "$AUTH", ""},
		{"GET http://denied.com/ HTTP/1.1", "Host: denied.com", "Proxy-Authorization: Basic eDp5", ""},
		{"DELETE http://a.com/ HTTP/1.1", "Host: a.com", "$AUTH", ""},
	}
	const times = 5
	for i, lines := range slices.Repeat(rounds, times) {
		i %= len(rounds)
		s.say(lines...)
		method, _, _ := strings.Cut(lines[0], " ")
		response := s.response(method)
		body, err := io.ReadAll(response.Body)
		want := method + "0"
		switch {
		case err != nil, i != 2 && response.StatusCode != http.StatusOK, method == "HEAD" && len(body) != 0:
			t.Fatalf("%s: %d %q %v", method, response.StatusCode, body, err)
		case method != "HEAD" && i != 2 && string(body) != want:
			t.Fatalf("%s: %q", method, body)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	// net/http gives up a connection whose own goroutine is slow to tell that it
	// has written; of the requests for a.com most must share one all the same.
	if n := len(h.dialed); n == 0 || n > times || slices.ContainsFunc(h.dialed, func(host string) bool { return host != "a.com:80" }) {
		t.Errorf("dialled %q", h.dialed)
	}
}

// TestForwardStreams: pieces pass as they come, in both directions at once.
func TestForwardStreams(t *testing.T) {
	h := start(t, nil)
	h.web(t, "a.com:80", func(w http.ResponseWriter, r *http.Request) {
		flow := http.NewResponseController(w)
		if err := flow.EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		w.Header().Set("Trailer", "X-Sum")
		line := bufio.NewReader(r.Body)
		for {
			text, err := line.ReadString('\n')
			if err != nil {
				break
			}
			fmt.Fprint(w, "echo ", text)
			if err := flow.Flush(); err != nil {
				t.Error(err)
			}
		}
		w.Header().Set("X-Sum", "42")
	})
	in, out := io.Pipe()
	request, err := http.NewRequest(http.MethodPost, "http://a.com/", in)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = out.Write([]byte("one\n")) }() // until the proxy reads it
	response, err := h.client(t).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewReader(response.Body)
	for i, word := range []string{"one", "two", "three"} {
		if i > 0 {
			if _, err := out.Write([]byte(word + "\n")); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := lines.ReadString('\n'); err != nil || got != "echo "+word+"\n" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	out.Close()
	if rest, err := io.ReadAll(lines); err != nil || len(rest) != 0 {
		t.Errorf("%q, %v", rest, err)
	}
	if response.Trailer.Get("X-Sum") != "42" {
		t.Errorf("trailer: %v", response.Trailer)
	}
}

func TestForwardRefusesAmbiguity(t *testing.T) {
	h := start(t, nil)
	h.web(t, "a.com:80", func(http.ResponseWriter, *http.Request) { t.Error("the host is reached") })
	for what, lines := range map[string][]string{
		"another Host":        {"GET http://a.com/ HTTP/1.1", "Host: b.com", "$AUTH", ""},
		"another port":        {"GET http://a.com/ HTTP/1.1", "Host: a.com:81", "$AUTH", ""},
		"length and encoding": {"POST http://a.com/ HTTP/1.1", "Host: a.com", "$AUTH", "Content-Length: 3", "Transfer-Encoding: chunked", "", "0", ""},
		"user":                {"GET http://a.com@b.com/ HTTP/1.1", "Host: b.com", "$AUTH", ""},
		"backslash":           {"GET http://a.com\\@b.com/ HTTP/1.1", "Host: a.com", "$AUTH", ""},
		"encoded host":        {"GET http://a%2ecom/ HTTP/1.1", "Host: a.com", "$AUTH", ""},
		"fragment":            {"GET http://a.com/#x HTTP/1.1", "Host: a.com", "$AUTH", ""},
		"port of letters":     {"GET http://a.com:80x/ HTTP/1.1", "Host: a.com", "$AUTH", ""},
		"no absolute form":    {"GET / HTTP/1.1", "Host: a.com", "$AUTH", ""},
		"asterisk":            {"OPTIONS * HTTP/1.1", "Host: a.com", "$AUTH", ""},
		"https":               {"GET https://a.com/ HTTP/1.1", "Host: a.com", "$AUTH", ""},
		"ftp":                 {"GET ftp://a.com/ HTTP/1.1", "Host: a.com", "$AUTH", ""},
		"folded line":         {"GET http://a.com/ HTTP/1.1", "Host: a.com", "$AUTH", " x", ""},
		"not HTTP":            {"\x16\x03\x01", ""},
		"CONNECT port":        {"CONNECT a.com:443abc HTTP/1.1", "Host: a.com", "$AUTH", ""},
		"CONNECT port -1":     {"CONNECT a.com:-1 HTTP/1.1", "Host: a.com", "$AUTH", ""},
		"CONNECT port 70000":  {"CONNECT a.com:70000 HTTP/1.1", "Host: a.com", "$AUTH", ""},
		"CONNECT no port":     {"CONNECT a.com HTTP/1.1", "Host: a.com", "$AUTH", ""},
		"CONNECT to a URL":    {"CONNECT http://a.com/ HTTP/1.1", "Host: a.com", "$AUTH", ""},
		"CONNECT with a user": {"CONNECT good@evil.com:443 HTTP/1.1", "Host: evil.com", "$AUTH", ""},
		"CONNECT other Host":  {"CONNECT a.com:443 HTTP/1.1", "Host: b.com:443", "$AUTH", ""},
	} {
		s := h.socket(t)
		s.say(lines...)
		response := s.response("GET")
		var body struct {
			Error protocol.ErrorBody
			Hint  string
		}
		if err := json.NewDecoder(response.Body).Decode(&body); err != nil || response.StatusCode != http.StatusBadRequest || !response.Close || body.Error.Message == "" || body.Hint == "" {
			t.Errorf("%s: %s %+v %v", what, response.Status, body, err)
		}
		s.Close()
	}
	long := h.socket(t)
	long.say("GET http://a.com/ HTTP/1.1", "Host: a.com", "X: "+strings.Repeat("x", MaxHeadBytes), "")
	if response := long.response("GET"); response.StatusCode != http.StatusBadRequest {
		t.Error(response.Status)
	}
}

func TestForwardAnswers(t *testing.T) {
	h := start(t, nil)
	h.serve("private.com:80", "private")
	h.serve("broken.com:80", listen(t, func(conn net.Conn) { _, _ = conn.Write([]byte("SSH-2.0\r\n")) }))
	for _, name := range []string{"private.com", "broken.com", "missing.com"} {
		if err := h.rules.Decide(ses, name, protocol.AllowAlways); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.rules.Decide(ses, "denied.com", protocol.DenyAlways); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		status int
		reason Reason
	}{
		"http://denied.com/":   {http.StatusForbidden, DeniedByRule},
		"http://x.denied.com/": {http.StatusForbidden, DeniedByRule},
		"http://private.com/":  {http.StatusForbidden, DeniedPrivate},
		"http://10.0.0.1:22/":  {http.StatusForbidden, DeniedPrivate},
		"http://broken.com/":   {http.StatusBadGateway, FailedUpstream},
		"http://missing.com/":  {http.StatusBadGateway, FailedDial},
	} {
		before := h.Snapshot().Reasons[want.reason]
		status, body, _ := get(t, h.client(t), name)
		host := strings.Trim(strings.TrimPrefix(name, "http:"), "/")
		if status != want.status || !strings.Contains(body, host) || strings.Contains(body, capability) || strings.Contains(body, "127.0.0.1") {
			t.Errorf("%s: %d %s", name, status, body)
		}
		if got := h.Snapshot().Reasons[want.reason]; got != before+1 {
			t.Errorf("%s: %s stands at %d", name, want.reason, got)
		}
	}
}

// TestLoopbackBypass: this machine is reached without asking, but for what is
// forbidden there.
func TestLoopbackBypass(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "local") }))
	defer server.Close()
	port := server.Listener.Addr().(*net.TCPAddr).Port
	h := start(t, func(c *Config) { c.Agent = onePort(port + 1) })
	for _, name := range []string{"localhost", "LOCALHOST.", "127.0.0.1", "127.1", "0x7f.0.0.1", "x.localhost", "[::ffff:127.0.0.1]"} {
		s := h.socket(t)
		authority := fmt.Sprintf("%s:%d", name, port)
		s.say("GET http://"+authority+"/ HTTP/1.1", "Host: "+authority, "$AUTH", "")
		if body, err := io.ReadAll(s.response("GET").Body); err != nil || string(body) != "local" {
			t.Errorf("%s: %q, %v", name, body, err)
		}
		s.Close()
		s = h.socket(t)
		for _, port := range []int{port + 1, dnsPort} {
			s.say(fmt.Sprintf("CONNECT %s:%d HTTP/1.1", name, port), "Host: "+name, "$AUTH", "")
			response := s.response("GET")
			if body, err := io.ReadAll(response.Body); response.StatusCode != http.StatusForbidden || err != nil {
				t.Errorf("%s: %s %s %v", name, response.Status, body, err)
			}
		}
		s.Close()
	}
	if got := h.reasons(); len(h.dialed) != 0 || slices.Contains(got, AllowedByRule) {
		t.Errorf("%q, dialled %q", got, h.dialed)
	}
}

// TestUpgrade: a WebSocket passes through plain HTTP.
func TestUpgrade(t *testing.T) {
	h := start(t, nil)
	h.serve("a.com:80", listen(t, func(conn net.Conn) {
		br := bufio.NewReader(conn)
		request, err := http.ReadRequest(br)
		if err != nil || request.Header.Get("Upgrade") != "websocket" || request.Header.Get("Connection") != "Upgrade" {
			t.Errorf("%v, %v", request, err)
			return
		}
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\nhello")
		_, _ = io.Copy(conn, br)
	}))
	if err := h.rules.Decide(ses, "a.com", protocol.AllowAlways); err != nil {
		t.Fatal(err)
	}
	s := h.socket(t)
	s.say("GET http://a.com/ws HTTP/1.1", "Host: a.com", "$AUTH", "Connection: keep-alive, Upgrade", "Upgrade: websocket", "", "early")
	response := s.response("GET")
	if response.StatusCode != http.StatusSwitchingProtocols || response.Header.Get("Upgrade") != "websocket" || response.Header.Get("Sec-Websocket-Accept") != "x" {
		t.Fatalf("%s %v", response.Status, response.Header)
	}
	got := make([]byte, len("helloearly\r\n"))
	if _, err := io.ReadFull(s.br, got); err != nil || string(got) != "helloearly\r\n" {
		t.Errorf("%q, %v", got, err)
	}
	if err := h.rules.Decide(ses, "a.com", protocol.DenyAlways); err != nil {
		t.Fatal(err)
	}
	if got, err := s.br.ReadByte(); err == nil {
		t.Errorf("after a rule that denies it: %q", got)
	}
	if got := h.reasons(); !slices.Equal(got, []Reason{AllowedByRule, DeniedRevoked}) {
		t.Errorf("%q", got)
	}
}

// TestUnaskedUpgrade: a host that changes the protocol by itself is refused.
func TestUnaskedUpgrade(t *testing.T) {
	h := start(t, nil)
	h.web(t, "a.com:80", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
		conn.Close()
	})
	if status, body, _ := get(t, h.client(t), "http://a.com/"); status != http.StatusBadGateway {
		t.Errorf("%d %s", status, body)
	}
}

// TestExpectContinue: who waits for 100 Continue gets it when the host is
// ready for the body.
func TestExpectContinue(t *testing.T) {
	h := start(t, nil)
	h.web(t, "a.com:80", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</x>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		_, _ = io.Copy(w, r.Body)
	})
	s := h.socket(t)
	s.say("PUT http://a.com/ HTTP/1.1", "Host: a.com", "$AUTH", "Expect: 100-continue", "Content-Length: 4", "")
	var statuses []int
	for {
		response := s.response("PUT")
		statuses = append(statuses, response.StatusCode)
		if response.StatusCode == http.StatusContinue {
			s.say("ok")
		}
		if response.StatusCode == http.StatusOK {
			if body, err := io.ReadAll(response.Body); err != nil || string(body) != "ok\r\n" {
				t.Errorf("%q, %v", body, err)
			}
			break
		}
	}
	slices.Sort(statuses) // the hint may overtake
	if !slices.Equal(statuses, []int{http.StatusContinue, http.StatusEarlyHints, http.StatusOK}) {
		t.Errorf("%v", statuses)
	}
}

// TestEarlyAnswer: a host that answers before it has read the request ends the
// connection, not the answer.
func TestEarlyAnswer(t *testing.T) {
	h := start(t, nil)
	h.serve("a.com:80", listen(t, func(conn net.Conn) {
		br := bufio.NewReader(conn)
		if _, err := http.ReadRequest(br); err != nil {
			t.Error(err)
		}
		fmt.Fprint(conn, "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")
		_, _ = io.Copy(io.Discard, br)
	}))
	if err := h.rules.Decide(ses, "a.com", protocol.AllowAlways); err != nil {
		t.Fatal(err)
	}
	s := h.socket(t)
	s.say("POST http://a.com/ HTTP/1.1", "Host: a.com", "$AUTH", "Content-Length: 1000000", "", "some")
	response := s.response("POST")
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusRequestEntityTooLarge || string(body) != "big" || !response.Close {
		t.Errorf("%s %q %v", response.Status, body, err)
	}
	if _, err := s.br.ReadByte(); err != io.EOF {
		t.Errorf("the connection goes on: %v", err)
	}
}

// TestOldClient: HTTP/1.0 gets an answer without chunks.
func TestOldClient(t *testing.T) {
	h := start(t, nil)
	h.web(t, "a.com:80", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "one")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		fmt.Fprint(w, "two")
	})
	s := h.socket(t)
	s.say("GET http://a.com/ HTTP/1.0", "$AUTH", "")
	all, err := io.ReadAll(s.br)
	if err != nil || !bytes.HasSuffix(all, []byte("\r\n\r\nonetwo")) {
		t.Errorf("%q, %v", all, err)
	}
}

// TestCutResponse: a response that breaks off is not made to look whole.
func TestCutResponse(t *testing.T) {
	h := start(t, nil)
	h.web(t, "a.com:80", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	response, err := h.client(t).Get("http://a.com/")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err == nil {
		t.Errorf("%q", body)
	}
}

// TestClientLeaves: a host is told when nobody waits for its answer any more.
func TestClientLeaves(t *testing.T) {
	h := start(t, nil)
	started, ended := make(chan struct{}), make(chan struct{})
	h.web(t, "a.com:80", func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(started)
		<-r.Context().Done()
		close(ended)
	})
	s := h.socket(t)
	s.say("POST http://a.com/ HTTP/1.1", "Host: a.com", "$AUTH", "Content-Length: 2", "", "")
	<-started
	s.Close()
	<-ended
}

func TestNewRefuses(t *testing.T) {
	for _, address := range []net.Addr{&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}, &net.UnixAddr{Name: "x"}} {
		if _, err := New(Config{Listener: pipeListener{address}}); err == nil {
			t.Errorf("%v", address)
		}
	}
}

// TestListenerFails: Run says so.
func TestListenerFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, l, nil)
	l.Close()
	if err := h.Run(context.Background()); err == nil {
		t.Error("no error")
	}
}

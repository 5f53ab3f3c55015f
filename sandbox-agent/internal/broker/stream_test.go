package broker

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

func plainUpstream(t testing.TB, handler http.Handler) netip.AddrPort {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.Listener.Addr().(*net.TCPAddr).AddrPort()
}

// open starts a request and returns its answer as it begins.
func open(t *testing.T, method, url string, body io.Reader) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// TestEventsComeAtOnce: each event is read before the next one is sent.
func TestEventsComeAtOnce(t *testing.T) {
	next := make(chan string)
	s := withUpstream(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(200)
		control := http.NewResponseController(w)
		control.Flush()
		for event := range next {
			io.WriteString(w, event)
			control.Flush()
		}
	}), func(o *Options) { o.Masker = newStars(realKey) })
	resp := open(t, "POST", env(t, s, sid, pid)["OPENAI_BASE_URL"]+"/responses", strings.NewReader("{}"))
	if resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%v", resp.Header)
	}
	in := bufio.NewReader(resp.Body)
	for i := range 5 {
		want := fmt.Sprintf("data: %d\n", i)
		next <- want
		if got, err := in.ReadString('\n'); got != want || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
	}
	close(next)
	if rest, err := io.ReadAll(in); err != nil || len(rest) != 0 {
		t.Errorf("%q, %v", rest, err)
	}
}

// TestBodyIsStreamed: the upstream reads the beginning of a body, and answers,
// before its end is sent.
func TestBodyIsStreamed(t *testing.T) {
	s := withUpstream(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		control.EnableFullDuplex()
		in := bufio.NewReader(r.Body)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			io.WriteString(w, "got "+line)
			control.Flush()
		}
	}), nil)
	body, feed := io.Pipe()
	first := make(chan error, 1)
	go func() { _, err := io.WriteString(feed, "one\n"); first <- err }()
	resp := open(t, "POST", env(t, s, sid, pid)["OPENAI_BASE_URL"]+"/x", body)
	in := bufio.NewReader(resp.Body)
	if got, err := in.ReadString('\n'); got != "got one\n" || err != nil || <-first != nil {
		t.Fatalf("%q, %v", got, err)
	}
	io.WriteString(feed, "two\n")
	if got, err := in.ReadString('\n'); got != "got two\n" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	feed.Close()
	if rest, err := io.ReadAll(in); err != nil || len(rest) != 0 {
		t.Errorf("%q, %v", rest, err)
	}
}

func TestLargeBodies(t *testing.T) {
	s := withUpstream(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		w.Header().Set("Content-Length", fmt.Sprint(r.ContentLength))
		io.Copy(w, r.Body)
	}), nil)
	body := strings.Repeat("0123456789abcdef", 1<<16)
	got := do(t, "POST", env(t, s, sid, pid)["OPENAI_BASE_URL"]+"/x", body, nil)
	if got.body != body || got.header.Get("Content-Length") != fmt.Sprint(len(body)) {
		t.Errorf("%d bytes of %d, %v", len(got.body), len(body), got.header)
	}
}

// stalled is an upstream that sends part of an answer and then nothing.
func stalled(gone chan<- struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/silent" {
			<-r.Context().Done()
			gone <- struct{}{}
			return
		}
		io.WriteString(w, "begin\n")
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
		gone <- struct{}{}
	})
}

// TestEndOfTerminal ends what its processes have open.
func TestEndOfTerminal(t *testing.T) {
	gone := make(chan struct{}, 1)
	records := make(chan Record, 1)
	s := withUpstream(t, stalled(gone), func(o *Options) { o.Audit = func(r Record) { records <- r } })
	resp := open(t, "GET", env(t, s, sid, pid)["OPENAI_BASE_URL"]+"/x", nil)
	if _, err := io.ReadFull(resp.Body, make([]byte, len("begin\n"))); err != nil {
		t.Fatal(err)
	}
	s.EndTerminal(sid, pid)
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("a cut answer looks whole")
	}
	<-gone
	if r := <-records; r.Error != string(reasonAborted) || r.Status != 200 {
		t.Errorf("%+v", r)
	}
}

func TestClientGone(t *testing.T) {
	gone := make(chan struct{}, 1)
	s := withUpstream(t, stalled(gone), nil)
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", env(t, s, sid, pid)["OPENAI_BASE_URL"]+"/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	cancel()
	<-gone // the upstream is told
}

func TestUpstreamCut(t *testing.T) {
	s := withUpstream(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "begin\n")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}), nil)
	resp := open(t, "GET", env(t, s, sid, pid)["OPENAI_BASE_URL"]+"/x", nil)
	if data, err := io.ReadAll(resp.Body); err == nil || string(data) != "begin\n" {
		t.Errorf("%q, %v: a cut answer looks whole", data, err)
	}
}

func TestTooManyRequests(t *testing.T) {
	gone := make(chan struct{}, MaxRequests+1)
	s := withUpstream(t, stalled(gone), nil)
	url := env(t, s, sid, pid)["OPENAI_BASE_URL"] + "/x"
	for range MaxRequests {
		open(t, "GET", url, nil)
	}
	if got := do(t, "GET", url, "", nil); got.status != 429 || got.reason() != reasonTooMany {
		t.Errorf("%d %s", got.status, got.body)
	}
	// Another terminal is not held up.
	open(t, "GET", env(t, s, sid, otherPID)["OPENAI_BASE_URL"]+"/x", nil)
	if n := s.Snapshot().Active; n != MaxRequests+1 {
		t.Errorf("%d active", n)
	}
}

func TestWebSocket(t *testing.T) {
	seen := make(chan http.Header, 1)
	s := withUpstream(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"realtime"}, CompressionMode: websocket.CompressionContextTakeover})
		if err != nil {
			return
		}
		defer c.CloseNow()
		c.SetReadLimit(1 << 20)
		for {
			kind, data, err := c.Read(r.Context())
			if err != nil {
				return
			}
			if string(data) == "bye" {
				c.Close(4321, "key "+realKey)
				return
			}
			if c.Write(r.Context(), kind, append([]byte("echo "), data...)) != nil {
				return
			}
		}
	}), func(o *Options) { o.Masker = newStars(realKey) })
	url := "ws" + strings.TrimPrefix(env(t, s, sid, pid)["OPENAI_BASE_URL"], "http") + "/realtime?model=m"
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{
		HTTPClient: client, CompressionMode: websocket.CompressionContextTakeover,
		Subprotocols: []string{"realtime", "openai-insecure-api-key.mine"},
		HTTPHeader:   http.Header{"Authorization": {"Bearer mine"}, "OpenAI-Beta": {"realtime=v1"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	c.SetReadLimit(1 << 20)
	header := <-seen
	if header.Get("Authorization") != "Bearer "+realKey || header.Get("Sec-Websocket-Protocol") != "realtime" ||
		header.Get("Sec-Websocket-Extensions") != "" || header.Get("Openai-Beta") != "realtime=v1" || c.Subprotocol() != "realtime" {
		t.Errorf("%v", header)
	}
	hidden := strings.Repeat("*", len(realKey))
	for _, text := range []string{"hello", "my " + realKey + ".", strings.Repeat("x", 200_000) + realKey, ""} {
		if err := c.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
		kind, got, err := c.Read(ctx)
		if want := "echo " + strings.ReplaceAll(text, realKey, hidden); err != nil || string(got) != want || kind != websocket.MessageText {
			t.Fatalf("%d bytes, %v, want %d", len(got), err, len(want))
		}
	}
	if err := c.Write(ctx, websocket.MessageText, []byte("bye")); err != nil {
		t.Fatal(err)
	}
	var closed websocket.CloseError
	if _, _, err := c.Read(ctx); !errors.As(err, &closed) || closed.Code != 4321 || closed.Reason != "key "+hidden {
		t.Errorf("%v", err)
	}
}

// frame builds one frame of a server.
func frame(head byte, payload string) []byte {
	b := []byte{head}
	switch {
	case len(payload) <= 125:
		b = append(b, byte(len(payload)))
	default:
		b = binary.BigEndian.AppendUint16(append(b, 126), uint16(len(payload)))
	}
	return append(b, payload...)
}

// messages reads frames back: what each message holds, however it was cut.
func messages(t *testing.T, b []byte) []string {
	t.Helper()
	in := bufio.NewReader(bytes.NewReader(b))
	var all []string
	open := -1
	for {
		head, size, err := readFrameHead(in)
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		payload := make([]byte, size)
		if _, err := io.ReadFull(in, payload); err != nil {
			t.Fatal(err)
		}
		op := head & frameOpcode
		switch {
		case op&frameControl != 0:
			all = append(all, fmt.Sprintf("%d!%s", op, payload))
		case op != 0:
			open = len(all)
			all = append(all, fmt.Sprintf("%d:%s", op, payload))
		case open < 0:
			t.Fatal("a continuation of nothing")
		default:
			all[open] += string(payload)
		}
		if op&frameControl == 0 && head&frameFin != 0 {
			open = -1
		}
	}
}

func TestMaskFrames(t *testing.T) {
	hidden := strings.Repeat("*", len(realKey))
	in := bytes.Join([][]byte{
		frame(0x81, "a "+realKey),
		frame(0x01, realKey[:5]), frame(0x89, "ping"), frame(0x00, realKey[5:9]), frame(0x80, realKey[9:]+" z"),
		frame(0x82, ""),
		frame(0x82, strings.Repeat("y", 60_000)),
		frame(0x88, "\x03\xe8"+realKey),
	}, nil)
	var out bytes.Buffer
	if err := maskFrames(&out, bytes.NewReader(in), newStars(realKey)); err != io.EOF {
		t.Fatal(err)
	}
	want := []string{"1:a " + hidden, "9!ping", "1:" + hidden + " z", "2:", "2:" + strings.Repeat("y", 60_000), "8!\x03\xe8" + hidden}
	got := messages(t, out.Bytes())
	// The ping overtakes the message that nothing could go out of yet.
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%.200q", got)
	}
	for _, bad := range [][]byte{
		frame(0xc1, "compressed"), {0x81, 0x84, 1, 2, 3, 4, 5, 6, 7, 8}, frame(0x80, "continuation of nothing"),
		append(frame(0x01, "a"), frame(0x81, "b")...), frame(0x09, "a ping in parts"), frame(0x89, strings.Repeat("p", 126)),
	} {
		if err := maskFrames(io.Discard, bytes.NewReader(bad), newStars(realKey)); err != errFrame {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func FuzzMaskFrames(f *testing.F) {
	f.Add(frame(0x81, "a "+realKey))
	f.Add(append(frame(0x01, realKey[:4]), frame(0x80, realKey[4:])...))
	f.Add([]byte{0x82, 127, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		var out bytes.Buffer
		if maskFrames(&out, bytes.NewReader(b), newStars(realKey)) == nil {
			t.Fatal("an endless stream ended")
		}
		if bytes.Contains(out.Bytes(), []byte(realKey)) {
			t.Fatalf("%q", out.Bytes())
		}
	})
}

func FuzzParseRoute(f *testing.F) {
	for _, seed := range []string{
		"/broker/abc/openai/v1/models?a=b", "/broker/abc/custom/MY_KEY?target=https%3A%2F%2Fa.example%2F", "/broker/x/y/../z", "/broker/x/y/%2e%2e/z", "/broker/x/y/a%2f..", "//broker",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, refused := parseRoute(text)
		if refused != nil {
			return
		}
		if strings.Contains(r.rest, "..") && strings.Contains("/"+r.rest+"/", "/../") || strings.ContainsAny(r.rest, "\\@ \r\n") {
			t.Fatalf("%q", r.rest)
		}
		d := destination{scheme: "https", path: "/v1" + r.rest}
		if got := d.url().EscapedPath(); got != d.path {
			t.Fatalf("%q goes out as %q", d.path, got)
		}
		if to, refused := customTarget(r.query); refused == nil {
			again, refused := parseURL(to.url().String())
			if refused != nil || again.host != to.host || again.path != to.path || again.scheme != to.scheme {
				t.Fatalf("%q: %+v became %+v", r.query, to, again)
			}
		}
	})
}

func FuzzCheckHead(f *testing.F) {
	f.Add("GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked")
	f.Fuzz(func(t *testing.T, head string) {
		lower := strings.ToLower(head)
		if checkHead([]byte(head)) == nil && strings.Contains(lower, "\ncontent-length:") && strings.Contains(lower, "\ntransfer-encoding:") {
			t.Fatalf("%q", head)
		}
	})
}

func BenchmarkLatency(b *testing.B) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") })
	addr := upstream(b, handler)
	direct := &http.Client{Transport: &http.Transport{TLSClientConfig: tlsFor(roots(b), "api.openai.com")}}
	defer direct.CloseIdleConnections()
	b.Run("direct", func(b *testing.B) { fetch(b, direct, "https://"+addr.String()+"/v1/models") })
	for _, masked := range []bool{false, true} {
		s := withUpstream(b, handler, func(o *Options) {
			if masked {
				o.Masker = newStars(realKey)
			}
		})
		url := env(b, s, sid, pid)["OPENAI_BASE_URL"] + "/models"
		b.Run(fmt.Sprintf("broker/masked=%v", masked), func(b *testing.B) { fetch(b, client, url) })
	}
}

func BenchmarkThroughput(b *testing.B) {
	const size = 16 << 20
	chunk := bytes.Repeat([]byte("0123456789abcde\n"), 2<<10)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for range size / len(chunk) {
			w.Write(chunk)
		}
	})
	addr := upstream(b, handler)
	direct := &http.Client{Transport: &http.Transport{TLSClientConfig: tlsFor(roots(b), "api.openai.com")}}
	defer direct.CloseIdleConnections()
	b.Run("direct", func(b *testing.B) {
		b.SetBytes(size)
		fetch(b, direct, "https://"+addr.String()+"/v1/models")
	})
	s := withUpstream(b, handler, nil)
	url := env(b, s, sid, pid)["OPENAI_BASE_URL"] + "/models"
	b.Run("broker", func(b *testing.B) {
		b.SetBytes(size)
		fetch(b, client, url)
	})
}

func fetch(b *testing.B, c *http.Client, url string) {
	b.Helper()
	for b.Loop() {
		resp, err := c.Get(url)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
			b.Fatal(resp.StatusCode, err)
		}
		resp.Body.Close()
	}
}

func tlsFor(pool *x509.CertPool, name string) *tls.Config {
	return &tls.Config{RootCAs: pool, ServerName: name}
}

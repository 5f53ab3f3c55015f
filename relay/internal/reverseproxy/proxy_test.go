package reverseproxy

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(relaytest.Patient(m)) }

// patience bounds what would hang if it failed.
const patience = 30 * time.Second

// A world is a browser, a proxy and a sandbox.
type world struct {
	t         *testing.T
	authority *relaytest.Authority
	requests  *Requests
	server    *httptest.Server
	client    *http.Transport
	streams   atomic.Int32 // that the sandbox was asked for
	over      atomic.Int32 // of these
	agent     *tunnel.Session

	grant *jws.Grant
	token string
}

// asEvents has each new world's proxy be one for events.
var asEvents bool

// newWorld is a world whose sandbox serves handler.
func newWorld(t *testing.T, handler http.HandlerFunc, change func(*Options)) *world {
	t.Helper()
	w := &world{t: t, authority: relaytest.NewAuthority(t)}
	w.requests = New(w.authority.Grants, prometheus.NewRegistry())
	w.grant, w.token = w.authority.Grant(nil)
	agent, relay := tunneltest.Pair(t)
	w.agent = agent
	relaytest.Answer(t, agent, func(in *tunnel.Incoming) {
		w.streams.Add(1)
		if in.Open.Grant != w.token {
			t.Errorf("under another grant: %.10s", in.Open.Grant)
		}
		relaytest.HTTP(in, handler)
		w.over.Add(1)
	})
	opts := Options{
		Requests: w.requests, Upgrades: true, Log: slog.New(slog.DiscardHandler),
		Rewrite: func(*httputil.ProxyRequest) {}, Response: func(*http.Response) {},
		Refuse: func(w http.ResponseWriter, _ *http.Request, err error) {
			w.Header().Set("Content-Length", strconv.Itoa(len(err.Error())))
			w.WriteHeader(protocol.AsError(err).Kind.Status())
			io.WriteString(w, err.Error())
		},
	}
	opts.Events = asEvents
	if change != nil {
		change(&opts)
	}
	proxy := NewProxy(opts)
	w.server = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Vary", "Origin") // as set before a proxy
		proxy.Serve(rw, r, relay, w.grant, w.token)
	}))
	w.server.Config.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateNew { // so that what the kernel holds doesn't count
			c.(*net.TCPConn).SetWriteBuffer(128 << 10)
			c.(*net.TCPConn).SetReadBuffer(128 << 10)
		}
	}
	w.server.Start()
	w.client = &http.Transport{
		ExpectContinueTimeout: patience, DisableCompression: true,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err == nil {
				c.(*net.TCPConn).SetReadBuffer(128 << 10)
			}
			return c, err
		},
	}
	t.Cleanup(func() {
		w.client.CloseIdleConnections()
		w.server.Close()
	})
	return w
}

func (w *world) request(method, path string, body io.Reader) *http.Request {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.server.URL+path, body)
	must(w.t, err)
	return r
}

func (w *world) do(r *http.Request) *http.Response {
	w.t.Helper()
	resp, err := w.client.RoundTrip(r)
	must(w.t, err)
	w.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually fails unless ok comes to hold.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// Both directions flow at once, each piece when it is there, with trailers.
func TestBothWaysAtOnce(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Trailer", "Sum")
		buf := make([]byte, 1)
		n := 0
		for {
			if got, err := r.Body.Read(buf); got == 0 && err != nil {
				break
			}
			rw.Write(bytes.ToUpper(buf))
			http.NewResponseController(rw).Flush()
			n++
		}
		rw.Header().Set("Sum", fmt.Sprint(n, r.Trailer.Get("Asked")))
	}, nil)
	body, feed := io.Pipe()
	req := w.request("POST", "/", body)
	req.Trailer = http.Header{"Asked": {"for"}}
	go io.WriteString(feed, "a") // the answer waits for it
	resp := w.do(req)
	answer := bufio.NewReader(resp.Body)
	for _, letter := range "bcdefgh" {
		if got, err := answer.ReadByte(); err != nil || rune(got) != letter-1-'a'+'A' {
			t.Fatalf("%q %v", got, err)
		}
		_, err := io.WriteString(feed, string(letter))
		must(t, err)
	}
	feed.Close()
	rest, err := io.ReadAll(answer)
	if err != nil || string(rest) != "H" || resp.Trailer.Get("Sum") != "8for" || resp.Header.Get("Vary") != "Origin" {
		t.Errorf("%q %v %v %v", rest, err, resp.Header, resp.Trailer)
	}
}

// A browser that doesn't read holds the sandbox back, and a sandbox that
// doesn't read the browser; nothing piles up in between.
func TestFlowControl(t *testing.T) {
	var written, sent atomic.Int64
	taken := make(chan struct{})
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			<-taken
			n, _ := io.Copy(io.Discard, r.Body)
			fmt.Fprint(rw, n)
			return
		}
		piece := make([]byte, 16<<10)
		for {
			n, err := rw.Write(piece)
			written.Add(int64(n))
			if err != nil {
				return
			}
		}
	}, nil)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	resp := w.do(w.request("GET", "/", nil).WithContext(ctx))
	const some = 64 << 10
	if n := settled(&written, some); n < some || n > 2<<20 {
		t.Errorf("%d bytes were written, and nobody reads", n)
	}
	if n, err := io.CopyN(io.Discard, resp.Body, 4<<20); err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	leave()

	const size = 8 << 20
	answered := make(chan string, 1)
	go func() { // received below
		resp, err := w.client.RoundTrip(w.request("PUT", "/", io.LimitReader(counting{&sent}, size)))
		if err != nil {
			answered <- err.Error()
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		answered <- string(body)
	}()
	if n := settled(&sent, some); n < some || n > 6<<20 { // the sender's kernel takes up to 4 MiB
		t.Errorf("%d bytes were sent, and nobody reads", n)
	}
	close(taken)
	if got := <-answered; got != fmt.Sprint(size) {
		t.Errorf("got %s of %d bytes", got, size)
	}
}

// settled waits until n is as large as least and then stands still, and returns
// it. Where those who make it grow are slow for a while, that may be less than
// what it would come to.
func settled(n *atomic.Int64, least int64) int64 {
	last, still := int64(0), 0
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); still < 15 && time.Now().Before(end); {
		<-tick.C
		now := n.Load()
		if still++; now != last || now < least {
			last, still = now, 0
		}
	}
	return last
}

// counting is an endless source that counts what is taken.
type counting struct{ n *atomic.Int64 }

func (c counting) Read(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// When the browser is gone, the sandbox hears of it within a second.
func TestBrowserGone(t *testing.T) {
	began, ended := make(chan bool, 1), make(chan bool, 1)
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		began <- true
		<-r.Context().Done()
		ended <- true
	}, nil)
	ctx, leave := context.WithCancel(t.Context())
	asked := make(chan struct{})
	go func() { // waited for below
		defer close(asked)
		if resp, err := w.client.RoundTrip(w.request("GET", "/", nil).WithContext(ctx)); err == nil {
			resp.Body.Close()
		}
	}()
	<-began
	leave()
	left := time.Now()
	<-ended
	if took := time.Since(left); took > 6*time.Second { // a second is promised, and a busy machine has its own
		t.Errorf("after %s", took)
	}
	<-asked
}

// echoes is a handler that switches protocols and then repeats.
func echoes(rw http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") == "" {
		io.WriteString(rw, "no upgrade")
		return
	}
	conn, buf, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	buf.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + r.Header.Get("Upgrade") + "\r\nSet-Cookie: a=b\r\n\r\n")
	buf.Flush()
	io.Copy(conn, buf)
}

// upgrade switches to the protocol that echoes.
func (w *world) upgrade() (*http.Response, io.ReadWriteCloser) {
	w.t.Helper()
	req := w.request("GET", "/", nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	resp := w.do(req)
	both, _ := resp.Body.(io.ReadWriteCloser)
	return resp, both
}

// An upgraded connection passes both ways, and ends with its grant.
func TestUpgrade(t *testing.T) {
	w := newWorld(t, echoes, func(o *Options) { o.Response = func(r *http.Response) { r.Header.Del("Set-Cookie") } })
	resp, both := w.upgrade()
	if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Set-Cookie") != "" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	for range 3 {
		io.WriteString(both, "hello")
		got := make([]byte, 5)
		if _, err := io.ReadFull(both, got); err != nil || string(got) != "hello" {
			t.Fatalf("%q %v", got, err)
		}
	}
	w.authority.Revoked.Add(w.grant.ID)
	if _, err := both.Read(make([]byte, 1)); err == nil {
		t.Error("it goes on after the grant was revoked")
	}
	eventually(t, "the request stays", func() bool { return w.requests.count() == 0 })
	if resp, _ := w.upgrade(); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("under a void grant: %d", resp.StatusCode)
	}
}

// Where upgrades don't belong the sandbox isn't asked for one, nor believed.
func TestNoUpgrade(t *testing.T) {
	w := newWorld(t, echoes, func(o *Options) { o.Upgrades = false })
	if resp, _ := w.upgrade(); resp.StatusCode != http.StatusOK {
		t.Errorf("%d", resp.StatusCode)
	}
	w = newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		r.Header.Set("Upgrade", "echo")
		echoes(rw, r)
	}, func(o *Options) { o.Upgrades = false })
	if resp, _ := w.upgrade(); resp.StatusCode != http.StatusBadGateway {
		t.Errorf("%d", resp.StatusCode)
	}
}

// Nothing of the relay's or of other proxies goes along, whatever a browser
// says about hops; what an application may say does.
func TestWhatGoesAlong(t *testing.T) {
	seen := make(chan http.Header, 1)
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Clone()
		h := rw.Header()
		h.Set("Proxy-Authenticate", "Basic")
		h.Set("Keep-Alive", "timeout=5")
		h.Set("X-App", "1")
		rw.WriteHeader(http.StatusTeapot)
	}, nil)
	req := w.request("GET", "/", nil)
	for _, name := range []string{
		"Fairlead-Grant", "Proxy-Authorization", "Proxy-Connection", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-User",
		"Forwarded", "Via", "X-Real-Ip", "Keep-Alive", "X-Hop", "X-App", "User-Agent",
	} {
		req.Header.Set(name, "x")
	}
	req.Header.Set("Connection", "X-Hop")
	resp := w.do(req)
	var names []string
	for name := range <-seen {
		names = append(names, name)
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); got != "User-Agent X-App" {
		t.Errorf("the sandbox saw %s", got)
	}
	if h := resp.Header; h.Get("Keep-Alive") != "" || h.Get("Proxy-Authenticate") != "" || h.Get("X-App") != "1" || resp.StatusCode != http.StatusTeapot {
		t.Errorf("%d %v", resp.StatusCode, h)
	}
}

// Early hints stay here, and what was set before the proxy survives them.
func TestEarlyHints(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Link", "</x.js>; rel=preload")
		rw.WriteHeader(http.StatusEarlyHints)
		rw.Header().Del("Link")
		io.WriteString(rw, "done")
	}, nil)
	conn, err := net.Dial("tcp", w.server.Listener.Addr().String())
	must(t, err)
	defer conn.Close()
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	answer, err := io.ReadAll(conn)
	must(t, err)
	if !bytes.HasPrefix(answer, []byte("HTTP/1.1 200 OK\r\n")) || bytes.Contains(answer, []byte("preload")) || !bytes.Contains(answer, []byte("Vary: Origin")) {
		t.Errorf("%s", answer)
	}
}

// What the sandbox refuses isn't sent first; HEAD and ranges pass as they are.
func TestExpectHeadAndRange(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			if r.URL.Path == "/no" {
				rw.WriteHeader(http.StatusRequestEntityTooLarge)
				return
			}
			io.Copy(rw, r.Body)
			return
		}
		http.ServeContent(rw, r, "x.bin", time.Time{}, strings.NewReader("0123456789"))
	}, nil)
	for path, status := range map[string]int{"/no": 413, "/yes": 200} {
		var sent atomic.Int64
		req := w.request("PUT", path, io.LimitReader(counting{&sent}, 100))
		req.ContentLength = 100
		req.Header.Set("Expect", "100-continue")
		resp := w.do(req)
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != status || (status == 200) != (sent.Load() >= 100) || status == 200 && len(body) != 100 || resp.Header.Get("Vary") == "" {
			t.Errorf("%s: %d, %d bytes sent, %d back", path, resp.StatusCode, sent.Load(), len(body))
		}
	}
	resp := w.do(w.request("HEAD", "/", nil))
	if body, err := io.ReadAll(resp.Body); resp.ContentLength != 10 || len(body) != 0 || err != nil {
		t.Errorf("HEAD: %d, %q, %v", resp.ContentLength, body, err)
	}
	req := w.request("GET", "/", nil)
	req.Header.Set("Range", "bytes=2-4")
	resp = w.do(req)
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusPartialContent || string(body) != "234" {
		t.Errorf("a range: %d %q", resp.StatusCode, body)
	}
}

package preview

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/route"
)

// A previewWorld is an application on loopback, and what shows it.
type previewWorld struct {
	*Preview
	t      *testing.T
	port   int
	server *httptest.Server
	client *http.Transport
	grant  *jws.Grant

	agents  bool  // the port is the agent's own
	foreign bool  // it belongs to somebody else
	unknown error // why nobody knows whose it is
}

// Owns implements [Ports].
func (w *previewWorld) Owns(port int) bool { return w.agents && port == w.port }

// Belongs implements [Ports].
func (w *previewWorld) Belongs(session protocol.SessionID, port int) (bool, error) {
	return session == "ses_1" && !w.foreign, w.unknown
}

func newPreviewWorld(t *testing.T, listen string, app http.HandlerFunc) *previewWorld {
	t.Helper()
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		t.Skipf("no %s here: %v", listen, err)
	}
	application := &httptest.Server{Listener: listener, Config: &http.Server{Handler: app}}
	application.Start()
	w := &previewWorld{
		t: t, port: listener.Addr().(*net.TCPAddr).Port, client: &http.Transport{DisableCompression: true},
		grant: &jws.Grant{Session: "ses_1", Caps: []protocol.Capability{protocol.CapPlugins}},
	}
	w.Preview = &Preview{Ports: w, Log: slog.New(slog.DiscardHandler)}
	mux := http.NewServeMux()
	w.Routes(mux)
	front := w.Front(mux)
	w.server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		front.ServeHTTP(rw, r.WithContext(route.WithGrant(r.Context(), w.grant)))
	}))
	t.Cleanup(func() {
		w.client.CloseIdleConnections()
		w.server.Close()
		application.Close()
	})
	return w
}

// get asks for a path of the application.
func (w *previewWorld) get(path string, header ...string) (*http.Response, string) {
	w.t.Helper()
	return w.getPort(strconv.Itoa(w.port), path, header...)
}

func (w *previewWorld) getPort(port, path string, header ...string) (*http.Response, string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.server.URL, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if r.URL, err = url.Parse(w.server.URL + "/sessions/ses_1/preview/" + port + path); err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := w.client.RoundTrip(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp, string(body)
}

// TestPreview: the application is asked as if by somebody on its own machine.
func TestPreview(t *testing.T) {
	for _, listen := range []string{"127.0.0.1:0", "[::1]:0"} {
		w := newPreviewWorld(t, listen, func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Set-Cookie", "a=b")
			fmt.Fprintf(rw, "%s %s host=%s origin=%s cookie=%s fwd=%q", r.Method, r.RequestURI, r.Host, r.Header.Get("Origin"), r.Header.Get("Cookie"), r.Header.Get("X-Forwarded-For"))
		})
		host := fmt.Sprint("localhost:", w.port)
		resp, body := w.get("/a%2Fb/c%20d/?x=%zz;y", "Origin", "http://id.preview.localhost:8081", "Cookie", "c=d")
		want := "GET /a%2Fb/c%20d/?x=%zz;y host=" + host + " origin=http://" + host + ` cookie=c=d fwd=""`
		if body != want || resp.Header.Get("Set-Cookie") != "a=b" {
			t.Errorf("%s, want %s", body, want)
		}
	}
}

// oddTargets are what a mux or a URL would make another target of.
var oddTargets = []string{
	"/proxy/https://example.com/x", "//", "//a", "///a//b", "/a/../b", "/..", "/../../x", "/./a/.", "/a%2Fb%2f..%2F", "/%2e%2e/a", "/%41",
	"/a|b%2Fc", "/a\"<>`{}^\\[]", "/caf\xc3\xa9/%C3%A9", "/a;b=c,d", "/a?", "/a??", "/?x=%zz;y&z=//..", "/a#b", "/sessions/ses_1/preview/1//",
	"//a%2Fb?c=/../d", "/a:b@c", "/*", "/" + strings.Repeat("a/", 3000),
}

// TestOddTargets: the application is asked for what was sent, byte for byte,
// WebSockets too.
func TestOddTargets(t *testing.T) {
	w := newPreviewWorld(t, "127.0.0.1:0", func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			io.WriteString(rw, r.RequestURI)
			return
		}
		conn, buf, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprintf(buf, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Target: %s\r\n\r\n", r.RequestURI)
		buf.Flush()
	})
	ask := func(target, header string) (*http.Response, string) {
		conn, err := net.Dial("tcp", w.server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET /sessions/ses_1/preview/%d%s HTTP/1.1\r\nHost: x\r\n%s\r\n", w.port, target, header)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp, string(body)
	}
	for _, target := range oddTargets {
		if resp, body := ask(target, "Connection: close\r\n"); resp.StatusCode != http.StatusOK || body != target {
			t.Errorf("%.60q: %d, %.60q", target, resp.StatusCode, body)
		}
		resp, _ := ask(target, "Connection: Upgrade\r\nUpgrade: websocket\r\n")
		if got := resp.Header.Get("X-Target"); resp.StatusCode != http.StatusSwitchingProtocols || got != target {
			t.Errorf("a WebSocket at %.60q: %d, %.60q", target, resp.StatusCode, got)
		}
	}
	if _, body := ask("//a|b%2Fc", "Connection: close\r\n"); body != "//a%7Cb%2Fc" {
		t.Errorf("both at once: %q", body)
	}
}

// TestPreviewRefuses: only what a terminal of the session listens on is shown.
func TestPreviewRefuses(t *testing.T) {
	w := newPreviewWorld(t, "127.0.0.1:0", func(rw http.ResponseWriter, r *http.Request) { io.WriteString(rw, "seen") })
	status := func(port string) int {
		resp, _ := w.getPort(port, "/")
		return resp.StatusCode
	}
	port := strconv.Itoa(w.port)
	for given, want := range map[string]int{port: 200, "0" + port: 400, "0": 400, "65536": 400, "x": 400, "-1": 400, "+1": 400} {
		if got := status(given); got != want {
			t.Errorf("port %s: %d", given, got)
		}
	}
	w.agents = true
	if got := status(port); got != http.StatusForbidden {
		t.Errorf("the agent's own port: %d", got)
	}
	w.agents, w.foreign = false, true
	if got := status(port); got != http.StatusForbidden {
		t.Errorf("somebody else's: %d", got)
	}
	w.foreign, w.unknown = false, errors.New("nobody")
	if got := status(port); got != http.StatusBadGateway {
		t.Errorf("nobody's: %d", got)
	}
	w.unknown = nil
	for _, w.grant = range []*jws.Grant{
		nil, {Session: "ses_2", Caps: protocol.Capabilities}, {Session: "ses_1", Caps: []protocol.Capability{protocol.CapView}},
	} {
		if got := status(port); got != http.StatusForbidden {
			t.Errorf("%+v: %d", w.grant, got)
		}
	}
}

// quietPort returns a port at which nothing listens, and nothing else will until
// the test ends.
func quietPort(t *testing.T) int {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return at.(*syscall.SockaddrInet4).Port
}

// TestNothingListens: who looks is told so.
func TestNothingListens(t *testing.T) {
	w := newPreviewWorld(t, "127.0.0.1:0", http.NotFound)
	port := strconv.Itoa(quietPort(t))
	const said = "Nothing listens on port "
	resp, body := w.getPort(port, "/", "Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")
	if h := resp.Header; resp.StatusCode != http.StatusBadGateway || !strings.Contains(body, "<p>"+said+port) || !strings.HasPrefix(h.Get("Content-Type"), "text/html") ||
		h.Get("Content-Security-Policy") != "default-src 'none'" {
		t.Errorf("%d %v %s", resp.StatusCode, h, body)
	}
	w.unknown = errors.New("nobody")
	for range 2 {
		resp, body = w.getPort(port, "/", "Accept", "application/json")
		var answer struct{ Error protocol.ErrorBody }
		if err := json.Unmarshal([]byte(body), &answer); err != nil || resp.StatusCode != http.StatusBadGateway ||
			answer.Error.Name != protocol.KindNotFound.Name() || !strings.Contains(answer.Error.Message, port) {
			t.Errorf("%d %v %s", resp.StatusCode, err, body)
		}
		w.unknown = nil
	}
}

// TestPreviewRedirects: a redirect to the application's own address is one to
// the preview.
func TestPreviewRedirects(t *testing.T) {
	var to string
	w := newPreviewWorld(t, "127.0.0.1:0", func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Location", to)
		rw.WriteHeader(http.StatusFound)
	})
	for given, want := range map[string]string{
		fmt.Sprintf("http://localhost:%d/a?b=c#d", w.port): "/a?b=c#d",
		fmt.Sprintf("http://127.0.0.1:%d", w.port):         "/",
		fmt.Sprintf("http://localhost:%d//evil", w.port):   "/evil",
		"http://localhost:1/a":                             "http://localhost:1/a",
		"https://id.example/":                              "https://id.example/",
		"/a":                                               "/a",
	} {
		to = given
		if resp, _ := w.get("/"); resp.Header.Get("Location") != want {
			t.Errorf("%s becomes %s", given, resp.Header.Get("Location"))
		}
	}
}

// TestPreviewUpgrade: a WebSocket of the application passes.
func TestPreviewUpgrade(t *testing.T) {
	w := newPreviewWorld(t, "127.0.0.1:0", func(rw http.ResponseWriter, r *http.Request) {
		conn, buf, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		buf.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + r.Header.Get("Upgrade") + "\r\n\r\n")
		buf.Flush()
		io.Copy(conn, buf)
	})
	conn, err := net.Dial("tcp", w.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /sessions/ses_1/preview/%d/hmr HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", w.port)
	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v %v", resp, err)
	}
	io.WriteString(conn, "hello")
	got := make([]byte, 5)
	if _, err := io.ReadFull(reader, got); err != nil || string(got) != "hello" {
		t.Errorf("%q %v", got, err)
	}
}

package browser

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/peer"
)

// through returns a client that uses a guard with opts.
func through(t *testing.T, opts Options) (*guard, *http.Client) {
	t.Helper()
	g, err := newGuard(session, 1, &opts, &ports{listen: make(map[int]bool)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.close)
	transport := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: g.address()})}
	t.Cleanup(transport.CloseIdleConnections)
	return g, &http.Client{Transport: transport, Timeout: patience}
}

// connectTo asks a guard for a tunnel, and returns the first line of the answer.
func connectTo(t *testing.T, g *guard, target string) (string, net.Conn) {
	t.Helper()
	conn, err := net.Dial("tcp", g.address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", target); err != nil {
		return "", conn
	}
	reader := bufio.NewReader(conn)
	line, _ := reader.ReadString('\n') // "" when it was closed
	for next := line; strings.TrimSpace(next) != ""; next, _ = reader.ReadString('\n') {
	}
	return strings.TrimSpace(line), conn
}

// agentPort is the only port of this machine that pages can't reach; 0: none.
type agentPort int

func (p agentPort) Owns(port int) bool { return port == int(p) }

func (agentPort) Belongs(protocol.SessionID, int) (bool, error) { return true, nil }

const all = agentPort(0)

// TestGuardTunnel: bytes go both ways, to what is allowed.
func TestGuardTunnel(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			io.Copy(conn, conn)
			conn.Close()
		}
	}()
	g, _ := through(t, Options{Ports: all})
	line, conn := connectTo(t, g, echo.Addr().String())
	if line != "HTTP/1.1 200 Connection Established" {
		t.Fatal(line)
	}
	fmt.Fprint(conn, "hello")
	got := make([]byte, 5)
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
		t.Errorf("%q %v", got, err)
	}
	for _, target := range []string{"127.0.0.1:0", "127.0.0.1:70000", "127.0.0.1", ":80"} {
		if line, _ := connectTo(t, g, target); !strings.HasPrefix(line, "HTTP/1.1 502") && !strings.HasPrefix(line, "HTTP/1.1 400") {
			t.Errorf("%s: %s", target, line)
		}
	}
	if line, _ := connectTo(t, g, "127.0.0.1:1"); !strings.HasPrefix(line, "HTTP/1.1 502") {
		t.Error(line)
	}
}

// TestGuardLocal: by default no port of this machine, and never a guard's.
func TestGuardLocal(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	port := portOf(server.URL)
	closed, _ := through(t, Options{})
	open, _ := through(t, Options{Ports: all})
	if line, _ := connectTo(t, open, fmt.Sprintf("127.0.0.1:%d", port)); !strings.HasPrefix(line, "HTTP/1.1 200") {
		t.Error(line)
	}
	hosts := []string{"127.0.0.1", "localhost", "LOCALHOST.", "x.localhost", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "127.8.8.8"}
	if addrs, err := net.InterfaceAddrs(); err == nil {
		for _, addr := range addrs {
			host := netip.MustParsePrefix(addr.String()).Addr().String()
			hosts = append(hosts, strings.TrimSuffix(net.JoinHostPort(host, ""), ":"))
		}
	}
	for _, host := range hosts {
		if line, _ := connectTo(t, closed, fmt.Sprintf("%s:%d", host, port)); !strings.HasPrefix(line, "HTTP/1.1 403") {
			t.Errorf("%s: %s", host, line)
		}
		if line, _ := connectTo(t, open, fmt.Sprintf("%s:%d", host, open.port())); !strings.HasPrefix(line, "HTTP/1.1 403") {
			t.Errorf("%s, the guard: %s", host, line)
		}
	}
}

// TestGuardPeer: connections of others than Chromium's user are closed.
func TestGuardPeer(t *testing.T) {
	var mu sync.Mutex
	uid, fail := 1, error(nil) // guarded by mu
	set := func(to int, err error) {
		mu.Lock()
		defer mu.Unlock()
		uid, fail = to, err
	}
	g, _ := through(t, Options{Ports: all, Peers: peer.UsersFunc(func(netip.AddrPort, netip.AddrPort) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return uid, fail
	})})
	if line, _ := connectTo(t, g, "127.0.0.1:1"); !strings.HasPrefix(line, "HTTP/1.1 502") {
		t.Error(line)
	}
	for _, uid := range []int{0, 2} {
		set(uid, nil)
		if line, _ := connectTo(t, g, "127.0.0.1:1"); line != "" {
			t.Errorf("user %d: %s", uid, line)
		}
	}
	set(1, errors.New("unknown"))
	if line, _ := connectTo(t, g, "127.0.0.1:1"); line != "" {
		t.Error(line)
	}
}

// TestGuardBounded: connections over the limit are closed, and their places are
// given back.
func TestGuardBounded(t *testing.T) {
	g, _ := through(t, Options{Ports: all})
	conns := make([]net.Conn, guardConns)
	for i := range conns {
		conn, err := net.Dial("tcp", g.address())
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = conn
	}
	eventually(t, "full", func() bool { return len(g.slots) == guardConns })
	if line, _ := connectTo(t, g, "127.0.0.1:1"); line != "" {
		t.Error(line)
	}
	for _, conn := range conns {
		conn.Close()
	}
	eventually(t, "free", func() bool { return len(g.slots) == 0 })
	if line, _ := connectTo(t, g, "127.0.0.1:1"); !strings.HasPrefix(line, "HTTP/1.1 502") {
		t.Error(line)
	}
}

// An egressProxy stands for the session's: it sends everything to one site.
type egressProxy struct {
	*httptest.Server
	site string // host:port

	mu     sync.Mutex
	asked  []string // guarded by mu: method, target and credentials
	answer int      // guarded by mu: 0: it lets through
}

func newEgressProxy(site string) *egressProxy {
	p := &egressProxy{site: strings.TrimPrefix(site, "http://")}
	p.Server = httptest.NewServer(p)
	return p
}

// Confine implements [Egress].
func (*egressProxy) Confine(protocol.SessionID, int) (func(), error) { return func() {}, nil }

// BrowserProxy implements [Egress].
func (p *egressProxy) BrowserProxy(protocol.SessionID) *url.URL {
	u, err := url.Parse(p.URL)
	if err != nil {
		panic(err)
	}
	u.User = url.UserPassword("browser", "s3cret")
	return u
}

func (p *egressProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	request := &http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}
	user, password, _ := request.BasicAuth()
	p.mu.Lock()
	p.asked = append(p.asked, fmt.Sprintf("%s %s %s:%s", r.Method, r.Host, user, password))
	answer := p.answer
	p.mu.Unlock()
	if answer != 0 {
		http.Error(w, "refused by rule", answer)
		return
	}
	upstream, err := net.Dial("tcp", p.site)
	if err != nil {
		return
	}
	defer upstream.Close()
	client, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer client.Close()
	if r.Method == http.MethodConnect {
		io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n")
	} else {
		r.Header.Del("Proxy-Authorization")
		r.Header.Set("Connection", "close")
		r.Write(upstream)
	}
	splice(client, client, upstream)
}

func (p *egressProxy) was() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked := p.asked
	p.asked = nil
	return asked
}

func (p *egressProxy) set(answer int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = answer
}

// TestGuardEgress: what isn't this machine's goes to the egress proxy, with the
// session's credentials, and nothing of it can be reached past its rules.
func TestGuardEgress(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s", r.Host, r.Header.Get("Proxy-Authorization"))
	}))
	defer site.Close()
	proxy := newEgressProxy(site.URL)
	defer proxy.Close()
	g, client := through(t, Options{
		Egress: proxy, Ports: agentPort(portOf(proxy.URL)),
	})
	get := func(address string) (int, string) {
		answer, err := client.Get(address)
		if err != nil {
			return 0, err.Error()
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		return answer.StatusCode, string(text)
	}
	if status, text := get("http://site.example/x"); status != http.StatusOK || text != "site.example " {
		t.Errorf("%d %s", status, text)
	}
	line, conn := connectTo(t, g, "site.example:443")
	if line != "HTTP/1.1 200 Connection Established" {
		t.Error(line)
	}
	conn.Close()
	want := []string{"GET site.example browser:s3cret", "CONNECT site.example:443 browser:s3cret"}
	if asked := proxy.was(); fmt.Sprint(asked) != fmt.Sprint(want) {
		t.Errorf("%q", asked)
	}
	if status, text := get(strings.Replace(site.URL, "127.0.0.1", "127.1.2.3", 1)); status == 0 && len(proxy.was()) > 0 {
		t.Errorf("a server of this machine: %d %s", status, text)
	}
	// The proxy itself is none of a page's business.
	if status, _ := get(fmt.Sprintf("http://0.0.0.0:%d/", portOf(proxy.URL))); status != http.StatusForbidden {
		t.Errorf("%d", status)
	}
	proxy.set(http.StatusForbidden)
	if line, _ := connectTo(t, g, "site.example:443"); !strings.HasPrefix(line, "HTTP/1.1 403") {
		t.Error(line)
	}
	if err := g.refusalOf(&url.URL{Scheme: "https", Host: "site.example"}, 0); err == nil || !strings.Contains(err.Error(), "egress rules refused site.example:443") {
		t.Errorf("%v", err)
	}
	if status, text := get("http://site.example/x"); status != http.StatusForbidden || !strings.Contains(text, "rule") {
		t.Errorf("%d %s", status, text)
	}
	proxy.set(http.StatusProxyAuthRequired)
	if status, _ := get("http://site.example/x"); status != http.StatusForbidden {
		t.Errorf("%d", status)
	}
}

// TestEgress: Chromium itself goes there, and to nowhere by itself.
func TestEgress(t *testing.T) {
	w := theWorld(t)
	w.text(t, "browser_start")
	for _, asked := range w.egress.was() {
		if !strings.Contains(asked, " site.example ") {
			t.Errorf("by itself: %s", asked)
		}
	}
	if text := w.text(t, "browser_navigate", "url", "http://site.example/there"); !strings.Contains(text, "/there") {
		t.Error(text)
	}
	if asked := w.egress.was(); len(asked) == 0 || asked[0] != "GET site.example browser:s3cret" {
		t.Errorf("%q", asked)
	}
	w.egress.set(http.StatusForbidden)
	defer w.egress.set(0)
	if _, err := w.call("browser_navigate", "url", "https://site.example/there"); protocol.KindOf(err) != protocol.KindForbidden {
		t.Errorf("%v", err)
	}
	if _, err := w.call("browser_navigate", "url", "http://localhost:2/"); protocol.KindOf(err) != protocol.KindUpstream {
		t.Errorf("%v", err)
	}
	w.visit(t, "/here") // on this machine
	w.egress.was()
}

// TestGuardClose: nothing is left of a guard, whatever its connections do.
func TestGuardClose(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	own := &ports{listen: make(map[int]bool)}
	g, err := newGuard(session, 1, &Options{Ports: all}, own)
	if err != nil {
		t.Fatal(err)
	}
	if !own.has(g.port()) {
		t.Error("its port isn't known")
	}
	_, tunnel := connectTo(t, g, silent.Addr().String())
	idle, err := net.Dial("tcp", g.address())
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	eventually(t, "two", func() bool { return len(g.slots) == 2 })
	closed := make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go func() {
		defer close(closed)
		g.close()
	}()
	select {
	case <-closed:
	case <-ctx.Done():
		t.Fatal("it doesn't close")
	}
	if _, err := tunnel.Read(make([]byte, 1)); err == nil {
		t.Error("the tunnel stands")
	}
	if own.has(g.port()) {
		t.Error("its port is still known")
	}
}

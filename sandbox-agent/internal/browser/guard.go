package browser

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/program/intake"
	"github.com/fairlead/fairlead/protocol"
)

const (
	// guardConns bounds Chromium's concurrent connections to its guard.
	guardConns = 256
	// guardRefusals bounds the refusals that are remembered.
	guardRefusals = 64
	// guardHeader bounds the header of a request, in bytes.
	guardHeader = 64 << 10
	// guardDial bounds a dial, resolving included.
	guardDial = 10 * time.Second
	// guardHeld bounds the wait for the egress proxy, which may wait for
	// somebody's decision.
	guardHeld = 75 * time.Second
)

// A guard is the HTTP proxy that is a Chromium's only way out: for pages,
// fetches, WebSockets and redirects. It resolves each name once, checks the
// address and dials it. Hosts outside this machine go through the session's
// egress proxy, if it has one.
type guard struct {
	// Static after construction.
	session  protocol.SessionID
	uid      int // of Chromium; −1: not checked
	opts     *Options
	own      *ports // of all guards
	listener net.Listener
	server   *http.Server
	forward  *httputil.ReverseProxy
	direct   *http.Transport // dials
	proxied  *http.Transport // through the egress proxy
	ctx      context.Context // ends with the guard
	cancel   context.CancelFunc
	slots    chan struct{} // a semaphore of connections
	running  sync.WaitGroup

	mu      sync.Mutex
	refused []refusal // guarded by mu: the last ones, each of another host
	said    uint64    // guarded by mu: how many there were
}

// newGuard opens a guard on loopback. The caller must close it.
func newGuard(session protocol.SessionID, uid int, opts *Options, own *ports) (*guard, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g := &guard{session: session, uid: uid, opts: opts, listener: listener, slots: make(chan struct{}, guardConns), own: own}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.direct, g.proxied = g.transport(), g.transport()
	g.direct.DialContext = func(ctx context.Context, _, address string) (net.Conn, error) {
		host, port, err := splitTarget(address)
		if err != nil {
			return nil, err
		}
		return g.dial(ctx, host, port)
	}
	g.proxied.Proxy = func(r *http.Request) (*url.URL, error) {
		proxy, _ := r.Context().Value(proxyKey{}).(*url.URL)
		return proxy, nil
	}
	g.forward = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.Header.Del("Proxy-Authorization") },
		Transport:     g,
		FlushInterval: -1,
		ErrorHandler:  g.refuse,
		ErrorLog:      discardLog,
	}
	g.server = &http.Server{
		Handler: g, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: guardHeader,
		ErrorLog: discardLog,
	}
	own.add(g.port())
	g.running.Go(func() { _ = intake.Serve(g.server, guardListener{listener, g}, nil) }) // until close
	return g, nil
}

// address is what Chromium's --proxy-server names.
func (g *guard) address() string { return g.listener.Addr().String() }

// close ends all connections and waits for them.
func (g *guard) close() {
	g.cancel()
	_ = g.server.Close() // an error has no consequence
	g.running.Wait()
	g.own.remove(g.port())
	g.direct.CloseIdleConnections()
	g.proxied.CloseIdleConnections()
}

// A guardListener accepts a limited number of connections from Chromium's own
// user.
type guardListener struct {
	net.Listener
	g *guard
}

func (l guardListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.g.slots <- struct{}{}:
		default:
			l.g.opts.Metrics.refused(refusedTooMany)
			conn.Close()
			continue
		}
		l.g.running.Add(1)
		guarded := &guardConn{Conn: conn, free: sync.OnceFunc(func() {
			<-l.g.slots
			l.g.running.Done()
		})}
		if !l.g.isChromium(conn) {
			l.g.opts.Metrics.refused(refusedForeign)
			guarded.Close()
			continue
		}
		return guarded, nil
	}
}

// A guardConn frees its slot when it is closed; the guard waits for it.
type guardConn struct {
	net.Conn
	free func()
}

func (c *guardConn) Close() error {
	defer c.free()
	return c.Conn.Close()
}

// isChromium reports whether a connection comes from Chromium's user: others
// would gain what the session is allowed.
func (g *guard) isChromium(conn net.Conn) bool {
	if g.opts.Peers == nil || g.uid < 0 {
		return true
	}
	local, err1 := netip.ParseAddrPort(conn.LocalAddr().String())
	remote, err2 := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err1 != nil || err2 != nil {
		return false
	}
	uid, err := g.opts.Peers.UID(local, remote)
	return err == nil && uid == g.uid
}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodConnect:
		g.connect(w, r)
	case r.URL.Scheme == "http" && r.URL.Host != "":
		g.forward.ServeHTTP(w, r)
	default:
		g.opts.Metrics.refused(refusedRequest)
		http.Error(w, "this is the proxy of a browser", http.StatusBadRequest)
	}
}

// A refusal is why a host was not reached.
type refusal struct {
	host   string // with its port
	err    *protocol.Error
	number uint64
}

// refuse answers a request that leads nowhere.
func (g *guard) refuse(w http.ResponseWriter, r *http.Request, err error) {
	known := &protocol.Error{Kind: protocol.KindUpstream, Message: "the server's answer could not be read", Err: err}
	if e := (*protocol.Error)(nil); errors.As(err, &e) {
		known = e
	}
	g.opts.Metrics.refused(reasonOf(err))
	g.note(withPort(r.URL), known)
	status := http.StatusBadGateway
	if known.Kind == protocol.KindForbidden {
		status = http.StatusForbidden
	}
	http.Error(w, known.Message, status)
}

// note keeps a refusal.
func (g *guard) note(host string, err *protocol.Error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.said++
	g.refused = slices.DeleteFunc(g.refused, func(r refusal) bool { return r.host == host })
	if over := len(g.refused) + 1 - guardRefusals; over > 0 {
		g.refused = slices.Delete(g.refused, 0, over)
	}
	g.refused = append(g.refused, refusal{host, err, g.said})
}

// mark returns how many refusals there were.
func (g *guard) mark() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.said
}

// refusalOf returns the reason for the last refusal of u's host behind a mark;
// nil: there was none, or too many have followed.
func (g *guard) refusalOf(u *url.URL, since uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	host := withPort(u)
	for _, r := range g.refused {
		if r.host == host && r.number > since {
			return r.err
		}
	}
	return nil
}

// withPort returns u's host and port. CONNECT has nothing else.
func withPort(u *url.URL) string {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// connect opens a tunnel.
func (g *guard) connect(w http.ResponseWriter, r *http.Request) {
	host, port, err := splitTarget(r.Host)
	if err != nil {
		g.refuse(w, r, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), guardHeld)
	defer cancel()
	upstream, err := g.tunnel(ctx, host, port)
	if err != nil {
		g.refuse(w, r, err)
		return
	}
	defer upstream.Close()
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // impossible: it isn't HTTP/2
	}
	defer client.Close()
	stop := context.AfterFunc(g.ctx, func() { client.Close(); upstream.Close() })
	defer stop()
	if _, err := io.WriteString(client, "HTTP/1.1 200 Connection Established\r\n\r\n"); err != nil {
		return
	}
	splice(client, buffered, upstream)
}

// splice carries bytes both ways until one side ends and the other has got
// everything.
func splice(client net.Conn, buffered io.Reader, upstream net.Conn) {
	done := make(chan struct{})
	go func() { // waited for below
		defer close(done)
		_, _ = io.Copy(upstream, buffered)
		closeWrite(upstream)
	}()
	_, _ = io.Copy(client, upstream)
	client.Close() // Chromium never half-closes
	upstream.Close()
	<-done
}

func closeWrite(conn net.Conn) {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // it may be closed already
	}
}

// tunnel connects to host, through the egress proxy if there is one.
func (g *guard) tunnel(ctx context.Context, host string, port int) (net.Conn, error) {
	proxy := g.egress(host)
	if proxy == nil {
		return g.dial(ctx, host, port)
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", proxy.Host)
	if err != nil {
		return nil, &protocol.Error{Kind: protocol.KindUpstream, Message: "the egress proxy can't be reached", Err: err}
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	err = connectThrough(conn, proxy, net.JoinHostPort(host, strconv.Itoa(port)))
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// connectThrough asks the proxy at the other end of conn for a tunnel.
func connectThrough(conn net.Conn, proxy *url.URL, target string) error {
	request := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: target}, Host: target, Header: http.Header{}}
	if user := proxy.User; user != nil {
		password, _ := user.Password()
		request.Header.Set("Proxy-Authorization",
			"Basic "+base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	if err := request.Write(conn); err != nil {
		return protocol.Errorf(protocol.KindUpstream, "the egress proxy can't be reached")
	}
	// The far side never speaks first, so nothing follows the answer.
	reader := bufio.NewReaderSize(io.LimitReader(conn, guardHeader), 4<<10)
	answer, err := http.ReadResponse(reader, request)
	if err != nil {
		return protocol.Errorf(protocol.KindUpstream, "the egress proxy gave no answer")
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return protocol.Errorf(protocol.KindForbidden, "the session's egress rules refused %s", target)
	}
	if reader.Buffered() > 0 {
		return protocol.Errorf(protocol.KindUpstream, "the egress proxy spoke out of turn")
	}
	return nil
}

// egress returns the proxy for host; nil: dial directly. The guard itself
// decides about hosts of this machine.
func (g *guard) egress(host string) *url.URL {
	if g.opts.Egress == nil || namesThisMachine(host) {
		return nil
	}
	return g.opts.Egress.BrowserProxy(g.session)
}

// proxyKey is the context key of a request's egress proxy.
type proxyKey struct{}

// RoundTrip forwards a request without TLS.
func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	proxy := g.egress(r.URL.Hostname())
	if proxy == nil {
		return g.direct.RoundTrip(r)
	}
	answer, err := g.proxied.RoundTrip(r.WithContext(context.WithValue(r.Context(), proxyKey{}, proxy)))
	if err == nil && answer.StatusCode == http.StatusProxyAuthRequired {
		answer.Body.Close()
		return nil, protocol.Errorf(protocol.KindForbidden, "the egress proxy doesn't know this browser")
	}
	return answer, err
}

func (g *guard) transport() *http.Transport {
	return &http.Transport{
		DisableCompression: true, MaxIdleConns: 32, IdleConnTimeout: 30 * time.Second,
		ResponseHeaderTimeout: 2 * time.Minute, MaxResponseHeaderBytes: 256 << 10,
	}
}

// dial connects to host directly, if allowed.
func (g *guard) dial(ctx context.Context, host string, port int) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, guardDial)
	defer cancel()
	addrs, err := resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	for _, addr := range addrs {
		if err = g.judge(addr, port); err != nil {
			continue
		}
		var d net.Dialer
		var conn net.Conn
		if conn, err = d.DialContext(ctx, "tcp", netip.AddrPortFrom(addr, uint16(port)).String()); err == nil {
			return conn, nil
		}
		err = &protocol.Error{Kind: protocol.KindUpstream, Message: fmt.Sprintf("%s can't be reached", net.JoinHostPort(host, strconv.Itoa(port))), Err: err}
	}
	return nil, err
}

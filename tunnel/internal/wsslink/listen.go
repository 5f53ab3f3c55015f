package wsslink

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel/internal/carrier"
)

const (
	// maxPending bounds the links that wait for Accept.
	maxPending = 64
	// upgradeTime bounds the time until a connection has sent its request.
	upgradeTime = 5 * time.Second
	// maxHeader bounds the header of a request in bytes.
	maxHeader = 8 << 10
	// libraryWrites is the size of the library's write buffer in bytes: it writes
	// only control frames.
	libraryWrites = 256
)

// An Outcome says how a request for a WebSocket ended.
type Outcome string

const (
	First  Outcome = "first"  // it began a link
	Lane   Outcome = "lane"   // it joined one
	Beside Outcome = "beside" // it joined a link of another carrier
	Origin Outcome = "origin" // refused: it came from a browser
	Secret Outcome = "secret" // refused: no link has that secret
	Many   Outcome = "many"   // refused: the link has enough, or too many wait
	Broken Outcome = "broken" // refused: not a WebSocket of ours
)

// A Listener accepts links from agents, on its own listener and wherever its
// Handler is mounted.
type Listener struct {
	// Static after construction.
	outcome func(Outcome)
	pending chan *link
	room    chan struct{} // one for each link that waits for Accept
	done    chan struct{}
	log     *slog.Logger
	enter   Enter
	host    Host           // nil: only links of ours are joined
	running sync.WaitGroup // servers, and the sockets of all links

	// Guarded by mu.
	mu      sync.Mutex
	closed  bool
	links   map[*link]struct{}
	secrets map[[32]byte]*link
	servers []*http.Server
	waiting map[net.Conn]func() // connections before their WebSocket, and how to free their slots
}

// Enter gives a slot to a connection that is no WebSocket yet; leave frees it.
// evict is called, perhaps at once and on another goroutine, when another
// connection gets the slot.
type Enter func(from net.Addr, evict func()) (leave func())

// NewListener returns a Listener that calls outcome, which may be nil, for
// every request. Connections of its own listener wait in slots from enter.
func NewListener(outcome func(Outcome), enter Enter, log *slog.Logger) *Listener {
	if outcome == nil {
		outcome = func(Outcome) {}
	}
	return &Listener{
		outcome: outcome, pending: make(chan *link, maxPending), room: make(chan struct{}, maxPending),
		done: make(chan struct{}), log: log, links: map[*link]struct{}{}, secrets: map[[32]byte]*link{},
		enter: enter, waiting: map[net.Conn]func(){},
	}
}

// Serve accepts links on tcp, which it owns from then on, until Close.
func (l *Listener) Serve(tcp net.Listener, tlsConfig *tls.Config) {
	mux := http.NewServeMux()
	mux.Handle("GET "+Path, l.Handler(true))
	server := &http.Server{
		Handler: bodiless(mux), ReadHeaderTimeout: upgradeTime, IdleTimeout: upgradeTime, MaxHeaderBytes: maxHeader,
		ConnState: l.bound, ErrorLog: slog.NewLogLogger(l.log.Handler(), slog.LevelDebug),
	}
	server.SetKeepAlivesEnabled(false) // one request, which becomes a WebSocket or fails
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		tcp.Close()
		return
	}
	l.servers = append(l.servers, server)
	l.running.Go(func() { // ends with Close
		if err := server.Serve(tls.NewListener(tcp, forHTTP(tlsConfig))); !errors.Is(err, http.ErrServerClosed) {
			l.log.Error("no more tunnels over WebSocket", "addr", tcp.Addr(), "err", err)
		}
	})
}

// bodiless refuses requests with a body, which no handler here accepts: a proxy
// may see it end elsewhere.
func bodiless(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 || len(r.TransferEncoding) > 0 {
			http.Error(w, http.StatusText(http.StatusBadRequest), http.StatusBadRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// bound limits the connections that are no WebSockets yet.
func (l *Listener) bound(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		leave := l.enter(conn.RemoteAddr(), func() { conn.(*tls.Conn).NetConn().Close() })
		l.mu.Lock()
		l.waiting[conn] = leave
		l.mu.Unlock()
	case http.StateHijacked, http.StateClosed:
		l.mu.Lock()
		leave := l.waiting[conn]
		delete(l.waiting, conn)
		l.mu.Unlock()
		if leave != nil {
			leave()
		}
	}
}

// Handler accepts links from an HTTP server. ownTLS says that TLS ends at that
// server, so that registrations are bound to the connection; otherwise it ends
// at a proxy.
func (l *Listener) Handler(ownTLS bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		outcome, status := l.take(w, r, ownTLS)
		if status != 0 {
			http.Error(w, http.StatusText(status), status)
		}
		l.outcome(outcome)
	})
}

// take upgrades one request, or returns the status that refuses it.
func (l *Listener) take(w http.ResponseWriter, r *http.Request, ownTLS bool) (outcome Outcome, status int) {
	if len(r.Header.Values("Origin")) > 0 {
		return Origin, http.StatusForbidden
	}
	secret, err := parseSecret(r.Header)
	if err != nil {
		return Secret, http.StatusForbidden
	}
	if secret != nil {
		return l.join(w, r, secret)
	}
	select {
	case l.room <- struct{}{}:
	default:
		return Many, http.StatusTooManyRequests
	}
	next, err := l.begin(w, r, ownTLS)
	if err != nil {
		<-l.room
		return Broken, 0
	}
	l.pending <- next // there is room
	return First, 0
}

// begin makes a link of a request.
func (l *Listener) begin(w http.ResponseWriter, r *http.Request, ownTLS bool) (*link, error) {
	var exporter []byte
	if ownTLS && r.TLS != nil {
		var err error
		if exporter, err = r.TLS.ExportKeyingMaterial(exporterLabel, nil, exporterBytes); err != nil {
			http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
			return nil, err
		}
	} else {
		w.Header().Set(exporterHeader, exporterNone)
	}
	s, err := upgrade(w, r)
	if err != nil {
		return nil, err
	}
	next := newLink(exporter, s.raw.RemoteAddr())
	next.incoming <- s
	return next, l.keep(next, s)
}

// keep makes s the first socket of next, which ends with the listener.
func (l *Listener) keep(next *link, s *socket) error {
	next.listener, next.opener = l, s
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		s.raw.Close()
		return net.ErrClosed
	}
	l.links[next] = struct{}{}
	return next.add(s) // can't fail: it is new
}

// join adds a socket to the link with the secret.
func (l *Listener) join(w http.ResponseWriter, r *http.Request, secret []byte) (Outcome, int) {
	l.mu.Lock()
	to := l.secrets[fingerprint(secret)]
	l.mu.Unlock()
	if to == nil {
		return l.lend(w, r, secret)
	}
	if !to.has(secret) {
		return Secret, http.StatusForbidden
	}
	if !to.reserve() {
		return Many, http.StatusTooManyRequests
	}
	s, err := upgrade(w, r)
	if err != nil {
		to.release()
		return Broken, 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if to.settle(s) != nil || l.closed {
		s.raw.Close()
		return Many, 0
	}
	select {
	case to.incoming <- s:
	default: // sockets were closed that nobody has accepted yet
		s.Close()
	}
	return Lane, 0
}

// Lend has sockets join links of host, too. It is called once, before any comes.
func (l *Listener) Lend(host Host) { l.host = host }

// lend upgrades a request with the secret of a link of another carrier, or returns the
// status that refuses it.
func (l *Listener) lend(w http.ResponseWriter, r *http.Request, secret []byte) (Outcome, int) {
	if l.host == nil || !l.host.Joins(secret) {
		return Secret, http.StatusForbidden
	}
	s, err := upgrade(w, r)
	if err != nil {
		return Broken, 0
	}
	if l.keep(newLink(nil, s.raw.RemoteAddr()), s) != nil {
		return Many, 0
	}
	watch(s.raw)
	if !l.host.Adopt(secret, loose{s}) {
		s.Close()
		return Many, 0
	}
	return Beside, 0
}

// has reports whether secret is the link's.
func (l *link) has(secret []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err == nil && subtle.ConstantTimeCompare(l.secret, secret) == 1
}

// upgrade makes a WebSocket of a request, or answers it with an error.
func upgrade(w http.ResponseWriter, r *http.Request) (*socket, error) {
	keeper := &keepingWriter{ResponseWriter: w}
	ws, err := websocket.Accept(keeper, r, &websocket.AcceptOptions{
		Subprotocols: []string{Subprotocol}, CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		return nil, err
	}
	if ws.Subprotocol() != Subprotocol {
		keeper.raw.Close()
		return nil, errors.New("wsslink: the peer doesn't speak " + Subprotocol)
	}
	keeper.raw.SetDeadline(time.Time{})
	return newSocket(ws, keeper.raw, false), nil
}

// A keepingWriter keeps the hijacked connection.
type keepingWriter struct {
	http.ResponseWriter
	raw *rawConn
}

// Unwrap lets http.ResponseController reach the original.
func (w *keepingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack implements http.Hijacker.
func (w *keepingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.raw = &rawConn{Conn: conn, tcp: conn}
	if over, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS, or a wrapper that watches it
		w.raw.tcp = over.NetConn()
	}
	return w.raw, bufio.NewReadWriter(rw.Reader, bufio.NewWriterSize(w.raw, libraryWrites)), nil
}

// Accept returns the next link.
func (l *Listener) Accept(ctx context.Context) (carrier.Conn, error) {
	select {
	case next := <-l.pending:
		<-l.room
		return next, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// remember makes and stores the secret of a link.
func (l *Listener) remember(k *link) []byte {
	secret := make([]byte, secretBytes)
	rand.Read(secret)
	l.mu.Lock()
	defer l.mu.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil || k.secret != nil {
		return k.secret
	}
	k.secret = secret
	l.secrets[fingerprint(secret)] = k
	return secret
}

// forget removes a link that has ended.
func (l *Listener) forget(k *link, secret []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.links, k)
	if secret != nil {
		delete(l.secrets, fingerprint(secret))
	}
}

// Close ends the listener and all its links, and waits for them.
func (l *Listener) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return net.ErrClosed
	}
	l.closed = true
	close(l.done)
	servers := l.servers
	links := make([]*link, 0, len(l.links))
	for k := range l.links {
		links = append(links, k)
	}
	l.mu.Unlock()
	for _, server := range servers {
		server.Close()
	}
	for _, k := range links {
		k.Close(protocol.Errorf(protocol.KindRestarting, "the relay is going away"))
	}
	l.running.Wait()
	return nil
}

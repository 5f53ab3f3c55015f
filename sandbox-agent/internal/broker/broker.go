// Package broker puts API keys into the requests of programs in the sandbox, so
// that programs never hold a key: they speak plain HTTP to a loopback port, and
// the broker speaks TLS to the provider.
//
// Every terminal has its own capability, which is part of its URLs and gives
// access to its session's secrets only. A secret of no known provider goes only
// to hosts that somebody has approved for it.
//
// Answers are streamed. A request ends if nothing is sent in either direction
// for the idle timeout; its total time is unlimited. The broker follows no
// redirects: it rewrites one within host, port and scheme to point at the
// broker, and refuses any other.
package broker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/hostname"
	"github.com/fairlead/fairlead/sandbox-agent/internal/outbound"
	"github.com/fairlead/fairlead/sandbox-agent/internal/peer"
)

const (
	// DefaultIdleTimeout is how long a request may be idle in both directions:
	// models may think for minutes before they answer.
	DefaultIdleTimeout = 15 * time.Minute
	// MaxRequests bounds one terminal's requests in progress.
	MaxRequests = 64
	// maxConns bounds the connections of clients.
	maxConns = 1024

	headTimeout       = 10 * time.Second
	maxHeadBytes      = 64 << 10
	maxAnswerHead     = 256 << 10
	bufferBytes       = 32 << 10
	upstreamIdleConns = 16
)

// A Masker masks the secrets in one stream of bytes. *redact.Stream is one.
type Masker interface {
	Write(dst, p []byte) []byte // appends what may be sent now
	Flush(dst []byte) []byte    // appends what was held back
}

// Options configure a Server.
type Options struct {
	Listener net.Listener     // TCP on loopback; the Server closes it
	Dialer   *outbound.Dialer // nil: one without exceptions
	RootCAs  *x509.CertPool   // for verifying upstreams; nil: the system's
	// Peers tell the user at the other end of a connection; nil: terminals share a user, and only the capability is checked.
	Peers peer.Users
	// Masker returns a masker for one answer; nil: no masking.
	Masker func() Masker
	// Asker, if any, is called for every request refused for lack of approval.
	Asker Asker
	// Audit, if not nil, is called for each finished request of a known terminal.
	// It must not block.
	Audit func(Record)
	Log   *slog.Logger // nil: silent
	// Insecure allows http for custom targets whose address the operator has set
	// to loopback.
	Insecure    bool
	IdleTimeout time.Duration // 0: DefaultIdleTimeout
}

// An Asker asks people. It must not block.
type Asker interface {
	// AskSecret asks whether a secret of a session may go to a domain, which is
	// "host" or, at another port than 443, "host:port".
	AskSecret(session protocol.SessionID, pty protocol.PTYID, secret, domain string)
}

// A Record is kept of each request: never its path, query or key.
type Record struct {
	At            time.Time // when it came
	Duration      time.Duration
	Session       protocol.SessionID
	PTY           protocol.PTYID
	Provider      string // or "custom"
	Secret        string // the variable's name, "" if not determined
	Host          string // host, or host:port; "" if not determined
	Method        string
	Status        int    // of the answer; 0: none
	Error         string // why the broker refused or ended the request, "" if it didn't
	RequestBytes  int64  // of bodies
	ResponseBytes int64
}

// A Snapshot holds a Server's counters.
type Snapshot struct {
	Active        int               // requests under way
	Requests      uint64            // of known terminals, since the start
	Refused       map[string]uint64 // requests, by reason; and conns_refused
	RequestBytes  uint64
	ResponseBytes uint64
}

// Server is the broker of one sandbox. It is safe for concurrent use.
type Server struct {
	// Static after construction.
	opts      Options
	port      int
	hosts     map[string]bool // allowed in a Host header
	server    *http.Server
	transport *http.Transport
	conns     atomic.Int64

	*registry
	*counters
}

// NewServer returns a server on opts.Listener; [Server.Serve] starts it.
func NewServer(opts Options) (*Server, error) {
	addr, ok := opts.Listener.Addr().(*net.TCPAddr)
	if !ok || !addr.IP.IsLoopback() {
		return nil, errors.New("broker: the listener must be on loopback")
	}
	if opts.Dialer == nil {
		opts.Dialer = &outbound.Dialer{}
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.IdleTimeout <= 0 {
		opts.IdleTimeout = DefaultIdleTimeout
	}
	s := &Server{
		opts: opts, port: addr.Port, hosts: make(map[string]bool),
		registry: newRegistry("http://" + addr.String()), counters: newCounters(),
	}
	for _, name := range []string{"127.0.0.1", "localhost", "::1", addr.IP.String()} {
		s.hosts[net.JoinHostPort(name, strconv.Itoa(addr.Port))] = true
	}
	s.server = &http.Server{
		Handler: s, ReadHeaderTimeout: headTimeout, MaxHeaderBytes: maxHeadBytes,
		ConnContext: withHead, ErrorLog: log.New(discard{}, "", 0), // it would quote clients' input
		DisableGeneralOptionsHandler: true,
	}
	// One request per connection, so that nothing can be smuggled behind it.
	s.server.SetKeepAlivesEnabled(false)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	s.transport = &http.Transport{
		DialContext:     s.dial, // never through a proxy
		TLSClientConfig: &tls.Config{RootCAs: opts.RootCAs, MinVersion: tls.VersionTLS12},
		Protocols:       protocols, TLSHandshakeTimeout: outbound.DefaultTimeout,
		MaxIdleConnsPerHost: upstreamIdleConns, IdleConnTimeout: 90 * time.Second,
		DisableCompression: true, MaxResponseHeaderBytes: maxAnswerHead,
		ReadBufferSize: bufferBytes, WriteBufferSize: bufferBytes,
	}
	return s, nil
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// Port returns the port of the listener.
func (s *Server) Port() int { return s.port }

// Serve answers requests until [Server.Close], and then returns nil; otherwise
// it returns the listener's error.
func (s *Server) Serve() error {
	err := s.server.Serve(boundedListener{s.opts.Listener, s})
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Run implements [feature.Runner]: it serves until ctx ends, and then closes.
func (s *Server) Run(ctx context.Context) {
	var serving sync.WaitGroup
	defer serving.Wait()
	serving.Go(func() {
		if err := s.Serve(); err != nil && ctx.Err() == nil {
			s.opts.Log.Error("the broker has ended", "err", err)
		}
	})
	<-ctx.Done()
	if err := s.Close(); err != nil {
		s.opts.Log.Debug("broker", "err", err)
	}
}

// Close ends the listener and all requests, and forgets all secrets.
func (s *Server) Close() error {
	s.registry.close()
	err := s.server.Close()
	if listenErr := s.opts.Listener.Close(); err == nil && !errors.Is(listenErr, net.ErrClosed) {
		err = listenErr // if Serve was never called
	}
	s.transport.CloseIdleConnections()
	return err
}

func (s *Server) dial(ctx context.Context, _, address string) (net.Conn, error) {
	h, err := hostname.Parse(address, 0)
	if err != nil {
		return nil, protocol.Fault(protocol.KindInvalid, err)
	}
	return s.opts.Dialer.DialHost(ctx, h, h.Port)
}

// A boundedListener closes connections beyond maxConns at once.
type boundedListener struct {
	net.Listener
	server *Server
}

func (l boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.server.conns.Add(1) <= maxConns {
			return &headConn{Conn: conn, closed: sync.OnceFunc(func() { l.server.conns.Add(-1) })}, nil
		}
		l.server.conns.Add(-1)
		l.server.countRefused(connsRefused)
		conn.Close()
	}
}

// counters count requests.
type counters struct {
	active, requests, in, out atomic.Int64

	mu sync.Mutex
	// Guarded by mu.
	refused map[string]uint64
}

func newCounters() *counters {
	c := &counters{refused: map[string]uint64{string(connsRefused): 0}}
	for why := range reasons {
		c.refused[string(why)] = 0
	}
	return c
}

func (c *counters) countRefused(why reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused[string(why)]++
}

// Snapshot returns what has been counted.
func (c *counters) Snapshot() Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	refused := make(map[string]uint64, len(c.refused))
	for why, n := range c.refused {
		refused[why] = n
	}
	return Snapshot{
		Active: int(c.active.Load()), Requests: uint64(c.requests.Load()), Refused: refused,
		RequestBytes: uint64(c.in.Load()), ResponseBytes: uint64(c.out.Load()),
	}
}

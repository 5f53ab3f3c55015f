package broker

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"
)

// maxMethodBytes bounds the method of a request.
const maxMethodBytes = 32

// An exchange is one request and its answer.
type exchange struct {
	server  *Server
	w       http.ResponseWriter
	r       *http.Request
	control *http.ResponseController
	route   route
	term    *terminal
	record  Record
	started bool // the answer has begun, so no error can be sent
	idle    *time.Timer
	in, out atomic.Int64 // bytes of bodies
}

// A plan is the destination of a request and its credential.
type plan struct {
	to           destination
	header, key  string   // the credential
	provider     provider // no name: custom
	customSecret string
}

// ServeHTTP answers one request of a client.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{server: s, w: w, r: r, control: http.NewResponseController(w), record: Record{At: time.Now()}}
	refused := x.admit()
	if refused != nil {
		s.countRefused(refused.reason)
		refused.write(w)
		x.control.SetReadDeadline(time.Now()) // leave the rest of the body unread
		return
	}
	s.active.Add(1)
	s.requests.Add(1)
	defer s.active.Add(-1)
	refused = x.serve()
	x.finish(refused)
	switch {
	case refused == nil:
	case x.started || refused.reason == reasonAborted:
		panic(http.ErrAbortHandler) // the answer is incomplete, and aborting says so
	default:
		x.control.SetWriteDeadline(time.Now().Add(headTimeout))
		refused.write(w)
	}
}

// finish records the exchange.
func (x *exchange) finish(refused *refusal) {
	x.control.SetReadDeadline(time.Now())
	x.record.Duration = time.Since(x.record.At)
	x.record.RequestBytes, x.record.ResponseBytes = x.in.Load(), x.out.Load()
	x.server.counters.in.Add(x.record.RequestBytes)
	x.server.counters.out.Add(x.record.ResponseBytes)
	if refused != nil {
		x.record.Error = string(refused.reason)
		x.server.countRefused(refused.reason)
		if !x.started && refused.reason != reasonAborted {
			x.record.Status = refused.status()
		}
	}
	r := x.record
	x.server.opts.Log.Debug("broker", "session", r.Session, "pty", r.PTY, "provider", r.Provider, "host", r.Host,
		"status", r.Status, "error", r.Error, "took", r.Duration)
	if x.server.opts.Audit != nil {
		x.server.opts.Audit(r)
	}
}

// admit identifies the caller.
func (x *exchange) admit() *refusal {
	r := x.r
	conn := connOf(r)
	if conn == nil {
		return refuse(reasonInvalidRequest, "the request came another way")
	}
	if refused := conn.verdict.Load(); refused != nil {
		return refused
	}
	if !x.server.hosts[strings.ToLower(r.Host)] {
		return refuse(reasonHost, "the Host header names another host than this one")
	}
	if r.Method == http.MethodConnect || r.Method == http.MethodTrace {
		return refuse(reasonHost, "the broker is no proxy")
	}
	if len(r.Method) > maxMethodBytes {
		return refuse(reasonInvalidRequest, "the method is too long")
	}
	var refused *refusal
	if x.route, refused = parseRoute(r.RequestURI); refused != nil {
		return refused
	}
	term, ok := x.server.find(x.route.capability)
	if !ok {
		return refuse(reasonCapability, "the URL holds no capability of a terminal of this user")
	}
	if peers := x.server.opts.Peers; peers != nil {
		uid, err := peers.UID(addrPort(conn.LocalAddr()), addrPort(conn.RemoteAddr()))
		if err != nil || uid != term.uid {
			return refuse(reasonUser, "the URL holds no capability of a terminal of this user")
		}
	}
	x.term = term
	x.record.Session, x.record.PTY, x.record.Method = term.session, term.pty, r.Method
	return nil
}

func addrPort(a net.Addr) netip.AddrPort {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort()
	}
	return netip.AddrPort{}
}

// serve forwards the request, or returns why there is no complete answer.
func (x *exchange) serve() *refusal {
	if !x.server.enter(x.term) {
		return refuse(reasonTooMany, "the terminal has too many requests under way")
	}
	defer x.server.leave(x.term)
	p, refused := x.plan()
	if refused != nil {
		return refused
	}
	x.record.Host = p.to.authority()
	ctx, cancel := context.WithCancelCause(x.r.Context())
	defer cancel(nil)
	// The terminal's end also ends its processes' connections here.
	stop := context.AfterFunc(x.term.ctx, func() {
		cancel(context.Canceled)
		connOf(x.r).Conn.Close()
	})
	defer stop()
	x.idle = time.AfterFunc(x.server.opts.IdleTimeout, func() { cancel(errIdle) })
	defer x.idle.Stop()
	return x.forward(ctx, p)
}

// plan determines the request's destination and credential.
func (x *exchange) plan() (plan, *refusal) {
	if x.route.provider == custom {
		return x.planCustom()
	}
	p, ok := findProvider(x.route.provider)
	if !ok {
		return plan{}, refuse(reasonProvider, "no provider has that name")
	}
	x.record.Provider = p.name
	name, key, ok := x.server.secret(x.term, p.keys...)
	if !ok {
		return plan{}, refuse(reasonProvider, p.name+" has no protected key here")
	}
	x.record.Secret = name
	d, err := canonicalHost(p.host)
	if err != nil {
		return plan{}, refuse(reasonProvider, p.name+" has no host")
	}
	return plan{
		to:       destination{scheme: "https", host: d, path: p.path(x.route.rest), query: withoutKeys(x.route.query, true)},
		header:   p.header,
		key:      p.prefix + key,
		provider: p,
	}, nil
}

func (x *exchange) planCustom() (plan, *refusal) {
	x.record.Provider = custom
	name, key, ok := x.server.secret(x.term, x.route.secret)
	if !ok {
		return plan{}, refuse(reasonSecret, "no protected secret has that name here")
	}
	x.record.Secret = name
	to, refused := customTarget(x.route.query)
	if refused != nil {
		return plan{}, refused
	}
	x.record.Host = to.authority()
	if to.scheme != "https" && !x.server.insecure(to) {
		return plan{}, refuse(reasonInvalidTarget, "the target must be an https URL")
	}
	if err := x.server.opts.Dialer.Check(to.host, to.host.Port); err != nil {
		return plan{}, asRefusal(to.authority(), err)
	}
	made := x.server.permission(x.term.session, name, to.authority())
	switch {
	case made == nil:
		if x.server.opts.Asker != nil {
			x.server.opts.Asker.AskSecret(x.term.session, x.term.pty, name, to.authority())
		}
		return plan{}, &refusal{
			reason: reasonApproval, domain: to.authority(), secret: name,
			message: "This domain requires owner approval before the secret can be sent.",
		}
	case made.denied:
		return plan{}, refuse(reasonDenied, name+" must not be sent to "+to.authority())
	}
	to.query = withoutKeys(to.query, false)
	return plan{
		to: to, header: made.header, key: strings.Replace(made.headerFormat, "%s", key, 1), customSecret: name,
	}, nil
}

// insecure reports whether to may be reached without TLS: the operator has set
// its address to loopback.
func (s *Server) insecure(to destination) bool {
	target, ok := s.opts.Dialer.Static.Lookup(to.host, to.host.Port)
	return s.opts.Insecure && ok && target.Addr().IsLoopback()
}

// touch notes traffic in either direction.
func (x *exchange) touch() { x.idle.Reset(x.server.opts.IdleTimeout) }

// A meter counts reads, and resets the idle timer.
type meter struct {
	io.ReadCloser
	x     *exchange
	count *atomic.Int64
}

func (m meter) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	if n > 0 {
		m.count.Add(int64(n))
		m.x.touch()
	}
	return n, err
}

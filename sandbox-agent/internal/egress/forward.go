package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/sandbox-agent/internal/hostname"
)

const httpPort = 80

// forward serves a request other than CONNECT. It reports whether another one
// may follow.
func (c *client) forward(ctx context.Context, h head) bool {
	host, why := target(h)
	if why != "" {
		c.reject(why)
		return false
	}
	in, err := http.ReadRequest(c.br)
	if err != nil {
		c.reject("malformed HTTP/1.1 request")
		return false
	}
	if named, err := hostname.Parse(in.URL.Host, httpPort); err != nil || named != host || in.URL.Scheme != "http" {
		c.reject("the URL of the request can be read in several ways")
		return false
	}
	bodiless := in.ContentLength == 0
	event := Event{Host: host}
	who, refused := c.authenticate(h)
	if refused != "" {
		event.Reason = refused
		c.p.note(event)
		return c.refuseRequest(event, bodiless)
	}
	event.Session, event.PTY = who.session, who.pty

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	gone := c.watch(cancel)
	defer gone.stop()
	gone.start()
	event.Reason, event.Waited = c.p.decide(ctx, who, host)
	c.p.note(event)
	switch {
	case event.Reason == DeniedGone:
		return false
	case !event.Reason.Allowed():
		gone.stop()
		return c.refuseRequest(event, bodiless)
	}
	e := &exchange{client: c, in: in, event: event, gone: gone, old: !in.ProtoAtLeast(1, 1)}
	if !bodiless {
		gone.pause() // the body is read now; the watch continues after it
	}
	return e.run(ctx, bodiless)
}

// target returns the host of a request in absolute form, or why it has none.
func target(h head) (host hostname.Host, why string) {
	const scheme = "http://"
	switch {
	case strings.HasPrefix(h.target, "/"), h.target == "*":
		return hostname.Host{}, "the request names no host: it is for a server, not for a proxy"
	case len(h.target) < len(scheme) || !strings.EqualFold(h.target[:len(scheme)], scheme):
		return hostname.Host{}, "only http URLs can be requested: for https the client must use CONNECT"
	case strings.Contains(h.target, "#"):
		return hostname.Host{}, "the URL has a fragment"
	}
	authority := h.target[len(scheme):]
	if end := strings.IndexAny(authority, "/?"); end >= 0 {
		authority = authority[:end]
	}
	host, err := hostname.Parse(authority, httpPort)
	if err != nil {
		return hostname.Host{}, "the URL has no acceptable host"
	}
	if h.hasHost {
		if named, err := hostname.Parse(h.host, httpPort); err != nil || named != host {
			return hostname.Host{}, "Host is not the host of the URL"
		}
	}
	return host, ""
}

// refuseRequest answers with a verdict. An unread body ends the connection.
func (c *client) refuseRequest(event Event, bodiless bool) bool {
	c.refuse(event.Reason, event.Host, bodiless)
	if !bodiless {
		c.linger()
	}
	return bodiless
}

// An exchange is one allowed request and its response.
type exchange struct {
	// Static after construction.
	client *client
	in     *http.Request
	event  Event
	gone   *watch
	old    bool // the client speaks HTTP/1.0

	body *requestBody // nil: the request has none
}

// run forwards the request and its response. It reports whether another request
// may follow.
func (e *exchange) run(ctx context.Context, bodiless bool) bool {
	c := e.client
	out := e.request(ctx, bodiless)
	response, err := c.transport().RoundTrip(out)
	if err != nil {
		return e.failed(ctx, err, bodiless)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusSwitchingProtocols {
		if upgradeType(out.Header) == "" {
			return e.failed(ctx, errUnasked, bodiless)
		}
		e.upgrade(ctx, response)
		return false
	}
	keep := !e.old && !e.in.Close && (bodiless || e.body.ended())
	whole := c.writeResponse(e, response, keep)
	e.gone.stop()
	if whole && keep && ctx.Err() == nil {
		return true
	}
	if e.body != nil && !e.body.ended() {
		e.body.shut()
		c.linger()
	}
	return false
}

// errUnasked says that a host switched protocols unasked.
var errUnasked = errors.New("an upgrade that nobody asked for")

// failed answers a request without a response.
func (e *exchange) failed(ctx context.Context, err error, bodiless bool) bool {
	c := e.client
	e.gone.stop()
	if e.body != nil && !e.body.ended() {
		left := e.body.broken()
		e.body.shut()
		if left {
			return false
		}
	}
	if errors.Is(context.Cause(ctx), errGone) {
		return false
	}
	event := e.event
	event.Reason, event.Waited = FailedUpstream, 0
	var dial *dialError
	if errors.As(err, &dial) {
		event.Reason = dialFailure(dial.err)
	}
	c.p.note(event)
	return c.refuseRequest(event, bodiless || e.body.ended())
}

// request returns the request for the host.
func (e *exchange) request(ctx context.Context, bodiless bool) *http.Request {
	host, in := e.event.Host, e.in
	authority := host.String()
	if host.Port == httpPort {
		authority = host.WithPort(0).String()
	}
	address := *in.URL
	address.Scheme, address.Host, address.User = "http", authority, nil
	trace := &httptrace.ClientTrace{Got1xxResponse: func(status int, header textproto.MIMEHeader) error {
		if status == http.StatusContinue || status == http.StatusSwitchingProtocols || e.old {
			return nil // the client gets ours when its body is read
		}
		return e.client.writeInterim(status, http.Header(header))
	}}
	out := (&http.Request{
		Method: in.Method, URL: &address, Host: authority, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: in.Header.Clone(), ContentLength: in.ContentLength, Trailer: in.Trailer, Body: http.NoBody,
	}).WithContext(httptrace.WithClientTrace(ctx, trace))
	upgrade := upgradeType(in.Header)
	trailers := strings.EqualFold(strings.TrimSpace(in.Header.Get("Te")), "trailers")
	stripHopByHop(out.Header)
	if upgrade != "" && bodiless {
		out.Header.Set("Connection", "Upgrade")
		out.Header.Set("Upgrade", upgrade)
	}
	if trailers {
		out.Header.Set("Te", "trailers")
	}
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = nil // none, instead of net/http's
	}
	if !bodiless {
		e.body = &requestBody{from: in.Body, exchange: e}
		if !e.old && strings.EqualFold(in.Header.Get("Expect"), "100-continue") {
			e.body.expects = true
		}
		out.Body = e.body
	}
	return out
}

// A dialError distinguishes a failed connection from later errors.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// transport returns this client's pool of connections to hosts. Clients don't
// share one: a connection can carry somebody's identity.
func (c *client) transport() *http.Transport {
	if c.upstreams == nil {
		c.upstreams = &http.Transport{
			DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
				host, err := hostname.Parse(address, httpPort)
				if err != nil {
					return nil, &dialError{err}
				}
				conn, err := c.p.dial(ctx, host)
				if err != nil {
					return nil, &dialError{err}
				}
				return conn, nil
			},
			DisableCompression:     true,
			MaxIdleConns:           4,
			IdleConnTimeout:        time.Minute,
			ExpectContinueTimeout:  time.Second,
			MaxResponseHeaderBytes: 256 << 10,
		}
	}
	return c.upstreams
}

// hopByHop are the hop-by-hop fields, besides those named in Connection.
var hopByHop = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Authentication-Info",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

func stripHopByHop(header http.Header) {
	for _, value := range header["Connection"] {
		for name := range strings.SplitSeq(value, ",") {
			header.Del(textproto.TrimString(name))
		}
	}
	for _, name := range hopByHop {
		header.Del(name)
	}
}

// upgradeType returns the protocol to which a side wants to switch, "" for
// none.
func upgradeType(header http.Header) string {
	for _, value := range header["Connection"] {
		for name := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(textproto.TrimString(name), "upgrade") {
				return header.Get("Upgrade")
			}
		}
	}
	return ""
}

// upgrade forwards a switch of protocols, and then bytes both ways until one
// side ends.
func (e *exchange) upgrade(ctx context.Context, response *http.Response) {
	c := e.client
	upstream, ok := response.Body.(io.ReadWriteCloser)
	if !ok {
		return
	}
	kind := upgradeType(response.Header)
	stripHopByHop(response.Header)
	response.Header.Set("Connection", "Upgrade")
	response.Header.Set("Upgrade", kind)
	e.gone.stop()
	if err := c.writeHead(response.StatusCode, response.Header); err != nil {
		return
	}
	c.p.counters.tunnels.Add(1)
	defer c.p.counters.tunnels.Add(-1)
	ended := make(chan bool, 2)
	var both sync.WaitGroup
	both.Go(func() {
		n, _ := io.Copy(upstream, c.br)
		c.p.counters.sent.Add(uint64(n))
		ended <- true
	})
	both.Go(func() {
		n, _ := io.Copy(c.conn, upstream)
		c.p.counters.got.Add(uint64(n))
		ended <- true
	})
	c.p.await(ctx, e.event, ended) // the end of one side ends both
	c.conn.Close()
	upstream.Close()
	both.Wait()
}

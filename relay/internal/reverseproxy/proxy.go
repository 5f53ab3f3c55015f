package reverseproxy

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/program/intake"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/tunnel"
)

// Host is the Host of requests to sandboxes.
const Host = "sandbox"

// Options configure a Proxy.
type Options struct {
	Requests *Requests
	What     string // API or Preview, for the metrics; empty: API
	// Rewrite shapes the request for the sandbox. Headers of the relay itself and
	// of other proxies are removed before.
	Rewrite func(*httputil.ProxyRequest)
	// Response shapes the header of the sandbox's answer, upgrades included.
	Response func(*http.Response)
	Upgrades bool // WebSockets are allowed
	// AnswerTimeout bounds the wait for an answer once the sandbox has the whole
	// request; 0: until the grant ends.
	AnswerTimeout time.Duration
	// BodyRate is the average rate at which a client must send its body, in bytes
	// per second after the first minute; 0: any rate.
	BodyRate int
	// Events says that answers come a little at a time, if anything comes: each takes
	// little memory, and a long one more time.
	Events bool
	Refuse func(http.ResponseWriter, *http.Request, error)
	Log    *slog.Logger
}

// A Proxy forwards requests to sandboxes. It buffers nothing, so a slow side
// slows the other down.
type Proxy struct {
	opts    Options
	reverse *httputil.ReverseProxy
	tally   tally
	idle    idler
}

// NewProxy returns a Proxy.
func NewProxy(opts Options) *Proxy {
	p := &Proxy{opts: opts, tally: opts.Requests.metrics.tally(opts.What)}
	p.reverse = &httputil.ReverseProxy{
		Transport:      p.transport(),
		BufferPool:     &buffers{size: copyBytes},
		Rewrite:        p.rewrite,
		ModifyResponse: p.modify,
		ErrorHandler:   p.fail,
		FlushInterval:  -1, // forward everything at once
		ErrorLog:       slog.NewLogLogger(opts.Log.Handler(), slog.LevelDebug),
	}
	return p
}

// transport returns what carries the requests to their sandboxes.
func (p *Proxy) transport() http.RoundTripper {
	streams := &http.Transport{
		DisableCompression: true,
		// A stream serves requests one after the other under its grant: opening one
		// takes longer than most answers. It is closed long before the agent would.
		IdleConnTimeout: idleStream, MaxIdleConns: maxIdleStreams, MaxIdleConnsPerHost: maxIdlePerPerson,
		DialContext: p.dial, ResponseHeaderTimeout: p.opts.AnswerTimeout,
		// A sandbox that doesn't answer "continue" has no objection, either.
		ExpectContinueTimeout:  5 * time.Second,
		MaxResponseHeaderBytes: maxAnswerHeader,
	}
	p.opts.Requests.keep(streams)
	if p.opts.Events {
		return &direct{timeout: p.opts.AnswerTimeout, rest: streams}
	}
	return streams
}

// Serve forwards r over session under grant, which was just verified and whose
// compact form is token. A stream ends with its grant.
func (p *Proxy) Serve(w http.ResponseWriter, r *http.Request, session *tunnel.Session, grant *jws.Grant, token string) {
	began := time.Now()
	intake.Admitted(r)
	ctx, request, err := p.opts.Requests.Begin(r.Context(), grant)
	if err != nil {
		p.Refuse(w, r, err)
		return
	}
	defer request.End()
	out, r := p.enter(ctx, w, r)
	defer out.leave()
	defer context.AfterFunc(out.ctx, out.abort)()
	if rest := p.forward(r, &call{session: session, token: token, request: request, out: out, began: began}); rest != nil {
		rest.pass(out)
	}
	out.finish()
}

// forward has r answered. It returns what is left to pass on, if anything is.
func (p *Proxy) forward(r *http.Request, c *call) rest {
	ctx := context.WithValue(c.out.ctx, callKey{}, c)
	if !p.opts.Events || !isBare(r) { // otherwise its stream is never idle
		ctx = p.idle.watched(ctx)
	}
	p.reverse.ServeHTTP(c.out, r.WithContext(ctx))
	return c.rest
}

// Refuse answers r with err, instead of Serve.
func (p *Proxy) Refuse(w http.ResponseWriter, r *http.Request, err error) {
	out, r := p.enter(r.Context(), w, r)
	defer out.leave()
	defer context.AfterFunc(out.ctx, out.abort)()
	out.refused.Store(true)
	p.opts.Refuse(out, r, err)
	out.finish()
}

// enter returns the paced writer for r's answer, which the caller must leave, and r
// with its paced body.
func (p *Proxy) enter(ctx context.Context, w http.ResponseWriter, r *http.Request) (*pacedWriter, *http.Request) {
	out := newPacedWriter(ctx, w, r, &p.tally)
	out.control.EnableFullDuplex() // fails where it isn't needed
	if out.body != nil {
		out.body.rate = p.opts.BodyRate
		r = r.WithContext(ctx)
		r.Body = out.body
	}
	return out, r
}

// dial opens a stream that the transport may keep.
func (p *Proxy) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	stream, err := open(ctx)
	if err != nil {
		return nil, err
	}
	return &kept{stream, &p.idle, ctx.Value(callKey{}).(*call).request.user}, nil
}

// copyBytes is the size of the buffers through which answers pass.
const copyBytes = 32 << 10

// poolOf names the streams that may serve c: those of its tunnel under its
// grant.
func poolOf(c *call) string {
	digest := sha256.Sum256([]byte(c.token))
	return fmt.Sprintf("%x.%d", digest[:16], c.session.Hello().Generation)
}

// own are prefixes of headers about the relay, its credentials, or proxies.
var own = []string{"Fairlead-", "Proxy-", "X-Forwarded-", "Cf-", "X-Real-"}

// isOwn reports whether a header has such a prefix.
func isOwn(name string) bool {
	for _, prefix := range own {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return name == "Forwarded" || name == "Via" || name == "True-Client-Ip"
}

func (p *Proxy) rewrite(r *httputil.ProxyRequest) {
	c := r.In.Context().Value(callKey{}).(*call)
	r.SetURL(&url.URL{Scheme: "http", Host: poolOf(c)})
	r.Out.Host = Host
	r.Out.Trailer = r.In.Trailer // filled while the body is read
	for name := range r.Out.Header {
		if isOwn(name) {
			r.Out.Header.Del(name)
		}
	}
	if !p.opts.Upgrades {
		r.Out.Header.Del("Upgrade")
		r.Out.Header.Del("Connection")
	}
	if _, sent := r.Out.Header["User-Agent"]; !sent {
		r.Out.Header.Set("User-Agent", "") // none, instead of the transport's default
	}
	p.opts.Rewrite(r)
}

func (p *Proxy) modify(resp *http.Response) error {
	if resp.StatusCode == http.StatusSwitchingProtocols && !p.opts.Upgrades {
		return errUnasked
	}
	c := resp.Request.Context().Value(callKey{}).(*call)
	for name := range resp.Header {
		if isOwn(name) && !strings.HasPrefix(name, "Fairlead-") {
			resp.Header.Del(name)
		}
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	events := media == "text/event-stream" || media == "multipart/x-mixed-replace"
	if events && resp.Request.Method != http.MethodPost || resp.StatusCode == http.StatusSwitchingProtocols {
		c.request.Endless()
	}
	p.tally.answered(resp.StatusCode, c.began)
	raw, ok := resp.Body.(*directBody)
	p.opts.Response(resp)
	switch { // the request has no body, which would have to be read meanwhile
	case ok:
		c.rest = postpone(resp, raw)
	case isBare(resp.Request) && resp.ContentLength >= bulkBytes && resp.Body != http.NoBody:
		c.rest = &bulk{resp.Body}
		resp.Body = http.NoBody
	}
	return nil
}

// fail answers a request that didn't reach its sandbox, or got no valid answer.
func (p *Proxy) fail(w http.ResponseWriter, r *http.Request, err error) {
	out := r.Context().Value(callKey{}).(*call).out
	out.refused.Store(true)
	p.tally.failed()
	if cause := context.Cause(r.Context()); cause != nil && protocol.AsError(cause).Kind != protocol.KindInternal {
		err = cause // the cause rather than its symptom
	}
	if r.Context().Err() == nil { // otherwise the client is gone
		p.opts.Log.Info("sandbox not reached", "path", r.URL.Path, "err", err)
	}
	var tooLarge *http.MaxBytesError
	switch e := protocol.AsError(err); {
	case out.body != nil && out.body.stalled.Load(): // which ends the request's context as well
		err = errStalled
	case errors.As(err, &tooLarge):
		err = protocol.Errorf(protocol.KindTooLarge, "the body is over %d bytes", tooLarge.Limit)
	case e.Kind != protocol.KindInternal:
		err = e
	default:
		err = protocol.Fault(protocol.KindUpstream, err)
	}
	p.opts.Refuse(w, r, err)
}

// A trailerFilter drops the trailers for which pass is false, once they are
// known.
type trailerFilter struct {
	io.ReadCloser
	resp *http.Response
	pass func(name string) bool
}

func (f *trailerFilter) Read(b []byte) (int, error) {
	n, err := f.ReadCloser.Read(b)
	if err == io.EOF {
		filter(f.resp.Trailer, f.pass)
	}
	return n, err
}

// FilterTrailers keeps only those trailers of resp for which pass is true.
func FilterTrailers(resp *http.Response, pass func(name string) bool) {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return // its body is the connection
	}
	filter(resp.Trailer, pass)
	resp.Body = &trailerFilter{resp.Body, resp, pass}
}

func filter(h http.Header, pass func(string) bool) {
	for name := range h {
		if !pass(name) {
			delete(h, name)
		}
	}
}

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
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/program/intake"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/tunnel"
)

// openTimeout bounds the wait for the sandbox's answer to OPEN.
const openTimeout = 10 * time.Second

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
	// Short says that answers are short, or come a little at a time: each takes little
	// memory, and a long one more time.
	Short  bool
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

// A call is what a request needs to reach its sandbox.
type call struct {
	session *tunnel.Session
	token   string // the grant as it was presented
	request *Request
	out     *pacedWriter
	began   time.Time
}

type callKey struct{}

// NewProxy returns a Proxy.
func NewProxy(opts Options) *Proxy {
	p := &Proxy{opts: opts, tally: opts.Requests.metrics.tally(opts.What)}
	streams := &http.Transport{
		DisableCompression: true,
		// A stream serves requests one after the other under its grant: opening one
		// takes longer than most answers. It is closed long before the agent would.
		IdleConnTimeout: idleStream, MaxIdleConns: maxIdleStreams, MaxIdleConnsPerHost: maxIdlePerPerson,
		DialContext: p.dial, ResponseHeaderTimeout: opts.AnswerTimeout,
		// A sandbox that doesn't answer "continue" has no objection, either.
		ExpectContinueTimeout:  5 * time.Second,
		MaxResponseHeaderBytes: 256 << 10,
	}
	passed := &buffers{size: copyBytes}
	if opts.Short {
		passed.size = shortCopyBytes
		streams.ReadBufferSize, streams.WriteBufferSize = shortBufferBytes, shortBufferBytes
	}
	opts.Requests.keep(streams)
	p.reverse = &httputil.ReverseProxy{
		Transport:      streams,
		BufferPool:     passed,
		Rewrite:        p.rewrite,
		ModifyResponse: p.modify,
		ErrorHandler:   p.fail,
		FlushInterval:  -1, // forward everything at once
		ErrorLog:       slog.NewLogLogger(opts.Log.Handler(), slog.LevelDebug),
	}
	return p
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
	p.exchange(ctx, w, r, func(out *pacedWriter, r *http.Request) {
		c := call{session, token, request, out, began}
		p.reverse.ServeHTTP(out, r.WithContext(p.idle.watched(context.WithValue(ctx, callKey{}, c))))
	})
}

// Refuse answers r with err, instead of Serve.
func (p *Proxy) Refuse(w http.ResponseWriter, r *http.Request, err error) {
	p.exchange(r.Context(), w, r, func(out *pacedWriter, r *http.Request) {
		out.refused.Store(true)
		p.opts.Refuse(out, r, err)
	})
}

// exchange runs answer with r's paced body and writer.
func (p *Proxy) exchange(ctx context.Context, w http.ResponseWriter, r *http.Request, answer func(*pacedWriter, *http.Request)) {
	out := newPacedWriter(ctx, w, r, &p.tally)
	defer out.release()
	defer context.AfterFunc(ctx, out.abort)()
	out.control.EnableFullDuplex() // fails where it isn't needed
	if out.body != nil {
		defer out.body.Close()
		out.body.rate = p.opts.BodyRate
		r = r.WithContext(ctx)
		r.Body = out.body
	}
	answer(out, r)
	out.finish()
}

// dial opens the stream for one request.
func (p *Proxy) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	c := ctx.Value(callKey{}).(call)
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	stream, _, err := c.session.Open(ctx, protocol.LaneBulk, protocol.Open{Kind: protocol.StreamHTTP, Grant: c.token})
	if err != nil {
		return nil, err
	}
	return &kept{stream, &p.idle, c.request.user}, nil
}

// copyBytes is the size of the buffers through which answers pass, shortCopyBytes
// that of short ones, and shortBufferBytes what is read and written at once of those.
const (
	copyBytes        = 32 << 10
	shortCopyBytes   = 2 << 10
	shortBufferBytes = 1 << 10
)

// buffers are reused from answer to answer.
type buffers struct {
	size int
	pool sync.Pool
}

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, b.size)
}

func (b *buffers) Put(p []byte) { b.pool.Put(&p) }

// poolOf names the streams that may serve c: those of its tunnel under its
// grant.
func poolOf(c call) string {
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
	c := r.In.Context().Value(callKey{}).(call)
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
		return errors.New("request: an upgrade that nobody asked for")
	}
	for name := range resp.Header {
		if isOwn(name) && !strings.HasPrefix(name, "Fairlead-") {
			resp.Header.Del(name)
		}
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	events := media == "text/event-stream" || media == "multipart/x-mixed-replace"
	if events && resp.Request.Method != http.MethodPost || resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Request.Context().Value(callKey{}).(call).request.Endless()
	}
	p.tally.answered(resp.StatusCode, resp.Request.Context().Value(callKey{}).(call).began)
	p.opts.Response(resp)
	return nil
}

// fail answers a request that didn't reach its sandbox, or got no valid answer.
func (p *Proxy) fail(w http.ResponseWriter, r *http.Request, err error) {
	out := r.Context().Value(callKey{}).(call).out
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

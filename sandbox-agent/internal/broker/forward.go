package broker

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/sandbox-agent/internal/hostname"
)

func canonicalHost(name string) (hostname.Host, error) { return hostname.Parse(name, 443) }

var buffers = sync.Pool{New: func() any { b := make([]byte, bufferBytes); return &b }}

// forward sends the request and returns its answer to the client.
func (x *exchange) forward(ctx context.Context, p plan) *refusal {
	socket := isWebSocket(x.r)
	out := x.request(ctx, p, socket)
	if err := x.control.EnableFullDuplex(); err != nil {
		return refuse(reasonInvalidRequest, "send one request by HTTP/1.1")
	}
	answer, err := x.server.transport.RoundTrip(out)
	if err != nil {
		return x.failure(ctx, p, err)
	}
	defer answer.Body.Close()
	// An upstream may answer our leaving with its default, such as an empty 200,
	// which must not be passed on.
	if ended := context.Cause(ctx); ended != nil {
		return x.failure(ctx, p, ended)
	}
	x.touch()
	switch {
	case answer.StatusCode == http.StatusSwitchingProtocols && socket:
		return x.socket(ctx, answer)
	case answer.StatusCode < http.StatusOK:
		return refuse(reasonUpstream, p.to.authority()+" changed the protocol unasked")
	}
	if location := answer.Header.Get("Location"); location != "" && answer.StatusCode/100 == 3 {
		inside, refused := x.relocate(p, location)
		if refused != nil {
			return refused
		}
		answer.Header.Set("Location", inside)
	}
	body, refused := x.readable(answer)
	if refused != nil {
		return refused
	}
	x.head(answer)
	return x.copy(ctx, p, body, answer.ContentLength)
}

// request returns the request for the upstream.
func (x *exchange) request(ctx context.Context, p plan, socket bool) *http.Request {
	header := requestHeader(x.r.Header)
	if socket {
		header.Set("Connection", "Upgrade")
		header.Set("Upgrade", "websocket")
	} else {
		for name := range header {
			if strings.HasPrefix(name, "Sec-Websocket-") {
				header.Del(name)
			}
		}
	}
	for name := range header {
		if canonicalHeader(name) == canonicalHeader(p.header) {
			delete(header, name)
		}
	}
	header.Set(p.header, p.key)
	out := &http.Request{
		Method: x.r.Method, URL: p.to.url(), Host: p.to.authority(), Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	if x.r.ContentLength != 0 && !socket {
		out.ContentLength = x.r.ContentLength
		out.Body = meter{x.r.Body, x, &x.in}
	}
	return out.WithContext(ctx)
}

// failure says why there is no answer, or no complete one.
func (x *exchange) failure(ctx context.Context, p plan, err error) *refusal {
	if cause := context.Cause(ctx); cause != nil {
		if x.r.Context().Err() != nil || x.term.ctx.Err() != nil {
			return refuse(reasonAborted, "")
		}
		err = cause
	}
	return asRefusal(p.to.authority(), err)
}

// relocate rewrites a redirect so that a client follows it through the broker.
// The key is never sent along by itself.
func (x *exchange) relocate(p plan, location string) (string, *refusal) {
	from := p.to.url()
	to, err := from.Parse(location)
	if err != nil {
		return "", refuse(reasonRedirect, p.to.authority()+" redirects to what is no URL")
	}
	to.Fragment, to.RawFragment = "", ""
	if to.User != nil {
		return "", refuse(reasonRedirect, p.to.authority()+" redirects to a URL with user information")
	}
	d, refused := parseURL(to.String())
	if refused != nil {
		return "", refuse(reasonRedirect, p.to.authority()+" redirects to a URL that can't be told for sure")
	}
	if !p.to.sameOrigin(d) {
		return "", refuse(reasonRedirect, p.to.scheme+"://"+p.to.authority()+" redirects to "+d.scheme+"://"+d.authority())
	}
	base := x.server.base + "/broker/" + x.term.capability + "/"
	if p.customSecret != "" {
		return base + custom + "/" + p.customSecret + "?target=" + url.QueryEscape(d.url().String()), nil
	}
	rest, ok := p.provider.rest(d.path)
	if !ok {
		return "", refuse(reasonRedirect, p.to.authority()+" redirects out of its API")
	}
	if d.query != "" {
		rest += "?" + d.query
	}
	return base + p.provider.name + rest, nil
}

// readable returns the body as text that can be masked.
func (x *exchange) readable(answer *http.Response) (io.Reader, *refusal) {
	body := io.Reader(meter{answer.Body, x, &x.out})
	encoding := strings.ToLower(strings.TrimSpace(strings.Join(answer.Header["Content-Encoding"], ",")))
	switch {
	case x.server.opts.Masker == nil, encoding == "", encoding == "identity", x.r.Method == http.MethodHead,
		answer.StatusCode == http.StatusNoContent, answer.StatusCode == http.StatusNotModified:
		return body, nil
	case encoding == "gzip" || encoding == "x-gzip":
		text, err := gzip.NewReader(body)
		if err != nil {
			return nil, refuse(reasonEncoding, "the answer is not the gzip that it says")
		}
		answer.Header.Del("Content-Encoding")
		answer.ContentLength = -1 // the decoded text's length is unknown
		return text, nil
	}
	return nil, refuse(reasonEncoding, "the answer has an encoding that can't be masked")
}

// head writes an answer's status and headers.
func (x *exchange) head(answer *http.Response) {
	header := passing(answer.Header, answerOnly)
	if x.server.opts.Masker != nil && x.r.Method != http.MethodHead {
		header.Del("Content-Length") // masking may change the length
	}
	maskHeader(header, x.server.opts.Masker)
	to := x.w.Header()
	for name, values := range header {
		to[name] = slices.Clone(values)
	}
	if _, ok := to["Date"]; !ok {
		to["Date"] = nil
	}
	if _, ok := to["Content-Type"]; !ok {
		to["Content-Type"] = nil // and net/http must not guess it
	}
	x.record.Status, x.started = answer.StatusCode, true
	x.w.WriteHeader(answer.StatusCode)
}

// flush sends buffered output. The next write notices a client that is gone.
func (x *exchange) flush() { _ = x.control.Flush() }

// copy streams a body. length is the announced one, −1 if there was none.
func (x *exchange) copy(ctx context.Context, p plan, body io.Reader, length int64) *refusal {
	var masker Masker
	if x.server.opts.Masker != nil {
		masker = x.server.opts.Masker()
	}
	buf, masked := buffers.Get().(*[]byte), buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	defer buffers.Put(masked)
	x.flush()
	for {
		n, err := body.Read(*buf)
		out := (*buf)[:n]
		length -= int64(n)
		whole := length == 0 // if nothing is announced, the answer is complete already
		if whole && err == nil {
			err = io.EOF
		}
		if masker != nil {
			out = masker.Write((*masked)[:0], out)
			if err == io.EOF && (whole || ctx.Err() == nil) {
				out = masker.Flush(out)
			}
			*masked = out[:cap(out)]
		}
		if len(out) > 0 {
			x.control.SetWriteDeadline(time.Now().Add(x.server.opts.IdleTimeout))
			if _, writeErr := x.w.Write(out); writeErr != nil {
				return refuse(reasonAborted, "")
			}
			x.flush()
			x.touch()
		}
		// An upstream may still complete its answer after our leaving.
		if ended := context.Cause(ctx); ended != nil && !whole {
			return x.failure(ctx, p, ended)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return x.failure(ctx, p, err)
		}
	}
}

// Package preview shows what programs of a session serve on loopback.
package preview

import (
	"context"
	"errors"
	"fmt"
	"html"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/reply"
	"github.com/fairlead/fairlead/sandbox-agent/internal/route"
)

const (
	// previewDialTimeout bounds a connection to what listens.
	previewDialTimeout = 5 * time.Second
	// maxPreviewHeader bounds the header of an answer, in bytes.
	maxPreviewHeader = 256 << 10
)

// Ports tell whose the ports of this machine are.
type Ports interface {
	// Owns reports whether the agent itself listens on a port.
	Owns(port int) bool
	// Belongs reports whether a program of the session's terminals listens on a
	// port. It fails when nobody that can be seen does.
	Belongs(session protocol.SessionID, port int) (bool, error)
}

// Preview shows what a session's terminals have listening on loopback.
type Preview struct {
	Ports Ports
	Log   *slog.Logger
}

// Routes adds the route to mux, which must be behind Front.
func (p *Preview) Routes(mux *http.ServeMux) {
	proxy := p.proxy()
	mux.HandleFunc("/sessions/{sid}/preview/{port}/", func(w http.ResponseWriter, r *http.Request) {
		target, err := p.target(r)
		if err != nil {
			p.refuse(w, r, protocol.KindOf(err).Status(), err)
			return
		}
		if err := p.mayShow(target); err != nil {
			p.refuse(w, r, mayShowStatus(err), err)
			return
		}
		proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), previewKey{}, target)))
	})
}

// mayShowStatus returns the status of why a port isn't shown: that there is
// nothing is said like a failure of the application, whose own 404 means a page.
func mayShowStatus(err error) int {
	if kind := protocol.KindOf(err); kind != protocol.KindNotFound {
		return kind.Status()
	}
	return http.StatusBadGateway
}

// Front has next, which is a mux or leads to one, see of a preview's path only
// what comes before the application's own, which a mux would clean.
func (p *Preview) Front(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if prefix, _, ok := splitPreview(r.RequestURI); ok {
			r = r.WithContext(r.Context())
			r.URL = &url.URL{Path: prefix + "/"}
		}
		next.ServeHTTP(w, r)
	})
}

// splitPreview splits the target of a request after /sessions/{sid}/preview/{port}.
// What follows begins with a slash.
func splitPreview(target string) (prefix, rest string, ok bool) {
	parts := strings.SplitN(target, "/", 6) // "", sessions, id, preview, port, …
	if len(parts) < 6 || parts[0] != "" || parts[1] != "sessions" || parts[3] != "preview" {
		return "", "", false
	}
	prefix = strings.Join(parts[:5], "/")
	return prefix, "/" + parts[5], path.Clean(prefix) == prefix && !strings.ContainsAny(prefix, "%?")
}

type previewKey struct{}

// A previewTarget is what one request is forwarded to.
type previewTarget struct {
	session protocol.SessionID
	port    int
	url     *url.URL // what the application is asked for
}

// origin is where the application believes to be asked at.
func (t previewTarget) origin() string { return "http://" + t.host() }
func (t previewTarget) host() string   { return "localhost:" + strconv.Itoa(t.port) }

// target returns what r may be forwarded to.
func (p *Preview) target(r *http.Request) (previewTarget, error) {
	t := previewTarget{session: protocol.SessionID(r.PathValue("sid"))}
	grant := route.GrantOf(r)
	if grant == nil || !protocol.ValidID(t.session) || !grant.Allows(t.session, "", protocol.CapPlugins) {
		return t, protocol.Errorf(protocol.KindForbidden, "The grant does not allow %s in this session.", protocol.CapPlugins)
	}
	digits := r.PathValue("port")
	port, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || port == 0 || digits[0] == '0' {
		return t, protocol.Errorf(protocol.KindInvalid, "A port is a number from 1 to 65535.")
	}
	_, rest, ok := splitPreview(r.RequestURI)
	if !ok {
		return t, protocol.Errorf(protocol.KindInvalid, "This is no path of a preview.")
	}
	t.port = int(port)
	t.url = verbatim(t.host(), rest)
	return t, nil
}

// verbatim returns the URL at host whose request has target, a path and perhaps
// a query, byte for byte. Where both odd things come together, a path that begins
// with // and bytes that no URL may have, these bytes are escaped.
func verbatim(host, target string) *url.URL {
	raw, query, asked := strings.Cut(target, "?")
	u := &url.URL{Scheme: "http", Host: host, RawQuery: query, ForceQuery: asked && query == ""}
	if !strings.HasPrefix(raw, "//") {
		u.Opaque = raw // of one with // a client makes a host
		return u
	}
	var escaped strings.Builder
	for _, c := range []byte(raw) {
		if c > '~' || strings.IndexByte("\"<>\\^`{|}#", c) >= 0 {
			fmt.Fprintf(&escaped, "%%%02X", c)
		} else {
			escaped.WriteByte(c)
		}
	}
	u.RawPath = escaped.String()
	if path, err := url.PathUnescape(u.RawPath); err == nil {
		u.Path = path
	}
	return u
}

// mayShow reports whether what listens at t is the session's own.
func (p *Preview) mayShow(t previewTarget) error {
	if p.Ports.Owns(t.port) {
		return protocol.Errorf(protocol.KindForbidden, "Port %d is not shown.", t.port)
	}
	ours, err := p.Ports.Belongs(t.session, t.port)
	if err != nil {
		return protocol.Errorf(protocol.KindNotFound, "Nothing that can be shown listens on port %d.", t.port)
	}
	if !ours {
		return protocol.Errorf(protocol.KindForbidden, "What listens on port %d does not belong to a terminal of this session.", t.port)
	}
	return nil
}

// proxy forwards to loopback, one connection for each request: who listens was
// looked at for this one.
func (p *Preview) proxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport: &http.Transport{
			DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxPreviewHeader,
			ExpectContinueTimeout: 5 * time.Second, DialContext: p.dial,
		},
		Rewrite: func(r *httputil.ProxyRequest) {
			t := r.In.Context().Value(previewKey{}).(previewTarget)
			r.Out.URL = t.url
			r.Out.Host = t.host()
			r.Out.Trailer = r.In.Trailer // which is filled while the body is read
			if r.Out.Header.Get("Origin") != "" {
				r.Out.Header.Set("Origin", t.origin()) // development servers compare it with Host
			}
			if _, sent := r.Out.Header["User-Agent"]; !sent {
				r.Out.Header.Set("User-Agent", "")
			}
		},
		ModifyResponse: func(r *http.Response) error {
			t := r.Request.Context().Value(previewKey{}).(previewTarget)
			if location := r.Header.Get("Location"); location != "" {
				r.Header.Set("Location", t.relative(location))
			}
			return nil
		},
		FlushInterval: -1,
		ErrorHandler:  p.fail,
		ErrorLog:      slog.NewLogLogger(p.Log.Handler(), slog.LevelDebug),
	}
}

// relative returns location without the origin that only this sandbox knows.
func (t previewTarget) relative(location string) string {
	u, err := url.Parse(location)
	if err != nil || u.Scheme != "http" || u.User != nil {
		return location
	}
	switch u.Host {
	case t.host(), "127.0.0.1:" + strconv.Itoa(t.port), "[::1]:" + strconv.Itoa(t.port):
		u.Scheme, u.Host = "", ""
		return "/" + strings.TrimLeft(u.String(), "/")
	}
	return location
}

// dial connects to what listens on loopback, by whichever protocol.
func (p *Preview) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{Timeout: previewDialTimeout}
	conn, err := dialer.DialContext(ctx, network, net.JoinHostPort("127.0.0.1", port))
	if errors.Is(err, syscall.ECONNREFUSED) {
		return dialer.DialContext(ctx, network, net.JoinHostPort("::1", port))
	}
	return conn, err
}

// fail says why there is nothing to see.
func (p *Preview) fail(w http.ResponseWriter, r *http.Request, err error) {
	t := r.Context().Value(previewKey{}).(previewTarget)
	p.Log.Debug("preview not shown", "port", t.port, "err", err)
	said := protocol.Errorf(protocol.KindUpstream, "What listens on port %d did not answer.", t.port)
	if errors.Is(err, syscall.ECONNREFUSED) {
		said = protocol.Errorf(protocol.KindNotFound, "Nothing listens on port %d.", t.port)
	}
	p.refuse(w, r, http.StatusBadGateway, said)
}

// refuse answers with err, as a page or as JSON, whichever r accepts.
func (p *Preview) refuse(w http.ResponseWriter, r *http.Request, status int, err error) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	if accept := r.Header.Get("Accept"); strings.Contains(accept, "json") && !strings.Contains(accept, "text/html") {
		reply.ErrorAs(w, status, err)
		return
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<!doctype html><html lang=en><title>Preview</title><p>%s</p></html>\n", html.EscapeString(protocol.AsError(err).Error()))
}

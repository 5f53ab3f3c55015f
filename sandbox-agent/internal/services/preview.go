package services

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

const (
	// previewDialTimeout bounds a connection to what listens.
	previewDialTimeout = 5 * time.Second
	// maxPreviewHeader bounds the header of an answer, in bytes.
	maxPreviewHeader = 256 << 10
)

// Preview shows what a session's terminals have listening on loopback. Grant and
// Log must be set, and Forbidden where the agent itself listens.
type Preview struct {
	Grant     func(*http.Request) *jws.Grant // under which a request came, verified
	Forbidden func(port int) bool            // the agent's own ports, and debuggers'; nil: none
	Log       *slog.Logger

	// With terminals that have users of their own, only what one of the
	// session's own listens on is shown; nil for both: whatever listens.
	Owner func(port int) (uid int, err error) // who listens on a port, as package peer tells
	UIDs  func(protocol.SessionID) []int      // of the session's terminals
}

// Register adds the route to mux.
func (p *Preview) Register(mux *http.ServeMux) {
	proxy := p.proxy()
	mux.HandleFunc("/sessions/{sid}/preview/{port}/", func(w http.ResponseWriter, r *http.Request) {
		target, err := p.target(r)
		if err != nil {
			writeError(w, err)
			return
		}
		proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), previewKey{}, target)))
	})
}

type previewKey struct{}

// A previewTarget is what one request is forwarded to.
type previewTarget struct {
	session protocol.SessionID
	port    int
	path    string // as it was escaped, below the preview's
}

// origin is where the application believes to be asked at.
func (t previewTarget) origin() string { return "http://" + t.host() }
func (t previewTarget) host() string   { return "localhost:" + strconv.Itoa(t.port) }

// target returns what r may be forwarded to.
func (p *Preview) target(r *http.Request) (previewTarget, error) {
	t := previewTarget{session: protocol.SessionID(r.PathValue("sid"))}
	grant := p.Grant(r)
	if grant == nil || !protocol.ValidID(t.session) || !grant.Allows(t.session, "", protocol.CapPlugins) {
		return t, protocol.Errorf(protocol.KindForbidden, "the grant does not allow %s in this session", protocol.CapPlugins)
	}
	digits := r.PathValue("port")
	port, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || port == 0 || digits[0] == '0' {
		return t, protocol.Errorf(protocol.KindInvalid, "a port is a number from 1 to 65535")
	}
	t.port = int(port)
	_, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/sessions/"), "/preview/"+digits)
	t.path = rest
	return t, p.mayShow(t)
}

// mayShow reports whether what listens at t is the session's own.
func (p *Preview) mayShow(t previewTarget) error {
	if p.Forbidden != nil && p.Forbidden(t.port) {
		return protocol.Errorf(protocol.KindForbidden, "port %d is not shown", t.port)
	}
	if p.Owner == nil {
		return nil
	}
	uid, err := p.Owner(t.port)
	if err != nil {
		return protocol.Errorf(protocol.KindUpstream, "nothing that can be shown listens on port %d", t.port)
	}
	if !slices.Contains(p.UIDs(t.session), uid) {
		return protocol.Errorf(protocol.KindForbidden, "what listens on port %d does not belong to a terminal of this session", t.port)
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
			path, err := url.PathUnescape(t.path)
			if err != nil {
				path = t.path
			}
			r.Out.URL = &url.URL{Scheme: "http", Host: t.host(), Path: path, RawPath: t.path, RawQuery: r.In.URL.RawQuery}
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

// fail says to people why there is nothing to see.
func (p *Preview) fail(w http.ResponseWriter, r *http.Request, err error) {
	t := r.Context().Value(previewKey{}).(previewTarget)
	p.Log.Debug("preview not shown", "port", t.port, "err", err)
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusBadGateway)
	what := "What listens on port %d did not answer.\n"
	if errors.Is(err, syscall.ECONNREFUSED) {
		what = "Nothing listens on port %d.\n"
	}
	fmt.Fprintf(w, what, t.port)
}

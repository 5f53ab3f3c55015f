package controlapi

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"strings"
	"sync/atomic"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/rejects"
)

// commandsPath is where people ask the control plane to run commands.
const commandsPath = "/commands"

var (
	errNotReached = protocol.Errorf(protocol.KindUnavailable, "the control plane can't be reached at the moment")
	errNoAnswer   = protocol.Errorf(protocol.KindUnknown, "the control plane was lost before it answered: it isn't known whether this was done")
)

// sentKey is the context key under which a forwarded request records whether a
// connection took it: an *atomic.Bool.
type sentKey struct{}

// maxForwarded bounds the bodies of forwarded requests, in bytes. It is more
// than the control plane accepts on any route.
const maxForwarded = 128 << 10

// forward proxies requests to the control plane once their bodies have come
// whole, so that a client which stops in the middle holds nothing there.
// Cookies are ours and stay here, except those of a sign-in, as the browser
// returns from the provider with nothing else. The control plane gets the
// client's address, by which it limits anonymous clients.
func (a *API) forward() http.Handler {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(a.ControlPlane)
			r.Out.Header.Del("Cookie")
			r.Out.Header.Set(protocol.ClientAddressHeader, a.Address(r.In).String())
			for name, below := range ownCookies {
				if cookie, err := r.In.Cookie(name); err == nil && strings.HasPrefix(r.In.URL.Path, below) {
					r.Out.AddCookie(cookie)
				}
			}
		},
		Transport:    a.Upstream,
		ErrorHandler: a.notForwarded,
		ErrorLog:     slog.NewLogLogger(a.Log.Handler(), slog.LevelDebug),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			body, err := access.ReadBody(w, r, maxForwarded)
			if err != nil {
				a.refuse(w, rejects.Request, err)
				return
			}
			r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
		}
		sent := &atomic.Bool{}
		ctx := context.WithValue(r.Context(), sentKey{}, sent)
		proxy.ServeHTTP(w, r.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			GotConn: func(httptrace.GotConnInfo) { sent.Store(true) },
		})))
	})
}

// notForwarded answers r after err. It answers 503 if the control plane never
// got the request or the request changes nothing. Anything else may have been
// done: for a command the answer says so, as if the control plane itself didn't
// know.
func (a *API) notForwarded(w http.ResponseWriter, r *http.Request, err error) {
	sent, _ := r.Context().Value(sentKey{}).(*atomic.Bool)
	lost := sent == nil || sent.Load()
	a.Log.Warn("control plane not reached", "path", r.URL.Path, "sent", lost, "err", err)
	switch {
	case !lost, r.Method == http.MethodGet, r.Method == http.MethodHead, r.Method == http.MethodOptions:
		access.WriteError(w, errNotReached)
	case r.Method == http.MethodPost && r.URL.Path == a.ControlPlane.Path+commandsPath:
		access.WriteJSON(w, http.StatusOK, map[string]any{"status": protocol.StatusUnknown, "error": errNoAnswer.Body()})
	default:
		access.WriteError(w, errNoAnswer)
	}
}

// Package pluginapi leads WebSockets of the web client to plugins, which are
// programs in a sandbox (seed 002). It admits them, and passes frames on.
package pluginapi

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"strings"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/gateway"
	"github.com/fairlead/fairlead/relay/internal/reverseproxy"
	"github.com/fairlead/fairlead/relay/internal/webapp"
)

// API serves the sockets. Requests ends them, with their grants or when the relay
// goes; then it must be closed.
type API struct {
	// Static.
	*webapp.Desk
	Tunnels  Tunnels
	Requests *reverseproxy.Requests
	Metrics  *Metrics
	Log      *slog.Logger

	tasks gateway.Tasks // the sockets
}

// Register adds the route. It must be behind Front.
func (a *API) Register(mux access.Router) { mux.HandleFunc("GET "+Path+"{name}", a.serve) }

// Front has next, which is a mux or leads to one, see any name in a socket's path as
// one that it leaves alone: "..", for instance, which it would clean, is a name that
// nobody has.
func Front(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.RequestURI, Path) {
			url := *r.URL
			url.Path, url.RawPath = Path+"name", ""
			r = r.WithContext(r.Context())
			r.URL = &url
		}
		next.ServeHTTP(w, r)
	})
}

// nameOf returns the name in a request's path, as it was sent.
func nameOf(r *http.Request) string {
	target, _, _ := strings.Cut(r.RequestURI, "?")
	name, _ := strings.CutPrefix(target, Path)
	return name
}

// Close waits for the sockets until ctx ends. Requests must have ended them.
func (a *API) Close(ctx context.Context) { a.tasks.Close(ctx, nil) }

// serve is GET /plugin-ws/{name}. It refuses before the upgrade whoever isn't
// admitted; everything else is said by a Close frame, which a browser can read.
func (a *API) serve(w http.ResponseWriter, r *http.Request) {
	offer := gateway.Offered(r)
	c, err := a.Admit(r, webapp.Presented(r, offer), protocol.CapPlugins)
	if err != nil {
		kind := protocol.KindOf(err)
		a.Metrics.Refused.WithLabelValues(kind.String()).Inc()
		a.Log.Debug("plugin socket refused", "kind", kind, "err", err)
		access.WriteError(w, protocol.Fault(kind, nil))
		return
	}
	name := strings.Clone(nameOf(r))
	c.Token = strings.Clone(c.Token) // it may be a part of the request's headers
	leave, full := a.Enter(c)
	conn, err := offer.Raw(w, r)
	if err != nil {
		a.Log.Debug("upgrade failed", "err", err) // it was answered
		if full == nil {
			leave()
		}
		return
	}
	s := &socket{way: way{a.Tunnels, a.Requests, a.Apps, a.Metrics, a.Log}, conn: conn, caller: c, name: name, handle: rand.Text()}
	if full != nil {
		a.Metrics.Refused.WithLabelValues(protocol.KindTooMany.String()).Inc()
		s.end(closing(protocol.KindTooMany, "too many sockets of one person"))
		return
	}
	// The request's goroutine would keep its headers, its buffers and a deep stack for
	// as long as the socket lives.
	if !a.tasks.Go(func() {
		defer leave()
		s.run()
	}) {
		leave()
		s.end(closing(protocol.KindRestarting, ""))
	}
}

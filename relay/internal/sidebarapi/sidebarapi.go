// Package sidebarapi is the side panel's chat at the relay (seed 000): its routes,
// of which those that change something become signed operations, and the rest is
// the sandbox's to answer. It keeps nothing that must survive.
package sidebarapi

import (
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/dispatch"
	"github.com/fairlead/fairlead/relay/internal/gateway"
	"github.com/fairlead/fairlead/relay/internal/rejects"
	"github.com/fairlead/fairlead/relay/internal/reverseproxy"
	"github.com/fairlead/fairlead/tunnel"
)

// Tunnels finds the tunnel of a connected sandbox. Package fleet implements it.
type Tunnels interface {
	Session(id protocol.SandboxID) (*tunnel.Session, error)
}

// Open is what people's panels have open beside the chat. Package panelapi has it.
type Open interface {
	// Renew has what a grant's person has open in its session go on under it, which
	// was just verified.
	Renew(grant *jws.Grant, token string)
}

const (
	// answerTimeout bounds the wait for the sandbox's answer.
	answerTimeout = time.Minute
	// maxBody bounds a body, in bytes.
	maxBody = 64 << 10
	// maxStreams bounds the streams of one person at this relay.
	maxStreams = 32
)

// API serves the routes. They exist only where extensions are listed.
type API struct {
	// Static.
	Origins    *access.Origins
	Keys       *jws.Keys
	Cookies    *access.PanelStreams
	Tunnels    Tunnels
	Signer     *dispatch.Signer
	Dispatcher *dispatch.Dispatcher
	Requests   *reverseproxy.Requests
	Rejects    *rejects.Rejects
	Metrics    *Metrics
	Open       Open // nil: nothing is
	Log        *slog.Logger

	proxy   *reverseproxy.Proxy
	streams *reverseproxy.Proxy
	pace    pace
	opened  gateway.Tally // streams
}

// A caller is whoever has sent a request.
type caller struct {
	grant *jws.Grant
	token string
}

// bearer returns the caller whose grant r bears, which names its session and must
// have need there.
func (a *API) bearer(r *http.Request, need protocol.Capability, in group) (caller, error) {
	grant, token, err := access.Grant(r, a.Keys)
	c, err := a.check(r, caller{grant, token}, need, in, err)
	if err == nil && a.Open != nil {
		a.Open.Renew(grant, token)
	}
	return c, err
}

// check returns c unless err says otherwise, or what its grant allows, or how often
// it asks.
func (a *API) check(r *http.Request, c caller, need protocol.Capability, in group, err error) (caller, error) {
	switch {
	case err != nil:
		return caller{}, err
	case c.grant.Session == "":
		return caller{}, protocol.Errorf(protocol.KindInvalid, "the grant must name its session")
	case !c.grant.Allows(c.grant.Session, "", need):
		return caller{}, protocol.Errorf(protocol.KindForbidden, "the grant does not allow %q here", need)
	case r.URL.Query().Has("token"): // it would stand in logs (DESIGN §10)
		return caller{}, protocol.Fault(protocol.KindUnauthenticated, nil)
	case !a.pace.allow(asker{c.grant.Subject, in}, time.Now()):
		a.Metrics.Limited.Inc()
		return caller{}, errTooOften
	}
	return c, nil
}

// streamer returns the caller of a stream: by a grant, or else by the cookie. A
// grant that r bears alone decides.
func (a *API) streamer(r *http.Request) (caller, error) {
	if _, bears := r.Header["Authorization"]; bears {
		return a.bearer(r, protocol.CapView, streams)
	}
	token, err := a.Cookies.Presented(r)
	if err != nil {
		return caller{}, err
	}
	grant, err := access.Verified(r, a.Keys, token)
	return a.check(r, caller{grant, token}, protocol.CapView, streams, err)
}

// refuse answers with err as the seed's server does, and counts it.
func (a *API) refuse(w http.ResponseWriter, err error) {
	a.Rejects.Count(rejects.Request, err)
	e := protocol.AsError(err)
	text := e.Error()
	switch e.Kind.Status() {
	case http.StatusUnauthorized:
		text = "Unauthorized"
	case http.StatusTooManyRequests:
		w.Header().Set("Retry-After", retryAfter)
	}
	access.WriteJSON(w, e.Kind.Status(), map[string]any{"error": text})
}

// refuseRead is refuse for what is read. A panel takes tabs that can't be listed
// for none (seed 000), but not a credential that is no good.
func (a *API) refuseRead(w http.ResponseWriter, r *http.Request, err error) {
	kind := protocol.KindOf(err)
	if strings.HasSuffix(r.URL.Path, "/sidebar-tabs") || strings.HasSuffix(r.URL.Path, "/"+tabsPath) {
		switch kind {
		case protocol.KindUnavailable, protocol.KindUpstream, protocol.KindNotFound, protocol.KindInternal, protocol.KindUnknown:
			a.Rejects.Count(rejects.Request, err)
			access.WriteJSON(w, http.StatusOK, map[string]any{"tabs": []any{}, "error": protocol.AsError(err).Error()})
			return
		}
	}
	a.refuse(w, err)
}

// tabsPath is where the sandbox lists tabs, below the session's path.
const tabsPath = "sidebar/tabs"

// read passes what is asked to the sandbox.
func (a *API) read(path string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, err := a.bearer(r, protocol.CapView, polls)
		a.pass(w, r, c, a.proxy, path, err)
	}
}

// stream passes a stream of events on. A client that comes back says in
// Last-Event-ID what it has; step is from there to what the sandbox is asked for.
func (a *API) stream(path string, step uint64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, err := a.streamer(r)
		if err == nil {
			var leave func()
			if leave, err = a.opened.Enter(c.grant.Subject, maxStreams); err == nil {
				defer leave()
			} else {
				err = errManyStreams
			}
		}
		if last, bad := strconv.ParseUint(r.Header.Get("Last-Event-ID"), 10, 53); bad == nil {
			query := r.URL.Query()
			query.Set("after", strconv.FormatUint(last+step, 10))
			r = r.Clone(r.Context())
			r.URL.RawQuery = query.Encode()
		}
		a.pass(w, r, c, a.streams, path, err)
	}
}

var errManyStreams = protocol.Errorf(protocol.KindTooMany, "over %d streams of one person", maxStreams)

// pass has the sandbox answer through a proxy, at a path below the session's.
func (a *API) pass(w http.ResponseWriter, r *http.Request, c caller, over *reverseproxy.Proxy, path string, err error) {
	if err == nil && r.ContentLength != 0 { // who only asks has nothing to say
		_, err = access.ReadBody(w, r, maxBody)
	}
	var session *tunnel.Session
	if err == nil {
		session, err = a.Tunnels.Session(c.grant.Sandbox)
	}
	if err != nil {
		over.Refuse(w, r, err)
		return
	}
	out := r.Clone(r.Context())
	out.Body, out.ContentLength, out.TransferEncoding = http.NoBody, 0, nil
	out.URL.Path, out.URL.RawPath = "/sessions/"+string(c.grant.Session)+"/"+path, ""
	over.Serve(w, out, session, c.grant, c.token)
}

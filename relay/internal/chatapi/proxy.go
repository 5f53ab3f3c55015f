package chatapi

import (
	"mime"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/rejects"
	"github.com/fairlead/fairlead/relay/internal/reverseproxy"
)

const (
	// answerTimeout bounds the wait for an answer once the sandbox has the whole
	// request.
	answerTimeout = 2 * time.Minute
	// bodyRate is the average rate at which a client must send a body, in bytes per
	// second.
	bodyRate = 4 << 10
)

// An apiError is how the web client's routes report an error (seed 002). Name is
// that of our other routes.
type apiError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Name    string `json:"name"`
}

// refuseAPI answers with err in the form of the web client's routes, and counts
// it.
func (a *API) refuseAPI(w http.ResponseWriter, err error) {
	e := protocol.AsError(err)
	a.refuseAs(w, e.Kind, strings.ToUpper(e.Kind.String()), e.Error())
}

// refuseAs is refuseAPI with a code of the seed's.
func (a *API) refuseAs(w http.ResponseWriter, kind protocol.Kind, code, message string) {
	a.Rejects.Count(rejects.Request, protocol.Errorf(kind, "%s", kind.Text()))
	access.WriteJSON(w, kind.Status(), map[string]any{"success": false, "error": apiError{code, message, kind.Name()}})
}

// toAgent forwards requests of the web client to the agent, over streams that
// carry the caller's grant.
func (a *API) toAgent() *reverseproxy.Proxy {
	return reverseproxy.NewProxy(reverseproxy.Options{
		Requests: a.Requests, What: reverseproxy.API, AnswerTimeout: answerTimeout, BodyRate: bodyRate, Log: a.Log,
		Rewrite: func(r *httputil.ProxyRequest) { reverseproxy.NarrowRequest(r.Out.Header) },
		Response: func(r *http.Response) {
			reverseproxy.NarrowAnswer(r)
			r.Header.Del("Location") // a path of the agent's
			if media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media == "application/json" {
				r.Header.Del("Content-Disposition")
			}
		},
		Refuse: func(w http.ResponseWriter, _ *http.Request, err error) { a.refuseAPI(w, err) },
	})
}

// pass forwards requests whose caller has need to the sandbox, which serves the
// web client's routes below its session's.
func (a *API) pass(need protocol.Capability) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, err := a.Desk.Authorize(r, need)
		if err == nil && !plain(r.URL) {
			err = protocol.Fault(protocol.KindNotFound, nil)
		}
		if err != nil {
			a.proxy.Refuse(w, r, err)
			return
		}
		session, err := a.Tunnels.Session(c.Grant.Sandbox)
		if err != nil {
			a.proxy.Refuse(w, r, err)
			return
		}
		a.proxy.Serve(w, below(r, c.Session), session, c.Grant, c.Token)
	}
}

// plain reports whether a path has none of what programs read differently: empty
// parts, ".", ".." and what hides a slash, a backslash or a NUL.
func plain(u *url.URL) bool {
	if strings.ContainsAny(u.Path, "\\\x00") || strings.Contains(strings.ToLower(u.EscapedPath()), "%2f") {
		return false
	}
	for part := range strings.SplitSeq(strings.TrimSuffix(strings.TrimPrefix(u.Path, "/"), "/"), "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return true
}

// below returns r with its path below that of a session at the agent. A token that
// a client puts into its URLs stays here.
func below(r *http.Request, session protocol.SessionID) *http.Request {
	prefix := "/sessions/" + string(session)
	out := r.Clone(r.Context())
	out.URL.Path = prefix + r.URL.Path
	if r.URL.RawPath != "" {
		out.URL.RawPath = prefix + r.URL.RawPath
	}
	if query := r.URL.Query(); query.Has("token") {
		query.Del("token")
		out.URL.RawQuery = query.Encode()
	}
	return out
}

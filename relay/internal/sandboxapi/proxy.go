package sandboxapi

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/reverseproxy"
)

// answerTimeout bounds the wait for an answer once the sandbox has the whole
// request: it may have to delete a large folder.
const answerTimeout = 2 * time.Minute

// Request headers for the sandbox. The stream carries the grant already.
var requestHeaders = names(
	"Accept", "Accept-Encoding", "Accept-Language", "Content-Disposition", "Content-Encoding",
	"Content-Range", "Content-Type", "Expect",
	"If-Match", "If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since", "Idempotency-Key",
	"Last-Event-Id", "Mcp-Method", "Mcp-Name", "Mcp-Protocol-Version", "Mcp-Session-Id", "Range", "Te", "User-Agent",
	"Tus-Resumable", "Upload-Checksum", "Upload-Concat", "Upload-Defer-Length", "Upload-Length", "Upload-Metadata", "Upload-Offset",
)

// Headers that an answer may have under the console's origin. Location and
// Content-Disposition pass after a check.
var responseHeaders = names(
	"Accept-Ranges", "Allow", "Content-Digest", "Content-Encoding", "Content-Language", "Content-Length", "Content-Range",
	"Content-Type", "Date", "Etag", "Fairlead-Position", "Fairlead-Redacted", "Fairlead-Revision", "Last-Modified",
	"Mcp-Protocol-Version", "Mcp-Session-Id", "Retry-After",
	"Tus-Resumable", "Tus-Version", "Tus-Extension", "Tus-Max-Size", "Tus-Checksum-Algorithm",
	"Upload-Expires", "Upload-Length", "Upload-Metadata", "Upload-Offset",
)

// Trailers that an answer may have.
var responseTrailers = names("Content-Digest", "Etag", "Fairlead-Error")

func names(list ...string) map[string]bool {
	set := make(map[string]bool, len(list))
	for _, name := range list {
		set[http.CanonicalHeaderKey(name)] = true
	}
	return set
}

// bodyRate is the average rate at which a client must send a file's body, in
// bytes per second.
const bodyRate = 4 << 10

// proxy forwards to the agent over streams that carry the grant, without the
// browser's credentials. An answer may take within, or with 0 as long as the
// grant is valid.
func (a *API) proxy(within time.Duration) *reverseproxy.Proxy {
	return reverseproxy.NewProxy(reverseproxy.Options{
		Requests: a.Requests, What: reverseproxy.API, AnswerTimeout: within, BodyRate: bodyRate, Log: a.Log,
		Rewrite: func(r *httputil.ProxyRequest) { only(r.Out.Header, requestHeaders) },
		Response: func(r *http.Response) {
			limit(r)
			confine(r.Header)
			if r.StatusCode == http.StatusRequestedRangeNotSatisfiable {
				explainRange(r)
			}
		},
		Refuse: func(w http.ResponseWriter, _ *http.Request, err error) { a.refuse(w, err) },
	})
}

func only(h http.Header, allowed map[string]bool) {
	for name := range h {
		if !allowed[name] {
			h.Del(name)
		}
	}
}

// limit removes what could act for the console's origin from a sandbox's
// answer, and makes browsers save it as a file rather than show it.
func limit(r *http.Response) {
	location, disposition := r.Header.Get("Location"), r.Header.Get("Content-Disposition")
	only(r.Header, responseHeaders)
	if place, ok := own(location, r.Request.URL.Path); ok {
		r.Header.Set("Location", place)
	}
	r.Header.Set("Content-Disposition", attachment(disposition))
	reverseproxy.FilterTrailers(r, func(name string) bool { return responseTrailers[name] })
}

// explainRange turns a 416, which file servers send as plain text, into the
// form of other errors.
func explainRange(r *http.Response) {
	body, err := json.Marshal(map[string]protocol.ErrorBody{
		"error": protocol.Errorf(protocol.KindInvalid, "the range is not within the file").Body(),
	})
	if err != nil || r.Request.Method == http.MethodHead {
		return
	}
	r.Body.Close()
	r.Body, r.ContentLength, r.Trailer = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	r.Header.Set("Content-Length", strconv.Itoa(len(body)))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Del("Content-Encoding")
	r.Header.Del("Content-Disposition")
}

// own returns location as a path of the session of the route at.
func own(location, at string) (string, bool) {
	u, err := url.Parse(location)
	if err != nil || location == "" || u.Host != "" && u.Host != reverseproxy.Host || u.Scheme != "" && u.Scheme != "http" || u.Opaque != "" {
		return "", false
	}
	parts := strings.SplitN(at, "/", 4) // "", "sessions", id, …
	if len(parts) < 4 || !strings.HasPrefix(u.Path, "/sessions/"+parts[2]+"/") || path.Clean(u.Path) != strings.TrimSuffix(u.Path, "/") {
		return "", false
	}
	return (&url.URL{Path: u.Path, RawPath: u.RawPath, RawQuery: u.RawQuery}).String(), true
}

// attachment returns a Content-Disposition for saving, with the file name in
// given, if any.
func attachment(given string) string {
	const kind = "attachment"
	_, params, err := mime.ParseMediaType(given)
	if name := params["filename"]; err == nil && name != "" {
		if header := mime.FormatMediaType(kind, map[string]string{"filename": name}); header != "" {
			return header
		}
	}
	return kind
}

// confine keeps a sandbox's answer from acting for the relay's origin (DESIGN
// §7).
func confine(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox")
	h.Set("Cache-Control", "no-store")
	h.Set("Cross-Origin-Resource-Policy", "same-site")
}

// pass forwards requests whose grant carries need.
func (a *API) pass(need protocol.Capability, proxy *reverseproxy.Proxy) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		grant, token, err := a.authorize(r, need)
		if err != nil {
			proxy.Refuse(w, r, err)
			return
		}
		session, err := a.Tunnels.Session(grant.Sandbox)
		if err != nil {
			proxy.Refuse(w, r, err)
			return
		}
		proxy.Serve(w, r, session, grant, token)
	}
}

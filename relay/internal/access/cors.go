package access

import (
	"net/http"
	"strings"
)

const (
	// What pages of the other relays may send and read. It includes no cookies:
	// the page itself presents its grant or ticket.
	allowedMethods = "GET, HEAD, POST, PUT, PATCH, DELETE"
	allowedHeaders = "Authorization, Content-Range, Content-Type, Idempotency-Key, If-Match, If-None-Match, Last-Event-ID, " +
		"Mcp-Method, Mcp-Name, Mcp-Protocol-Version, Mcp-Session-Id, Range, " +
		"Tus-Resumable, Upload-Checksum, Upload-Length, Upload-Metadata, Upload-Offset"
	exposedHeaders = "Accept-Ranges, Content-Disposition, Content-Range, ETag, Fairlead-Position, Fairlead-Redacted, Fairlead-Revision, " +
		"Fairlead-Signature, Location, Mcp-Session-Id, Retry-After, Tus-Checksum-Algorithm, Tus-Extension, Tus-Max-Size, Tus-Resumable, Tus-Version, " +
		"Upload-Expires, Upload-Length, Upload-Offset"
	// Headers that pages of any origin may send to an open route.
	openHeaders = "Authorization, Content-Type, Fairlead-Signature"
	// preflightAge is how long a browser may cache an answer, in seconds.
	preflightAge = "600"
)

// Share lets pages of the other origins use next: it answers their preflight
// requests, which bear no credential, and adds CORS headers to the other
// answers. Browsers send no cookies with them, so such a page opens a socket
// with a ticket only. Guard must have checked the request.
func (o *Origins) Share(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Add("Vary", "Origin")
		origin := r.Header.Get("Origin")
		if origin == "" || origin == o.Public(r) {
			next.ServeHTTP(w, r)
			return
		}
		methods, headers := allowedMethods, allowedHeaders
		if method, open := o.open[r.URL.Path]; open {
			methods, headers = method, openHeaders
		}
		extension := o.FromExtension(r)
		if extension { // its cookies are the panel's own
			methods, headers = extensionMethods, extensionHeaders
			h.Set("Access-Control-Allow-Credentials", "true")
		}
		h.Set("Access-Control-Allow-Origin", origin)
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			h.Set("Access-Control-Allow-Methods", methods)
			h.Set("Access-Control-Allow-Headers", headers)
			h.Set("Access-Control-Max-Age", preflightAge)
			w.WriteHeader(http.StatusNoContent)
			return
		}
		h.Set("Access-Control-Expose-Headers", exposedHeaders)
		if extension {
			keepCookies(r, panelCookies...)
		} else {
			dropCookies(r)
		}
		next.ServeHTTP(w, r)
	})
}

// dropCookies drops r's cookies. It keeps those of the web client where the
// browser doesn't say that another origin's page has sent them: a proxy before the
// relay may have another origin than the relay, which is one of ours as well.
func dropCookies(r *http.Request) {
	if r.Header.Get("Sec-Fetch-Site") == "" || r.Header.Get("Sec-Fetch-Site") == "same-origin" {
		keepCookies(r, AppCookieName)
		return
	}
	keepCookies(r)
}

// keepCookies drops all of r's cookies but those of these names.
func keepCookies(r *http.Request, names ...string) {
	var kept []string
	for _, name := range names {
		for _, c := range r.CookiesNamed(name) {
			kept = append(kept, c.Name+"="+c.Value)
		}
	}
	r.Header.Del("Cookie")
	if len(kept) > 0 {
		r.Header.Set("Cookie", strings.Join(kept, "; "))
	}
}

package reverseproxy

import (
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"
)

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

func only(h http.Header, allowed map[string]bool) {
	for name := range h {
		if !allowed[name] {
			h.Del(name)
		}
	}
}

// NarrowRequest removes from the header of a request what is not for sandboxes,
// all credentials among it.
func NarrowRequest(h http.Header) { only(h, requestHeaders) }

// NarrowAnswer removes from a sandbox's answer what could act for the console's
// origin, and makes browsers save it as a file rather than show it.
func NarrowAnswer(r *http.Response) {
	location, disposition := r.Header.Get("Location"), r.Header.Get("Content-Disposition")
	only(r.Header, responseHeaders)
	if place, ok := ownPlace(location, r.Request.URL.Path); ok {
		r.Header.Set("Location", place)
	}
	r.Header.Set("Content-Disposition", attachment(disposition))
	FilterTrailers(r, func(name string) bool { return responseTrailers[name] })
	Confine(r.Header)
}

// ownPlace returns location as a path of the session of the route at.
func ownPlace(location, at string) (string, bool) {
	u, err := url.Parse(location)
	if err != nil || location == "" || u.Host != "" && u.Host != Host || u.Scheme != "" && u.Scheme != "http" || u.Opaque != "" {
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

// Confine keeps a sandbox's answer from acting for the relay's origin (DESIGN
// §7).
func Confine(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox")
	h.Set("Cache-Control", "no-store")
	h.Set("Cross-Origin-Resource-Policy", "same-site")
}

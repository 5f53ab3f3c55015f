package sandboxapi

import (
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// everything is a change to a grant that allows all.
func everything(g *jws.Grant) { g.Caps = slices.Clone(protocol.Capabilities) }

// What passes to a sandbox is what is meant for it, and what comes back can't
// act for the console's origin.
func TestWhatPasses(t *testing.T) {
	w := newWorld(t)
	_, token := w.authority.Grant(everything)
	var seen http.Header
	w.http = func(answer http.ResponseWriter, r *http.Request) {
		seen = r.Header.Clone()
		h := answer.Header()
		for _, name := range []string{
			"Set-Cookie", "Access-Control-Allow-Origin", "Access-Control-Expose-Headers", "Service-Worker-Allowed", "Clear-Site-Data",
			"Strict-Transport-Security", "Alt-Svc", "Refresh", "Link", "X-Frame-Options", "Www-Authenticate", "Report-To", "Nel",
			"Sourcemap", "X-Dns-Prefetch-Control", "Fairlead-Signature", "Content-Location", "Permissions-Policy", "Vary", "X-Any",
		} {
			h.Set(name, "planted")
		}
		h.Set("Content-Type", "text/html")
		h.Set("Content-Disposition", `inline; filename="page.html"`)
		h.Set("Content-Security-Policy", "default-src *")
		h.Set("Cache-Control", "public, max-age=99")
		h.Set("Etag", `"1"`)
		h.Set("Content-Range", "bytes 0-1/2")
		h.Set("Upload-Offset", "7")
		h.Set("Trailer", "Etag, Set-Cookie, Link")
		io.WriteString(answer, "<script>")
		h.Set("Set-Cookie", "planted")
		h.Set("Link", "planted")
	}
	answer := w.do(http.MethodGet, "/sessions/ses_1/file?path=/page.html", token, "",
		"Cookie", "fairlead_pty=x", "X-Forwarded-For", "1.2.3.4", "Forwarded", "for=x", "Fairlead-Anything", "x", "Proxy-Authorization", "x",
		"Upgrade", "websocket", "Connection", "Upgrade", "Origin", "https://one.example", "Referer", "https://one.example/s/ses_1", "X-Any", "x",
		"Range", "bytes=0-1", "If-None-Match", `"0"`, "Tus-Resumable", "1.0.0", "Accept", "*/*")
	sent := slices.Sorted(maps.Keys(seen))
	want := []string{"Accept", "Connection", "If-None-Match", "Range", "Tus-Resumable", "X-Grant"} // Connection: close, X-Grant by the test
	if !slices.Equal(sent, want) {
		t.Errorf("the sandbox saw %v, want %v", sent, want)
	}
	got := answer.Result().Header
	kept := slices.Sorted(maps.Keys(got))
	want = []string{
		"Cache-Control", "Content-Disposition", "Content-Range", "Content-Security-Policy", "Content-Type", "Cross-Origin-Resource-Policy",
		"Date", "Etag", "Trailer", "Upload-Offset", "X-Content-Type-Options",
	}
	if !slices.Equal(kept, want) {
		t.Errorf("the console saw %v, want %v", kept, want)
	}
	for name, value := range map[string]string{
		"Content-Security-Policy": "sandbox", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
		"Content-Disposition": "attachment; filename=page.html", "Trailer": "Etag",
	} {
		if values := got.Values(name); len(values) != 1 || values[0] != value {
			t.Errorf("%s: %q, want %q", name, values, value)
		}
	}
	for name := range answer.Result().Trailer {
		if name != "Etag" {
			t.Errorf("trailer %s", name)
		}
	}
}

// A redirect stays in the session; a file's name is kept, whatever it is.
func TestLocationAndDisposition(t *testing.T) {
	w := newWorld(t)
	_, token := w.authority.Grant(everything)
	var location, disposition string
	w.http = func(answer http.ResponseWriter, r *http.Request) {
		answer.Header().Set("Location", location)
		answer.Header().Set("Content-Disposition", disposition)
		answer.WriteHeader(http.StatusCreated)
	}
	for given, want := range map[string]string{
		"/sessions/ses_1/uploads/upl_1":               "/sessions/ses_1/uploads/upl_1",
		"http://sandbox/sessions/ses_1/uploads/upl_1": "/sessions/ses_1/uploads/upl_1",
		"/sessions/ses_2/uploads/upl_1":               "",
		"/sessions/ses_1/../../control/commands":      "",
		"/sessions/ses_1/%2e%2e/x":                    "",
		"//evil.example/sessions/ses_1/x":             "",
		"https://evil.example/sessions/ses_1/x":       "",
		"javascript:alert(1)":                         "",
		"/":                                           "",
	} {
		location = given
		if got := w.do(http.MethodPost, "/sessions/ses_1/uploads", token, "").Header().Get("Location"); got != want {
			t.Errorf("%s becomes %q", given, got)
		}
	}
	for given, want := range map[string]string{
		"": "attachment", "inline": "attachment", `attachment; filename="a b.txt"`: `attachment; filename="a b.txt"`,
		"attachment; filename*=utf-8''%c3%bc": "attachment; filename*=utf-8''%C3%BC", "nonsense;;": "attachment",
	} {
		disposition = given
		if got := w.do(http.MethodGet, "/sessions/ses_1/file", token, "").Header().Get("Content-Disposition"); got != want {
			t.Errorf("%q becomes %q, want %q", given, got, want)
		}
	}
}

// Each proxied route needs its own capability, whatever the method, and passes
// body and query as they are.
func TestProxiedRoutes(t *testing.T) {
	w := newWorld(t)
	w.http = func(answer http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		answer.Header().Set("Upload-Offset", r.Method+" "+r.URL.RequestURI()+" "+string(body))
	}
	for pattern, capability := range proxied {
		method, path, _ := strings.Cut(pattern, " ")
		path = strings.NewReplacer("{sid}", "ses_1", "{rid}", "rec_1", "{uid}", "upl_1").Replace(path) + "?path=%2Fa%20b"
		_, with := w.authority.Grant(func(g *jws.Grant) { g.Caps = []protocol.Capability{capability} })
		_, without := w.authority.Grant(func(g *jws.Grant) {
			g.Caps = slices.DeleteFunc(slices.Clone(protocol.Capabilities), func(c protocol.Capability) bool { return c == capability })
		})
		body := ""
		if method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch {
			body = "content"
		}
		answer := w.do(method, path, with, body)
		if got := answer.Header().Get("Upload-Offset"); answer.Code != http.StatusOK || got != strings.TrimSpace(method+" "+path+" "+body) {
			t.Errorf("%s: %d %q", pattern, answer.Code, got)
		}
		if answer := w.do(method, path, without, body); answer.Code != http.StatusForbidden {
			t.Errorf("%s without %s: %d", pattern, capability, answer.Code)
		}
	}
}

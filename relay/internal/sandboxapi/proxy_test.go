package sandboxapi

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

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
	want := []string{"Accept", "If-None-Match", "Range", "Tus-Resumable", "X-Grant"} // X-Grant by the test
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

// filesHeaders are those of a request that the sandbox's files act on: without
// one of them a request would ask for something else.
var filesHeaders = []string{
	"Accept", "Content-Disposition", "Content-Range", "Content-Type", "If-Match", "If-Modified-Since", "If-None-Match", "If-Range",
	"If-Unmodified-Since", "Last-Event-Id", "Range", "Tus-Resumable", "Upload-Checksum", "Upload-Length", "Upload-Metadata", "Upload-Offset",
}

// What the agent's code reads of a request passes, as it was sent.
func TestWhatFilesActOn(t *testing.T) {
	sources, err := filepath.Glob("../../../sandbox-agent/internal/files/*.go")
	if err != nil || len(sources) < 4 {
		t.Fatalf("%v %v", sources, err)
	}
	reads := regexp.MustCompile(`\b(?:r|part)\.Header\.(?:Get|Values)\("([^"]+)"\)`)
	found := 0
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range reads.FindAllStringSubmatch(string(text), -1) {
			if found++; !slices.Contains(filesHeaders, http.CanonicalHeaderKey(match[1])) {
				t.Errorf("%s reads %s, which this test doesn't know", source, match[1])
			}
		}
	}
	if found < 8 {
		t.Errorf("%d headers found in the agent's code", found)
	}
	w := newWorld(t)
	_, token := w.authority.Grant(everything)
	var seen http.Header
	w.http = func(_ http.ResponseWriter, r *http.Request) { seen = r.Header.Clone() }
	var sent []string
	for _, name := range filesHeaders {
		sent = append(sent, name, "value of "+name)
	}
	for pattern, need := range proxied {
		if need != protocol.CapFilesRead && need != protocol.CapFilesWrite {
			continue
		}
		method, path, _ := strings.Cut(pattern, " ")
		w.do(method, strings.NewReplacer("{sid}", "ses_1", "{uid}", "upl_1").Replace(path), token, "", sent...)
		for _, name := range filesHeaders {
			if got := seen.Get(name); got != "value of "+name {
				t.Errorf("%s: %s: %q", pattern, name, got)
			}
		}
	}
}

// A range that a file hasn't is an error like others.
func TestRangeBeyond(t *testing.T) {
	w := newWorld(t)
	_, token := w.authority.Grant(everything)
	w.http = func(answer http.ResponseWriter, r *http.Request) {
		http.ServeContent(answer, r, "", time.Time{}, strings.NewReader("0123456789"))
	}
	answer := w.do(http.MethodGet, "/sessions/ses_1/file?path=/a", token, "", "Range", "bytes=20-")
	var body struct{ Error protocol.ErrorBody }
	if err := json.Unmarshal(answer.Body.Bytes(), &body); err != nil || body.Error.Name != protocol.KindInvalid.Name() || body.Error.Message == "" {
		t.Errorf("%v: %s", err, answer.Body)
	}
	if h := answer.Header(); answer.Code != 416 || h.Get("Content-Range") != "bytes */10" || h.Get("Content-Type") != "application/json" {
		t.Errorf("%d %v", answer.Code, h)
	}
}

// Which uploads can be resumed is said before anybody has a credential.
func TestTusOptions(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"/sessions/ses_1/uploads", "/sessions/ses_1/uploads/upl_1"} {
		answer := w.do(http.MethodOptions, path, "", "")
		if answer.Code != http.StatusNoContent || answer.Body.Len() != 0 {
			t.Errorf("%s: %d %s", path, answer.Code, answer.Body)
		}
		for name, want := range map[string]string{
			"Tus-Resumable": "1.0.0", "Tus-Version": "1.0.0", "Tus-Max-Size": "10737418240", "Tus-Checksum-Algorithm": "sha1,sha256",
			"Tus-Extension": "creation,creation-with-upload,expiration,termination,checksum",
		} {
			if got := answer.Header().Get(name); got != want {
				t.Errorf("%s: %s: %q", path, name, got)
			}
		}
	}
}

package console

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fairlead/fairlead/protocol"
)

func handlerOf(t *testing.T, files map[string]string, origins ...string) http.Handler {
	t.Helper()
	policy, err := contentPolicy(origins, "")
	if err != nil {
		t.Fatal(err)
	}
	content := fstest.MapFS{"assets": &fstest.MapFile{Mode: 0o755 | fs.ModeDir}}
	for name, data := range files {
		content[name] = &fstest.MapFile{Data: []byte(data)}
	}
	site, err := read(content)
	if err != nil {
		t.Fatal(err)
	}
	return newHandler(site, policy, Options{Revision: `r1"<x>`, ConnectOrigins: origins})
}

var built = map[string]string{
	"index.html":        `<meta content="%REVISION%"><meta content="%ORIGINS%"><script src="/assets/main-1.js">`,
	"assets/main-1.js":  strings.Repeat("f();", 1000),
	"assets/main-1.css": "a{}",
	"assets/icon-1.svg": "<svg/>",
}

func get(h http.Handler, method, path string, header ...string) *http.Response {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func text(t *testing.T, r io.Reader) string {
	t.Helper()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestServe(t *testing.T) {
	h := handlerOf(t, built)
	for _, test := range []struct{ path, contentType, cache string }{
		{"/", "text/html; charset=utf-8", "no-cache"},
		{"/assets/main-1.js", "text/javascript; charset=utf-8", "public, max-age=31536000, immutable"},
		{"/assets/main-1.css", "text/css; charset=utf-8", "public, max-age=31536000, immutable"},
		{"/assets/icon-1.svg", "image/svg+xml", "public, max-age=31536000, immutable"},
	} {
		r := get(h, "GET", test.path)
		if r.StatusCode != 200 || r.Header.Get("Content-Type") != test.contentType || r.Header.Get("Cache-Control") != test.cache {
			t.Errorf("%s: %d %v", test.path, r.StatusCode, r.Header)
		}
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Opener-Policy": "same-origin", "Vary": "Accept-Encoding",
		} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q", test.path, name, got)
			}
		}
		head := get(h, "HEAD", test.path)
		if body := text(t, head.Body); head.StatusCode != 200 || body != "" || head.Header.Get("Etag") != r.Header.Get("Etag") {
			t.Errorf("HEAD %s: %d %q", test.path, head.StatusCode, body)
		}
	}
	if page := text(t, get(h, "GET", "/").Body); !strings.Contains(page, `content="r1&#34;&lt;x&gt;"`) {
		t.Errorf("the revision isn't quoted: %s", page)
	}
}

func TestConditional(t *testing.T) {
	h := handlerOf(t, built)
	tags := make(map[string]bool)
	for _, accept := range []string{"", "gzip, br"} {
		tag := get(h, "GET", "/assets/main-1.js", "Accept-Encoding", accept).Header.Get("Etag")
		tags[tag] = true
		for _, condition := range []string{tag, "W/" + tag, `"x", ` + tag, "*"} {
			r := get(h, "GET", "/assets/main-1.js", "Accept-Encoding", accept, "If-None-Match", condition)
			if r.StatusCode != http.StatusNotModified || text(t, r.Body) != "" || r.Header.Get("Content-Security-Policy") == "" {
				t.Errorf("If-None-Match %s: %d", condition, r.StatusCode)
			}
		}
		if r := get(h, "GET", "/assets/main-1.js", "Accept-Encoding", accept, "If-None-Match", `"other"`); r.StatusCode != 200 {
			t.Errorf("another tag: %d", r.StatusCode)
		}
	}
	if len(tags) != 2 {
		t.Errorf("two encodings share a tag: %v", tags)
	}
}

func TestGzip(t *testing.T) {
	h := handlerOf(t, built)
	for accept, want := range map[string]string{
		"": "", "br": "", "gzip": "gzip", "deflate, gzip;q=0.5": "gzip", "gzip;q=0": "", "gzip; q=0.000": "", "xgzip": "",
	} {
		r := get(h, "GET", "/assets/main-1.js", "Accept-Encoding", accept)
		if got := r.Header.Get("Content-Encoding"); got != want {
			t.Errorf("Accept-Encoding %q is answered with %q", accept, got)
			continue
		}
		var body io.Reader = r.Body
		if want == "gzip" {
			z, err := gzip.NewReader(body)
			if err != nil {
				t.Fatal(err)
			}
			body = z
		}
		if text(t, body) != built["assets/main-1.js"] {
			t.Errorf("Accept-Encoding %q changes the content", accept)
		}
	}
}

func TestRefusals(t *testing.T) {
	h := handlerOf(t, built)
	for _, test := range []struct {
		method, path string
		kind         protocol.Kind
	}{
		{"GET", "/index.html", protocol.KindNotFound},
		{"GET", "/assets/", protocol.KindNotFound},
		{"GET", "/assets/../console.go", protocol.KindNotFound},
		{"GET", "/assets/.gitignore", protocol.KindNotFound},
		{"GET", "/.gitignore", protocol.KindNotFound},
		{"POST", "/", protocol.KindMethod},
		{"DELETE", "/assets/main-1.js", protocol.KindMethod},
	} {
		r := get(h, test.method, test.path)
		var body struct{ Error protocol.ErrorBody }
		if err := json.Unmarshal([]byte(text(t, r.Body)), &body); err != nil || r.StatusCode != test.kind.Status() || body.Error.Name != test.kind.Name() {
			t.Errorf("%s %s: %d %+v %v", test.method, test.path, r.StatusCode, body, err)
		}
	}
}

func TestNotBuilt(t *testing.T) {
	r := get(handlerOf(t, map[string]string{".gitignore": "*"}), "GET", "/")
	if body := text(t, r.Body); r.StatusCode != http.StatusServiceUnavailable || body != "The console was not built into this relay: run make build.\n" {
		t.Errorf("%d %q", r.StatusCode, body)
	}
}

func TestPolicy(t *testing.T) {
	r := get(handlerOf(t, built, "https://a.example", "http://127.0.0.1:8081"), "GET", "/")
	if page := text(t, r.Body); !strings.Contains(page, `content="https://a.example http://127.0.0.1:8081"`) {
		t.Errorf("the page isn't told the origins: %s", page)
	}
	policy := r.Header.Get("Content-Security-Policy")
	if want := "connect-src 'self' https://a.example wss://a.example http://127.0.0.1:8081 ws://127.0.0.1:8081;"; !strings.Contains(policy, want) {
		t.Errorf("%s lacks %s", policy, want)
	}
	if strings.Contains(strings.Replace(policy, "'wasm-unsafe-eval'", "", 1), "unsafe") || !strings.HasPrefix(policy, "default-src 'none'; ") {
		t.Errorf("the policy is not strict: %s", policy)
	}
	for _, origin := range []string{"", "*", "a.example", "ftp://a.example", "https://a.example/", "https://a.example/x", "https://*.example", "https://a.example; script-src *", "https://u@a.example", "https://a example"} {
		if policy, err := contentPolicy([]string{origin}, ""); err == nil {
			t.Errorf("%q gives %s", origin, policy)
		}
		if policy, err := contentPolicy(nil, origin); err == nil && origin != "" {
			t.Errorf("previews below %q: %s", origin, policy)
		}
	}
	for previews, want := range map[string]string{
		"": "frame-src 'none'; ", "https://previews.example": "frame-src https://*.previews.example; ",
		"https://previews.example:8443": "frame-src https://*.previews.example:8443; ", "http://preview.localhost:4711": "frame-src http://*.preview.localhost:*; ",
	} {
		if policy, err := contentPolicy(nil, previews); err != nil || !strings.Contains(policy, want) {
			t.Errorf("previews below %q: %s, %v", previews, policy, err)
		}
	}
}

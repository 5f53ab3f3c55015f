// Package console serves the page on which people watch and share terminals.
//
// The page is written in TypeScript under web/, bundled into dist/ by the
// program in build/, and embedded here. It is static: whose link it was opened
// with, it finds out by itself.
package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io/fs"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/protocol"
)

// AssetPrefix is the path below which the page's assets are served.
const AssetPrefix = "/assets/"

//go:embed all:dist
var dist embed.FS

// Options configure [Handler].
type Options struct {
	// ConnectOrigins are the origins that the page may connect to, its own
	// included or not: the relays of --public-origins, as "https://host[:port]".
	// Each stands for its WebSockets too. The page tries them in this order when
	// its own relay doesn't answer. IPv6 addresses are left out: a policy can't
	// name them.
	ConnectOrigins []string
	// PreviewOrigin is the origin below whose host previews are, which the page shows
	// in frames; empty: there are none. Below localhost every port counts, as relays on
	// one machine have one each.
	PreviewOrigin string
	// Extensions are the browser extensions that the page looks for, in this order.
	Extensions []string
	// Revision is shown in the page's help.
	Revision string
}

// Built reports whether the page was built into this program.
func Built() bool {
	_, err := fs.Stat(dist, "dist/index.html")
	return err == nil
}

// Handler returns a handler of GET and HEAD for "/" and the paths below
// [AssetPrefix]. Every other path is answered 404. It panics for an origin
// that is not one: who reads the configuration checks it.
func Handler(opts Options) http.Handler {
	policy, err := contentPolicy(opts.ConnectOrigins, opts.PreviewOrigin)
	if err != nil {
		panic("console: " + err.Error())
	}
	built, err := embedded()
	if err != nil {
		panic("console: " + err.Error()) // embedded files can be read
	}
	return newHandler(built, policy, opts)
}

// embedded reads what is built into this program, once for all handlers:
// compressing it takes a while.
var embedded = sync.OnceValues(func() (site, error) {
	content, err := fs.Sub(dist, "dist")
	if err != nil {
		return site{}, err
	}
	return read(content)
})

// A site is what the build has made.
type site struct {
	page   []byte           // index.html with its marks; nil: the page wasn't built
	assets map[string]*file // what it refers to, by URL path
}

func read(content fs.FS) (site, error) {
	page, err := fs.ReadFile(content, "index.html")
	if errors.Is(err, fs.ErrNotExist) {
		return site{}, nil
	} else if err != nil {
		return site{}, err
	}
	entries, err := fs.ReadDir(content, "assets")
	if err != nil {
		return site{}, err
	}
	s := site{page, make(map[string]*file)}
	for _, entry := range entries {
		data, err := fs.ReadFile(content, path.Join("assets", entry.Name()))
		if err != nil {
			return site{}, err
		}
		s.assets[AssetPrefix+entry.Name()] = newFile(entry.Name(), data, "public, max-age=31536000, immutable")
	}
	return s, nil
}

func newHandler(s site, policy string, opts Options) http.Handler {
	h := &handler{policy: policy, files: make(map[string]*file)}
	if s.page == nil {
		return h // not built: answered with that
	}
	page := s.page
	reachable := slices.DeleteFunc(slices.Clone(opts.ConnectOrigins), func(origin string) bool { return strings.Contains(origin, "://[") })
	for mark, value := range map[string]string{"%REVISION%": opts.Revision, "%ORIGINS%": strings.Join(reachable, " "), "%EXTENSIONS%": strings.Join(opts.Extensions, " ")} {
		page = bytes.ReplaceAll(page, []byte(mark), []byte(html.EscapeString(value)))
	}
	maps.Copy(h.files, s.assets)
	// The page names its assets by content, so it alone must be asked for anew.
	h.files["/"] = newFile("index.html", page, "no-cache")
	return h
}

// contentPolicy returns the Content-Security-Policy: nothing but our own files
// and connections. xterm.js would need 'unsafe-inline' for styles, and
// asciinema-player leave to make elements of strings; the build takes these
// needs away (build/bundle.go). What remains is that the player's terminal is
// WebAssembly.
func contentPolicy(origins []string, previews string) (string, error) {
	connect := "connect-src 'self'"
	for _, origin := range origins {
		u, err := parseOrigin(origin)
		if err != nil {
			return "", err
		}
		if strings.HasPrefix(u.Host, "[") {
			continue // a policy can't name an IPv6 address; "'self'" can be one
		}
		// "http" in front of the rest makes "ws", "https" "wss".
		connect += " " + origin + " ws" + strings.TrimPrefix(origin, "http")
	}
	frame := "frame-src 'none'"
	if previews != "" {
		u, err := parseOrigin(previews)
		if err != nil {
			return "", err
		}
		host := u.Host
		if name := u.Hostname(); strings.HasSuffix(name, ".localhost") {
			host = name + ":*"
		}
		frame = "frame-src " + u.Scheme + "://*." + host
	}
	return strings.Join([]string{
		"default-src 'none'",
		"script-src 'self' 'wasm-unsafe-eval'",
		"style-src 'self'",
		connect,
		"img-src 'self' data:",
		"font-src 'self'",
		frame,
		"frame-ancestors 'none'",
		"base-uri 'none'",
		"form-action 'none'",
		"require-trusted-types-for 'script'",
		"trusted-types 'none'",
	}, "; "), nil
}

// parseOrigin parses an origin that a policy can name.
func parseOrigin(origin string) (*url.URL, error) {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || u.Scheme+"://"+u.Host != origin ||
		strings.ContainsAny(u.Host, "*;, '\"") {
		return nil, fmt.Errorf("%q is not an origin such as https://relay.example", origin)
	}
	return u, nil
}

// A handler serves files that were all read at the start.
type handler struct {
	policy string
	files  map[string]*file // by URL path; empty when the page wasn't built
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", h.policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=(), payment=(), usb=(), serial=(), clipboard-read=(self), clipboard-write=(self)")
	f := h.files[r.URL.Path]
	switch {
	case f == nil && r.URL.Path == "/":
		header.Set("Content-Type", "text/plain; charset=utf-8")
		header.Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, "The console was not built into this relay: run make build.")
	case f == nil:
		refuse(w, protocol.KindNotFound)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		header.Set("Allow", "GET, HEAD")
		refuse(w, protocol.KindMethod)
	default:
		f.serve(w, r)
	}
}

func refuse(w http.ResponseWriter, kind protocol.Kind) {
	body, err := json.Marshal(map[string]protocol.ErrorBody{"error": {Message: kind.Text(), Name: kind.Name()}})
	if err != nil {
		panic(err) // two strings
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(kind.Status())
	w.Write(body)
}

// A file is one answer in two encodings, each with its own tag.
type file struct {
	contentType, cacheControl string
	plain, zipped             body
}

type body struct {
	data []byte
	tag  string
}

func newFile(name string, data []byte, cacheControl string) *file {
	var zipped bytes.Buffer
	z, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	if err != nil {
		panic(err) // the level exists
	}
	if _, err := z.Write(data); err != nil {
		panic(err) // memory takes everything
	}
	if err := z.Close(); err != nil {
		panic(err)
	}
	sum := sha256.Sum256(data)
	tag := base64.RawURLEncoding.EncodeToString(sum[:12])
	return &file{
		contentType:  contentType(name),
		cacheControl: cacheControl,
		plain:        body{data, `"` + tag + `"`},
		zipped:       body{zipped.Bytes(), `"` + tag + `-gz"`},
	}
}

// contentType doesn't leave to the machine's tables what browsers insist on.
func contentType(name string) string {
	switch ext := path.Ext(name); ext {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	default:
		return mime.TypeByExtension(ext)
	}
}

func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Type", f.contentType)
	header.Set("Cache-Control", f.cacheControl)
	header.Set("Vary", "Accept-Encoding")
	b := f.plain
	if acceptsGzip(r.Header.Get("Accept-Encoding")) {
		b = f.zipped
		header.Set("Content-Encoding", "gzip")
	}
	header.Set("ETag", b.tag)
	if matches(r.Header.Get("If-None-Match"), b.tag) {
		header.Del("Content-Encoding")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Length", fmt.Sprint(len(b.data)))
	if r.Method == http.MethodGet {
		w.Write(b.data)
	}
}

// acceptsGzip reads an Accept-Encoding; "gzip;q=0" refuses.
func acceptsGzip(accept string) bool {
	for item := range strings.SplitSeq(accept, ",") {
		coding, params, _ := strings.Cut(strings.TrimSpace(item), ";")
		if coding == "gzip" {
			q := strings.TrimSpace(params)
			return q != "q=0" && q != "q=0.0" && q != "q=0.00" && q != "q=0.000"
		}
	}
	return false
}

// matches compares weakly, as If-None-Match asks for.
func matches(condition, tag string) bool {
	for item := range strings.SplitSeq(condition, ",") {
		item = strings.TrimPrefix(strings.TrimSpace(item), "W/")
		if item == tag || item == "*" {
			return true
		}
	}
	return false
}

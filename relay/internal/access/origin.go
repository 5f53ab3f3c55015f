package access

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/protocol"
)

// Origins is the set of web origins under which the relay is reached. Every
// request's Host is checked (DNS rebinding), and its Origin wherever a browser
// could act for a foreign page.
type Origins struct {
	hosts   map[string]string // Host header → origin
	origins map[string]bool
	ordered []string                    // as they were given
	open    map[string]string           // path → method of the routes that any origin may use
	refused func(error)                 // called for what Guard refuses
	foreign map[string]http.HandlerFunc // path → what answers foreign origins there

	extensions extensions
}

// NewOrigins parses origins such as "https://relay.example" or
// "http://127.0.0.1:8080": scheme, host and optional port, nothing else.
func NewOrigins(origins []string) (*Origins, error) {
	o := &Origins{hosts: map[string]string{}, origins: map[string]bool{}, open: map[string]string{}, refused: func(error) {}, foreign: map[string]http.HandlerFunc{}}
	for _, s := range origins {
		u, err := url.Parse(s)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" ||
			strings.HasSuffix(u.Host, ":") || s != u.Scheme+"://"+u.Host {
			return nil, protocol.Errorf(protocol.KindInvalid, "public origin %q must be scheme://host[:port]", s)
		}
		scheme, host := u.Scheme, strings.ToLower(u.Host)
		bare, port := u.Hostname(), u.Port()
		if port == defaultPort(scheme) {
			host = hostport(strings.ToLower(bare), "")
		}
		origin := scheme + "://" + host
		if !o.origins[origin] {
			o.origins[origin] = true
			o.ordered = append(o.ordered, origin)
		}
		o.addHost(host, origin)
		if port == "" || port == defaultPort(scheme) {
			o.addHost(hostport(strings.ToLower(bare), defaultPort(scheme)), origin)
		}
	}
	return o, nil
}

// addHost maps a Host to an origin. If two origins have one Host (http and
// https of one name), the first wins.
func (o *Origins) addHost(host, origin string) {
	if _, known := o.hosts[host]; !known {
		o.hosts[host] = origin
	}
}

// OnRefused sets fn to be called for every request that Guard refuses. It must
// be called before the first.
func (o *Origins) OnRefused(fn func(error)) { o.refused = fn }

// List returns the origins in the order in which they were given.
func (o *Origins) List() []string { return slices.Clone(o.ordered) }

// Listed reports whether origin is one of these, in a browser's spelling.
func (o *Origins) Listed(origin string) bool { return o.origins[origin] }

// Public returns the public origin under which r was sent, by its Host.
func (o *Origins) Public(r *http.Request) string { return o.hosts[strings.ToLower(r.Host)] }

// CheckHost refuses a request whose Host is not one of ours.
func (o *Origins) CheckHost(r *http.Request) error {
	if o.Public(r) != "" {
		return nil
	}
	return protocol.Fault(protocol.KindForbidden, nil)
}

// CheckOrigin refuses a request unless its one Origin is one of ours.
func (o *Origins) CheckOrigin(r *http.Request) error {
	if values := r.Header.Values("Origin"); len(values) == 1 && o.origins[values[0]] {
		return nil
	}
	return protocol.Fault(protocol.KindForbidden, nil)
}

// Open lets pages of any origin, such as a browser extension's, use one route.
// The route must require a bearer token and nothing else, as no cookies come
// along. It must be called before requests are served.
func (o *Origins) Open(method, path string) { o.open[path] = method }

// AnswerForeign has answer refuse requests of foreign origins at a path. It must be
// called before requests are served.
func (o *Origins) AnswerForeign(path string, answer http.HandlerFunc) { o.foreign[path] = answer }

// ListExtensions names the extensions whose side panels may come, by their ids. It
// must be called before requests are served.
func (o *Origins) ListExtensions(ids []string) (err error) {
	o.extensions, err = listExtensions(ids)
	return err
}

// Extensions reports whether any extension is listed. Without one nothing of the
// side panel exists.
func (o *Origins) Extensions() bool { return len(o.extensions) > 0 }

// Extension returns the origin of the extension that has sent r, empty for any
// other sender, and whether it is listed.
func (o *Origins) Extension(r *http.Request) (origin string, listed bool) { return o.extensions.of(r) }

// FromExtension reports whether a listed extension has sent r, to a route that it
// may use.
func (o *Origins) FromExtension(r *http.Request) bool { return o.extensions.may(r) }

// Guard refuses requests with a foreign Host, or with a foreign Origin if they
// send one. The routes of Open accept any Origin, those of the side panel
// that of a listed extension.
func (o *Origins) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := o.CheckHost(r)
		_, open := o.open[r.URL.Path]
		if _, sent := r.Header["Origin"]; err == nil && sent && !open && !o.FromExtension(r) {
			err = o.CheckOrigin(r)
		}
		if err != nil {
			o.refused(err)
			if answer := o.foreign[r.URL.Path]; answer != nil && o.CheckHost(r) == nil {
				answer(w, r)
				return
			}
			WriteError(w, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func defaultPort(scheme string) string {
	if scheme == "https" {
		return "443"
	}
	return "80"
}

func hostport(host, port string) string {
	switch {
	case port != "":
		return net.JoinHostPort(host, port)
	case strings.Contains(host, ":"):
		return "[" + host + "]"
	}
	return host
}

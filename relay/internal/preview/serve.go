package preview

import (
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/rejects"
	"github.com/fairlead/fairlead/relay/internal/reverseproxy"
)

// cookieName is the cookie that opens a preview in one browser, on the
// preview's host only.
const cookieName = "fairlead_preview"

// maxCookieValues bounds how many cookies of our name are checked: pages of
// other previews may have set some.
const maxCookieValues = 8

// Handler serves the previews' hosts.
func (p *Previews) Handler() http.Handler { return http.HandlerFunc(p.serve) }

func (p *Previews) serve(w http.ResponseWriter, r *http.Request) {
	id, ours := p.idOf(r.Host)
	switch {
	case !ours || !p.registry.known(id):
		p.page(w, r, protocol.Errorf(protocol.KindNotFound, "There is no preview here. Open it again from the console."))
	case r.Method == http.MethodConnect || r.Method == http.MethodTrace:
		p.page(w, r, protocol.Errorf(protocol.KindMethod, "This method is not served."))
	case r.URL.Path == openPath:
		p.redeem(w, r, id)
	default:
		p.show(w, r, id)
	}
}

// idOf returns the id of the preview whose host is asked for.
func (p *Previews) idOf(host string) (id string, ours bool) {
	id, ours = strings.CutSuffix(strings.ToLower(host), p.suffix)
	return id, ours && len(id) == idBytes && !strings.Contains(id, ".")
}

// redeem exchanges a ticket for a cookie and redirects to the start path.
func (p *Previews) redeem(w http.ResponseWriter, r *http.Request, id string) {
	if r.Method != http.MethodGet { // keeps the ticket: link previewers ask by HEAD first
		p.page(w, r, protocol.Errorf(protocol.KindMethod, "This link is opened by GET."))
		return
	}
	cookie, start, ok := p.registry.redeem(id, r.URL.Query().Get("ticket"))
	if !ok {
		p.page(w, r, protocol.Errorf(protocol.KindUnauthenticated, "This link was used before, or is too old. Open the preview again from the console."))
		return
	}
	http.SetCookie(w, p.cookieFor(r, cookie))
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Location", start)
	w.WriteHeader(http.StatusSeeOther)
}

// cookieFor returns the cookie of a browser that has opened the preview. It lasts
// until the browser closes; the grant decides. It is Lax, as the first page is
// opened from the console, another site. In a frame of the console a browser sends
// no such cookie: there it gets one of its own that counts in frames of that site
// alone (CHIPS). Browsers take that by plain HTTP below localhost, too.
func (p *Previews) cookieFor(r *http.Request, value string) *http.Cookie {
	c := &http.Cookie{Name: p.cookie, Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: p.scheme == "https"}
	if r.Header.Get("Sec-Fetch-Dest") == "iframe" {
		c.SameSite, c.Secure, c.Partitioned = http.SameSiteNoneMode, true, true
	}
	return c
}

// show forwards a request to the application.
func (p *Previews) show(w http.ResponseWriter, r *http.Request, id string) {
	var cookies []string
	for _, cookie := range r.CookiesNamed(p.cookie) {
		if cookies = append(cookies, cookie.Value); len(cookies) == maxCookieValues {
			break
		}
	}
	at, grant, token, ok := p.registry.enter(id, cookies)
	var err error
	switch {
	case !ok:
		err = protocol.Errorf(protocol.KindUnauthenticated, "This preview is not open in this browser. Open it from the console.")
	case foreign(r, p.scheme+"://"+strings.ToLower(r.Host)):
		err = protocol.Errorf(protocol.KindForbidden, "Pages of another origin can't use a preview.")
	case p.opts.Grants.Revoked(grant):
		err = protocol.Errorf(protocol.KindUnauthenticated, "Access was revoked.")
	case p.opts.Grants.Over(grant):
		err = protocol.Errorf(protocol.KindExpired, "The preview has expired. Open it again from the console.")
	}
	if err != nil {
		p.page(w, r, err)
		return
	}
	session, err := p.opts.Tunnels.Session(at.sandbox)
	if err != nil {
		p.page(w, r, protocol.Errorf(protocol.KindUnavailable, "The sandbox is not connected at the moment."))
		return
	}
	r.URL = at.url(r)
	p.proxy.Serve(w, r, session, grant, token)
}

// url returns where the sandbox serves r: our prefix, then the application's
// own path and query, byte for byte.
func (at upstream) url(r *http.Request) *url.URL {
	target := r.RequestURI
	if !strings.HasPrefix(target, "/") { // absolute-form, or OPTIONS *
		target = r.URL.RequestURI()
	}
	raw, query, asked := strings.Cut(target, "?")
	if !strings.HasPrefix(raw, "/") {
		raw = "/"
	}
	return &url.URL{
		Path: at.prefix() + raw, Opaque: at.prefix() + raw, RawQuery: query, ForceQuery: asked && query == "",
	}
}

// prefix is the path under which the sandbox serves a port.
func (at upstream) prefix() string {
	return fmt.Sprintf("/sessions/%s/preview/%d", at.session, at.port)
}

// foreign reports whether the request comes from a page of another origin than
// own, by the browser's headers. Following a link is allowed.
func foreign(r *http.Request, own string) bool {
	if origins, sent := r.Header["Origin"]; sent && (len(origins) != 1 || !strings.EqualFold(origins[0], own)) {
		return true
	}
	site, mode := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Sec-Fetch-Mode")
	return site != "" && site != "same-origin" && site != "none" && mode != "navigate"
}

func (p *Previews) newProxy() *reverseproxy.Proxy {
	return reverseproxy.NewProxy(reverseproxy.Options{
		Requests: p.opts.Requests, What: reverseproxy.Preview, Upgrades: true, Log: p.opts.Log,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.RawQuery = r.In.URL.RawQuery // exactly as the application's own page made it
			p.hideCookie(r.Out.Header)
		},
		Response: func(r *http.Response) {
			p.shape(r.Header)
			r.Header.Add("Content-Security-Policy", p.csp)
			if place, led := inside(r); led {
				r.Header.Set("Location", place)
			}
			reverseproxy.FilterTrailers(r, func(name string) bool { return !unfit[name] && name != "Set-Cookie" })
		},
		Refuse: func(w http.ResponseWriter, r *http.Request, err error) {
			p.opts.Rejects.Count(rejects.Preview, err)
			e := protocol.AsError(err)
			p.page(w, r, protocol.Errorf(e.Kind, "The preview can't be shown: %s.", e.Error()))
		},
	})
}

// hideCookie removes our cookie from what the application sees.
func (p *Previews) hideCookie(h http.Header) {
	var kept []string
	for _, line := range h["Cookie"] {
		for part := range strings.SplitSeq(line, ";") {
			name, _, _ := strings.Cut(part, "=")
			if part = strings.TrimSpace(part); part != "" && strings.TrimSpace(name) != p.cookie {
				kept = append(kept, part)
			}
		}
	}
	if h.Del("Cookie"); len(kept) > 0 {
		h.Set("Cookie", strings.Join(kept, "; "))
	}
}

// unfit are headers that affect more than one preview's host, or the connection
// to the relay.
var unfit = map[string]bool{
	"Alt-Svc": true, "Clear-Site-Data": true, "Expect-Ct": true, "Nel": true, "Public-Key-Pins": true,
	"Report-To": true, "Reporting-Endpoints": true, "Strict-Transport-Security": true,
	"Access-Control-Allow-Credentials": true, "Access-Control-Allow-Origin": true,
}

// shape removes headers that an application may not set, and limits its cookies
// to its own host.
func (p *Previews) shape(h http.Header) {
	for name := range h {
		if unfit[name] || strings.HasPrefix(name, "Fairlead-") {
			h.Del(name)
		}
	}
	lines := h["Set-Cookie"]
	h.Del("Set-Cookie")
	for _, line := range lines {
		if kept, ok := p.ownCookie(line); ok {
			h.Add("Set-Cookie", kept)
		}
	}
	if h.Get("Referrer-Policy") == "" {
		h.Set("Referrer-Policy", "same-origin") // the host's name is half of the access secret
	}
	h.Set("X-Robots-Tag", "noindex, nofollow")
}

// ownCookie returns the Set-Cookie value line without a domain. It drops one
// that would replace ours.
func (p *Previews) ownCookie(line string) (string, bool) {
	parts := strings.Split(line, ";")
	name, _, _ := strings.Cut(parts[0], "=")
	if strings.EqualFold(strings.TrimSpace(name), p.cookie) {
		return "", false
	}
	kept := parts[:1]
	for _, part := range parts[1:] {
		attribute, _, _ := strings.Cut(part, "=")
		if !strings.EqualFold(strings.TrimSpace(attribute), "domain") {
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, ";"), true
}

// inside returns the target of a redirect into the sandbox's own paths.
func inside(r *http.Response) (string, bool) {
	location := r.Header.Get("Location")
	u, err := url.Parse(location)
	if location == "" || err != nil || u.Host != "" {
		return "", false
	}
	parts := strings.SplitN(r.Request.URL.Path, "/", 6) // "", sessions, id, preview, port, …
	prefix := strings.Join(parts[:min(5, len(parts))], "/")
	rest, ok := strings.CutPrefix(location, prefix+"/")
	return "/" + strings.TrimLeft(rest, "/"), ok
}

// page answers an error as HTML, or as JSON if the request accepts that.
func (p *Previews) page(w http.ResponseWriter, r *http.Request, err error) {
	e := protocol.AsError(err)
	h := w.Header()
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; "+p.csp)
	if accept := r.Header.Get("Accept"); strings.Contains(accept, "json") && !strings.Contains(accept, "text/html") {
		access.WriteError(w, err)
		return
	}
	text := fmt.Sprintf("<!doctype html><html lang=en><title>Preview</title><p>%s</p></html>\n", html.EscapeString(e.Error()))
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(e.Kind.Status())
	io.WriteString(w, text)
}

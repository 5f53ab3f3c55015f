// Package preview forwards browsers to HTTP servers in a sandbox. Each preview
// has a host of its own, so that its pages share nothing with the console.
package preview

import (
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/rejects"
	"github.com/fairlead/fairlead/relay/internal/reverseproxy"
	"github.com/fairlead/fairlead/tunnel"
)

const (
	// openPath is where a ticket becomes a cookie. It never reaches the
	// application.
	openPath = "/.fairlead/open"
	// maxPath bounds a preview's start path, in bytes.
	maxPath = 2048
)

// Tunnels finds the tunnel of a connected sandbox. Package fleet implements it.
type Tunnels interface {
	Session(id protocol.SandboxID) (*tunnel.Session, error)
}

// Options are what Previews work with.
type Options struct {
	// Origin is scheme://host[:port]; each preview has a host name below it.
	// Empty: there are no previews.
	Origin  string
	Framers []string // origins whose pages may show a preview in a frame
	Keys    *jws.Keys
	Grants  *lifetime.Grants
	Tunnels Tunnels

	Requests *reverseproxy.Requests
	Rejects  *rejects.Rejects
	Log      *slog.Logger
	Now      func() time.Time // default time.Now
}

// Previews are the previews opened at this relay.
type Previews struct {
	// Static after construction.
	opts   Options
	scheme string
	suffix string // "." and host[:port], lower case
	cookie string // the cookie's name
	csp    string
	proxy  *reverseproxy.Proxy

	registry registry
}

// New returns Previews. It fails if Origin isn't an origin.
func New(opts Options) (*Previews, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	p := &Previews{opts: opts, registry: newRegistry(opts.Now)}
	if opts.Origin == "" {
		return p, nil
	}
	u, err := url.Parse(opts.Origin)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || opts.Origin != u.Scheme+"://"+u.Host {
		return nil, protocol.Errorf(protocol.KindInvalid, "preview origin %q must be scheme://host[:port]", opts.Origin)
	}
	p.scheme, p.suffix, p.cookie = u.Scheme, "."+strings.ToLower(u.Host), cookieName
	if u.Scheme == "https" {
		p.cookie = "__Host-" + cookieName // browsers let no other host set such a cookie
	}
	p.csp = strings.Join(append([]string{"frame-ancestors 'self'"}, opts.Framers...), " ")
	p.proxy = p.newProxy()
	return p, nil
}

// Origin returns the origin below whose host previews are, empty if there are none.
func (p *Previews) Origin() string { return p.opts.Origin }

// Register adds POST /sessions/{sid}/previews, which is served at the public
// origin.
func (p *Previews) Register(mux access.Router) {
	mux.HandleFunc("POST /sessions/{sid}/previews", p.create)
}

// A request is the body of POST …/previews.
type request struct {
	Port int    `json:"port"`
	Path string `json:"path"` // where it begins; default "/"
	ID   string `json:"id"`   // of the preview to renew under this grant; absent: a new one
}

// create is POST /sessions/{sid}/previews: 200 {id, url, expires_at}. The url
// opens the preview once, within seconds. A preview ends with its grant;
// repeating the request with its id renews it under a newer one, in all windows
// that show it.
func (p *Previews) create(w http.ResponseWriter, r *http.Request) {
	answer, err := p.open(w, r)
	if err != nil {
		p.opts.Rejects.Count(rejects.Request, err)
		access.WriteError(w, err)
		return
	}
	access.WriteJSON(w, http.StatusOK, answer)
}

func (p *Previews) open(w http.ResponseWriter, r *http.Request) (map[string]string, error) {
	grant, token, err := access.Grant(r, p.opts.Keys)
	if err != nil {
		return nil, err
	}
	session := protocol.SessionID(r.PathValue("sid"))
	if !protocol.ValidID(session) {
		return nil, protocol.Fault(protocol.KindInvalid, nil)
	}
	if !grant.Allows(session, "", protocol.CapPlugins) {
		return nil, protocol.Errorf(protocol.KindForbidden, "the grant does not allow %q here", protocol.CapPlugins)
	}
	var body request
	if err := access.ReadJSON(w, r, &body); err != nil {
		return nil, err
	}
	start, err := startOf(body.Path)
	if err != nil {
		return nil, err
	}
	if body.Port < 1 || body.Port > 65535 {
		return nil, protocol.Errorf(protocol.KindInvalid, "port: 1 to 65535")
	}
	if p.opts.Origin == "" {
		return nil, protocol.Errorf(protocol.KindUnsupported, "this relay shows no previews: it has no --preview-listen")
	}
	if _, err := p.opts.Tunnels.Session(grant.Sandbox); err != nil {
		return nil, err
	}
	id, ticket, err := p.registry.issue(body.ID, upstream{grant.Sandbox, session, body.Port, grant.Subject}, grant, token, start)
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"id":         id,
		"url":        p.scheme + "://" + id + p.suffix + openPath + "?ticket=" + ticket,
		"expires_at": grant.Expires().UTC().Format(time.RFC3339),
	}, nil
}

// startOf checks path, which must stay on the same host; default "/".
func startOf(path string) (string, error) {
	if path == "" {
		return "/", nil
	}
	u, err := url.Parse(path)
	bad := err != nil || len(path) > maxPath || !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") ||
		strings.Contains(path, `\`)
	if !bad {
		bad = u.Scheme != "" || u.Host != "" || u.User != nil || u.Path == openPath
	}
	if bad {
		return "", protocol.Errorf(protocol.KindInvalid, "path must begin with / and stay on its host")
	}
	return u.String(), nil
}

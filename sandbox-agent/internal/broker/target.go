package broker

import (
	"net/url"
	"strings"

	"github.com/fairlead/fairlead/sandbox-agent/internal/hostname"
)

// Limits of requests, in bytes.
const (
	maxTargetBytes = 16 << 10
	maxNameBytes   = 128
)

// A route is a parsed request target.
type route struct {
	capability string
	provider   string // or "custom"
	secret     string // of custom
	rest       string // path behind the provider, as sent; "" or beginning with /
	query      string // as sent, without the ?
}

// parseRoute splits a request target once. It returns the bytes as sent.
func parseRoute(target string) (route, *refusal) {
	if len(target) > maxTargetBytes {
		return route{}, refuse(reasonInvalidPath, "the path is too long")
	}
	path, query, _ := strings.Cut(target, "?")
	inside, ok := strings.CutPrefix(path, "/broker/")
	if !ok {
		return route{}, refuse(reasonInvalidPath, "paths begin with /broker/")
	}
	if err := checkQuery(query); err != nil {
		return route{}, err
	}
	r := route{query: query}
	r.capability, inside, _ = strings.Cut(inside, "/")
	r.provider, inside, ok = strings.Cut(inside, "/")
	if r.provider == custom {
		r.secret = inside
		if r.secret == "" || len(r.secret) > maxNameBytes || strings.Trim(r.secret, nameBytes) != "" {
			return route{}, refuse(reasonInvalidPath, "custom is followed by the name of a secret and nothing else")
		}
		return r, nil
	}
	if ok {
		r.rest = "/" + inside
	}
	return r, checkPath(r.rest)
}

const (
	custom    = "custom"
	nameBytes = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
)

// checkPath refuses a path that another program could read differently. It
// checks the path decoded once, and twice.
func checkPath(raw string) *refusal {
	if strings.HasPrefix(raw, "//") {
		return refuse(reasonInvalidPath, "the path begins with two slashes")
	}
	for i := range len(raw) {
		if c := raw[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("\"<>\\^`{|}@#?", c) >= 0 {
			return refuse(reasonInvalidPath, "the path holds a character that must not be in it")
		}
	}
	text := raw
	for range 3 {
		if !plainPath(text) {
			return refuse(reasonInvalidPath, "the path holds dots, slashes or marks in disguise")
		}
		decoded, err := url.PathUnescape(text)
		if err != nil {
			if text == raw {
				return refuse(reasonInvalidPath, "a percent sign is not followed by two digits")
			}
			return nil // it was data
		}
		if decoded == text {
			return nil
		}
		text = decoded
	}
	return nil
}

// plainPath reports whether no segment goes up and nothing ends the path.
func plainPath(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == 0x7f || c == '\\' || c == '?' || c == '#' {
			return false
		}
	}
	for segment := range strings.SplitSeq(text, "/") {
		name, _, _ := strings.Cut(segment, ";") // some servers ignore the rest
		if name == "." || name == ".." {
			return false
		}
	}
	return true
}

func checkQuery(raw string) *refusal {
	for i := range len(raw) {
		if c := raw[i]; c <= ' ' || c >= 0x7f || c == '#' {
			return refuse(reasonInvalidPath, "the query holds a character that must not be in it")
		}
	}
	return nil
}

// A destination is the target of a request.
type destination struct {
	scheme string
	host   hostname.Host // with a port
	path   string        // escaped, beginning with /
	query  string        // escaped
}

func (d destination) defaultPort() int {
	if d.scheme == "http" {
		return 80
	}
	return 443
}

// authority returns the host as in URLs and approvals: with its port if that
// isn't the default.
func (d destination) authority() string {
	if d.host.Port == d.defaultPort() {
		return d.host.WithPort(0).String()
	}
	return d.host.String()
}

// url returns d as a URL that is sent in the checked bytes.
func (d destination) url() *url.URL {
	path, err := url.PathUnescape(d.path)
	if err != nil {
		path = d.path
	}
	return &url.URL{Scheme: d.scheme, Host: d.authority(), Path: path, RawPath: d.path, RawQuery: d.query}
}

// sameOrigin reports whether a redirect from d to other keeps the origin.
func (d destination) sameOrigin(other destination) bool {
	return d.scheme == other.scheme && d.host == other.host
}

// customTarget reads ?target= of a query. Parameters beside it belong to an
// unescaped target, and are added to its own.
func customTarget(query string) (destination, *refusal) {
	var target string
	var found bool
	var others []string
	for part := range strings.SplitSeq(query, "&") {
		value, is := strings.CutPrefix(part, "target=")
		switch {
		case is && found:
			return destination{}, refuse(reasonInvalidTarget, "target is given twice")
		case is:
			decoded, err := url.QueryUnescape(value)
			if err != nil {
				return destination{}, refuse(reasonInvalidTarget, "target is not escaped as it should be")
			}
			// An unescaped target keeps its plus signs.
			if strings.Contains(value, "://") {
				decoded = value
			}
			target, found = decoded, true
		case part != "":
			others = append(others, part)
		}
	}
	if !found || target == "" {
		return destination{}, refuse(reasonMissingTarget, "the query names no target")
	}
	d, err := parseURL(target)
	if err != nil {
		return destination{}, err
	}
	if d.query != "" {
		others = append([]string{d.query}, others...)
	}
	d.query = strings.Join(others, "&")
	return d, nil
}

// parseURL reads an absolute http or https URL, once and strictly.
func parseURL(text string) (destination, *refusal) {
	if len(text) > maxTargetBytes {
		return destination{}, refuse(reasonInvalidTarget, "the target is too long")
	}
	scheme, rest, ok := strings.Cut(text, "://")
	d := destination{scheme: strings.ToLower(scheme)}
	if !ok || d.scheme != "https" && d.scheme != "http" {
		return d, refuse(reasonInvalidTarget, "the target must be an https URL")
	}
	authority, path := rest, ""
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		authority, path = rest[:end], rest[end:]
	}
	var err error
	if d.host, err = hostname.Parse(authority, d.defaultPort()); err != nil {
		return d, refuse(reasonInvalidTarget, "the target has no host that can be told for sure")
	}
	d.path, d.query, _ = strings.Cut(path, "?")
	if d.path == "" {
		d.path = "/"
	}
	if checkPath(d.path) != nil || checkQuery(d.query) != nil {
		return d, refuse(reasonInvalidTarget, "the target's path or query is ambiguous")
	}
	return d, nil
}

// keyParameters are the query parameters in which APIs accept a key.
var keyParameters = map[string]bool{
	"key": true, "api_key": true, "apikey": true, "api-key": true, "access_token": true, "xi-api-key": true,
}

// withoutKeys removes the parameters by which a client would send a key: by
// name for a provider, and whatever contains a placeholder for any target.
func withoutKeys(query string, byName bool) string {
	kept := make([]string, 0, strings.Count(query, "&")+1)
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		name, err1 := url.QueryUnescape(name)
		value, err2 := url.QueryUnescape(value)
		if byName && err1 == nil && keyParameters[strings.ToLower(name)] || err2 == nil && strings.Contains(value, placeholder) {
			continue
		}
		kept = append(kept, part)
	}
	return strings.Join(kept, "&")
}

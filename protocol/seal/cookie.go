package seal

import (
	"net/netip"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// maxCookie bounds a cookie's name and value together, in bytes.
	maxCookie = 4096
	// maxCookiePath bounds its path, maxHost and maxLabel its host and that one's
	// parts, in bytes.
	maxCookiePath, maxHost, maxLabel = 1024, 253, 63
)

// A CookieID is what tells a cookie from others: of two with one the later counts.
type CookieID struct{ HostKey, Name, Path string }

// ID returns the cookie's id.
func (c Cookie) ID() CookieID { return CookieID{HostKey: c.HostKey, Name: c.Name, Path: c.Path} }

// Session reports whether the cookie ends with its browser's session.
func (c Cookie) Session() bool { return c.HasExpires == 0 || c.Expires == 0 }

// Domain reports whether the cookie is of subdomains, too.
func (c Cookie) Domain() bool { return strings.HasPrefix(c.HostKey, ".") }

// Host returns the host that the cookie is of.
func (c Cookie) Host() string { return strings.TrimPrefix(c.HostKey, ".") }

// An Unfit error says why a cookie can't stand in Chromium. People read it: it
// repeats nothing of the cookie.
type Unfit string

// Error implements error.
func (u Unfit) Error() string { return string(u) }

// Why a cookie can't stand in Chromium.
const (
	Expired       Unfit = "expired"
	TooLong       Unfit = "name and value have more than 4096 bytes"
	Nameless      Unfit = "neither a name nor a value"
	BadName       Unfit = "a character that a name can't have"
	BadValue      Unfit = "a character that a value can't have"
	BadHost       Unfit = "not a host"
	ForeignHost   Unfit = "a host that isn't ASCII"
	AddressDomain Unfit = "an address has no subdomains"
	BadPath       Unfit = "not a path"
	NeedsHost     Unfit = "__Host- needs one host, the path / and secure"
	NeedsSecure   Unfit = "__Secure- needs secure"
	NeedsHTTP     Unfit = "__Http- needs secure and HttpOnly"
	NeedsNone     Unfit = "SameSite=None needs secure"
	OutOfRange    Unfit = "a number out of range"
	HiddenPrefix  Unfit = "a value without a name that begins like a name"
)

// Check returns why the cookie can't stand in Chromium, an [Unfit]; nil: it can. What
// it refuses Chromium would refuse with all cookies beside it, drop without a word, or
// keep as another cookie.
func (c Cookie) Check(now time.Time) error {
	for _, why := range []Unfit{c.numbers(), checkHost(c.HostKey), checkPath(c.Path), c.text(), c.prefix()} {
		if why != "" {
			return why
		}
	}
	switch {
	case c.SameSite == 0 && c.Secure == 0:
		return NeedsNone
	case !c.Session() && c.Expires <= ToMicros(now):
		return Expired
	}
	return nil
}

// numbers checks what must be one of few numbers.
func (c Cookie) numbers() Unfit {
	for _, n := range []struct{ is, least, most int64 }{
		{c.Secure, 0, 1}, {c.HTTPOnly, 0, 1}, {c.HasExpires, 0, 1}, {c.Persistent, 0, 1},
		{c.Priority, 0, 2}, {c.SameSite, -1, 2}, {c.SourceScheme, 0, 2}, {c.SourcePort, -1, 65535},
	} {
		if n.is < n.least || n.is > n.most {
			return OutOfRange
		}
	}
	return ""
}

// text checks name and value.
func (c Cookie) text() Unfit {
	switch {
	case c.Name == "" && c.Value == "":
		return Nameless
	case len(c.Name)+len(c.Value) > maxCookie:
		return TooLong
	case strings.Contains(c.Name, "=") || !plain(c.Name):
		return BadName
	case !plain(c.Value) || c.Name == "" && strings.Contains(c.Value, "="): // it would be the name
		return BadValue
	}
	return ""
}

// plain reports whether a name or value is one that is read as it was written.
func plain(s string) bool {
	other := strings.IndexFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f || r == ';' })
	return other < 0 && s == strings.Trim(s, " \t") && utf8.ValidString(s)
}

// prefix checks what the beginning of a name promises, in upper or lower case.
func (c Cookie) prefix() Unfit {
	name := strings.ToLower(c.Name)
	host := strings.HasPrefix(name, "__host-")
	http := strings.HasPrefix(name, "__http-") || strings.HasPrefix(name, "__host-http-")
	switch {
	case host && (c.Domain() || c.Path != "/" || c.Secure == 0):
		return NeedsHost
	case http && (c.Secure == 0 || c.HTTPOnly == 0):
		return NeedsHTTP
	case strings.HasPrefix(name, "__secure-") && c.Secure == 0:
		return NeedsSecure
	}
	if name == "" {
		value := strings.ToLower(c.Value)
		for _, p := range []string{"__host-", "__secure-", "__http-"} {
			if strings.HasPrefix(value, p) {
				return HiddenPrefix
			}
		}
	}
	return ""
}

// checkHost checks a host as Chromium writes it, with or without the dot.
func checkHost(key string) Unfit {
	host := strings.TrimPrefix(key, ".")
	for i := range len(host) {
		if host[i] >= utf8.RuneSelf {
			return ForeignHost
		}
	}
	if address, found := strings.CutPrefix(host, "["); found {
		ip, err := netip.ParseAddr(strings.TrimSuffix(address, "]"))
		if err != nil || !ip.Is6() || ip.Zone() != "" || ip.Is4In6() || host != "["+ip.String()+"]" {
			return BadHost
		}
		return noDomain(key)
	}
	if host == "" || len(host) > maxHost {
		return BadHost
	}
	labels := strings.Split(host, ".")
	for _, label := range labels {
		if !isLabel(label) {
			return BadHost
		}
	}
	if last := labels[len(labels)-1]; isNumber(last) { // then all of it is an IPv4 address
		if _, err := netip.ParseAddr(host); err != nil {
			return BadHost
		}
		return noDomain(key)
	}
	return ""
}

func noDomain(key string) Unfit {
	if strings.HasPrefix(key, ".") {
		return AddressDomain
	}
	return ""
}

func isLabel(label string) bool {
	other := strings.IndexFunc(label, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
	})
	return label != "" && len(label) <= maxLabel && other < 0
}

// isNumber reports whether the last label of a host makes it an address.
func isNumber(label string) bool {
	digits := "0123456789"
	if hex, found := strings.CutPrefix(label, "0x"); found {
		label, digits = hex, "0123456789abcdef"
	}
	return strings.Trim(label, digits) == ""
}

// checkPath checks a path as Chromium writes it.
func checkPath(path string) Unfit {
	other := strings.IndexFunc(path, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune("\"#;<>?\\`{}", r)
	})
	if !strings.HasPrefix(path, "/") || other >= 0 || len(path) > maxCookiePath {
		return BadPath
	}
	for part := range strings.SplitSeq(path, "/") {
		switch strings.ReplaceAll(strings.ToLower(part), "%2e", ".") {
		case ".", "..":
			return BadPath
		}
	}
	return ""
}

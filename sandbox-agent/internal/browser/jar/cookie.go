package jar

import (
	"math"
	"net/url"
	"strconv"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"

	"github.com/fairlead/fairlead/protocol/seal"
)

// Param returns c as Storage.setCookies takes it. It was checked, see
// [seal.Cookie.Check].
//
// Only a member "domain" makes a domain cookie; one of a single host has a URL
// instead. Scheme and port are always said, as Chromium would take them from the
// scheme of the URL otherwise.
func Param(c seal.Cookie) *network.CookieParam {
	p := &network.CookieParam{
		Name: c.Name, Value: c.Value, Path: c.Path, Secure: c.Secure != 0, HTTPOnly: c.HTTPOnly != 0,
		SameSite: sameSite(c.SameSite), Priority: priority(c.Priority), SourceScheme: scheme(c.SourceScheme), SourcePort: port(c.SourcePort),
	}
	if !c.Session() {
		p.Expires = cdp.TimeSinceEpoch(float64(c.Expires.Time().UnixMicro()) / 1e6)
	}
	if c.Domain() {
		p.Domain = c.HostKey
	} else {
		p.URL = origin(c) + c.Path
	}
	return p
}

// Expired returns what has Chromium forget a cookie: the same one, of a time that is
// over.
func Expired(got *network.Cookie) *network.CookieParam {
	p := &network.CookieParam{
		Name: got.Name, Path: got.Path, Secure: got.Secure, HTTPOnly: got.HTTPOnly, Expires: 1,
		SourceScheme: got.SourceScheme, SourcePort: got.SourcePort,
	}
	c := seal.Cookie{HostKey: got.Domain, Path: got.Path}
	if got.Secure || got.SourceScheme == network.CookieSourceSchemeSecure {
		c.Secure = 1
	}
	if c.Domain() {
		p.Domain = got.Domain
	} else {
		p.URL = origin(c) + c.Path
	}
	return p
}

// Same reports whether Chromium has c as it is meant.
func Same(c seal.Cookie, got *network.Cookie) bool {
	return got.Domain == c.HostKey && got.Name == c.Name && got.Path == c.Path && got.Value == c.Value && got.Secure == (c.Secure != 0) && got.HTTPOnly == (c.HTTPOnly != 0) &&
		got.SameSite == sameSite(c.SameSite) && got.Session == c.Session()
}

// exact reports whether Chromium would have c no otherwise if it was set now.
func exact(c seal.Cookie, got *network.Cookie, now time.Time) bool {
	p := Param(c)
	return Same(c, got) && got.Priority == p.Priority && got.SourceScheme == p.SourceScheme && got.SourcePort == p.SourcePort &&
		(c.Session() || sameEnd(float64(p.Expires), got.Expires, now))
}

// sameEnd reports whether a cookie that is meant to end at one time ends there, both in
// seconds of Unix's: Chromium keeps none longer than 400 days.
func sameEnd(meant, is float64, now time.Time) bool {
	const second, longest = 1, 400 * 24 * time.Hour
	most := float64(now.Add(longest).Unix())
	return math.Abs(meant-is) <= second || meant > most && is > most-(24*time.Hour).Seconds() && is <= meant
}

func origin(c seal.Cookie) string {
	u := url.URL{Scheme: "http", Host: c.Host()}
	if c.Secure != 0 || c.SourceScheme == 2 {
		u.Scheme = "https"
	}
	if c.SourcePort > 0 && c.SourcePort <= math.MaxUint16 {
		u.Host += ":" + strconv.FormatInt(c.SourcePort, 10)
	}
	return u.String()
}

func sameSite(n int64) network.CookieSameSite {
	switch n {
	case 0:
		return network.CookieSameSiteNone
	case 1:
		return network.CookieSameSiteLax
	case 2:
		return network.CookieSameSiteStrict
	}
	return "" // not said
}

func priority(n int64) network.CookiePriority {
	switch n {
	case 0:
		return network.CookiePriorityLow
	case 2:
		return network.CookiePriorityHigh
	}
	return network.CookiePriorityMedium
}

func scheme(n int64) network.CookieSourceScheme {
	switch n {
	case 1:
		return network.CookieSourceSchemeNonSecure
	case 2:
		return network.CookieSourceSchemeSecure
	}
	return network.CookieSourceSchemeUnset
}

// port returns a port as the protocol has it: 0 would be taken for one that isn't
// said.
func port(n int64) int64 {
	if n <= 0 {
		return -1
	}
	return n
}

package jar

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/storage"

	"github.com/fairlead/fairlead/protocol/seal"
)

// A fake is a Chromium that has some cookies, and does what it is told.
type fake struct{ has, set []seal.Cookie }

func (f *fake) Call(_ context.Context, _ string, params, result any) error {
	if got, ok := result.(*storage.GetCookiesResult); ok {
		for _, c := range f.has {
			got.Cookies = append(got.Cookies, shown(c))
		}
		return nil
	}
	for _, p := range params.(storage.SetCookiesParams).Cookies {
		host := p.Domain
		if host == "" {
			host = "a.test" // the host of all URLs here
		}
		c := seal.Cookie{HostKey: host, Name: p.Name, Value: p.Value, Path: p.Path, Priority: 1, SameSite: -1, SourcePort: p.SourcePort}
		f.set = append(f.set, c)
		f.has = slices.DeleteFunc(f.has, func(old seal.Cookie) bool { return old.ID() == c.ID() })
		if p.Expires != 1 {
			f.has = append(f.has, c)
		}
	}
	return nil
}

// shown is how Chromium shows a cookie.
func shown(c seal.Cookie) *network.Cookie {
	p := Param(c)
	return &network.Cookie{
		Name: c.Name, Value: c.Value, Domain: c.HostKey, Path: c.Path, Expires: float64(p.Expires), Session: c.Session(), HTTPOnly: p.HTTPOnly,
		Secure: p.Secure, SameSite: p.SameSite, Priority: p.Priority, SourceScheme: p.SourceScheme, SourcePort: p.SourcePort,
	}
}

func brief(name, value string) seal.Cookie {
	return seal.Cookie{HostKey: "a.test", Name: name, Value: value, Path: "/", Priority: 1, SameSite: -1, SourcePort: -1}
}

// TestGive: a Chromium gets what it lacks, and what is pending unless it is there
// already; it keeps what a site has changed, and loses what is pending and not kept.
func TestGive(t *testing.T) {
	port := brief("port", "1")
	port.SourcePort = 80
	f := &fake{has: []seal.Cookie{brief("same", "1"), brief("older", "0"), brief("site's", "2"), brief("lost", "1"), brief("own", "1"), port}}
	kept := []seal.Cookie{brief("same", "1"), brief("older", "1"), brief("site's", "1"), brief("new", "1"), brief("port", "1"), brief("", "")}
	var pending Pending
	for _, name := range []string{"same", "older", "lost", "port", "never"} {
		pending = pending.And([]seal.CookieID{brief(name, "").ID()})
	}
	if refused, err := Give(t.Context(), f, kept, pending); err != nil || refused != 0 {
		t.Error(refused, err)
	}
	var has []string
	for _, c := range f.has {
		has = append(has, fmt.Sprint(c.Name, "=", c.Value, " ", c.SourcePort))
	}
	slices.Sort(has)
	if want := []string{"new=1 -1", "older=1 -1", "own=1 -1", "port=1 -1", "same=1 -1", "site's=2 -1"}; !slices.Equal(has, want) {
		t.Errorf("it has %q, want %q", has, want)
	}
	if len(f.set) != 4 {
		t.Errorf("set %v", f.set)
	}
	f.set = nil
	if _, err := Give(t.Context(), f, kept, pending); err != nil || len(f.set) != 0 {
		t.Errorf("a second time: set %v, %v", f.set, err)
	}
}

// TestExact: a cookie is there exactly if nothing of it is otherwise, but for the
// end of one that is to stay longer than Chromium keeps any.
func TestExact(t *testing.T) {
	now := time.Now()
	day := 24 * time.Hour
	lasting := func(d time.Duration) seal.Cookie {
		c := brief("n", "1")
		c.HasExpires, c.Persistent, c.Expires = 1, 1, seal.ToMicros(now.Add(d))
		return c
	}
	meant := lasting(10 * day)
	for what, c := range map[string]struct {
		meant  seal.Cookie
		change func(*seal.Cookie)
		want   bool
	}{
		"as it is":  {meant, func(*seal.Cookie) {}, true},
		"value":     {meant, func(c *seal.Cookie) { c.Value = "2" }, false},
		"secure":    {meant, func(c *seal.Cookie) { c.Secure = 1 }, false},
		"HttpOnly":  {meant, func(c *seal.Cookie) { c.HTTPOnly = 1 }, false},
		"SameSite":  {meant, func(c *seal.Cookie) { c.SameSite = 2 }, false},
		"priority":  {meant, func(c *seal.Cookie) { c.Priority = 2 }, false},
		"scheme":    {meant, func(c *seal.Cookie) { c.SourceScheme = 2 }, false},
		"port":      {meant, func(c *seal.Cookie) { c.SourcePort = 80 }, false},
		"end":       {meant, func(c *seal.Cookie) { c.Expires += 2_000_000 }, false},
		"no end":    {meant, func(c *seal.Cookie) { c.HasExpires = 0 }, false},
		"capped":    {lasting(500 * day), func(c *seal.Cookie) { c.Expires = lasting(400*day - time.Minute).Expires }, true},
		"too early": {lasting(500 * day), func(c *seal.Cookie) { c.Expires = lasting(300 * day).Expires }, false},
		"too late":  {lasting(10 * day), func(c *seal.Cookie) { c.Expires = lasting(400*day - time.Minute).Expires }, false},
	} {
		is := c.meant
		c.change(&is)
		if got := exact(c.meant, shown(is), now); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}

package seal_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol/seal"
)

// TestCookieCheck: each rule, on both sides of its boundary.
func TestCookieCheck(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, c := range map[string]struct {
		change func(*seal.Cookie)
		want   seal.Unfit // "": it can stand
	}{
		"as it is":                {func(*seal.Cookie) {}, ""},
		"a host alone":            {func(c *seal.Cookie) { c.HostKey = "a.example" }, ""},
		"punycode":                {func(c *seal.Cookie) { c.HostKey = ".xn--bcher-kva.example" }, ""},
		"one label":               {func(c *seal.Cookie) { c.HostKey = "localhost" }, ""},
		"an underscore":           {func(c *seal.Cookie) { c.HostKey = "a_b.example" }, ""},
		"an IPv4 address":         {func(c *seal.Cookie) { c.HostKey = "127.0.0.1" }, ""},
		"an IPv6 address":         {func(c *seal.Cookie) { c.HostKey = "[::1]" }, ""},
		"an address's subdomains": {func(c *seal.Cookie) { c.HostKey = ".127.0.0.1" }, seal.AddressDomain},
		"an IPv6 one's":           {func(c *seal.Cookie) { c.HostKey = ".[::1]" }, seal.AddressDomain},
		"half an address":         {func(c *seal.Cookie) { c.HostKey = "127.1" }, seal.BadHost},
		"a number":                {func(c *seal.Cookie) { c.HostKey = "a.0x7f" }, seal.BadHost},
		"an open bracket":         {func(c *seal.Cookie) { c.HostKey = "[::1" }, seal.BadHost},
		"a long IPv6 address":     {func(c *seal.Cookie) { c.HostKey = "[0:0:0:0:0:0:0:1]" }, seal.BadHost},
		"a zone":                  {func(c *seal.Cookie) { c.HostKey = "[fe80::1%eth0]" }, seal.BadHost},
		"no host":                 {func(c *seal.Cookie) { c.HostKey = "" }, seal.BadHost},
		"a dot":                   {func(c *seal.Cookie) { c.HostKey = "." }, seal.BadHost},
		"two dots":                {func(c *seal.Cookie) { c.HostKey = ".." }, seal.BadHost},
		"two dots inside":         {func(c *seal.Cookie) { c.HostKey = "a..example" }, seal.BadHost},
		"a dot at the end":        {func(c *seal.Cookie) { c.HostKey = "a.example." }, seal.BadHost},
		"upper case":              {func(c *seal.Cookie) { c.HostKey = "A.example" }, seal.BadHost},
		"a port":                  {func(c *seal.Cookie) { c.HostKey = "a.example:80" }, seal.BadHost},
		"a slash":                 {func(c *seal.Cookie) { c.HostKey = "a.example/x" }, seal.BadHost},
		"NUL in the host":         {func(c *seal.Cookie) { c.HostKey = "a\x00.example" }, seal.BadHost},
		"an IDN":                  {func(c *seal.Cookie) { c.HostKey = "bücher.example" }, seal.ForeignHost},
		"63 bytes":                {func(c *seal.Cookie) { c.HostKey = strings.Repeat("a", 63) + ".example" }, ""},
		"64 bytes":                {func(c *seal.Cookie) { c.HostKey = strings.Repeat("a", 64) + ".example" }, seal.BadHost},
		"253 bytes":               {func(c *seal.Cookie) { c.HostKey = "." + strings.Repeat("a.", 126) + "a" }, ""},
		"255 bytes":               {func(c *seal.Cookie) { c.HostKey = "." + strings.Repeat("a.", 127) + "a" }, seal.BadHost},

		"a path":             {func(c *seal.Cookie) { c.Path = "/a/b..c/%20" }, ""},
		"no path":            {func(c *seal.Cookie) { c.Path = "" }, seal.BadPath},
		"half a path":        {func(c *seal.Cookie) { c.Path = "a" }, seal.BadPath},
		"a path that climbs": {func(c *seal.Cookie) { c.Path = "/a/%2E./b" }, seal.BadPath},
		"; in the path":      {func(c *seal.Cookie) { c.Path = "/;x" }, seal.BadPath},
		"newline in it":      {func(c *seal.Cookie) { c.Path = "/\n" }, seal.BadPath},
		"1024 bytes of path": {func(c *seal.Cookie) { c.Path = "/" + strings.Repeat("a", 1023) }, ""},
		"1025 bytes":         {func(c *seal.Cookie) { c.Path = "/" + strings.Repeat("a", 1024) }, seal.BadPath},

		"no name":                    {func(c *seal.Cookie) { c.Name = "" }, ""},
		"no value":                   {func(c *seal.Cookie) { c.Value = "" }, ""},
		"neither":                    {func(c *seal.Cookie) { c.Name, c.Value = "", "" }, seal.Nameless},
		"4096 bytes":                 {func(c *seal.Cookie) { c.Value = strings.Repeat("x", 4095) }, ""},
		"4097 bytes":                 {func(c *seal.Cookie) { c.Value = strings.Repeat("x", 4096) }, seal.TooLong},
		"= in the name":              {func(c *seal.Cookie) { c.Name = "a=b" }, seal.BadName},
		"= in a value alone":         {func(c *seal.Cookie) { c.Name, c.Value = "", "a=b" }, seal.BadValue},
		"= in a value":               {func(c *seal.Cookie) { c.Value = "a=b" }, ""},
		"; in the name":              {func(c *seal.Cookie) { c.Name = "a;" }, seal.BadName},
		"; in the value":             {func(c *seal.Cookie) { c.Value = "a;b" }, seal.BadValue},
		"NUL in the value":           {func(c *seal.Cookie) { c.Value = "a\x00b" }, seal.BadValue},
		"DEL in the name":            {func(c *seal.Cookie) { c.Name = "a\x7f" }, seal.BadName},
		"a tab inside":               {func(c *seal.Cookie) { c.Value = "a\tb" }, ""},
		"a space at the end":         {func(c *seal.Cookie) { c.Value = "a " }, seal.BadValue},
		"a space before":             {func(c *seal.Cookie) { c.Name = " a" }, seal.BadName},
		"UTF-8":                      {func(c *seal.Cookie) { c.Value = "ä✓" }, ""},
		"no UTF-8":                   {func(c *seal.Cookie) { c.Value = "\xff" }, seal.BadValue},
		"a value like a __Host- one": {func(c *seal.Cookie) { c.Name, c.Value = "", "__HOST-a" }, seal.HiddenPrefix},

		"__Host-":                    {func(c *seal.Cookie) { c.Name, c.HostKey = "__Host-a", "a.example" }, ""},
		"__Host- of a domain":        {func(c *seal.Cookie) { c.Name = "__Host-a" }, seal.NeedsHost},
		"__host- of a domain":        {func(c *seal.Cookie) { c.Name = "__host-a" }, seal.NeedsHost},
		"__Host- of a path":          {func(c *seal.Cookie) { c.Name, c.HostKey, c.Path = "__Host-a", "a.example", "/p" }, seal.NeedsHost},
		"__Host-, not secure":        {func(c *seal.Cookie) { c.Name, c.HostKey, c.Secure = "__Host-a", "a.example", 0 }, seal.NeedsHost},
		"__Secure-":                  {func(c *seal.Cookie) { c.Name = "__Secure-a" }, ""},
		"__Secure-, not secure":      {func(c *seal.Cookie) { c.Name, c.Secure = "__Secure-a", 0 }, seal.NeedsSecure},
		"__Http-":                    {func(c *seal.Cookie) { c.Name, c.HTTPOnly = "__Http-a", 1 }, ""},
		"__Http-, not HttpOnly":      {func(c *seal.Cookie) { c.Name = "__Http-a" }, seal.NeedsHTTP},
		"__Host-Http-, not HttpOnly": {func(c *seal.Cookie) { c.Name, c.HostKey = "__Host-Http-a", "a.example" }, seal.NeedsHTTP},
		"SameSite=None":              {func(c *seal.Cookie) { c.SameSite = 0 }, ""},
		"SameSite=None, not secure":  {func(c *seal.Cookie) { c.SameSite, c.Secure = 0, 0 }, seal.NeedsNone},
		"SameSite not said":          {func(c *seal.Cookie) { c.SameSite, c.Secure = -1, 0 }, ""},

		"SameSite 3":   {func(c *seal.Cookie) { c.SameSite = 3 }, seal.OutOfRange},
		"SameSite -2":  {func(c *seal.Cookie) { c.SameSite = -2 }, seal.OutOfRange},
		"secure 2":     {func(c *seal.Cookie) { c.Secure = 2 }, seal.OutOfRange},
		"HttpOnly -1":  {func(c *seal.Cookie) { c.HTTPOnly = -1 }, seal.OutOfRange},
		"priority 3":   {func(c *seal.Cookie) { c.Priority = 3 }, seal.OutOfRange},
		"scheme 3":     {func(c *seal.Cookie) { c.SourceScheme = 3 }, seal.OutOfRange},
		"port -1":      {func(c *seal.Cookie) { c.SourcePort = -1 }, ""},
		"port -2":      {func(c *seal.Cookie) { c.SourcePort = -2 }, seal.OutOfRange},
		"port 65535":   {func(c *seal.Cookie) { c.SourcePort = 65535 }, ""},
		"port 65536":   {func(c *seal.Cookie) { c.SourcePort = 65536 }, seal.OutOfRange},
		"expires now":  {func(c *seal.Cookie) { c.Expires = seal.ToMicros(now) }, seal.Expired},
		"expires soon": {func(c *seal.Cookie) { c.Expires = seal.ToMicros(now) + 1 }, ""},
		"long ago":     {func(c *seal.Cookie) { c.Expires = -1 }, seal.Expired},
		"a session's":  {func(c *seal.Cookie) { c.Expires, c.HasExpires = 0, 0 }, ""},
	} {
		cookie := seal.Cookie{
			HostKey: ".a.example", Name: "n", Value: "v", Path: "/", Secure: 1, HasExpires: 1, Persistent: 1, Priority: 1, SameSite: 1,
			SourceScheme: 2, SourcePort: 443, Expires: seal.ToMicros(now.Add(time.Hour)),
		}
		c.change(&cookie)
		if got := fmt.Sprint(cookie.Check(now)); got != string(c.want) && (c.want != "" || got != "<nil>") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// FuzzCookieCheck: what can't stand is never repeated, nor does it break anything.
func FuzzCookieCheck(f *testing.F) {
	f.Add(".a.example", "__Host-n", "v", "/")
	f.Add("[::1]", "", "__http-", "/%2e")
	f.Fuzz(func(t *testing.T, host, name, value, path string) {
		c := seal.Cookie{HostKey: host, Name: name, Value: value, Path: path}
		if err := c.Check(time.Unix(0, 0)); err != nil {
			if _, ours := err.(seal.Unfit); !ours {
				t.Errorf("%T", err)
			}
		} else if c.Host() == "" || strings.ContainsAny(host+name+value+path, "\x00\r\n;") || !strings.HasPrefix(path, "/") {
			t.Errorf("%+v can't stand", c)
		}
	})
}

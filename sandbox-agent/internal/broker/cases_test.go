package broker

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/outbound"
)

// TestCase62Redirects: the key never follows a redirect to elsewhere.
func TestCase62Redirects(t *testing.T) {
	var location string
	hits := 0
	s := withUpstream(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits++
		w.Header().Set("Location", location)
		w.WriteHeader(http.StatusTemporaryRedirect)
	}), nil)
	all := env(t, s, sid, pid)
	for _, c := range []struct{ location, want string }{
		{"https://evil.example/v1/x", ""},
		{"https://api.openai.com:8443/v1/x", ""},
		{"http://api.openai.com/v1/x", ""},
		{"http://api.openai.com:443/v1/x", ""},
		{"//evil.example/v1/x", ""},
		{"https://api.openai.com@evil.example/v1/x", ""},
		{"https://u:p@api.openai.com/v1/x", ""},
		{"https:\\\\evil.example/", ""},
		{"javascript:alert(1)", ""},
		{"/outside/of/the/api", ""},
		{"/v1/../../x", ""},
		{"https://127.0.0.1/v1/x", ""},
		{"https://api.openai.com./v1/y?a=b", "/y?a=b"},
		{"https://API.openai.com/v1/y", "/y"},
		{"/v1/y?a=b#c", "/y?a=b"},
		{"y", "/y"},
	} {
		location, hits = c.location, 0
		got := do(t, "POST", all["OPENAI_BASE_URL"]+"/x", "body", nil)
		if c.want == "" {
			if got.status != http.StatusBadGateway || got.reason() != reasonRedirect || got.header.Get("Location") != "" {
				t.Errorf("%s: %d %s, Location %q", c.location, got.status, got.body, got.header.Get("Location"))
			}
		} else if got.status != http.StatusTemporaryRedirect || got.header.Get("Location") != all["OPENAI_BASE_URL"]+c.want {
			t.Errorf("%s: %d, Location %q", c.location, got.status, got.header.Get("Location"))
		}
		if hits != 1 {
			t.Errorf("%s: asked %d times", c.location, hits)
		}
	}
	if err := s.ApproveDomain(sid, protocol.ApprovedDomain{Secret: "MY_KEY", Domain: customHost}); err != nil {
		t.Fatal(err)
	}
	location = "/next?a=b c"
	got := do(t, "GET", all["MY_KEY_BROKER"]+"?target=https://"+customHost+"/first", "", nil)
	if want := all["MY_KEY_BROKER"] + "?target=https%3A%2F%2Fapi.example.com%2Fnext%3Fa%3Db"; got.status != 307 || !strings.HasPrefix(got.header.Get("Location"), want) {
		t.Logf("space in a query: %d %s", got.status, got.header.Get("Location")) // refused is as good
	}
	location = "/next?a=b"
	got = do(t, "GET", all["MY_KEY_BROKER"]+"?target=https://"+customHost+"/first", "", nil)
	if want := all["MY_KEY_BROKER"] + "?target=https%3A%2F%2Fapi.example.com%2Fnext%3Fa%3Db"; got.header.Get("Location") != want {
		t.Errorf("custom: %d %s", got.status, got.header.Get("Location"))
	}
}

// resolver answers every name with one address.
type resolver string

func (r resolver) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr(string(r))}, nil
}

func TestCase63Rebinding(t *testing.T) {
	for _, addr := range []string{"127.0.0.1", "169.254.169.254", "10.0.0.1", "::ffff:127.0.0.1", "fd00:ec2::254"} {
		s := start(t, Options{Dialer: &outbound.Dialer{Resolver: resolver(addr)}})
		s.PutSecret(sid, "", "OPENAI_API_KEY", realKey)
		got := do(t, "GET", env(t, s, sid, pid)["OPENAI_BASE_URL"]+"/models", "", nil)
		if got.status != http.StatusForbidden || got.reason() != reasonHost {
			t.Errorf("%s: %d %s", addr, got.status, got.body)
		}
	}
}

func TestCase64Spellings(t *testing.T) {
	asked := 0
	s := start(t, Options{Asker: asker(func(protocol.SessionID, protocol.PTYID, string, string) { asked++ })})
	s.PutSecret(sid, "", "MY_KEY", customKey)
	url := env(t, s, sid, pid)["MY_KEY_BROKER"]
	for _, host := range []string{
		"[::ffff:127.0.0.1]", "127.1", "0x7f.1", "0177.0.0.1", "2130706433", "localhost", "localhost.", "LOCALHOST", "a.localhost",
		"127.0.0.1", "[::1]", "[::]", "0.0.0.0", "0", "169.254.169.254", "[fd00:ec2::254]", "10.0.0.1", "[64:ff9b::7f00:1]",
		"[2002:7f00:1::]", "127.0.0.1.", "１２７.0.0.1", "100.100.100.200",
	} {
		for _, port := range []string{"", ":443", ":22"} {
			got := do(t, "GET", url+"?target="+queryEscape("https://"+host+port+"/"), "", nil)
			if got.status != http.StatusForbidden || got.reason() != reasonHost {
				t.Errorf("%s%s: %d %s", host, port, got.status, got.body)
			}
		}
	}
	if asked != 0 {
		t.Errorf("asked for %d of them", asked)
	}
}

func queryEscape(text string) string {
	return strings.NewReplacer(":", "%3A", "/", "%2F", "[", "%5B", "]", "%5D", "@", "%40", "\\", "%5C", "#", "%23", " ", "%20", "１", "%EF%BC%91", "２", "%EF%BC%92", "７", "%EF%BC%97").Replace(text)
}

func TestCase65ParsedOnce(t *testing.T) {
	s := withUpstream(t, echo, nil)
	all := env(t, s, sid, pid)
	path := strings.TrimPrefix(all["OPENAI_BASE_URL"], fmt.Sprintf("http://127.0.0.1:%d", s.Port()))
	for _, rest := range []string{
		"/../x", "/..", "/a/../../x", "/.", "/%2e%2e/x", "/%2E./x", "/a%2f..%2fx", "/%2f..", "/a%5c..%5cx", "/a\\..\\x", "/a\\x",
		"/%252e%252e/x", "/..;/x", "/a%3fb", "/a%3Fb", "/a%23b", "/a%00b", "/a%0d%0aX-Evil:%20x", "/a%zz", "/a%",
		"/good@evil/x", "@evil/x", "//evil/x", "/a\"b", "/a|b", "/é",
	} {
		got := raw(t, s, "GET "+path+rest+" HTTP/1.1\r\nHost: 127.0.0.1:"+fmt.Sprint(s.Port())+"\r\n\r\n")
		if got.status != http.StatusBadRequest && got.status != http.StatusNotFound {
			t.Errorf("%s: %d %s", rest, got.status, got.body)
		}
	}
	for _, rest := range []string{"/a%20b", "/models/org%2Fname", "/a:b", "/a..b", "/...", "/a;b=c", "/%E2%82%AC", "/a//b", "/a/", "/100%25", "/(a)'b'!*,$&+="} {
		got := raw(t, s, "GET "+path+rest+"?q=%2e%2E/..&r={a|b} HTTP/1.1\r\nHost: 127.0.0.1:"+fmt.Sprint(s.Port())+"\r\n\r\n")
		_, body, _ := strings.Cut(got.body, "GET ")
		if got.status != http.StatusOK {
			t.Errorf("%s: %d %s", rest, got.status, body)
		}
		if got := do(t, "GET", all["OPENAI_BASE_URL"]+rest+"?q=%2e%2E/..", "", nil); !strings.HasPrefix(got.body, "GET api.openai.com/v1"+rest+"?q=%2e%2E/..\n") {
			t.Errorf("%s went as %s", rest, got.body)
		}
	}
	if err := s.ApproveDomain(sid, protocol.ApprovedDomain{Secret: "MY_KEY", Domain: customHost}); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{
		"https://good@evil.example/", "https://api.example.com@evil.example/", "https://u:p@api.example.com/", "https://api.example.com\\@evil.example/",
		"https:/api.example.com/", "https:api.example.com", "//api.example.com/", "ftp://api.example.com/", "https://", "https:///x",
		"https://api.example.com:443abc/", "https://api.example.com:-1/", "https://api.example.com:70000/", "https://api.example.com:0/",
		"https://api.example.com#@evil.example/", "https://api example.com/", "https://api.example.com/../x", "https://api.example.com/a%2f..%2fx",
		"https://api.example.com/%3f", "http://api.example.com/", "https://..example.com/", "https://api.example.com/\r\nX: y", "https://[::1/", "HTTPS",
	} {
		got := do(t, "GET", all["MY_KEY_BROKER"]+"?target="+percentAll(target), "", nil)
		if got.status != http.StatusBadRequest || got.reason() != reasonInvalidTarget {
			t.Errorf("%q: %d %s", target, got.status, got.body)
		}
	}
	for query, want := range map[string]string{
		"":                                       "missing_target",
		"?target=":                               "missing_target",
		"?other=x":                               "missing_target",
		"?target=https://a&target=https://b":     "invalid_target",
		"?target=%zz":                            "invalid_target",
		"/more?target=https://api.example.com/x": "invalid_path",
	} {
		if got := do(t, "GET", all["MY_KEY_BROKER"]+query, "", nil); string(got.reason()) != want || got.status != 400 {
			t.Errorf("%s: %d %s", query, got.status, got.body)
		}
	}
}

// percentAll escapes every byte.
func percentAll(text string) string {
	var b strings.Builder
	for i := range len(text) {
		fmt.Fprintf(&b, "%%%02X", text[i])
	}
	return b.String()
}

func TestCase66Smuggling(t *testing.T) {
	s := withUpstream(t, echo, nil)
	url := env(t, s, sid, pid)["OPENAI_BASE_URL"]
	host := fmt.Sprintf("127.0.0.1:%d", s.Port())
	path := strings.TrimPrefix(url, "http://"+host) + "/x"
	head := "POST " + path + " HTTP/1.1\r\nHost: " + host + "\r\n"
	for name, rest := range map[string]string{
		"CL and TE":            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"TE and CL":            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
		"CL twice":             "Content-Length: 1\r\nContent-Length: 1\r\n\r\na",
		"CL twice, otherwise":  "Content-Length: 1\r\ncontent-length: 2\r\n\r\nab",
		"TE twice":             "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"TE unknown":           "Transfer-Encoding: xchunked\r\n\r\n",
		"a header goes on":     "X-A: b\r\n Content-Length: 5\r\n\r\n",
		"space before colon":   "Content-Length : 1\r\n\r\na",
		"CR in a header":       "X-A: b\rContent-Length: 5\r\n\r\n",
		"NUL in a header":      "X-A: b\x00c\r\n\r\n",
		"two hosts":            "Host: evil.example\r\n\r\n",
		"CL negative":          "Content-Length: -1\r\n\r\n",
		"CL with a plus":       "Content-Length: +1\r\n\r\na",
		"bare LF, CL and TE":   "Content-Length: 5\nTransfer-Encoding: chunked\n\n0\n\n",
		"CL, chunked in parts": "Content-Length: 5\r\nTransfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n",
	} {
		if got := raw(t, s, head+rest); got.status != http.StatusBadRequest && got.status != http.StatusNotImplemented {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	// A second request on the connection is never looked at.
	two := "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
	conn, err := net.Dial("tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, two+two)
	data, _ := io.ReadAll(conn)
	if n := strings.Count(string(data), "HTTP/1.1 200"); n != 1 {
		t.Errorf("%d answers on one connection", n)
	}
	got := do(t, "POST", url+"/x", "body", http.Header{
		"Connection": {"X-Drop, X-Api-Key"}, "X-Drop": {"a"}, "X-Api-Key": {"mine"}, "X_api_key": {"mine"}, "Xi-Api-Key": {"mine"},
		"X-Goog-Api-Key": {"mine"}, "Api-Key": {"mine"}, "Authorization": {"Bearer mine"}, "Proxy-Authorization": {"Basic mine"},
		"Cookie": {"mine=1"}, "Keep-Alive": {"1"}, "Te": {"trailers"}, "Upgrade": {"h2c"}, "Forwarded": {"for=mine"}, "X-Forwarded-For": {"mine"},
		"Referer": {"http://" + host + "/mine"}, "X-Note": {"[BROKERED]OPENAI_API_KEY mine"}, "X-Keep": {"kept"}, "Accept-Encoding": {"gzip"},
	})
	if strings.Contains(got.body, "mine") || strings.Contains(got.body, "X-Drop") || strings.Contains(got.body, "Te:") || strings.Contains(got.body, "Upgrade") {
		t.Errorf("went upstream:\n%s", got.body)
	}
	if !strings.Contains(got.body, "X-Keep: kept\n") || !strings.Contains(got.body, "Accept-Encoding: identity\n") || !strings.Contains(got.body, "Authorization: Bearer "+realKey+"\n") {
		t.Errorf("went upstream:\n%s", got.body)
	}
}

// TestConnectionCantNameTheKey: a client must not make the key hop-by-hop.
func TestConnectionCantNameTheKey(t *testing.T) {
	s := withUpstream(t, echo, nil)
	got := do(t, "POST", env(t, s, sid, pid)["ANTHROPIC_BASE_URL"]+"/x", "", http.Header{"Connection": {"X-Api-Key, close"}})
	if !strings.Contains(got.body, "X-Api-Key: "+realKey+"\n") || strings.Contains(got.body, "Connection") {
		t.Errorf("went upstream:\n%s", got.body)
	}
}

func TestCase67Connect(t *testing.T) {
	s := withUpstream(t, echo, nil)
	host := fmt.Sprintf("127.0.0.1:%d", s.Port())
	for _, line := range []string{"CONNECT 10.0.0.1:22", "CONNECT " + host, "TRACE /broker/x/openai/y"} {
		if got := raw(t, s, line+" HTTP/1.1\r\nHost: "+host+"\r\n\r\n"); got.status != http.StatusForbidden {
			t.Errorf("%s: %d %s", line, got.status, got.body)
		}
	}
	for _, line := range []string{"GET http://10.0.0.1/", "GET http://" + host + "/broker/x", "OPTIONS *", "GET /", "GET /broker", "GET /broker/"} {
		if got := raw(t, s, line+" HTTP/1.1\r\nHost: "+host+"\r\n\r\n"); got.status != 400 && got.status != 403 {
			t.Errorf("%s: %d %s", line, got.status, got.body)
		}
	}
}

func TestCase68WrongCapability(t *testing.T) {
	s := withUpstream(t, echo, nil)
	s.PutSecret(otherSID, "", "MISTRAL_API_KEY", "the-other-session")
	s.PutSecret(sid, otherPID, "COHERE_API_KEY", "the-other-terminal")
	s.PutSecret(sid, otherPID, "PTY_KEY", "the-other-terminal")
	mine, other := env(t, s, sid, pid), env(t, s, otherSID, otherPID)
	base := fmt.Sprintf("http://127.0.0.1:%d/broker/", s.Port())
	for _, capability := range []string{"x", string(sid), strings.Repeat("a", 26), ""} {
		if got := do(t, "GET", base+capability+"/openai/models", "", nil); got.status != 403 || got.reason() != reasonCapability {
			t.Errorf("%q: %d %s", capability, got.status, got.body)
		}
	}
	// Another session has its own secrets and none of ours.
	if got := do(t, "GET", other["OPENAI_BASE_URL"]+"/models", "", nil); got.status != 404 || got.reason() != reasonProvider {
		t.Errorf("other session: %d %s", got.status, got.body)
	}
	if got := do(t, "GET", other["MY_KEY_BROKER"]+"?target=https://api.example.com/", "", nil); got.status != 404 || got.reason() != reasonSecret {
		t.Errorf("other session, custom: %d %s", got.status, got.body)
	}
	if got := do(t, "GET", other["MISTRAL_BASE_URL"]+"/models", "", nil); !strings.Contains(got.body, "the-other-session") {
		t.Errorf("other session's own: %d %s", got.status, got.body)
	}
	// A terminal's own secret goes before the session's, for that terminal.
	if got := do(t, "GET", mine["COHERE_BASE_URL"]+"/models", "", nil); !strings.Contains(got.body, realKey) {
		t.Errorf("session's: %d %s", got.status, got.body)
	}
	if got := do(t, "GET", env(t, s, sid, otherPID)["COHERE_BASE_URL"]+"/models", "", nil); !strings.Contains(got.body, "the-other-terminal") {
		t.Errorf("terminal's own: %d %s", got.status, got.body)
	}
	if got := do(t, "GET", strings.Replace(mine["MY_KEY_BROKER"], "MY_KEY", "PTY_KEY", 1)+"?target=https://api.example.com/", "", nil); got.reason() != reasonSecret {
		t.Errorf("another terminal's: %d %s", got.status, got.body)
	}
	s.EndTerminal(sid, pid)
	if got := do(t, "GET", mine["OPENAI_BASE_URL"]+"/models", "", nil); got.status != 403 || got.reason() != reasonCapability {
		t.Errorf("after its end: %d %s", got.status, got.body)
	}
	s.EndSession(otherSID)
	if got := do(t, "GET", other["MISTRAL_BASE_URL"]+"/models", "", nil); got.status != 403 {
		t.Errorf("after the session: %d %s", got.status, got.body)
	}
	s.RemoveSecret(sid, "", "OPENAI_API_KEY")
	if got := do(t, "GET", env(t, s, sid, pid)["OPENAI_BASE_URL"]+"/models", "", nil); got.reason() != reasonProvider {
		t.Errorf("after removal: %d %s", got.status, got.body)
	}
}

// TestCase69Echo: what comes back never holds the key.
func TestCase69Echo(t *testing.T) {
	s := withUpstream(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("X-Api-Key")
		h := w.Header()
		h.Set("X-Api-Key", key)
		h.Set("Authorization", "Bearer "+key)
		h.Set("Set-Cookie", "a="+key)
		h.Set("X-Echo", "it was "+key+".")
		h.Set("Content-Length", fmt.Sprint(len(key)+2))
		control := http.NewResponseController(w)
		io.WriteString(w, "<")
		for i := range len(key) {
			io.WriteString(w, key[i:i+1])
			control.Flush()
		}
		io.WriteString(w, ">")
	}), func(o *Options) { o.Masker = newStars(realKey) })
	got := do(t, "GET", env(t, s, sid, pid)["ANTHROPIC_BASE_URL"]+"/x", "", nil)
	hidden := strings.Repeat("*", len(realKey))
	if got.status != 200 || got.body != "<"+hidden+">" || got.header.Get("X-Echo") != "it was "+hidden+"." {
		t.Errorf("%d %q, %v", got.status, got.body, got.header)
	}
	for _, name := range []string{"X-Api-Key", "Authorization", "Set-Cookie"} {
		if got.header.Get(name) != "" {
			t.Errorf("%s came back", name)
		}
	}
}

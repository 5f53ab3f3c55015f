package broker

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/hostname"
	"github.com/fairlead/fairlead/sandbox-agent/internal/outbound"
)

// An asker is asked about secrets.
type asker func(session protocol.SessionID, pty protocol.PTYID, secret, domain string)

func (f asker) AskSecret(session protocol.SessionID, pty protocol.PTYID, secret, domain string) {
	f(session, pty, secret, domain)
}

func TestDomainApproval(t *testing.T) {
	var asked []string
	s := withUpstream(t, echo, func(o *Options) {
		o.Asker = asker(func(session protocol.SessionID, pty protocol.PTYID, secret, domain string) {
			asked = append(asked, fmt.Sprintf("%s %s %s %s", session, pty, secret, domain))
		})
	})
	url := env(t, s, sid, pid)["MY_KEY_BROKER"]
	get := func(target string) answered { return do(t, "POST", url+"?target="+percentAll(target), "body", nil) }
	got := get("https://API.example.com./v1/chat?a=b")
	want := `{"error":"domain_approval_required","domain":"api.example.com","secret":"MY_KEY","message":"This domain requires owner approval before the secret can be sent."}`
	if got.status != 403 || got.body != want || got.header.Get("Content-Type") != "application/json" {
		t.Errorf("%d %s %v", got.status, got.body, got.header)
	}
	if !slices.Equal(asked, []string{"ses_a pty_a MY_KEY api.example.com"}) {
		t.Errorf("asked %q", asked)
	}
	decide := func(domain string, d protocol.Decision) {
		t.Helper()
		if err := s.Decide(sid, "MY_KEY", domain, d); err != nil {
			t.Fatal(err)
		}
	}
	decide("api.example.com", protocol.AllowOnce)
	if got := get("https://api.example.com/v1/chat?a=b"); got.status != 200 ||
		!strings.HasPrefix(got.body, "POST api.example.com/v1/chat?a=b\n") || !strings.Contains(got.body, "Authorization: Bearer "+customKey+"\n") {
		t.Errorf("once: %d %s", got.status, got.body)
	}
	if got := get("https://api.example.com/"); got.reason() != reasonApproval {
		t.Errorf("a second time: %d %s", got.status, got.body)
	}
	decide("api.example.com", protocol.Deny)
	if got := get("https://api.example.com/"); got.reason() != reasonApproval {
		t.Errorf("denied once: %d %s", got.status, got.body)
	}
	decide("api.example.com", protocol.AllowAlways)
	decide("api.example.com", protocol.AllowOnce) // takes nothing away
	for range 2 {
		if got := get("https://api.example.com/"); got.status != 200 {
			t.Errorf("always: %d %s", got.status, got.body)
		}
	}
	// Another host, port, secret or session is another decision.
	s.PutSecret(sid, "", "OTHER_KEY", customKey)
	s.PutSecret(otherSID, "", "MY_KEY", customKey)
	for _, target := range []string{"https://x.api.example.com/", "https://example.com/", "https://api.example.com:8443/"} {
		if got := get(target); got.reason() != reasonApproval {
			t.Errorf("%s: %d %s", target, got.status, got.body)
		}
	}
	if got := do(t, "GET", strings.Replace(url, "MY_KEY", "OTHER_KEY", 1)+"?target=https://api.example.com/", "", nil); got.reason() != reasonApproval {
		t.Errorf("another secret: %d %s", got.status, got.body)
	}
	if got := do(t, "GET", env(t, s, otherSID, pid)["MY_KEY_BROKER"]+"?target=https://api.example.com/", "", nil); got.reason() != reasonApproval {
		t.Errorf("another session: %d %s", got.status, got.body)
	}
	if got := s.Domains(sid, "MY_KEY"); !slices.Equal(got, []string{"api.example.com"}) {
		t.Errorf("domains %q", got)
	}
	decide("api.example.com", protocol.DenyAlways)
	before := len(asked)
	if got := get("https://api.example.com/"); got.status != 403 || got.reason() != reasonDenied {
		t.Errorf("denied for good: %d %s", got.status, got.body)
	}
	if len(asked) != before {
		t.Error("asked though it was denied for good")
	}
	if err := s.RevokeDomain(sid, "MY_KEY", "API.example.com:443"); err != nil {
		t.Fatal(err)
	}
	if got := get("https://api.example.com/"); got.reason() != reasonApproval {
		t.Errorf("revoked: %d %s", got.status, got.body)
	}
	if err := s.Decide(sid, "MY_KEY", "a b", protocol.AllowAlways); protocol.KindOf(err) != protocol.KindInvalid {
		t.Errorf("no domain: %v", err)
	}
}

func TestDomainHeader(t *testing.T) {
	s := withUpstream(t, echo, nil)
	url := env(t, s, sid, pid)["MY_KEY_BROKER"]
	approve := func(d protocol.ApprovedDomain) error {
		d.Secret, d.Domain = "MY_KEY", "api.example.com"
		return s.ApproveDomain(sid, d)
	}
	for _, c := range []struct{ name, format, want string }{
		{"", "", "Authorization: Bearer " + customKey},
		{"X-Custom", "%s", "X-Custom: " + customKey},
		{"x-api-key", "key=%s;v=1", "X-Api-Key: key=" + customKey + ";v=1"},
		{"", "Token %s", "Authorization: Token " + customKey},
	} {
		if err := approve(protocol.ApprovedDomain{HeaderName: c.name, HeaderFormat: c.format}); err != nil {
			t.Fatal(err)
		}
		got := do(t, "GET", url+"?target=https://api.example.com/&key=kept&a=%5BBROKERED%5DMY_KEY", "", http.Header{"X-Custom": {"mine"}, "X_custom": {"mine"}})
		if !strings.Contains(got.body, c.want+"\n") || c.name == "X-Custom" && strings.Contains(got.body, "mine") {
			t.Errorf("%+v: %s", c, got.body)
		}
		if !strings.HasPrefix(got.body, "GET api.example.com/?key=kept\n") {
			t.Errorf("query: %s", got.body)
		}
	}
	// A decision that comes late leaves the header as it is.
	if err := approve(protocol.ApprovedDomain{HeaderName: "X-Custom", HeaderFormat: "%s"}); err != nil {
		t.Fatal(err)
	}
	for _, d := range []protocol.Decision{protocol.AllowAlways, protocol.AllowOnce} {
		if err := s.Decide(sid, "MY_KEY", "api.example.com", d); err != nil {
			t.Fatal(err)
		}
		if got := do(t, "GET", url+"?target=https://api.example.com/", "", nil); !strings.Contains(got.body, "X-Custom: "+customKey+"\n") {
			t.Errorf("after %s: %s", d, got.body)
		}
	}
	for _, c := range []struct{ name, format string }{
		{"Host", "%s"}, {"Connection", "%s"}, {"Transfer-Encoding", "%s"}, {"content-length", "%s"}, {"X Y", "%s"}, {"X:", "%s"},
		{"X", "%s\r\nY: z"}, {"X", "%s%s"}, {"X", "%d"}, {"X", "none"}, {strings.Repeat("x", 200), "%s"},
	} {
		d := protocol.ApprovedDomain{Secret: "MY_KEY", Domain: "api.example.com", HeaderName: c.name, HeaderFormat: c.format}
		if protocol.KindOf(s.ApproveDomain(sid, d)) != protocol.KindInvalid || protocol.KindOf(s.CheckDomain(d)) != protocol.KindInvalid {
			t.Errorf("%+v was taken", c)
		}
	}
}

func TestDomainsAreBounded(t *testing.T) {
	r := newRegistry("")
	for i := range maxDomains {
		if err := r.Decide(sid, "A", fmt.Sprintf("h%d.example.com", i), protocol.DenyAlways); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Decide(sid, "A", "one.more.example.com", protocol.DenyAlways); protocol.KindOf(err) != protocol.KindTooMany {
		t.Error(err)
	}
	if err := r.Decide(sid, "A", "h1.example.com", protocol.AllowAlways); err != nil {
		t.Errorf("one that is known: %v", err)
	}
}

func TestAllowOnceExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry("")
		if err := r.Decide(sid, "A", "a.example.com", protocol.AllowOnce); err != nil {
			t.Fatal(err)
		}
		time.Sleep(protocol.BrokerTTL + time.Millisecond)
		if r.permission(sid, "A", "a.example.com") != nil {
			t.Error("allowed after its time")
		}
	})
}

func TestInsecure(t *testing.T) {
	l := plainUpstream(t, echo)
	static := outbound.Static{
		hostname.Host{Name: "plain.example.com"}:               l,
		hostname.Host{Name: "far.example.com"}:                 netip.MustParseAddrPort("10.0.0.1:80"),
		hostname.Host{IP: netip.MustParseAddr("203.0.113.10")}: l,
	}
	for _, insecure := range []bool{false, true} {
		s := start(t, Options{Dialer: &outbound.Dialer{Static: static}, Insecure: insecure})
		s.PutSecret(sid, "", "MY_KEY", customKey)
		for _, domain := range []string{"plain.example.com", "far.example.com", "public.example.com", "203.0.113.10"} {
			for _, port := range []string{"", ":80"} {
				if err := s.Decide(sid, "MY_KEY", domain+port, protocol.AllowAlways); err != nil {
					t.Fatal(err)
				}
			}
		}
		url := env(t, s, sid, pid)["MY_KEY_BROKER"] + "?target=http://"
		for host, want := range map[string]bool{"plain.example.com": insecure, "203.0.113.10": insecure, "far.example.com": false, "public.example.com": false} {
			got := do(t, "GET", url+host+"/x", "", nil)
			if (got.status == 200) != want || !want && got.reason() != reasonInvalidTarget {
				t.Errorf("insecure %v, %s: %d %s", insecure, host, got.status, got.body)
			}
		}
	}
}

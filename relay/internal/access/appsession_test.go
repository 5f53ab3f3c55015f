package access

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

var appKey = []byte(strings.Repeat("k", 32))

func appGrant(user protocol.UserID, life time.Duration) *jws.Grant {
	return &jws.Grant{Subject: user, ExpiresAt: time.Now().Add(life).Unix()}
}

func newApps(t *testing.T, key []byte) *AppSessions {
	t.Helper()
	a, err := NewAppSessions(key)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// withApp is a request with these values of the cookie.
func withApp(values ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, v := range values {
		r.AddCookie(&http.Cookie{Name: AppCookieName, Value: v})
	}
	return r
}

// An appSocket counts what happens to it.
type appSocket struct {
	token string
	over  int
}

func (s *appSocket) Renew(_ *jws.Grant, token string) { s.token = token }
func (s *appSocket) LoggedOut()                       { s.over++ }

func TestAppSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newApps(t, appKey)
		value, s, err := a.Issue(appGrant("usr_1", time.Hour), "token", "ses_1", AppSession{})
		if err != nil || s.User != "usr_1" || s.Session != "ses_1" || s.Token != "token" || time.Until(s.Expires()) > protocol.CookieTTL {
			t.Fatalf("%+v, %v", s, err)
		}
		again, _, _ := a.Issue(appGrant("usr_1", time.Hour), "token", "ses_1", s)
		if again == value {
			t.Error("two cookies are equal")
		}
		for name, values := range map[string][]string{
			"none": nil, "empty": {""}, "no base64": {"%"}, "padded": {value + "="}, "cut": {value[:len(value)-1]}, "long": {strings.Repeat("a", 5000)},
			"beyond those tried": {"a", "b", "c", "d", value},
		} {
			if _, err := a.Presented(withApp(values...)); protocol.KindOf(err) != protocol.KindUnauthenticated || err == nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for name, who := range map[string]*AppSessions{"it": a, "another relay": newApps(t, appKey)} {
			if got, err := who.Presented(withApp("x", value)); err != nil || got != s {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
		}
		if _, err := newApps(t, nil).Presented(withApp(value)); err == nil {
			t.Error("a relay with another secret takes it")
		}
		time.Sleep(protocol.CookieTTL)
		if _, err := a.Presented(withApp(value)); err == nil {
			t.Error("it is good after its time")
		}
		if _, _, err := a.Issue(appGrant("usr_1", 0), "token", "ses_1", s); protocol.KindOf(err) != protocol.KindExpired {
			t.Errorf("an expired grant: %v", err)
		}
		if _, _, err := a.Issue(appGrant("usr_1", time.Hour), strings.Repeat("x", 4000), "ses_1", s); protocol.KindOf(err) != protocol.KindTooLarge {
			t.Errorf("a large grant: %v", err)
		}
	})
}

// What is open by a cookie goes on with it, and nothing else does.
func TestAppSockets(t *testing.T) {
	a := newApps(t, appKey)
	old, newer := appGrant("usr_1", time.Minute), appGrant("usr_1", time.Hour)
	_, s, _ := a.Issue(old, "old", "ses_1", AppSession{})
	_, foreign, _ := a.Issue(appGrant("usr_2", time.Minute), "foreign", "ses_1", s)
	_, elsewhere, _ := a.Issue(old, "elsewhere", "ses_2", s)
	if foreign.ID == s.ID || elsewhere.ID == s.ID {
		t.Error("another person or session continues a cookie")
	}
	var first, late, other, gone appSocket
	leave := a.Attend(s, old, &first)
	a.Attend(foreign, old, &other)
	a.Attend(s, old, &gone)()
	_, renewed, _ := a.Issue(newer, "newer", "ses_1", s)
	leaveLate := a.Attend(s, old, &late)
	if renewed.ID != s.ID || first.token != "newer" || late.token != "newer" || other.token != "" || gone.token != "" {
		t.Errorf("%+v %+v %+v %+v", first, late, other, gone)
	}
	a.LogOut(renewed)
	if first.over != 1 || late.over != 1 || other.over != 0 || gone.over != 0 {
		t.Errorf("%+v %+v %+v %+v", first, late, other, gone)
	}
	var after appSocket
	if a.Attend(s, newer, &after)(); after.over != 1 {
		t.Error("a socket stays that was opened during logout")
	}
	leave()
	leaveLate()
	if len(a.open) != 1 {
		t.Errorf("%d are open", len(a.open))
	}
}

// The memory of those who have logged out is bounded.
func TestManyLogouts(t *testing.T) {
	a := newApps(t, appKey)
	for i := range maxLoggedOut + 10 {
		a.LogOut(AppSession{ID: string(rune(i))})
	}
	if n := len(a.loggedOut); n > maxLoggedOut {
		t.Errorf("%d", n)
	}
}

// The cookie of the web client comes through a proxy of another origin of ours, but
// not from another origin's page.
func TestAppCookieThroughAProxy(t *testing.T) {
	o, err := NewOrigins([]string{"http://one.example", "http://two.example"})
	if err != nil {
		t.Fatal(err)
	}
	for site, want := range map[string]string{"": "fairlead_app=1", "same-origin": "fairlead_app=1", "same-site": "", "cross-site": "", "none": ""} {
		r := httptest.NewRequest(http.MethodPost, "/api/x", nil)
		r.Host = "one.example"
		r.Header.Set("Origin", "http://two.example")
		r.Header.Set("Cookie", "fairlead_pty=2; fairlead_app=1; fairlead_control=3")
		if site != "" {
			r.Header.Set("Sec-Fetch-Site", site)
		}
		o.Share(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Cookie"); got != want {
				t.Errorf("%q: %q, want %q", site, got, want)
			}
		})).ServeHTTP(httptest.NewRecorder(), r)
	}
}

func FuzzAppCookie(f *testing.F) {
	a, err := NewAppSessions(appKey)
	if err != nil {
		f.Fatal(err)
	}
	value, want, err := a.Issue(appGrant("usr_1", time.Hour), "token", "ses_1", AppSession{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(value)
	f.Add("")
	f.Fuzz(func(t *testing.T, cookie string) {
		// The fuzzer's processes have each sealed one of their own.
		if s, ok := a.cookies.open(cookie); ok && (s.User != want.User || s.Session != want.Session || s.Token != want.Token) {
			t.Errorf("%q opens as %+v", cookie, s)
		}
	})
}

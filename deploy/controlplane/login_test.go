package controlplane

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/clock"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/oidc/oidctest"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/people"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
)

const consoleURL = "https://fairlead.example"

// returnsBurst is how many false codes of one address the provider is asked about
// at once.
const returnsBurst = 100

// A signIn is a control plane with a provider, and one browser.
type signIn struct {
	*plane
	provider *oidctest.Provider
	cookie   *http.Cookie
}

func newSignIn(t *testing.T, change func(*LoginConfig)) *signIn {
	t.Helper()
	p := newPlane(t)
	provider := oidctest.New(t, p.clock.Now)
	provider.SignIn(map[string]any{"sub": "erin-1", "name": "Erin", "email": "Erin@Example.test", "email_verified": true})
	cfg := LoginConfig{
		Issuer: provider.Issuer(), ClientID: oidctest.ClientID, ClientSecret: oidctest.ClientSecret,
		Name: "Example", PublicURL: consoleURL,
	}
	if change != nil {
		change(&cfg)
	}
	p.login(cfg)
	return &signIn{plane: p, provider: provider}
}

// login gives the control plane a sign-in.
func (p *plane) login(cfg LoginConfig) {
	p.t.Helper()
	l, err := people.NewLogin(cfg, filepath.Join(p.dir, "state"), clock.New(p.clock.Now))
	if err != nil {
		p.t.Fatal(err)
	}
	p.server.people.Login.Close()
	p.server.people.Login = l
}

// begin follows the browser to the provider and back, as far as the address
// with which it comes back.
func (s *signIn) begin(returnTo string) string {
	s.t.Helper()
	w := s.serve(call{"GET", "/auth/login?return_to=" + url.QueryEscape(returnTo), "", "", nil})
	cookies := w.Result().Cookies()
	if w.Code != http.StatusSeeOther || len(cookies) != 1 {
		s.t.Fatalf("login: %d %s", w.Code, w.Body)
	}
	s.cookie = cookies[0]
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, w.Header().Get("Location"), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	res, err := client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	back, ok := strings.CutPrefix(res.Header.Get("Location"), consoleURL)
	if !ok {
		s.t.Fatalf("the provider sent the browser to %s", res.Header.Get("Location"))
	}
	return back
}

// finish comes back from the provider.
func (s *signIn) finish(back string) *httptest.ResponseRecorder {
	s.t.Helper()
	header := map[string]string{}
	if s.cookie != nil {
		header["Cookie"] = s.cookie.Name + "=" + s.cookie.Value
	}
	return s.serve(call{"GET", back, "", "", header})
}

// token returns the user token in an answer, after the path it leads to.
func (s *signIn) token(w *httptest.ResponseRecorder, returnTo string) string {
	s.t.Helper()
	token, ok := strings.CutPrefix(w.Header().Get("Location"), consoleURL+returnTo+"#token=")
	if w.Code != http.StatusSeeOther || !ok || len(token) < 40 {
		s.t.Fatalf("%d %s to %q", w.Code, w.Body, w.Header().Get("Location"))
	}
	return token
}

func (s *signIn) refused(w *httptest.ResponseRecorder, status int, name string) {
	s.t.Helper()
	if w.Code != status || !strings.Contains(w.Body.String(), `"name":"`+name+`"`) || w.Header().Get("Location") != "" {
		s.t.Errorf("%d %s to %q, want %d %s", w.Code, w.Body, w.Header().Get("Location"), status, name)
	}
}

func TestSignIn(t *testing.T) {
	s := newSignIn(t, nil)
	if err := s.server.store.People.AddUser(t.Context(), store.User{ID: "usr_erin", Name: "Erin E.", Email: "erin@example.TEST"}); err != nil {
		t.Fatal(err)
	}
	back := s.begin("/board?x=1")
	if c := s.cookie; !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteLaxMode || c.Path != "/auth" || c.MaxAge != 600 {
		t.Errorf("cookie %v", c)
	}
	w := s.finish(back)
	token := s.token(w, "/board?x=1")
	if cookies := w.Result().Cookies(); len(cookies) != 1 || cookies[0].MaxAge >= 0 || cookies[0].Path != "/auth" {
		t.Errorf("the cookie stays: %v", cookies)
	}
	if w.Header().Get("Referrer-Policy") != "no-referrer" || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("headers %v", w.Header())
	}
	me := s.want(getAs(token, "/auth/me"), http.StatusOK, "")["user"].(map[string]any)
	if me["id"] != "usr_erin" || me["name"] != "Erin E." {
		t.Errorf("signed in as %v", me)
	}

	// From now on the identity counts, not the address.
	s.provider.SignIn(map[string]any{"sub": "erin-1", "email": "other@example.test", "email_verified": false})
	again := s.token(s.finish(s.begin("/")), "/")
	if me := s.want(getAs(again, "/auth/me"), http.StatusOK, "")["user"].(map[string]any); me["id"] != "usr_erin" {
		t.Errorf("the second time: %v", me)
	}

	s.nothing(call{"POST", "/auth/logout", token, "", nil})
	s.want(getAs(token, "/auth/me"), http.StatusUnauthorized, "AuthError")
	s.clock.Advance(12 * time.Hour)
	s.want(getAs(again, "/auth/me"), http.StatusUnauthorized, "AuthError")
	for _, secret := range []string{token, again, s.cookie.Value, oidctest.ClientSecret} {
		if strings.Contains(s.log.String(), secret) {
			t.Error("the log holds a secret")
		}
	}
}

// TestStrangers: who may come in whom nobody invited.
func TestStrangers(t *testing.T) {
	verified := map[string]any{"sub": "x-1", "name": "Xaver", "email": "x@Example.test", "email_verified": true}
	unverified := map[string]any{"sub": "x-1", "email": "x@example.test", "email_verified": false}
	everybody := func(cfg *LoginConfig) { cfg.AllowSignUp = true }
	domain := func(cfg *LoginConfig) { cfg.AllowedDomains = []string{"Example.test"} }
	otherDomain := func(cfg *LoginConfig) { cfg.AllowedDomains = []string{"ample.test", "test", "example.test.evil.test"} }
	for _, tt := range []struct {
		name   string
		policy func(*LoginConfig)
		person map[string]any
		ok     bool
		called string
	}{
		{"nobody knows them", nil, verified, false, ""},
		{"sign-up", everybody, verified, true, "Xaver"},
		{"sign-up without an address", everybody, map[string]any{"sub": "x-1"}, true, ""},
		{"of the domain", domain, verified, true, "Xaver"},
		{"of the domain, not verified", domain, unverified, false, ""},
		{"of another domain", otherDomain, verified, false, ""},
		{"without an address", domain, map[string]any{"sub": "x-1"}, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSignIn(t, tt.policy)
			s.provider.SignIn(tt.person)
			w := s.finish(s.begin("/"))
			if !tt.ok {
				s.refused(w, http.StatusForbidden, "AuthError")
				return
			}
			me := s.want(getAs(s.token(w, "/"), "/auth/me"), http.StatusOK, "")
			user := me["user"].(map[string]any)
			if tt.called == "" {
				tt.called = user["id"].(string)
			}
			if user["name"] != tt.called || user["id"] == string(protocol.AgentHolder) || len(me["sessions"].([]any)) != 0 {
				t.Errorf("signed in as %v", me)
			}
		})
	}
}

// TestInvitation: an address that isn't verified opens nothing; nor does one
// that somebody has come in by already.
func TestInvitation(t *testing.T) {
	s := newSignIn(t, nil)
	add := func(id protocol.UserID) {
		if err := s.server.store.People.AddUser(t.Context(), store.User{ID: id, Name: "E", Email: "erin@example.test"}); err != nil {
			t.Fatal(err)
		}
	}
	add("usr_one")
	s.provider.SignIn(map[string]any{"sub": "mallory", "email": "erin@example.test", "email_verified": false})
	s.refused(s.finish(s.begin("/")), http.StatusForbidden, "AuthError")
	s.provider.SignIn(map[string]any{"sub": "erin-1", "email": "erin@example.test", "email_verified": true})
	s.token(s.finish(s.begin("/")), "/")
	s.provider.SignIn(map[string]any{"sub": "erin-2", "email": "erin@example.test", "email_verified": true})
	s.refused(s.finish(s.begin("/")), http.StatusForbidden, "AuthError")
	if _, err := s.server.store.People.RemoveUser(t.Context(), "usr_one"); err != nil {
		t.Fatal(err)
	}
	s.provider.SignIn(map[string]any{"sub": "erin-1", "email": "erin@example.test", "email_verified": true})
	s.refused(s.finish(s.begin("/")), http.StatusForbidden, "AuthError") // removed is removed
}

// TestSignInRefused spoils what the browser or the provider brings.
func TestSignInRefused(t *testing.T) {
	set := func(back, name, value string) string {
		u, err := url.Parse(back)
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		q.Set(name, value)
		u.RawQuery = q.Encode()
		return u.String()
	}
	claim := func(name string, value any) func(*signIn, string) string {
		return func(s *signIn, back string) string {
			s.provider.Spoil(oidctest.Wrong{Claims: map[string]any{name: value}})
			return back
		}
	}
	for _, tt := range []struct {
		name    string
		spoil   func(s *signIn, back string) string
		errName string
	}{
		{"another state", func(_ *signIn, back string) string { return set(back, "state", "x") }, "AuthError"},
		{"no state", func(_ *signIn, back string) string { return set(back, "state", "") }, "AuthError"},
		{"no cookie", func(s *signIn, back string) string { s.cookie = nil; return back }, "AuthError"},
		{"a cookie that isn't ours", func(s *signIn, back string) string { s.cookie.Value = strings.Repeat("A", 200); return back }, "AuthError"},
		{"a changed cookie", func(s *signIn, back string) string {
			s.cookie.Value = s.cookie.Value[:60] + "AAAA" + s.cookie.Value[64:]
			return back
		}, "AuthError"},
		{"another browser's cookie", func(s *signIn, back string) string { s.begin("/"); return back }, "AuthError"},
		{"too late", func(s *signIn, back string) string { s.clock.Advance(10 * time.Minute); return back }, "ExpiredError"},
		{"the provider refuses", func(_ *signIn, back string) string { return set(back, "error", "access_denied") }, "AuthError"},
		{"no code", func(_ *signIn, back string) string { return set(back, "code", "") }, "AuthError"},
		{"another code", func(_ *signIn, back string) string { return set(back, "code", "x") }, "AuthError"},
		{"another nonce", claim("nonce", "x"), "AuthError"},
		{"expired", claim("exp", 1), "AuthError"},
		{"another audience", claim("aud", "somebody"), "AuthError"},
		{"alg none", func(s *signIn, back string) string { s.provider.Spoil(oidctest.Wrong{Algorithm: "none"}); return back }, "AuthError"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSignIn(t, func(cfg *LoginConfig) { cfg.AllowSignUp = true })
			s.refused(s.finish(tt.spoil(s, s.begin("/"))), http.StatusUnauthorized, tt.errName)
		})
	}
}

// TestSignInTwice: what came back once is worth nothing the second time.
func TestSignInTwice(t *testing.T) {
	s := newSignIn(t, func(cfg *LoginConfig) { cfg.AllowSignUp = true })
	back := s.begin("/")
	s.token(s.finish(back), "/")
	s.refused(s.finish(back), http.StatusUnauthorized, "AuthError")
}

// TestReturnTo: nobody is sent to another site.
func TestReturnTo(t *testing.T) {
	s := newSignIn(t, nil)
	for _, evil := range []string{
		"https://evil.test", "//evil.test", "/\\evil.test", "\\/evil.test", "/\t/evil.test", "/\n/evil.test", "javascript:alert(1)",
		" /x", "evil.test", "/x#token=mine", "http:/x", "/%2f/evil.test", "/x y", "/ä", "/" + strings.Repeat("x", 1024), "/%zz",
	} {
		s.want(call{"GET", "/auth/login?return_to=" + url.QueryEscape(evil), "", "", nil}, http.StatusBadRequest, "RequestError")
	}
	for _, good := range []string{"", "/", "/a/b?c=d&e=//f", "/%C3%A4"} {
		if w := s.serve(call{"GET", "/auth/login?return_to=" + url.QueryEscape(good), "", "", nil}); w.Code != http.StatusSeeOther {
			t.Errorf("%q: %d %s", good, w.Code, w.Body)
		}
	}
}

// TestLoginPage: a person reads a page, and what the provider said is not in it.
func TestLoginPage(t *testing.T) {
	s := newSignIn(t, nil)
	w := s.serve(call{"GET", "/auth/callback?error=%3Cscript%3E&state=x", "", "", map[string]string{"Accept": "text/html,*/*"}})
	if w.Code != http.StatusUnauthorized || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") ||
		!strings.Contains(w.Body.String(), "Not signed in") || strings.Contains(w.Body.String(), "script") ||
		!strings.Contains(w.Header().Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}

func TestNoProvider(t *testing.T) {
	p := newPlane(t)
	if body := p.want(getAs("", "/auth/config"), http.StatusOK, ""); body["oidc"] != false {
		t.Errorf("config %v", body)
	}
	p.want(getAs("", "/auth/login"), http.StatusNotFound, "TargetError")
	p.want(getAs("", "/auth/callback"), http.StatusNotFound, "TargetError")

	s := newSignIn(t, nil)
	if body := s.want(getAs("", "/auth/config"), http.StatusOK, ""); body["oidc"] != true || body["name"] != "Example" {
		t.Errorf("config %v", body)
	}
	s.provider.Close()
	s.want(getAs("", "/auth/login"), http.StatusBadGateway, "InternalError")
}

// TestFound13SignInStaysOpen: who comes back without a code spends nothing, and
// who comes back with any number of false ones locks out nobody elsewhere.
func TestFound13SignInStaysOpen(t *testing.T) {
	s := newSignIn(t, func(cfg *LoginConfig) { cfg.AllowSignUp = true })
	from := func(address, path string, cookie *http.Cookie) *httptest.ResponseRecorder {
		header := map[string]string{protocol.ClientAddressHeader: address}
		if cookie != nil {
			header["Cookie"] = cookie.Name + "=" + cookie.Value
		}
		return s.serve(call{"GET", path, "", "", header})
	}
	begin := func() (state string, cookie *http.Cookie) {
		t.Helper()
		w := from("203.0.113.1", "/auth/login", nil)
		to, err := url.Parse(w.Header().Get("Location"))
		if err != nil || w.Code != http.StatusSeeOther {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		return to.Query().Get("state"), w.Result().Cookies()[0]
	}
	for i := range 10_001 {
		state, cookie := begin()
		if w := from("203.0.113.1", "/auth/callback?error=access_denied&state="+state, cookie); w.Code != http.StatusUnauthorized {
			t.Fatalf("return %d without a code: %d %s", i, w.Code, w.Body)
		}
	}
	s.token(s.finish(s.begin("/")), "/")
	refused := 0
	for range 2 * returnsBurst {
		state, cookie := begin()
		w := from("203.0.113.1", "/auth/callback?code=false&state="+state, cookie)
		if w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") == "1" {
			refused++
		}
	}
	if refused != returnsBurst {
		t.Errorf("of %d false codes from one address at once %d were refused unasked, want %d", 2*returnsBurst, refused, returnsBurst)
	}
	s.token(s.finish(s.begin("/")), "/")
	s.clock.Advance(time.Second)
	back := s.begin("/")
	s.token(from("203.0.113.1", back, s.cookie), "/")
	if w := from("203.0.113.1", back, s.cookie); w.Code != http.StatusUnauthorized { // no state counts twice
		t.Errorf("the same return again: %d %s", w.Code, w.Body)
	}
}

package access

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

func newPanelStreams(t testing.TB, key []byte) *PanelStreams {
	t.Helper()
	p, err := NewPanelStreams(key)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// withStream is a request with this value of the cookie of streams.
func withStream(value string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.AddCookie(&http.Cookie{Name: PanelStreamCookieName, Value: value})
	return r
}

func TestPanelStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPanelStreams(t, appKey)
		c, ends, err := p.Issue(appGrant("usr_1", time.Hour), "token", "https://one.example")
		if err != nil || time.Until(ends) > panelStreamTTL || c.MaxAge != 1800 || !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode || c.Path != "/" {
			t.Fatalf("%+v, %s, %v", c, ends, err)
		}
		for name, who := range map[string]*PanelStreams{"it": p, "another relay": newPanelStreams(t, appKey)} {
			if token, err := who.Presented(withStream(c.Value)); err != nil || token != "token" {
				t.Errorf("%s: %q, %v", name, token, err)
			}
		}
		app, _, _ := newApps(t, appKey).Issue(appGrant("usr_1", time.Hour), "token", "ses_1", AppSession{})
		for name, value := range map[string]string{
			"none": "", "no base64": "%", "cut": c.Value[1:], "long": strings.Repeat("a", 5000), "the web client's": app,
		} {
			if _, err := p.Presented(withStream(value)); protocol.KindOf(err) != protocol.KindUnauthenticated || err == nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := newApps(t, appKey).Presented(withApp(c.Value)); err == nil {
			t.Error("it passes for the web client's")
		}
		if _, err := newPanelStreams(t, nil).Presented(withStream(c.Value)); err == nil {
			t.Error("a relay with another secret takes it")
		}
		time.Sleep(panelStreamTTL)
		if _, err := p.Presented(withStream(c.Value)); err == nil {
			t.Error("it is good after its time")
		}
		if _, _, err := p.Issue(appGrant("usr_1", 0), "token", ""); protocol.KindOf(err) != protocol.KindExpired {
			t.Errorf("an expired grant: %v", err)
		}
		if _, _, err := p.Issue(appGrant("usr_1", time.Hour), strings.Repeat("x", 4000), ""); protocol.KindOf(err) != protocol.KindTooLarge {
			t.Errorf("a large grant: %v", err)
		}
	})
}

func FuzzPanelStreamCookie(f *testing.F) {
	p := newPanelStreams(f, appKey)
	c, _, err := p.Issue(appGrant("usr_1", time.Hour), "token", "")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(c.Value)
	f.Add("")
	f.Fuzz(func(t *testing.T, value string) {
		if s, ok := p.cookies.open(value); ok && s.Token != "token" {
			t.Errorf("%q opens as %+v", value, s)
		}
	})
}

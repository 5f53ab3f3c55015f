package access

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// come presents a cookie as the page client does.
func come(d *TicketStore, cookie, client string) (*Pass, error) {
	_, pass, err := d.Redeem(Presented{Cookie: cookie, Client: client, Target: target})
	return pass, err
}

// next is come that must succeed, and returns the next cookie.
func next(t *testing.T, d *TicketStore, cookie, client string) (*Pass, string) {
	t.Helper()
	pass, err := come(d, cookie, client)
	if err != nil {
		t.Fatal(err)
	}
	cookie, _ = pass.Cookie()
	return pass, cookie
}

// A page comes back with what it was given last, and with nothing before that.
func TestFound30EachCookieOnce(t *testing.T) {
	d := NewTicketStore(time.Now)
	_, first := issue(t, d, admit("usr_1"))
	cookies := []string{first}
	for range 2 * maxSpent {
		_, cookie := next(t, d, cookies[len(cookies)-1], "page")
		cookies = append(cookies, cookie)
	}
	for i, old := range cookies[:len(cookies)-1] {
		if _, err := come(d, old, "page"); err == nil || protocol.KindOf(err) != protocol.KindUnauthenticated {
			t.Errorf("cookie %d is good again: %v", i, err)
		}
	}
	if len(d.bySpent) != maxSpent || len(d.byCookie) != 1 || d.perUser["usr_1"] != 1 {
		t.Errorf("%d spent, %d good, %v", len(d.bySpent), len(d.byCookie), d.perUser)
	}
	next(t, d, cookies[len(cookies)-1], "page") // two that came at once were an accident
}

func TestFound30ACookieIsOnePages(t *testing.T) {
	d := NewTicketStore(time.Now)
	_, cookie := issue(t, d, admit("usr_1"))
	_, cookie = next(t, d, cookie, "page")
	for _, other := range []string{"", "another"} {
		if _, err := come(d, cookie, other); err == nil {
			t.Errorf("%q came with the page's cookie", other)
		}
	}
	next(t, d, cookie, "page") // others' attempts cost it nothing
}

// A cookie that comes again long after its use is in two hands: neither goes on.
func TestFound30AStolenCookieEndsBoth(t *testing.T) {
	for name, tt := range map[string]struct {
		after time.Duration
		over  bool
	}{
		"at once": {0, false}, "in a race": {raceTime - 1, false}, "later": {raceTime, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := NewTicketStore(time.Now)
				stolen, closed := 0, 0
				d.OnStolen(func() { stolen++ })
				_, first := issue(t, d, admit("usr_1"))
				pass, second := next(t, d, first, "page")
				pass.Opened(func() { closed++ })
				time.Sleep(tt.after) // virtual
				if _, err := come(d, first, "page"); err == nil {
					t.Fatal("a spent cookie is good")
				}
				_, err := come(d, second, "page")
				if over := err != nil; over != tt.over || (closed == 1) != tt.over || (stolen == 1) != tt.over {
					t.Errorf("%v; closed %d, counted %d", err, closed, stolen)
				}
				if tt.over && len(d.bySpent)+len(d.byCookie)+len(d.perUser) != 0 {
					t.Error("something is left")
				}
			})
		})
	}
}

// A cookie that opened nothing is as good as before, and the one that would have
// come after it is not.
func TestFound30RestoredCookie(t *testing.T) {
	d := NewTicketStore(time.Now)
	ticket, cookie := issue(t, d, admit("usr_1"))
	pass, after := next(t, d, cookie, "page")
	pass.Restore()
	pass.Restore() // once is enough
	if _, err := come(d, after, "page"); err == nil {
		t.Error("the cookie that nobody was given is good")
	}
	if redeems(d, ticket, "") {
		t.Error("the ticket is good again")
	}
	next(t, d, cookie, "page")
	if pass.Restore(); len(d.byCookie) != 1 {
		t.Error("an old pass restores what it has no part in")
	}
}

// What a page comes back with lives as long as the grant that its socket was
// renewed with, and no longer than a cookie.
func TestFound30RenewedCookie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewTicketStore(time.Now)
		short := admit("usr_1")
		short.Grant.ExpiresAt = time.Now().Add(time.Minute).Unix()
		_, cookie := issue(t, d, short)
		pass, cookie := next(t, d, cookie, "page")
		longer := &jws.Grant{Subject: "usr_1", ExpiresAt: time.Now().Add(10 * time.Minute).Unix()}
		pass.Renew(longer, "newer")
		time.Sleep(9 * time.Minute)
		a, pass, err := d.Redeem(Presented{Cookie: cookie, Client: "page", Target: target})
		if err != nil || a.Token != "newer" {
			t.Fatalf("%+v, %v", a, err)
		}
		cookie, life := pass.Cookie()
		if life != time.Minute {
			t.Errorf("it lives for %v", life)
		}
		time.Sleep(time.Minute)
		if _, err := come(d, cookie, "page"); err == nil {
			t.Error("good beyond the grant")
		}
	})
}

// A socket whose cookie is found to be stolen while it opens doesn't stay.
func TestFound30StolenWhileOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewTicketStore(time.Now)
		_, first := issue(t, d, admit("usr_1"))
		pass, _ := next(t, d, first, "page")
		time.Sleep(raceTime)
		if _, err := come(d, first, "page"); err == nil {
			t.Fatal("a spent cookie is good")
		}
		ended := false
		pass.Opened(func() { ended = true })
		if !ended {
			t.Error("it stays open")
		}
		pass.Closed()
		pass.Restore()
		pass.Renew(&jws.Grant{Subject: "usr_1"}, "x")
		if len(d.byCookie) != 0 {
			t.Error("it is good again")
		}
	})
}

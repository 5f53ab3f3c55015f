package access

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

var target = Target{Kind: TargetTerminal, Session: "ses_1", PTY: "pty_1"}

// admit returns an admission to pty_1 of ses_1 under a grant that lives for an
// hour from now.
func admit(user protocol.UserID) Admission {
	return Admission{
		Grant: &jws.Grant{Subject: user, ExpiresAt: time.Now().Add(time.Hour).Unix()},
		Token: "token", Target: target,
	}
}

func issue(t *testing.T, d *TicketStore, a Admission) (ticket, cookie string) {
	t.Helper()
	ticket, cookie, _, err := d.Issue(a)
	if err != nil {
		t.Fatal(err)
	}
	return ticket, cookie
}

func redeems(d *TicketStore, ticket, cookie string) bool {
	_, _, err := d.Redeem(Presented{Ticket: ticket, Cookie: cookie, Target: target})
	return err == nil
}

func TestTicketAndCookieAreSpentTogether(t *testing.T) {
	d := NewTicketStore(time.Now)
	ticket, cookie := issue(t, d, admit("usr_1"))
	if got, pass, err := d.Redeem(Presented{Ticket: ticket, Target: target}); err != nil || got.Token != "token" || pass != nil {
		t.Errorf("ticket: %+v, %v", got, err)
	}
	if redeems(d, ticket, "") || redeems(d, "", cookie) {
		t.Error("spent, and good again")
	}
	ticket, cookie = issue(t, d, admit("usr_1"))
	if !redeems(d, "", cookie) || redeems(d, ticket, "") {
		t.Error("the cookie must work, and spend the ticket")
	}
	if len(d.byTicket) != 0 || len(d.byCookie) != 1 || d.perUser["usr_1"] != 1 {
		t.Error("something is left beside the cookie to come back with")
	}
}

func TestOneOfFiftyGetsIn(t *testing.T) {
	d := NewTicketStore(time.Now)
	ticket, cookie := issue(t, d, admit("usr_1"))
	var in atomic.Int32
	var trying sync.WaitGroup
	start := make(chan struct{})
	for i := range 50 {
		trying.Go(func() {
			<-start
			if i%2 == 0 && redeems(d, ticket, "") || i%2 == 1 && redeems(d, "", cookie) {
				in.Add(1)
			}
		})
	}
	close(start)
	trying.Wait()
	if in.Load() != 1 {
		t.Errorf("%d got in", in.Load())
	}
}

func TestLifetimes(t *testing.T) {
	for _, c := range []struct {
		name           string
		after          time.Duration
		ticket, cookie bool
	}{
		{"at once", 0, true, true},
		{"just before the ticket's end", protocol.TicketTTL - 1, true, true},
		{"the ticket's end", protocol.TicketTTL, false, true},
		{"just before the cookie's end", protocol.CookieTTL - 1, false, true},
		{"the cookie's end", protocol.CookieTTL, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := NewTicketStore(time.Now)
				ticket, _ := issue(t, d, admit("usr_1"))
				_, cookie := issue(t, d, admit("usr_1"))
				time.Sleep(c.after) // virtual
				if got := redeems(d, ticket, ""); got != c.ticket {
					t.Errorf("ticket: %v", got)
				}
				if got := redeems(d, "", cookie); got != c.cookie {
					t.Errorf("cookie: %v", got)
				}
			})
		})
	}
}

func TestNothingOutlivesItsGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewTicketStore(time.Now)
		a := admit("usr_1")
		a.Grant.ExpiresAt = time.Now().Add(10 * time.Second).Unix()
		ticket, _, ends, err := d.Issue(a)
		if err != nil || !ends.Equal(a.Grant.Expires()) {
			t.Errorf("ends %v, %v", ends, err)
		}
		_, cookie := issue(t, d, a)
		time.Sleep(10 * time.Second)
		if redeems(d, ticket, "") || redeems(d, "", cookie) {
			t.Error("good beyond the grant")
		}
		if _, _, _, err := d.Issue(a); err == nil || protocol.KindOf(err) != protocol.KindExpired {
			t.Errorf("issued for an expired grant: %v", err)
		}
	})
}

func TestAWrongPathSpendsNothing(t *testing.T) {
	d := NewTicketStore(time.Now)
	ticket, cookie := issue(t, d, admit("usr_1"))
	for _, other := range []Target{
		{TargetTerminal, "ses_1", "pty_2"}, {TargetTerminal, "ses_2", "pty_1"}, {TargetTerminal, "", ""}, {"chat", "ses_1", "pty_1"}, {},
	} {
		for _, secret := range [][2]string{{ticket, ""}, {"", cookie}} {
			if _, _, err := d.Redeem(Presented{Ticket: secret[0], Cookie: secret[1], Target: other}); err == nil {
				t.Errorf("opens %v", other)
			}
		}
	}
	if !redeems(d, ticket, "") {
		t.Error("spent by another target")
	}
}

func TestTheTicketDecidesAlone(t *testing.T) {
	d := NewTicketStore(time.Now)
	ticket, cookie := issue(t, d, admit("usr_1"))
	if redeems(d, "wrong", cookie) {
		t.Error("a bad ticket is saved by a good cookie")
	}
	if redeems(d, cookie, "") || redeems(d, "", ticket) {
		t.Error("one works in the other's place")
	}
	if redeems(d, "", "") {
		t.Error("nothing opens a socket")
	}
	if !redeems(d, ticket, "wrong") {
		t.Error("a good ticket is spoiled by a bad cookie")
	}
}

func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewTicketStore(time.Now)
		for range maxAdmissionsPerUser {
			issue(t, d, admit("usr_1"))
		}
		if _, _, _, err := d.Issue(admit("usr_1")); err == nil || protocol.KindOf(err) != protocol.KindTooMany {
			t.Fatalf("over the user's bound: %v", err)
		}
		issue(t, d, admit("usr_2")) // others are not concerned
		time.Sleep(protocol.CookieTTL)
		issue(t, d, admit("usr_1")) // what has expired makes room
		if len(d.byTicket) != 1 || len(d.byCookie) != 1 || d.perUser["usr_1"] != 1 {
			t.Errorf("%d tickets, %d cookies, %v", len(d.byTicket), len(d.byCookie), d.perUser)
		}
	})
}

func TestBoundOfTheRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewTicketStore(time.Now)
		for i := range maxAdmissions {
			issue(t, d, admit(protocol.UserID("usr_"+strconv.Itoa(i))))
		}
		if _, _, _, err := d.Issue(admit("usr_late")); err == nil || protocol.KindOf(err) != protocol.KindTooMany {
			t.Fatalf("over the relay's bound: %v", err)
		}
		time.Sleep(protocol.CookieTTL)
		issue(t, d, admit("usr_late"))
	})
}

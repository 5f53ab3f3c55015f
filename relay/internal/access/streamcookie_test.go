package access

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// passGrant returns a grant of user that ends at ends.
func passGrant(user protocol.UserID, ends time.Time) *jws.Grant {
	return &jws.Grant{Subject: user, ID: protocol.NewGrantID(), ExpiresAt: ends.Unix()}
}

func TestStreamPasses(t *testing.T) {
	now := time.Unix(1_730_000_000, 0)
	p := NewStreamCookies(func() time.Time { return now })
	grant := passGrant("usr_alice", now.Add(time.Minute))
	cookie, err := p.Issue(grant)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // EventSource comes back by itself
		if got, err := p.Grant(cookie); err != nil || got != grant {
			t.Fatalf("%v, %v", got, err)
		}
	}
	for _, wrong := range []string{"", "x", cookie + "x"} {
		if _, err := p.Grant(wrong); err == nil || protocol.KindOf(err) != protocol.KindUnauthenticated {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	now = now.Add(time.Minute)
	if _, err := p.Grant(cookie); protocol.KindOf(err) != protocol.KindExpired {
		t.Errorf("at the grant's end: %v", err)
	}
	if _, err := p.Issue(grant); protocol.KindOf(err) != protocol.KindExpired {
		t.Errorf("for an old grant: %v", err)
	}
}

func TestStreamPassesAreBounded(t *testing.T) {
	now := time.Unix(1_730_000_000, 0)
	p := NewStreamCookies(func() time.Time { return now })
	issue := func(user protocol.UserID) (string, error) { return p.Issue(passGrant(user, now.Add(time.Minute))) }
	first, _ := issue("usr_alice")
	for range maxStreamCookiesPerUser {
		if _, err := issue("usr_alice"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Grant(first); err == nil || len(p.grants) != maxStreamCookiesPerUser {
		t.Errorf("the oldest of %d is still good: %v", len(p.grants), err)
	}
	for len(p.grants) < maxStreamCookies {
		if _, err := issue(protocol.NewUserID()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := issue("usr_bob"); protocol.KindOf(err) != protocol.KindTooMany || err == nil {
		t.Errorf("one too many: %v", err)
	}
	now = now.Add(time.Minute)
	if _, err := issue("usr_bob"); err != nil || len(p.grants) != 1 || len(p.byUser) != 1 {
		t.Errorf("%v; %d passes, %d users left", err, len(p.grants), len(p.byUser))
	}
}

package access

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
)

// TestFound28AGrantEndsWhenItSays: a relay's clock is kept, so it allows no skew,
// though the verification of a grant does.
func TestFound28AGrantEndsWhenItSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().Unix()
		for left, want := range map[int64]protocol.Kind{
			-61: protocol.KindExpired, -1: protocol.KindExpired, 0: protocol.KindExpired, 1: 0, 60: 0,
		} {
			err := Current(&jws.Grant{ExpiresAt: now + left})
			if (err == nil) != (want == 0) || err != nil && protocol.KindOf(err) != want {
				t.Errorf("%d s before its end: %v", left, err)
			}
		}
	})
	authority := relaytest.NewAuthority(t)
	for name, c := range map[string]struct {
		ends time.Duration // from now
		ok   bool
	}{
		"over, within the skew": {-protocol.ClockSkew / 2, false},
		"a moment over":         {-time.Second, false},
		"not over":              {time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			_, token := authority.Grant(func(g *jws.Grant) {
				g.IssuedAt, g.ExpiresAt = time.Now().Add(-5*time.Minute).Unix(), time.Now().Add(c.ends).Unix()
			})
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Authorization", "Bearer "+token)
			_, _, err := Grant(r, authority.Keys)
			if (err == nil) != c.ok || err != nil && protocol.KindOf(err) != protocol.KindExpired {
				t.Errorf("%v, want ok %t", err, c.ok)
			}
		})
	}
}

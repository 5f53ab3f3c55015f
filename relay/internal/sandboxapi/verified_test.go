package sandboxapi

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

// TestVerified: a grant is verified once in a while, and never outlives itself; a
// token that differs from a known one is verified itself.
func TestVerified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v verified
		authority := relaytest.NewAuthority(t)
		none := jws.NewKeys(&jws.KeySet{}, jws.KeysOptions{}) // which know nobody
		ask := func(token string, keys *jws.Keys) protocol.Kind {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Authorization", "Bearer "+token)
			grant, got, err := v.grant(r, keys)
			if err != nil {
				return protocol.KindOf(err)
			}
			if got != token || grant.Subject != relaytest.User {
				t.Errorf("%+v", grant)
			}
			return 0
		}
		_, token := authority.Grant(func(g *jws.Grant) {
			g.IssuedAt, g.ExpiresAt = time.Now().Unix(), time.Now().Add(15*time.Second).Unix()
		})
		if kind := ask(token, none); kind != protocol.KindUnauthenticated {
			t.Errorf("unknown: %s", kind)
		}
		for range 3 {
			if kind := ask(token, authority.Keys); kind != 0 {
				t.Errorf("known: %s", kind)
			}
			time.Sleep(verifiedFor / 4)
			if kind := ask(token, none); kind != 0 {
				t.Errorf("remembered: %s", kind)
			}
		}
		if kind := ask(token+"x", authority.Keys); kind != protocol.KindUnauthenticated {
			t.Errorf("another token: %s", kind)
		}
		time.Sleep(verifiedFor / 2)
		if kind := ask(token, none); kind != protocol.KindUnauthenticated {
			t.Errorf("after a while: %s", kind)
		}
		if kind := ask(token, authority.Keys); kind != 0 {
			t.Errorf("verified again: %s", kind)
		}
		time.Sleep(verifiedFor / 2)
		if kind := ask(token, authority.Keys); kind != protocol.KindExpired {
			t.Errorf("after its end: %s", kind)
		}
		for range maxVerified + 1 {
			v.note([32]byte([]byte(time.Now().Format("2006-01-02T15:04:05.000000000Z07:00.."))[:32]), nil)
			time.Sleep(1)
		}
		if len(v.grants) > maxVerified {
			t.Errorf("%d are remembered", len(v.grants))
		}
	})
}

package e2e

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// TestFound28AGrantThatIsOverBuysNoTicket: a grant of the control plane's whose
// time is over by a second opens nothing at a relay, though a sandbox, whose
// clock nobody keeps, would allow for a minute.
func TestFound28AGrantThatIsOverBuysNoTicket(t *testing.T) {
	ctx := within(t)
	s := shared(t)
	alice := s.Ready.User("alice")
	token, err := alice.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	must(t, err)
	var grant jws.Grant
	must(t, json.Unmarshal(payload, &grant))
	signer, err := s.Signer()
	must(t, err)
	for ago, want := range map[time.Duration]int{time.Second: http.StatusUnauthorized, -time.Minute: http.StatusOK} {
		g := grant
		g.ID = protocol.NewGrantID()
		g.IssuedAt, g.ExpiresAt = time.Now().Add(-5*time.Minute).Unix(), time.Now().Add(-ago).Unix()
		token, err := signer.SignGrant(g)
		must(t, err)
		for route, body := range map[string]any{
			http.MethodPost + " /pty-session":                                    map[string]any{"session_id": s.Ready.SessionID, "pty_id": s.Ready.PTYID},
			http.MethodGet + " /sessions/" + string(s.Ready.SessionID) + "/ptys": nil,
		} {
			method, path, _ := strings.Cut(route, " ")
			status, answer, err := Call(ctx, method, alice.Base+path, token, body)
			must(t, err)
			if status != want {
				t.Errorf("%s with a grant that ended %v ago: %d %s, want %d", route, ago, status, answer, want)
			}
		}
	}
}

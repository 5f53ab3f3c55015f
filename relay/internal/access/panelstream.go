package access

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// panelStreamTTL is how long a cookie of the side panel's streams works (seed 000).
const panelStreamTTL = 30 * time.Minute

// panelStreamSealFor is authenticated with each cookie, so that nothing else that
// is sealed under the same key passes for one.
var panelStreamSealFor = []byte("gstack_sse 1")

// PanelStreams seals and opens the cookies of the side panel's streams, for pages
// that use EventSource, which can't send Authorization. The grant is in the cookie,
// so that it outlives the relay.
type PanelStreams struct {
	seal cipher.AEAD // static
}

// panelStream is what is sealed.
type panelStream struct {
	Token string `json:"grant"`
	Ends  int64  `json:"ends"` // Unix seconds
}

// NewPanelStreams returns PanelStreams that seal with a key of 32 bytes. Without one
// it makes one.
func NewPanelStreams(key []byte) (*PanelStreams, error) {
	if len(key) == 0 {
		key = make([]byte, 32)
		rand.Read(key)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	seal, err := cipher.NewGCMWithRandomNonce(block)
	return &PanelStreams{seal: seal}, err
}

// Issue returns a cookie of the origin that it is for, under a grant that was just
// verified, and when it ends: not after the grant.
func (p *PanelStreams) Issue(grant *jws.Grant, token, origin string) (*http.Cookie, time.Time, error) {
	now := time.Now()
	if grant.Over(now) {
		return nil, time.Time{}, lifetime.ErrExpired
	}
	ends := earlier(now.Add(panelStreamTTL), grant.Expires())
	plain, err := json.Marshal(panelStream{token, ends.Unix()})
	if err != nil {
		return nil, ends, protocol.Fault(protocol.KindInternal, err)
	}
	value := base64.RawURLEncoding.EncodeToString(p.seal.Seal(nil, nil, plain, panelStreamSealFor))
	if len(value) > maxAppCookie {
		return nil, ends, protocol.Errorf(protocol.KindTooLarge, "the grant is too large for a cookie")
	}
	return &http.Cookie{
		Name: PanelStreamCookieName, Value: value, Path: "/", MaxAge: max(1, int(ends.Sub(now)/time.Second)),
		HttpOnly: true, Secure: strings.HasPrefix(origin, "https:"), SameSite: http.SameSiteStrictMode,
	}, ends, nil
}

// Presented returns the grant in r's cookie, in compact form. The caller has to
// verify it. It fails with kind unauthenticated.
func (p *PanelStreams) Presented(r *http.Request) (token string, err error) {
	for i, c := range r.CookiesNamed(PanelStreamCookieName) {
		if i == maxAppCookiesTried { // others on this host may set some of that name
			break
		}
		if s, ok := p.unseal(c.Value); ok {
			return s.Token, nil
		}
	}
	return "", protocol.Fault(protocol.KindUnauthenticated, nil)
}

// unseal opens a cookie that is still good.
func (p *PanelStreams) unseal(value string) (s panelStream, ok bool) {
	if len(value) > maxAppCookie {
		return s, false
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(value)
	if err != nil {
		return s, false
	}
	plain, err := p.seal.Open(nil, nil, sealed, panelStreamSealFor)
	if err != nil || json.Unmarshal(plain, &s) != nil || !time.Now().Before(time.Unix(s.Ends, 0)) {
		return panelStream{}, false
	}
	return s, true
}

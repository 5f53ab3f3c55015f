package access

import (
	"net/http"
	"time"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol/jws"
)

// panelStreamTTL is how long a cookie of the side panel's streams works (seed 000).
const panelStreamTTL = 30 * time.Minute

// PanelStreams seals and opens the cookies of the side panel's streams, for pages
// that use EventSource, which can't send Authorization. The grant is in the cookie,
// so that it outlives the relay.
type PanelStreams struct {
	cookies sealedCookies[panelStream] // static
}

// panelStream is what is sealed.
type panelStream struct {
	Token string `json:"grant"`
	Ends  int64  `json:"ends"` // Unix seconds
}

// Expires returns when the cookie ends.
func (s panelStream) Expires() time.Time { return time.Unix(s.Ends, 0) }

// NewPanelStreams returns PanelStreams that seal with a key of 32 bytes. Without one
// it makes one.
func NewPanelStreams(key []byte) (*PanelStreams, error) {
	cookies, err := newSealedCookies[panelStream](key, PanelStreamCookieName, "gstack_sse 1")
	return &PanelStreams{cookies}, err
}

// Issue returns a cookie of the origin that it is for, under a grant that was just
// verified, and when it ends: not after the grant.
func (p *PanelStreams) Issue(grant *jws.Grant, token, origin string) (*http.Cookie, time.Time, error) {
	now := time.Now()
	if grant.Over(now) {
		return nil, time.Time{}, lifetime.ErrExpired
	}
	ends := earlier(now.Add(panelStreamTTL), grant.Expires())
	value, err := p.cookies.issue(panelStream{token, ends.Unix()})
	if err != nil {
		return nil, ends, err
	}
	return pageCookie(PanelStreamCookieName, origin, value, secondsUntil(ends, now)), ends, nil
}

// Presented returns the grant in r's cookie, in compact form. The caller has to
// verify it. It fails with kind unauthenticated.
func (p *PanelStreams) Presented(r *http.Request) (token string, err error) {
	s, err := p.cookies.presented(r, func(panelStream) bool { return false })
	return s.Token, err
}

package authority

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
)

// A certificate is what the sandbox registers with.
type certificate struct {
	token           string
	issued, expires time.Time // zero: it can't be read
}

// parseCertificate reads when a certificate ends. It verifies nothing: the
// enrolment was verified before it was stored.
func parseCertificate(token string) certificate {
	c := certificate{token: token}
	var claims struct {
		IssuedAt  int64 `json:"iat"`
		ExpiresAt int64 `json:"exp"`
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return c
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil && json.Unmarshal(payload, &claims) == nil && claims.ExpiresAt > claims.IssuedAt {
		c.issued, c.expires = time.Unix(claims.IssuedAt, 0), time.Unix(claims.ExpiresAt, 0)
	}
	return c
}

// renewAt returns when two thirds of c's life are over; never for one whose
// life is not known.
func (c certificate) renewAt() (at time.Time, known bool) {
	return c.issued.Add(2 * c.expires.Sub(c.issued) / 3), !c.expires.IsZero()
}

// ending reports whether the last tenth of c's life has begun.
func (c certificate) ending(now time.Time) bool {
	return !c.expires.IsZero() && now.After(c.expires.Add(-c.expires.Sub(c.issued)/10))
}

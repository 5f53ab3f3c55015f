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

	"github.com/fairlead/fairlead/protocol"
)

const (
	// maxSealed bounds the value of a sealed cookie: browsers drop cookies of more
	// than 4 KiB.
	maxSealed = 3800
	// maxSealedTried bounds how many cookies of one name in one request are opened:
	// others on this host may set some of that name.
	maxSealedTried = 4
)

// sealedCookies are cookies of one name and purpose, whose T is in the cookie
// itself, so that it outlives the relay.
type sealedCookies[T interface{ Expires() time.Time }] struct {
	// Static after construction.
	name string
	seal cipher.AEAD
	// purpose is authenticated with each cookie, so that nothing else that is
	// sealed under the same key passes for one.
	purpose []byte
}

// newSealedCookies seals with a key of 32 bytes; without one it makes one. Relays
// with the same key open each other's cookies.
func newSealedCookies[T interface{ Expires() time.Time }](key []byte, name, purpose string) (sealedCookies[T], error) {
	if len(key) == 0 {
		key = make([]byte, 32)
		rand.Read(key)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return sealedCookies[T]{}, err
	}
	seal, err := cipher.NewGCMWithRandomNonce(block)
	return sealedCookies[T]{name, seal, []byte(purpose)}, err
}

// issue returns the value of a cookie. What is too large for one fails with kind
// too_large.
func (s sealedCookies[T]) issue(content T) (value string, err error) {
	plain, err := json.Marshal(content)
	if err != nil {
		return "", protocol.Fault(protocol.KindInternal, err)
	}
	if value = base64.RawURLEncoding.EncodeToString(s.seal.Seal(nil, nil, plain, s.purpose)); len(value) > maxSealed {
		return "", protocol.Errorf(protocol.KindTooLarge, "the grant is too large for a cookie")
	}
	return value, nil
}

// presented returns what the first good cookie of r stands for, which the caller
// may still refuse. It fails with kind unauthenticated.
func (s sealedCookies[T]) presented(r *http.Request, refused func(T) bool) (content T, err error) {
	for i, c := range r.CookiesNamed(s.name) {
		if i == maxSealedTried {
			break
		}
		if content, ok := s.open(c.Value); ok && !refused(content) {
			return content, nil
		}
	}
	return content, protocol.Fault(protocol.KindUnauthenticated, nil)
}

// open opens the value of a cookie that hasn't ended.
func (s sealedCookies[T]) open(value string) (content T, ok bool) {
	var none T
	if len(value) > maxSealed {
		return none, false
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(value)
	if err != nil {
		return none, false
	}
	plain, err := s.seal.Open(nil, nil, sealed, s.purpose)
	if err != nil || json.Unmarshal(plain, &content) != nil || !time.Now().Before(content.Expires()) {
		return none, false
	}
	return content, true
}

// secondsUntil is for how long a browser keeps a cookie that is issued now.
func secondsUntil(ends, now time.Time) int { return max(1, int(ends.Sub(now)/time.Second)) }

// pageCookie is a cookie that only pages of the origin send, and no script reads.
func pageCookie(name, origin, value string, maxAge int) *http.Cookie {
	return &http.Cookie{
		Name: name, Value: value, Path: "/", MaxAge: maxAge,
		HttpOnly: true, Secure: strings.HasPrefix(origin, "https:"), SameSite: http.SameSiteStrictMode,
	}
}

package sandboxapi

import (
	"crypto/sha256"
	"net/http"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/access"
)

const (
	// verifiedFor is how long it is remembered that a grant's signature is good:
	// as long as a key that is withdrawn may be believed because of that.
	verifiedFor = 10 * time.Second
	// maxVerified bounds the grants that are remembered.
	maxVerified = 4096
)

// verified remembers grants whose signature was verified lately. That they have
// not ended it checks each time; that they are not revoked the passage does. Its
// zero value is ready.
type verified struct {
	mu     sync.Mutex
	grants map[[sha256.Size]byte]verifiedGrant // guarded by mu: by the token's hash
}

type verifiedGrant struct {
	grant *jws.Grant
	until time.Time
}

// grant is [access.Grant].
func (v *verified) grant(r *http.Request, keys *jws.Keys) (*jws.Grant, string, error) {
	token, err := access.Bearer(r)
	if err != nil {
		return nil, "", err
	}
	sum := sha256.Sum256([]byte(token))
	if grant := v.find(sum); grant != nil {
		return grant, token, access.Current(grant)
	}
	grant, token, err := access.Grant(r, keys)
	if err == nil {
		v.note(sum, grant)
	}
	return grant, token, err
}

func (v *verified) find(sum [sha256.Size]byte) *jws.Grant {
	v.mu.Lock()
	defer v.mu.Unlock()
	known, ok := v.grants[sum]
	if !ok || time.Now().After(known.until) {
		return nil
	}
	return known.grant
}

func (v *verified) note(sum [sha256.Size]byte, grant *jws.Grant) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.grants == nil || len(v.grants) >= maxVerified {
		v.grants = map[[sha256.Size]byte]verifiedGrant{}
	}
	v.grants[sum] = verifiedGrant{grant, time.Now().Add(verifiedFor)}
}

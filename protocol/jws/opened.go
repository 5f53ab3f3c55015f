package jws

import (
	"crypto/sha256"
	"slices"
	"sync"
)

// maxOpenedGrants bounds the cached grants; beyond it the cache is cleared.
const maxOpenedGrants = 4096

// openedGrants caches grants with a good signature by one key set, by the hash
// of the token.
type openedGrants struct {
	mu sync.Mutex
	// Guarded by mu.
	by     *KeySet
	grants map[[sha256.Size]byte]Grant
}

// get returns a copy of the cached grant in token.
func (o *openedGrants) get(set *KeySet, token string) (Grant, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.by != set || len(o.grants) == 0 {
		return Grant{}, false
	}
	grant, ok := o.grants[sha256.Sum256([]byte(token))]
	return grant.clone(), ok
}

// put caches the grant in token, which is good by set.
func (o *openedGrants) put(set *KeySet, token string, grant Grant) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.by != set || len(o.grants) >= maxOpenedGrants {
		o.by, o.grants = set, make(map[[sha256.Size]byte]Grant)
	}
	o.grants[sha256.Sum256([]byte(token))] = grant.clone()
}

func (g Grant) clone() Grant {
	g.PTYs, g.Caps = slices.Clone(g.PTYs), slices.Clone(g.Caps)
	return g
}

package jws

import (
	"crypto/ecdsa"
	"encoding/json"
	"fmt"

	"github.com/fairlead/fairlead/protocol"
)

// MaxKeySetBytes bounds a key set.
const MaxKeySetBytes = 64 << 10

// A KeySet holds the keys that tokens may be signed with. It is immutable.
type KeySet struct {
	keys    map[string]*ecdsa.PublicKey // by kid
	ignored int
}

// ParseKeySet reads a JWK set (RFC 7517 §5). It decodes keys one by one and
// ignores those that it can't use, so that a key of a future kind doesn't take
// the others with it. Of keys that share a kid, the first counts. A set without
// "keys" is empty. What is no JWK set at all is of kind invalid, more than
// [MaxKeySetBytes] of kind too_large.
func ParseKeySet(jwks []byte) (*KeySet, error) {
	if len(jwks) > MaxKeySetBytes {
		return nil, protocol.Errorf(protocol.KindTooLarge, "key set: larger than %d bytes", MaxKeySetBytes)
	}
	var set map[string]json.RawMessage // not a struct: names match exactly
	if err := protocol.UnmarshalObject(jwks, &set); err != nil {
		return nil, protocol.Errorf(protocol.KindInvalid, "key set: not a JSON object")
	}
	var keys []json.RawMessage
	if raw, present := set["keys"]; present && json.Unmarshal(raw, &keys) != nil {
		return nil, protocol.Errorf(protocol.KindInvalid, "key set: keys must be an array")
	}
	ks := &KeySet{keys: make(map[string]*ecdsa.PublicKey, len(keys))}
	for _, jwk := range keys {
		kid, key, err := parsePublicJWK(jwk)
		if _, taken := ks.keys[kid]; err != nil || taken || !validKid(kid) {
			ks.ignored++
			continue
		}
		ks.keys[kid] = key
	}
	return ks, nil
}

// Len returns the number of usable keys.
func (ks *KeySet) Len() int { return len(ks.keys) }

// Ignored returns how many keys the set had that can't be used.
func (ks *KeySet) Ignored() int { return ks.ignored }

// MarshalKeySet returns the JWK set of the signers' public keys.
func MarshalKeySet(signers ...*Signer) ([]byte, error) {
	set := struct {
		Keys []publicJWK `json:"keys"`
	}{Keys: make([]publicJWK, 0, len(signers))}
	seen := make(map[string]bool, len(signers))
	for _, s := range signers {
		if seen[s.kid] {
			return nil, fmt.Errorf("key set: two keys with the id %s", s.kid)
		}
		seen[s.kid] = true
		jwk, err := newSigningJWK(&s.key.PublicKey, s.kid)
		if err != nil {
			return nil, fmt.Errorf("key set: %w", err)
		}
		set.Keys = append(set.Keys, jwk)
	}
	return json.Marshal(set)
}

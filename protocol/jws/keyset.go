package jws

import (
	"crypto/ecdsa"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/protocol"
)

// MaxKeySetBytes bounds a key set.
const MaxKeySetBytes = 64 << 10

// A KeySet holds the keys that verify tokens. It is immutable.
type KeySet struct {
	keys    map[string]*ecdsa.PublicKey // by kid
	ignored int
}

// ParseKeySet reads a JWK set (RFC 7517 §5). It decodes keys one by one and
// ignores unusable ones, so that a key of a future kind doesn't spoil the
// others. Keys with a shared kid are all ignored, usable or not: readers would
// disagree about which one it means. A set without "keys" is empty. It fails
// with kind invalid for anything else than a JWK set, and with too_large beyond
// [MaxKeySetBytes].
func ParseKeySet(jwks []byte) (*KeySet, error) {
	if len(jwks) > MaxKeySetBytes {
		return nil, protocol.Errorf(protocol.KindTooLarge, "key set: larger than %d bytes", MaxKeySetBytes)
	}
	_, keys, err := splitKeySet(jwks)
	if err != nil {
		return nil, err
	}
	ks := &KeySet{keys: make(map[string]*ecdsa.PublicKey, len(keys))}
	holders := countKids(keys)
	for _, jwk := range keys {
		kid, key, err := parsePublicJWK(jwk)
		if err != nil || holders[kid] > 1 || !validKid(kid) {
			ks.ignored++
			continue
		}
		ks.keys[kid] = key
	}
	return ks, nil
}

// splitKeySet returns the members of a JWK set, and those of "keys".
func splitKeySet(jwks []byte) (set map[string]json.RawMessage, keys []json.RawMessage, err error) {
	// Not a struct, so that names match exactly.
	if err := protocol.UnmarshalObject(jwks, &set); err != nil {
		return nil, nil, protocol.Errorf(protocol.KindInvalid, "key set: not a JSON object")
	}
	if raw, present := set["keys"]; present && json.Unmarshal(raw, &keys) != nil {
		return nil, nil, protocol.Errorf(protocol.KindInvalid, "key set: keys must be an array")
	}
	return set, keys, nil
}

// countKids counts the keys per kid. Something that isn't a JWK has none.
func countKids(keys []json.RawMessage) map[string]int {
	count := make(map[string]int, len(keys))
	for _, jwk := range keys {
		if kid := kidOf(jwk); kid != "" {
			count[kid]++
		}
	}
	return count
}

// kidOf returns the kid of a key of any type, empty if it has none. Other
// libraries ignore the case of a member's name, so kidOf does, too.
func kidOf(jwk []byte) string {
	members, err := parseObject(jwk)
	if err != nil {
		return ""
	}
	for name := range members {
		if protocol.FoldName(name) == protocol.FoldName("kid") {
			kid, _ := stringMember(members, name)
			return kid
		}
	}
	return ""
}

// WithoutSharedKids returns the JWK set, with keys of any type, for a library
// that would try each key with a kid: without keys that share a kid, and
// without what isn't a JWK.
func WithoutSharedKids(jwks []byte) ([]byte, error) {
	set, keys, err := splitKeySet(jwks)
	if err != nil {
		return nil, err
	}
	holders := countKids(keys)
	set["keys"], err = json.Marshal(slices.DeleteFunc(keys, func(jwk json.RawMessage) bool {
		_, err := parseObject(jwk)
		return err != nil || holders[kidOf(jwk)] > 1
	}))
	if err != nil {
		return nil, err
	}
	return json.Marshal(set)
}

// Len returns the number of usable keys.
func (ks *KeySet) Len() int { return len(ks.keys) }

// Ignored returns how many unusable keys the set had.
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

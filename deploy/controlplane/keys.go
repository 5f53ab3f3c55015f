package controlplane

import (
	"os"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/keyring"
)

// DefaultPrepublish is how long a new key is published before it signs.
const DefaultPrepublish = keyring.Prepublish

// A SigningKey is one of the control plane's keys.
type SigningKey = keyring.Key

// ListKeys returns the keys in stateDir in the order in which they sign. It
// makes none.
func ListKeys(stateDir string, now time.Time) ([]SigningKey, error) {
	return keyring.List(keyring.Dir(stateDir), now)
}

// RotateKey publishes a new key in stateDir that signs after the given time; 0:
// at once. A control plane that runs there needs no restart. KindConflict says
// that a new key is published already.
func RotateKey(stateDir string, after time.Duration, now func() time.Time) (SigningKey, error) {
	ring, err := keyring.OpenIn(stateDir, keyring.Options{Now: now})
	if err != nil {
		return SigningKey{}, err
	}
	return ring.Rotate(after)
}

// RevokeKey takes a key in stateDir back and returns the one that signs from
// now on. The only key is KindConflict unless replace makes another one.
// Nothing that the revoked key signed is believed any more: sandboxes whose
// certificates it signed renew them with their device keys.
func RevokeKey(stateDir, kid string, replace bool, now func() time.Time) (SigningKey, error) {
	dir := keyring.Dir(stateDir)
	if _, err := os.Stat(dir); err != nil { // don't make a key to revoke
		return SigningKey{}, err
	}
	ring, err := keyring.Open(dir, keyring.Options{Now: now})
	if err != nil {
		return SigningKey{}, err
	}
	return ring.Revoke(kid, replace)
}

package controlplane

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/keyring"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/statedir"
	"github.com/fairlead/fairlead/protocol/jws"
)

const (
	keysDir     = "keys"
	maxKeyBytes = 4 << 10 // of a JWK
)

// DefaultPrepublish is how long a new key is published before it signs.
const DefaultPrepublish = keyring.Prepublish

// A SigningKey is one of the control plane's keys.
type SigningKey = keyring.Key

// ListKeys returns the keys in stateDir in the order in which they sign. It
// makes none.
func ListKeys(stateDir string, now time.Time) ([]SigningKey, error) {
	return keyring.List(filepath.Join(stateDir, keysDir), now)
}

// RotateKey publishes a new key in stateDir that signs after the given time; 0:
// at once. A control plane that runs there needs no restart. KindConflict says
// that a new key is published already.
func RotateKey(stateDir string, after time.Duration, now func() time.Time) (SigningKey, error) {
	ring, err := openKeys(stateDir, keyring.Options{Now: now})
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
	dir := filepath.Join(stateDir, keysDir)
	if _, err := os.Stat(dir); err != nil { // don't make a key to revoke
		return SigningKey{}, err
	}
	ring, err := keyring.Open(dir, keyring.Options{Now: now})
	if err != nil {
		return SigningKey{}, err
	}
	return ring.Revoke(kid, replace)
}

// openKeys opens the keys in stateDir, and makes the first one when there is
// none.
func openKeys(stateDir string, opts keyring.Options) (*keyring.Ring, error) {
	if err := statedir.PrepareDir(stateDir); err != nil {
		return nil, err
	}
	dir := filepath.Join(stateDir, keysDir)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return keyring.Open(dir, opts)
}

func (s *Server) loadKeys(cfg Config) error {
	s.revoked = jws.NewRevocationSetBy(s.clock.Now)
	var err error
	s.keys, err = openKeys(cfg.StateDir, keyring.Options{Now: s.clock.Now, Logger: s.logger, Revoked: s.revoked})
	return err
}

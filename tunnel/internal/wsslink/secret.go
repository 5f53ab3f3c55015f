package wsslink

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
)

const (
	// secretHeader joins a socket to a tunnel: the tunnel's lane secret in
	// base64url. It isn't in the URL because proxies log those.
	secretHeader = "Fairlead-Lane"
	secretBytes  = 32
)

// encoding spells a lane secret.
var encoding = base64.RawURLEncoding.Strict()

// parseSecret returns the lane secret of a request, nil for the first socket of
// a link.
func parseSecret(header http.Header) ([]byte, error) {
	values := header.Values(secretHeader)
	if len(values) == 0 {
		return nil, nil
	}
	if len(values) > 1 || len(values[0]) != encoding.EncodedLen(secretBytes) {
		return nil, errSecret
	}
	secret, err := encoding.DecodeString(values[0])
	if err != nil || len(secret) != secretBytes {
		return nil, errSecret // err would quote the secret
	}
	return secret, nil
}

var errSecret = errors.New("wsslink: not a lane secret")

// fingerprint returns the key of a secret in maps: a hash, so that lookups leak
// no timing.
func fingerprint(secret []byte) [sha256.Size]byte { return sha256.Sum256(secret) }

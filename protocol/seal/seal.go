// Package seal keeps what a source sends to a sink from whoever carries it (seed
// 004): the key that both have, the sealed body, and the envelope in it.
//
// A body is a nonce of 12 B, AES-256-GCM ciphertext and its tag of 16 B, without
// additional data. The AES key is the SHA-256 of the secret that both sides have:
// a shared one, or the one that a pairing makes.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"fmt"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// Overhead is how much longer a body is than what is sealed in it, in bytes.
	Overhead = nonceBytes + tagBytes

	nonceBytes = 12
	tagBytes   = 16
	// MinSecret is the least length of a shared secret, in bytes.
	MinSecret = 32
)

// A Key seals and opens bodies. It may be used by several goroutines.
type Key struct{ aead cipher.AEAD }

// SharedKey returns the key of a secret that both sides were told. It fails with
// kind invalid if secret is shorter than MinSecret. The secret's bytes count as
// they are, without Unicode normalisation.
func SharedKey(secret string) (*Key, error) {
	if len(secret) < MinSecret {
		return nil, protocol.Errorf(protocol.KindInvalid, "a shared secret has %d bytes at least", MinSecret)
	}
	return newKey([]byte(secret))
}

// newKey returns the key of a secret. A paired one is hashed again, though it has
// the length of an AES key: sources and sinks do so.
func newKey(secret []byte) (*Key, error) {
	sum := sha256.Sum256(secret)
	block, err := aes.NewCipher(sum[:])
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	return &Key{aead}, nil
}

// Seal returns plain, sealed with a nonce of its own.
func (k *Key) Seal(plain []byte) []byte {
	body := make([]byte, nonceBytes, len(plain)+Overhead)
	rand.Read(body)
	return k.aead.Seal(body, body, plain, nil)
}

// Open returns what is sealed in body, in body's own memory: a copy of a large one
// would be one too many. It fails with kind unauthenticated, and says nothing of why,
// for what wasn't sealed with this key; body is then of no use.
func (k *Key) Open(body []byte) ([]byte, error) {
	if len(body) < Overhead {
		return nil, errUnopened
	}
	nonce, sealed := body[:nonceBytes], body[nonceBytes:]
	plain, err := k.aead.Open(sealed[:0], nonce, sealed, nil)
	if err != nil {
		return nil, errUnopened
	}
	return plain, nil
}

// errUnopened says that a body isn't sealed for this sink.
var errUnopened = protocol.Errorf(protocol.KindUnauthenticated, "the body doesn't open with this pairing's key")

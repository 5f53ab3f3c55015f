package seal

import (
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// CodeLetters is how many letters a new pairing code has: 60 bits.
	CodeLetters = 12
	// oldLetters is how many the codes of sources have that speak version 1 alone.
	oldLetters = 8

	codeAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	codeGroup    = 4
	// PublicBytes is the length of an X25519 public key.
	PublicBytes = 32

	pairInfo    = "agentcookie-pair-v1"
	pairedBytes = 32
)

// A Code is what one side shows and the other is told, to pair: groups of four
// letters of base32, joined by "-".
type Code string

// NewCode returns a random code.
func NewCode() Code {
	letters := make([]byte, CodeLetters)
	rand.Read(letters)
	for i, b := range letters {
		letters[i] = codeAlphabet[b%32] // 256 is a multiple of 32
	}
	return grouped(letters)
}

// ParseCode reads a code as people type it: in letters of either case, with or
// without "-" and spaces. It fails with kind invalid for anything but 8 or 12 letters
// of base32.
func ParseCode(text string) (Code, error) {
	letters := make([]byte, 0, CodeLetters)
	for _, b := range []byte(text) {
		switch {
		case b == '-' || b == ' ':
			continue
		case 'a' <= b && b <= 'z':
			b -= 'a' - 'A'
		}
		if strings.IndexByte(codeAlphabet, b) < 0 || len(letters) == CodeLetters {
			return "", errCode
		}
		letters = append(letters, b)
	}
	if len(letters) != CodeLetters && len(letters) != oldLetters {
		return "", errCode
	}
	return grouped(letters), nil
}

// errCode repeats nothing of a code, which is a secret.
var errCode = protocol.Errorf(protocol.KindInvalid, "a pairing code has 8 or 12 letters: A to Z, 2 to 7")

func grouped(letters []byte) Code {
	var code strings.Builder
	for i, b := range letters {
		if i > 0 && i%codeGroup == 0 {
			code.WriteByte('-')
		}
		code.WriteByte(b)
	}
	return Code(code.String())
}

// A Paired secret is what two sides have that have exchanged public keys and a code.
type Paired [pairedBytes]byte

// Pair returns the secret of private and the other side's public key. It fails with
// kind invalid for a key of another length, or of low order, by which a carrier
// would know the secret.
func Pair(private *ecdh.PrivateKey, public []byte, code Code) (Paired, error) {
	var paired Paired
	other, err := ecdh.X25519().NewPublicKey(public)
	if err != nil {
		return paired, protocol.Errorf(protocol.KindInvalid, "a public key has %d bytes", PublicBytes)
	}
	shared, err := private.ECDH(other)
	if err != nil {
		return paired, protocol.Errorf(protocol.KindInvalid, "the public key is of low order")
	}
	secret, err := hkdf.Key(sha256.New, shared, []byte(code), pairInfo, pairedBytes)
	if err != nil {
		return paired, fmt.Errorf("seal: %w", err)
	}
	copy(paired[:], secret)
	return paired, nil
}

// Fingerprint returns what people compare: the first 4 bytes of the secret's hash, in
// hex. It tells whether two sides have the same secret, and isn't one itself.
func (p Paired) Fingerprint() string {
	sum := sha256.Sum256(p[:])
	return hex.EncodeToString(sum[:4])
}

// Key returns the key with which the two seal.
func (p Paired) Key() (*Key, error) { return newKey(p[:]) }

// String hides the secret from logs.
func (p Paired) String() string { return "paired " + p.Fingerprint() }

// GoString is String.
func (p Paired) GoString() string { return p.String() }

package cookieform

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/pbkdf2"
	"crypto/sha1" //nolint:gosec // Chromium's choice
	"crypto/sha256"
)

const (
	// KnownTag begins an encrypted value. On Linux it says that the key is of
	// [KnownPassword], which isn't a secret.
	KnownTag      = "v10"
	KnownPassword = "peanuts"
	// TagBytes is the length of a tag.
	TagBytes = len(KnownTag)
	// LinuxRounds and DarwinRounds are those of PBKDF2.
	LinuxRounds, DarwinRounds = 1, 1003
)

// A Key encrypts values. It is safe for concurrent use.
type Key struct{ block cipher.Block }

// NewKey returns the key that a password makes.
func NewKey(password string, rounds int) Key {
	key, err := pbkdf2.Key(sha1.New, password, []byte("saltysalt"), rounds, aes.BlockSize)
	if err != nil {
		panic(err) // only for lengths that aren't these
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err)
	}
	return Key{block}
}

func iv() []byte { return bytes.Repeat([]byte{' '}, aes.BlockSize) }

// Open decrypts a value, which comes without its tag, by AES-128-CBC with PKCS #7
// padding. There is no other proof that the key was right than the padding, and, in
// newer schemas, the host's hash. The host is the row's host_key.
func (k Key) Open(schema int, host string, sealed []byte) (value string, ok bool) {
	if len(sealed) == 0 || len(sealed)%aes.BlockSize != 0 {
		return "", false
	}
	plain := make([]byte, len(sealed))
	cipher.NewCBCDecrypter(k.block, iv()).CryptBlocks(plain, sealed)
	pad := int(plain[len(plain)-1])
	if pad == 0 || pad > aes.BlockSize || !bytes.Equal(plain[len(plain)-pad:], bytes.Repeat([]byte{byte(pad)}, pad)) {
		return "", false
	}
	rest, ok := bytes.CutPrefix(plain[:len(plain)-pad], prefix(schema, host))
	return string(rest), ok
}

// Seal encrypts a value as [Key.Open] takes it, without a tag.
func (k Key) Seal(schema int, host, value string) []byte {
	plain := append(prefix(schema, host), value...)
	pad := aes.BlockSize - len(plain)%aes.BlockSize
	plain = append(plain, bytes.Repeat([]byte{byte(pad)}, pad)...)
	cipher.NewCBCEncrypter(k.block, iv()).CryptBlocks(plain, plain)
	return plain
}

// prefix is what a value begins with.
func prefix(schema int, host string) []byte {
	if schema < prefixedFrom {
		return nil
	}
	hash := sha256.Sum256([]byte(host))
	return hash[:]
}

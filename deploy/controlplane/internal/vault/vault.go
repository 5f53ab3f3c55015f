// Package vault seals small secrets for the database under keys that are kept
// in a file outside of it.
package vault

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	// KeyBytes is the length of a key of AES-256.
	KeyBytes = 32
	// MaxKeys bounds the keys of a file.
	MaxKeys = 64
	// MaxPlain bounds what is sealed at a time, in bytes.
	MaxPlain = 64 << 10

	maxFileBytes = 64 << 10
	formatOne    = 1 // first byte of what is sealed; the nonce and the box follow
)

// ErrKey says that what was sealed needs a key that the file doesn't have.
var ErrKey = errors.New("the vault has no such key")

// ErrOpen says that what was sealed isn't as it was, or that it belongs
// elsewhere.
var ErrOpen = errors.New("the vault can't open this")

// A Vault is safe for concurrent use. It looks at its file each time it is
// used, so that a new key needs no restart.
type Vault struct {
	path string // static

	mu sync.Mutex
	// Guarded by mu.
	keys  []key // the first one seals
	state fileState
}

type key struct {
	id   string
	aead cipher.AEAD
}

// A fileState tells whether a file is the one that was read.
type fileState struct {
	size    int64
	changed time.Time
	file    os.FileInfo
}

func (s fileState) same(info os.FileInfo) bool {
	return s.file != nil && s.size == info.Size() && s.changed.Equal(info.ModTime()) && os.SameFile(s.file, info)
}

// Open reads the keys in the file at path: one on each line, 32 bytes in base64
// or hexadecimal digits. The first seals, all open. Empty lines and those that
// begin with "#" are skipped. Errors name the file and quote nothing of it.
func Open(path string) (*Vault, error) {
	v := &Vault{path: path}
	if err := v.refresh(); err != nil {
		return nil, err
	}
	return v, nil
}

// refresh reads the file again if it has changed. v.mu isn't held.
func (v *Vault) refresh() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	info, err := os.Stat(v.path)
	if err != nil {
		return fmt.Errorf("vault key file: %w", err)
	}
	if v.state.same(info) {
		return nil
	}
	keys, info, err := readKeys(v.path)
	if err != nil {
		return err
	}
	v.keys, v.state = keys, fileState{info.Size(), info.ModTime(), info}
	return nil
}

func readKeys(path string) ([]key, os.FileInfo, error) {
	data, info, err := readFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("vault key file: %w", err)
	}
	keys, err := parse(data)
	if err != nil {
		return nil, nil, fmt.Errorf("vault key file %s: %w", path, err)
	}
	return keys, info, nil
}

func readFile(path string) (data []byte, info os.FileInfo, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if info, err = f.Stat(); err != nil {
		return nil, nil, err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, nil, fmt.Errorf("%s: mode %04o lets others in, want 0600", path, mode)
	}
	data, err = io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err == nil && len(data) > maxFileBytes {
		err = fmt.Errorf("%s: larger than %d bytes", path, maxFileBytes)
	}
	return data, info, err
}

// parse reads the keys. Errors name the line, and nothing that is on it.
func parse(data []byte) ([]key, error) {
	var keys []key
	n := 0
	for line := range bytes.Lines(data) {
		n++
		text := strings.TrimSpace(string(line))
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		secret, ok := decodeKey(text)
		if !ok {
			return nil, fmt.Errorf("line %d: want %d bytes in base64 or hexadecimal digits", n, KeyBytes)
		}
		k, err := newKey(secret)
		if err != nil {
			return nil, err
		}
		for _, other := range keys {
			if other.id == k.id {
				return nil, fmt.Errorf("line %d: a key that stands above already", n)
			}
		}
		keys = append(keys, k)
	}
	if len(keys) == 0 || len(keys) > MaxKeys {
		return nil, fmt.Errorf("%d keys, want 1 to %d", len(keys), MaxKeys)
	}
	return keys, nil
}

func decodeKey(text string) ([]byte, bool) {
	if b, err := hex.DecodeString(text); err == nil && len(b) == KeyBytes {
		return b, true
	}
	text = strings.TrimRight(text, "=")
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		if b, err := encoding.DecodeString(text); err == nil && len(b) == KeyBytes {
			return b, true
		}
	}
	return nil, false
}

func newKey(secret []byte) (key, error) {
	block, err := aes.NewCipher(secret)
	if err != nil {
		return key{}, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return key{}, err
	}
	sum := sha256.Sum256(append([]byte("fairlead vault key "), secret...))
	return key{id: hex.EncodeToString(sum[:8]), aead: aead}, nil
}

// KeyID names the key that seals now.
func (v *Vault) KeyID() (string, error) {
	k, err := v.sealing()
	return k.id, err
}

func (v *Vault) sealing() (key, error) {
	if err := v.refresh(); err != nil {
		return key{}, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.keys[0], nil
}

// Seal seals plain, at most MaxPlain bytes, and returns it with the id of the
// key that opens it. What it belongs to, in order, must be named to open it.
func (v *Vault) Seal(plain []byte, belongsTo ...string) (keyID string, sealed []byte, err error) {
	if len(plain) > MaxPlain {
		return "", nil, fmt.Errorf("%d bytes are more than the vault takes", len(plain))
	}
	k, err := v.sealing()
	if err != nil {
		return "", nil, err
	}
	sealed = make([]byte, 1+k.aead.NonceSize(), 1+k.aead.NonceSize()+len(plain)+k.aead.Overhead())
	sealed[0] = formatOne
	nonce := sealed[1:]
	if _, err := rand.Read(nonce); err != nil {
		return "", nil, err
	}
	return k.id, k.aead.Seal(sealed, nonce, plain, bound(k.id, belongsTo)), nil
}

// Open returns what was sealed under the key, for what it belongs to. ErrKey
// says that the file has no such key, ErrOpen that it can't be opened.
func (v *Vault) Open(keyID string, sealed []byte, belongsTo ...string) ([]byte, error) {
	if err := v.refresh(); err != nil {
		return nil, err
	}
	k, ok := v.find(keyID)
	if !ok {
		return nil, fmt.Errorf("%w: %q", ErrKey, keyID)
	}
	head := 1 + k.aead.NonceSize()
	if len(sealed) < head || sealed[0] != formatOne {
		return nil, ErrOpen
	}
	plain, err := k.aead.Open(nil, sealed[1:head], sealed[head:], bound(k.id, belongsTo))
	if err != nil {
		return nil, ErrOpen
	}
	return plain, nil
}

func (v *Vault) find(id string) (key, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, k := range v.keys {
		if k.id == id {
			return k, true
		}
	}
	return key{}, false
}

// bound returns the additional data: each part after its length.
func bound(keyID string, parts []string) []byte {
	data := []byte("fairlead/1 vault")
	for _, part := range append([]string{keyID}, parts...) {
		data = binary.BigEndian.AppendUint32(data, uint32(len(part)))
		data = append(data, part...)
	}
	return data
}

// Generate returns a new key as a line of a key file.
func Generate() (string, error) {
	secret := make([]byte, KeyBytes)
	if _, err := rand.Read(secret); err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(secret) + "\n", nil
}

// Create makes a key file at path with one new key, unless there is a file:
// that is fs.ErrExist.
func Create(path string) error {
	line, err := Generate()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line)
	return errors.Join(err, f.Sync(), f.Close())
}

// WithNewKey returns the contents of the key file with a new key above the
// others, which still open what they sealed.
func WithNewKey(path string) ([]byte, error) {
	data, _, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("vault key file: %w", err)
	}
	line, err := Generate()
	if err != nil {
		return nil, err
	}
	data = append([]byte(line), data...)
	if _, err := parse(data); err != nil {
		return nil, fmt.Errorf("vault key file %s: %w", path, err)
	}
	return data, nil
}

// WithoutOldKeys returns the contents of the key file with the key that seals
// alone.
func WithoutOldKeys(path string) ([]byte, error) {
	data, _, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("vault key file: %w", err)
	}
	if _, err := parse(data); err != nil {
		return nil, fmt.Errorf("vault key file %s: %w", path, err)
	}
	for line := range bytes.Lines(data) {
		if _, ok := decodeKey(strings.TrimSpace(string(line))); ok {
			return append(bytes.TrimSpace(line), '\n'), nil
		}
	}
	return nil, fmt.Errorf("vault key file %s: no key", path)
}

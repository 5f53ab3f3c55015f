package controlplane

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol/jws"
)

// A SigningKey is one of the control plane's keys. Key files are named by the
// second in which the key was made; the newest one signs, all of them verify.
type SigningKey struct {
	Signer *jws.Signer
	File   string
	Made   time.Time
}

const (
	keysDir       = "keys"
	keySuffix     = ".jwk"
	keyTimeLayout = "20060102T150405Z"
	maxKeyBytes   = 4 << 10
)

// ListKeys returns the keys in stateDir, the signing one last. It makes none.
func ListKeys(stateDir string) ([]SigningKey, error) {
	return readKeys(filepath.Join(stateDir, keysDir))
}

// openKeys returns the keys in stateDir, the signing one last, and makes the
// first one when there is none.
func openKeys(stateDir string, now time.Time) ([]SigningKey, error) {
	if err := prepareStateDir(stateDir); err != nil {
		return nil, err
	}
	dir := filepath.Join(stateDir, keysDir)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	unlock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	keys, err := readKeys(dir)
	if err != nil || len(keys) > 0 {
		return keys, err
	}
	key, err := makeKey(dir, now)
	if err != nil {
		return nil, err
	}
	return []SigningKey{key}, nil
}

// lockDir keeps two processes that start together from making two first keys.
func lockDir(dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), f.Close())
	}
	return func() { f.Close() }, nil // which unlocks; nothing was written
}

func readKeys(dir string) ([]SigningKey, error) {
	if err := checkPrivate(dir); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var keys []SigningKey
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), keySuffix) {
			continue
		}
		key, err := readKey(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	slices.SortStableFunc(keys, func(a, b SigningKey) int { return a.Made.Compare(b.Made) })
	return keys, nil
}

func readKey(file string) (SigningKey, error) {
	stamp, _, _ := strings.Cut(filepath.Base(file), "-")
	made, err := time.Parse(keyTimeLayout, stamp)
	if err != nil {
		return SigningKey{}, fmt.Errorf("signing key %s: its name doesn't begin with a time like %s", file, keyTimeLayout)
	}
	data, err := readPrivate(file, maxKeyBytes)
	if err != nil {
		return SigningKey{}, fmt.Errorf("signing key: %w", err)
	}
	signer, err := jws.ParseSigner(data)
	if err != nil {
		return SigningKey{}, fmt.Errorf("signing key %s: %w", file, err)
	}
	return SigningKey{signer, file, made}, nil
}

func makeKey(dir string, now time.Time) (SigningKey, error) {
	signer, err := jws.GenerateSigner()
	if err != nil {
		return SigningKey{}, err
	}
	data, err := signer.MarshalPrivate()
	if err != nil {
		return SigningKey{}, err
	}
	made := now.UTC().Truncate(time.Second)
	file := filepath.Join(dir, made.Format(keyTimeLayout)+"-"+signer.Kid()+keySuffix)
	return SigningKey{signer, file, made}, program.ReplaceFile(file, append(data, '\n'), privateMode)
}

func keySet(keys []SigningKey) ([]byte, error) {
	var signers []*jws.Signer
	for _, key := range keys {
		signers = append(signers, key.Signer)
	}
	return jws.MarshalKeySet(signers...)
}

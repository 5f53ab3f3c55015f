package keyring

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/private"
	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol/jws"
)

const (
	indexFile     = "index.json"
	keySuffix     = ".jwk"
	keyTimeLayout = "20060102T150405Z"
	maxKeyBytes   = 4 << 10
	maxIndexBytes = 256 << 10
)

// lockDir keeps two processes from changing the directory at once.
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

// readIndex reads the index of dir. Where there is none it is made up of the
// key files, and info is nil.
func readIndex(dir string, now time.Time) (x index, info fs.FileInfo, err error) {
	path := filepath.Join(dir, indexFile)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		x, err = adopt(dir, now)
		return x, nil, err
	}
	if err != nil {
		return x, nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return x, nil, err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return x, nil, fmt.Errorf("%s: mode %04o lets others in, want %04o", path, mode, private.Mode)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxIndexBytes+1))
	if err != nil {
		return x, nil, err
	}
	if len(data) > maxIndexBytes {
		return x, nil, fmt.Errorf("%s: larger than %d bytes", path, maxIndexBytes)
	}
	if x, err = parseIndex(data); err != nil {
		return x, nil, fmt.Errorf("%s: %w", path, err)
	}
	return x, info, nil
}

func writeIndex(dir string, data []byte) error {
	return program.ReplaceFile(filepath.Join(dir, indexFile), data, private.Mode)
}

// adopt makes an index for a directory that has none: the newest key signs, as
// it did, and all of them may have signed certificates.
func adopt(dir string, now time.Time) (index, error) {
	var x index
	if err := private.Check(dir); err != nil {
		return x, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return x, err
	}
	for _, file := range entries {
		if !strings.HasSuffix(file.Name(), keySuffix) {
			continue
		}
		path := filepath.Join(dir, file.Name())
		stamp, _, _ := strings.Cut(file.Name(), "-")
		made, err := time.Parse(keyTimeLayout, stamp)
		if err != nil {
			return x, fmt.Errorf("signing key %s: its name doesn't begin with a time like %s", path, keyTimeLayout)
		}
		signer, err := readKey(path)
		if err != nil {
			return x, err
		}
		if x.find(signer.Kid()) != nil {
			return x, fmt.Errorf("signing key %s: is there twice", path)
		}
		e, err := newEntry(signer, file.Name(), made)
		if err != nil {
			return x, err
		}
		e.SignsFrom, e.CertificatesUntil = made, now.UTC().Add(legacyCertificates).Truncate(time.Second)
		x.Keys = append(x.Keys, e)
	}
	slices.SortStableFunc(x.Keys, func(a, b *entry) int { return a.SignsFrom.Compare(b.SignsFrom) })
	// The newest signs whatever the clock says.
	for _, e := range x.Keys {
		if e.SignsFrom.After(now) {
			e.SignsFrom = now.UTC()
		}
	}
	return x, nil
}

func readKey(path string) (*jws.Signer, error) {
	if err := private.Check(path); err != nil {
		return nil, fmt.Errorf("signing key: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("signing key: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxKeyBytes+1))
	if err != nil {
		return nil, fmt.Errorf("signing key: %w", err)
	}
	if len(data) > maxKeyBytes {
		return nil, fmt.Errorf("signing key %s: larger than %d bytes", path, maxKeyBytes)
	}
	signer, err := jws.ParseSigner(data)
	if err != nil {
		return nil, fmt.Errorf("signing key %s: %w", path, err)
	}
	return signer, nil
}

func makeKey(dir string, now time.Time) (file string, signer *jws.Signer, err error) {
	if signer, err = jws.GenerateSigner(); err != nil {
		return "", nil, err
	}
	data, err := signer.MarshalPrivate()
	if err != nil {
		return "", nil, err
	}
	file = now.UTC().Format(keyTimeLayout) + "-" + signer.Kid() + keySuffix
	return file, signer, program.ReplaceFile(filepath.Join(dir, file), append(data, '\n'), private.Mode)
}

func keyFileName(name string) bool {
	return strings.HasSuffix(name, keySuffix) && filepath.Base(name) == name
}

// removeKeys deletes private halves. One that is gone already is as it should be.
func removeKeys(dir string, files []string) error {
	var err error
	for _, file := range files {
		if e := os.Remove(filepath.Join(dir, file)); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

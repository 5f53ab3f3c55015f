package devstack

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/deploy/program"
)

// vaultKeyBytes is the length of the key that seals accounts' tokens.
const vaultKeyBytes = 32

// vaultKey returns the file of that key, which stays for as long as the state
// directory does.
func (s *Stack) vaultKey() (path string, err error) {
	path = filepath.Join(s.cfg.StateDir, "vault-key")
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return path, err
	}
	key := make([]byte, vaultKeyBytes)
	rand.Read(key)
	return path, program.ReplaceFile(path, []byte(base64.StdEncoding.EncodeToString(key)+"\n"), 0o600)
}

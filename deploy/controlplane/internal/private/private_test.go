package private

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestKey: the first of many makes it, and a file that is no key of ours is refused.
func TestKey(t *testing.T) {
	const size = 32
	path := filepath.Join(t.TempDir(), "test.key")
	keys := make([][]byte, 8)
	var made sync.WaitGroup
	for i := range keys {
		made.Go(func() {
			var err error
			if keys[i], err = Key(path, size); err != nil {
				t.Error(err)
			}
		})
	}
	made.Wait()
	for _, key := range keys {
		if !bytes.Equal(key, keys[0]) || len(key) != size {
			t.Fatal("who makes the key at a time doesn't get the same one")
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	for _, spoilt := range []struct {
		data []byte
		mode os.FileMode
	}{{keys[0][:31], 0o600}, {append(keys[0], 0), 0o600}, {keys[0], 0o644}} {
		if err := os.WriteFile(path, spoilt.data, spoilt.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, spoilt.mode); err != nil {
			t.Fatal(err)
		}
		if _, err := Key(path, size); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%d bytes of mode %v: %v", len(spoilt.data), spoilt.mode, err)
		}
	}
}

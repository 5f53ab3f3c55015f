package vault

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func keyFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "vault.key")
	if err := Create(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t *testing.T, path string) *Vault {
	t.Helper()
	v, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	// Two writes within one tick of the file system's clock look alike.
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(time.Duration(len(data))*time.Second)); err != nil {
		t.Fatal(err)
	}
}

func TestSealAndOpen(t *testing.T) {
	v := open(t, keyFile(t))
	plain := []byte("token of alice")
	id, sealed, err := v.Seal(plain, "usr_a", "gmail", "acc_1")
	if err != nil || bytes.Contains(sealed, plain) {
		t.Fatalf("%q, %v", sealed, err)
	}
	if got, err := v.Open(id, sealed, "usr_a", "gmail", "acc_1"); err != nil || !bytes.Equal(got, plain) {
		t.Fatalf("%q, %v", got, err)
	}
	_, again, err := v.Seal(plain, "usr_a", "gmail", "acc_1")
	if err != nil || bytes.Equal(again, sealed) {
		t.Error("the same box twice")
	}
	for _, other := range [][]string{
		{"usr_b", "gmail", "acc_1"}, {"usr_a", "github", "acc_1"}, {"usr_a", "gmail", "acc_2"},
		{"usr_a", "gmail"}, {"usr_ag", "mail", "acc_1"}, {"usr_a", "gmail", "acc_1", ""}, nil,
	} {
		if _, err := v.Open(id, sealed, other...); !errors.Is(err, ErrOpen) {
			t.Errorf("opened for %q: %v", other, err)
		}
	}
	for i := range sealed {
		for bit := range 8 {
			bad := bytes.Clone(sealed)
			bad[i] ^= 1 << bit
			if _, err := v.Open(id, bad, "usr_a", "gmail", "acc_1"); !errors.Is(err, ErrOpen) {
				t.Fatalf("opened with bit %d of byte %d changed: %v", bit, i, err)
			}
		}
		if _, err := v.Open(id, sealed[:i], "usr_a", "gmail", "acc_1"); !errors.Is(err, ErrOpen) {
			t.Fatalf("opened %d bytes of %d: %v", i, len(sealed), err)
		}
	}
	if _, err := v.Open("0011223344556677", sealed, "usr_a", "gmail", "acc_1"); !errors.Is(err, ErrKey) {
		t.Errorf("another key: %v", err)
	}
	if _, _, err := v.Seal(make([]byte, MaxPlain+1)); err == nil {
		t.Error("too much was sealed")
	}
}

// TestRotation: a vault that is in use takes a new key at once, and opens what
// the old one sealed until that is gone.
func TestRotation(t *testing.T) {
	path := keyFile(t)
	v := open(t, path)
	oldID, sealed, err := v.Seal([]byte("a"), "x")
	if err != nil {
		t.Fatal(err)
	}
	data, err := WithNewKey(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, data)
	newID, resealed, err := v.Seal([]byte("a"), "x")
	if err != nil || newID == oldID {
		t.Fatalf("%s after %s, %v", newID, oldID, err)
	}
	if _, err := v.Open(oldID, sealed, "x"); err != nil {
		t.Error(err)
	}
	if _, err := v.Open(newID, sealed, "x"); !errors.Is(err, ErrOpen) {
		t.Errorf("opened with another key: %v", err)
	}
	if data, err = WithoutOldKeys(path); err != nil {
		t.Fatal(err)
	}
	write(t, path, data)
	if _, err := v.Open(oldID, sealed, "x"); !errors.Is(err, ErrKey) {
		t.Errorf("the old key: %v", err)
	}
	if got, err := v.Open(newID, resealed, "x"); err != nil || string(got) != "a" {
		t.Errorf("%q, %v", got, err)
	}
	if id, err := v.KeyID(); err != nil || id != newID {
		t.Errorf("%s, %v", id, err)
	}
}

func TestKeyFile(t *testing.T) {
	line, err := Generate()
	if err != nil {
		t.Fatal(err)
	}
	secret := strings.TrimSpace(line)
	inHex := hex.EncodeToString(bytes.Repeat([]byte{0xab}, KeyBytes))
	for _, tt := range []struct {
		name, text string
		keys       int
		problem    string
	}{
		{"base64", line, 1, ""},
		{"hexadecimal", inHex + "\n", 1, ""},
		{"upper case", strings.ToUpper(inHex), 1, ""},
		{"comments", "# made today\n\n" + line + "  " + inHex + "\r\n", 2, ""},
		{"empty", "\n# nothing\n", 0, "0 keys"},
		{"short", secret[:40], 0, "line 1: want 32 bytes"},
		{"twice", line + line, 0, "line 2: a key that stands above already"},
		{"words", line + "correct horse battery staple", 0, "line 2: want 32 bytes"},
		{"large", strings.Repeat("#\n", maxFileBytes), 0, "larger than"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "vault.key")
			write(t, path, []byte(tt.text))
			v, err := Open(path)
			if tt.problem == "" {
				if err != nil || len(v.keys) != tt.keys {
					t.Fatalf("%v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.problem) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v, want %s", err, tt.problem)
			}
			if err != nil && (strings.Contains(err.Error(), secret[:16]) || strings.Contains(err.Error(), "horse")) {
				t.Errorf("the error quotes a key: %v", err)
			}
		})
	}
	path := keyFile(t)
	if err := Create(path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("made again: %v", err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "mode 0640 lets others in") {
		t.Errorf("error %v", err)
	}
}

// TestBrokenFile: a file that became unreadable stops a vault rather than having
// it go on with keys that may have been taken out.
func TestBrokenFile(t *testing.T) {
	path := keyFile(t)
	v := open(t, path)
	write(t, path, []byte("no key"))
	if _, _, err := v.Seal([]byte("a")); err == nil {
		t.Error("sealed")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, _, err := v.Seal([]byte("a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

func TestConcurrentUse(t *testing.T) {
	path := keyFile(t)
	v := open(t, path)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				id, sealed, err := v.Seal([]byte("a"), "x")
				if err == nil {
					_, err = v.Open(id, sealed, "x")
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	data, err := WithNewKey(path)
	if err != nil {
		t.Fatal(err)
	}
	next := path + ".new"
	write(t, next, data)
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
}

func FuzzParse(f *testing.F) {
	line, err := Generate()
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(line))
	f.Add([]byte("# a\n" + strings.Repeat("ab", KeyBytes)))
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, err := parse(data)
		if err == nil && (len(keys) == 0 || len(keys) > MaxKeys) {
			t.Errorf("%d keys", len(keys))
		}
	})
}

func FuzzOpen(f *testing.F) {
	path := filepath.Join(f.TempDir(), "vault.key")
	if err := Create(path); err != nil {
		f.Fatal(err)
	}
	v, err := Open(path)
	if err != nil {
		f.Fatal(err)
	}
	id, sealed, err := v.Seal([]byte("a"), "x")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sealed)
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := v.Open(id, data, "y"); err == nil {
			t.Error("opened")
		}
	})
}

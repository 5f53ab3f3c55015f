package config

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/program/sitepolicy"
	"github.com/fairlead/fairlead/protocol/seal"
)

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func open(t *testing.T) Dir {
	t.Helper()
	d, err := Open(filepath.Join(t.TempDir(), "config"))
	must(t, err)
	return d
}

// TestFiles: what was written is read again, nobody else can, and with the pairing go
// its key, address and secret.
func TestFiles(t *testing.T) {
	d := open(t)
	if _, err := d.Login(); !errors.Is(err, ErrNotLoggedIn) {
		t.Error(err)
	}
	if _, err := d.Pairing(); !errors.Is(err, ErrNotPaired) {
		t.Error(err)
	}
	if s, err := d.State(); err != nil || s.Sequence != 0 {
		t.Error(s, err)
	}
	key := Key{Peer: "../a b/..", Key: make([]byte, len(seal.Paired{})), Fingerprint: "01234567", Version: 1, PairedAt: time.Unix(1e9, 0).UTC()}
	must(t, d.PutKey(key))
	must(t, d.PutLogin(Login{ControlPlane: "https://c.test", Token: "ut_secret"}))
	must(t, d.PutPairing(Pairing{Fingerprint: "01234567"}))
	must(t, d.PutState(State{Sequence: 1<<62 + 1}))
	must(t, d.PutSource(Source{Sink: Sink{URL: "https://r.test/sync/x"}, Peer: Peer{"../a b/.."}, Browser: Browser{Name: "brave"}}))
	must(t, sitepolicy.File{Version: 1, Policy: "allowlist", Domains: []sitepolicy.Domain{{Pattern: "a.test"}}}.Write(d.PolicyPath()))
	if again, err := d.Key(key.Peer); err != nil || again.Fingerprint != key.Fingerprint || !again.PairedAt.Equal(key.PairedAt) {
		t.Error(again, err)
	}
	if s, err := d.State(); err != nil || s.Sequence != 1<<62+1 {
		t.Error(s, err)
	}
	must(t, filepath.WalkDir(filepath.Dir(d.Path()), func(path string, about fs.DirEntry, err error) error {
		if err != nil || path == filepath.Dir(d.Path()) {
			return err
		}
		st, err := about.Info()
		if err == nil && st.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, st.Mode())
		}
		return err
	}))
	must(t, d.Forget())
	if _, err := d.Key(key.Peer); !errors.Is(err, ErrNotPaired) {
		t.Error(err)
	}
	if s, err := d.Source(); err != nil || s.Sink.URL != "" || s.Browser.Name != "brave" {
		t.Error(s, err)
	}
	if file, err := d.Policy(); err != nil || len(file.Domains) != 1 {
		t.Error("the list went with the pairing", file, err)
	}
	must(t, d.Forget())
}

// TestBadFiles: an error names the file, and repeats nothing of it.
func TestBadFiles(t *testing.T) {
	d := open(t)
	for name, read := range map[string]func() error{
		loginFile:   func() error { _, err := d.Login(); return err },
		pairingFile: func() error { _, err := d.Pairing(); return err },
		stateFile:   func() error { _, err := d.State(); return err },
		sourceFile:  func() error { _, err := d.Source(); return err },
	} {
		must(t, os.WriteFile(d.in(name), []byte("\t{ut_secret"), private))
		if err := read(); err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, d.PutKey(Key{Peer: "p", Key: []byte("short")}))
	if _, err := d.Key("p"); err == nil {
		t.Error("a short key is one")
	}
	must(t, os.Chmod(d.KeyPath("p"), 0o644))
	if _, err := d.Key("p"); err == nil || !strings.Contains(err.Error(), "others can read it") {
		t.Error(err)
	}
	must(t, os.Chmod(d.Path(), 0o755))
	if _, err := Open(d.Path()); err == nil || !strings.Contains(err.Error(), "chmod") {
		t.Error(err)
	}
}

// TestLock: two don't push at the same time, and what a killed one has left goes.
func TestLock(t *testing.T) {
	d := open(t)
	left := filepath.Join(d.Scratch(), "cookies-1")
	must(t, os.Mkdir(left, 0o700))
	unlock, err := d.Lock(t.Context())
	must(t, err)
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a copy was left")
	}
	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan error, 1)
	go func() { _, err := d.Lock(ctx); waiting <- err }()
	cancel()
	if err := <-waiting; !errors.Is(err, context.Canceled) {
		t.Error("two have it", err)
	}
	unlock()
	unlock, err = d.Lock(t.Context())
	must(t, err)
	unlock()
}

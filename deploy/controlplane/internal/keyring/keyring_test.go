package keyring

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// A clock is a time that only the test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func openRing(t *testing.T, dir string, c *clock) *Ring {
	t.Helper()
	r, err := Open(dir, Options{Now: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func privateDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "keys")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// uses returns what each key is for, by kid.
func uses(t *testing.T, dir string, c *clock) map[string]Use {
	t.Helper()
	keys, err := List(dir, c.Now())
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]Use)
	for _, key := range keys {
		all[key.Kid] = key.Use
		_, err := os.Stat(filepath.Join(dir, key.File))
		if needed := key.Use == UseSign || key.Use == UseNext; needed && (err != nil || key.File == "") {
			t.Errorf("key %s is to sign and has no private half: %v", key.Kid, err)
		}
	}
	return all
}

func published(t *testing.T, r *Ring, kid string) bool {
	t.Helper()
	return strings.Contains(string(r.JWKS()), `"kid":"`+kid+`"`)
}

func rotate(t *testing.T, r *Ring, after time.Duration) string {
	t.Helper()
	key, err := r.Rotate(after)
	if err != nil {
		t.Fatal(err)
	}
	return key.Kid
}

func grantOf(t *testing.T, signer *jws.Signer, c *clock) string {
	t.Helper()
	now := c.Now().Unix()
	token, err := signer.SignGrant(jws.Grant{
		Subject: "usr_1", Sandbox: "sb_1", ID: protocol.NewGrantID(),
		IssuedAt: now, ExpiresAt: now + int64(protocol.MaxGrantTTL/time.Second),
	})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// TestRotation follows a key from its publication to its retirement.
func TestRotation(t *testing.T) {
	c, dir := newClock(), privateDir(t)
	r, other := openRing(t, dir, c), openRing(t, dir, c) // as of another process
	first := r.Signer().Kid()
	second := rotate(t, other, Prepublish)

	if !published(t, r, second) || r.Signer().Kid() != first {
		t.Fatal("a new key must be published at once and not sign yet")
	}
	c.Advance(Prepublish - time.Millisecond)
	grant := grantOf(t, r.Signer(), c)
	if r.Signer().Kid() != first {
		t.Error("the new key signs too early")
	}
	c.Advance(time.Millisecond)
	if r.Signer().Kid() != second {
		t.Fatal("the new key doesn't sign when its time has come")
	}
	if err := r.Tidy(); err != nil {
		t.Fatal(err)
	}
	if files, err := filepath.Glob(filepath.Join(dir, "*.jwk")); err != nil || len(files) != 1 || !strings.Contains(files[0], second) {
		t.Errorf("private halves %v, %v; want that of %s alone", files, err, second)
	}

	// The last grant of the old key is believed as long as it lives.
	c.Advance(protocol.MaxGrantTTL + protocol.ClockSkew - time.Second)
	if _, err := r.Keys().Grant(t.Context(), grant); err != nil {
		t.Errorf("a grant of the old key: %v", err)
	}
	c.Advance(protocol.ClockSkew)
	if !published(t, r, first) {
		t.Error("the old key was retired too early")
	}
	c.Advance(time.Second)
	if published(t, r, first) {
		t.Error("the old key was not retired")
	}
	if err := r.Tidy(); err != nil {
		t.Fatal(err)
	}
	if got := uses(t, dir, c); len(got) != 1 || got[second] != UseSign {
		t.Errorf("keys %v, want %s alone", got, second)
	}
}

// TestCertificatesKeepTheirKey: a key is believed as long as what it certified.
func TestCertificatesKeepTheirKey(t *testing.T) {
	c := newClock()
	dir := privateDir(t)
	r := openRing(t, dir, c)
	first := r.Signer().Kid()
	until := c.Now().Add(24 * time.Hour)
	for range 3 {
		signer, err := r.CertificateSigner(until)
		if err != nil || signer.Kid() != first {
			t.Fatalf("signer %v, %v", signer, err)
		}
	}
	rotate(t, r, 0)
	c.Advance(24*time.Hour + 2*protocol.ClockSkew)
	if !published(t, r, first) {
		t.Error("retired before its certificate has expired")
	}
	c.Advance(certificateStep)
	if published(t, r, first) {
		t.Error("not retired after its certificate has expired")
	}
}

// TestCertificateSignerWritesRarely: certificates of one hour cost one write.
func TestCertificateSignerWritesRarely(t *testing.T) {
	c, dir := newClock(), privateDir(t)
	r := openRing(t, dir, c)
	if _, err := r.CertificateSigner(c.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(filepath.Join(dir, indexFile))
	if err != nil {
		t.Fatal(err)
	}
	r.Signer() // reads the new index
	for range 10 {
		c.Advance(time.Minute)
		if _, err := r.CertificateSigner(c.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if after, err := os.Stat(filepath.Join(dir, indexFile)); err != nil || !os.SameFile(before, after) {
		t.Errorf("the index was written again, %v", err)
	}
}

func TestRotateTwice(t *testing.T) {
	c, dir := newClock(), privateDir(t)
	r := openRing(t, dir, c)
	next := rotate(t, r, Prepublish)
	if _, err := r.Rotate(Prepublish); protocol.KindOf(err) != protocol.KindConflict {
		t.Errorf("error %v, want a conflict", err)
	}
	if now := rotate(t, r, 0); now != next || r.Signer().Kid() != next {
		t.Errorf("rotating now made %s sign, want %s", now, next)
	}
	if len(uses(t, dir, c)) != 2 {
		t.Errorf("keys %v", uses(t, dir, c))
	}
	var err error
	for i := 2; i < MaxKeys && err == nil; i++ {
		_, err = r.Rotate(0)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Rotate(0); protocol.KindOf(err) != protocol.KindTooMany {
		t.Errorf("error %v, want too many", err)
	}
}

func TestRevoke(t *testing.T) {
	c, dir := newClock(), privateDir(t)
	r, other := openRing(t, dir, c), openRing(t, dir, c)
	only := r.Signer().Kid()
	if _, err := r.Revoke("nobody", false); protocol.KindOf(err) != protocol.KindNotFound {
		t.Errorf("an unknown key: %v", err)
	}
	if _, err := r.Revoke(only, false); protocol.KindOf(err) != protocol.KindConflict {
		t.Errorf("the only key: %v", err)
	}
	grant := grantOf(t, r.Signer(), c)
	second, err := r.Revoke(only, true)
	if err != nil || second.Kid == only || second.Use != UseSign {
		t.Fatalf("%+v, %v", second, err)
	}
	if _, err := other.Keys().Grant(t.Context(), grant); !errors.Is(err, jws.ErrUnknownKey) {
		t.Errorf("a grant of the revoked key: %v", err)
	}
	if other.Signer().Kid() != second.Kid || published(t, other, only) {
		t.Error("the other process goes on with the revoked key")
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*"+only+".jwk")); len(files) != 0 {
		t.Error("the private half of the revoked key is still there")
	}
	if again, err := r.Revoke(only, false); err != nil || again.Kid != second.Kid {
		t.Errorf("revoked twice: %+v, %v", again, err)
	}

	// The next one takes over at once; after it an older one can't.
	next := rotate(t, r, Prepublish)
	if signs, err := r.Revoke(second.Kid, false); err != nil || signs.Kid != next || r.Signer().Kid() != next {
		t.Errorf("%+v signs, %v; want %s", signs, err, next)
	}
	last := rotate(t, r, 0)
	signs, err := r.Revoke(last, false)
	if err != nil || signs.Kid == next || signs.Kid == last || r.Signer().Kid() != signs.Kid {
		t.Errorf("%+v signs, %v; want a new one", signs, err)
	}
	if got := uses(t, dir, c); got[next] != UseVerify || got[last] != UseRevoked {
		t.Errorf("keys %v", got)
	}
}

// TestRevokeNext: a key that doesn't sign yet is simply gone.
func TestRevokeNext(t *testing.T) {
	c, dir := newClock(), privateDir(t)
	r := openRing(t, dir, c)
	first := r.Signer().Kid()
	next := rotate(t, r, Prepublish)
	if signs, err := r.Revoke(next, false); err != nil || signs.Kid != first {
		t.Errorf("%+v signs, %v", signs, err)
	}
	c.Advance(time.Hour)
	if r.Signer().Kid() != first || published(t, r, next) {
		t.Error("a revoked key signs or is published")
	}
}

// TestClockSetBack: the key that has begun to sign goes on.
func TestClockSetBack(t *testing.T) {
	c, dir := newClock(), privateDir(t)
	r := openRing(t, dir, c)
	rotate(t, r, time.Minute)
	c.Advance(time.Hour)
	second := r.Signer().Kid()
	if err := r.Tidy(); err != nil {
		t.Fatal(err)
	}
	c.Advance(-24 * time.Hour)
	r = openRing(t, dir, c)
	if r.Signer().Kid() != second {
		t.Error("another key signs")
	}
	third := rotate(t, r, 0)
	if openRing(t, dir, c).Signer().Kid() != third {
		t.Errorf("a key that was made after the clock was set back doesn't sign: %v", uses(t, dir, c))
	}
}

// TestAdopt goes on with a directory from before there was an index.
func TestAdopt(t *testing.T) {
	c, dir := newClock(), privateDir(t)
	var kids []string
	for i := range 2 {
		_, signer, err := makeKey(dir, c.Now().Add(time.Duration(i)*time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		kids = append(kids, signer.Kid())
	}
	c.Advance(time.Hour)
	if got := uses(t, dir, c); got[kids[0]] != UseVerify || got[kids[1]] != UseSign {
		t.Errorf("keys %v", got)
	}
	r := openRing(t, dir, c)
	if r.Signer().Kid() != kids[1] || !published(t, r, kids[0]) {
		t.Error("the newest must sign and all be published")
	}
	c.Advance(legacyCertificates)
	if !published(t, r, kids[0]) {
		t.Error("an old key was retired while a certificate of it may live")
	}
	c.Advance(time.Hour)
	if published(t, r, kids[0]) {
		t.Error("the old key was not retired")
	}
}

// TestParallelOpen: processes that start together make one first key.
func TestParallelOpen(t *testing.T) {
	c, dir := newClock(), privateDir(t)
	var group sync.WaitGroup
	kids := make(chan string, 20)
	for range cap(kids) {
		group.Go(func() {
			r, err := Open(dir, Options{Now: c.Now})
			if err != nil {
				t.Error(err)
				return
			}
			kids <- r.Signer().Kid()
		})
	}
	group.Wait()
	close(kids)
	first := <-kids
	for kid := range kids {
		if kid != first {
			t.Fatal("two first keys")
		}
	}
}

// TestParallelUse signs and verifies while keys are rotated and revoked.
func TestParallelUse(t *testing.T) {
	c, dir := newClock(), privateDir(t)
	r, other := openRing(t, dir, c), openRing(t, dir, c)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 50 {
				until := c.Now().Add(time.Hour)
				if _, err := r.CertificateSigner(until); err != nil && protocol.KindOf(err) != protocol.KindUnavailable {
					t.Error(err)
				}
				if !strings.Contains(string(r.JWKS()), `"keys":[{`) {
					t.Errorf("empty set %s", r.JWKS())
				}
			}
		})
	}
	for range 20 {
		kid := rotate(t, other, 0)
		if _, err := other.Revoke(kid, true); err != nil {
			t.Error(err)
		}
		for kid, use := range uses(t, dir, c) {
			if use == UseVerify {
				if _, err := other.Revoke(kid, false); err != nil {
					t.Error(err)
				}
			}
		}
	}
	group.Wait()
}

// TestUnreadableIndex: a ring that is running goes on with what it has; one
// that starts says which file is at fault.
func TestUnreadableIndex(t *testing.T) {
	c, dir := newClock(), privateDir(t)
	r := openRing(t, dir, c)
	kid := r.Signer().Kid()
	path := filepath.Join(dir, indexFile)
	for name, spoil := range map[string]func() error{
		"malformed": func() error { return os.WriteFile(path, []byte("{"), 0o600) },
		"newer":     func() error { return os.WriteFile(path, []byte(`{"version":2,"keys":[]}`), 0o600) },
		"too large": func() error { return os.WriteFile(path, make([]byte, maxIndexBytes+1), 0o600) },
		"open":      func() error { return os.WriteFile(path, []byte(`{"version":1,"keys":[]}`), 0o600) },
	} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if name == "open" {
			if err := os.Chmod(path, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if r.Signer().Kid() != kid {
			t.Errorf("%s: another key signs", name)
		}
		if _, err := Open(dir, Options{Now: c.Now}); err == nil || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line with %s", name, err, path)
		}
	}
}

// FuzzIndex: whatever an index holds, reading it neither panics nor lets two
// keys sign, and what is written can be read again.
func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"version":1,"keys":[{"kid":"a","jwk":{},"file":"a.jwk","made":"2026-11-20T12:00:00Z","signs_from":"2026-11-20T12:00:00Z"}]}`), int64(0))
	f.Add([]byte(`{"version":1,"keys":[{"kid":"a","jwk":{},"made":"2026-11-20T12:00:00Z","signs_from":"2026-11-20T12:00:00Z","revoked_at":"2026-11-21T12:00:00Z"},{"kid":"b","jwk":{},"file":"b.jwk","made":"2026-11-20T12:00:00Z","signs_from":"2027-11-20T12:00:00Z"}]}`), int64(86400))
	f.Fuzz(func(t *testing.T, data []byte, seconds int64) {
		x, err := parseIndex(data)
		if err != nil {
			return
		}
		now := newClock().Now().Add(time.Duration(seconds) * time.Second)
		signing := 0
		for _, key := range x.list(now) {
			if key.Use == UseSign {
				signing++
			}
		}
		if signing > 1 {
			t.Errorf("%d keys sign", signing)
		}
		x.nextChange(now)
		x.tidy(now)
		again, err := x.encode()
		if err != nil {
			return // a time that JSON can't hold
		}
		if _, err := parseIndex(again); err != nil {
			t.Errorf("%s: %v", again, err)
		}
	})
}

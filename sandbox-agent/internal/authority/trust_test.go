package authority

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/agenttest"
)

// TestDeviceKey: it is made once, for its owner alone.
func TestDeviceKey(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	first, err := DeviceKey(dir)
	must(t, err)
	second, err := DeviceKey(dir)
	must(t, err)
	if !bytes.Equal(first.PublicJWK(), second.PublicJWK()) {
		t.Error("the key changed")
	}
	for path, mode := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, deviceKeyFile): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v; want %o", path, info.Mode(), err, mode)
		}
	}
}

// TestKeysAreCached: keys come from nobody but the control plane, and the next
// agent begins with them.
func TestKeysAreCached(t *testing.T) {
	w := newWorld(t)
	signer, jwks := newKeys(t)
	a := w.open()
	grant := signGrant(t, signer)
	follow := func(until func() bool) {
		ctx, cancel := context.WithCancel(within(t))
		done := make(chan struct{})
		go func() { // waited for below
			defer close(done)
			a.Trust.Follow(ctx, func() bool { return true })
		}()
		waitFor(t, "news", until)
		cancel()
		<-done
	}
	publish(w.ControlPlane, jwks)
	impostor := agenttest.NewControlPlane(t)
	publish(impostor, jwks)
	w.astray.Store(impostor)
	follow(func() bool { return strings.Contains(w.log.String(), "keys not refreshed") })
	cache := filepath.Join(w.dir, keysFile)
	if _, err := os.Stat(cache); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an impostor's keys were cached: %v", err)
	}
	w.astray.Store(nil)
	follow(func() bool { _, err := os.Stat(cache); return err == nil })
	if _, err := a.Trust.Keys.Grant(t.Context(), grant); err != nil {
		t.Errorf("with the new keys: %v", err)
	}
	before, err := os.Stat(cache)
	must(t, err)
	a.Trust.store(jwks)
	if after, err := os.Stat(cache); err != nil || !os.SameFile(before, after) {
		t.Errorf("the same keys were written again: %v", err)
	}
	if _, err := w.open().Trust.Keys.Grant(t.Context(), grant); err != nil {
		t.Errorf("the next agent: %v", err)
	}
}

// TestKnownKeys: which key set an agent begins with.
func TestKnownKeys(t *testing.T) {
	for _, tt := range []struct {
		what  string
		cache func(jwks []byte) []byte
		later bool // the enrolment is newer than the cache
		want  string
	}{
		{"cached", func(jwks []byte) []byte { return jwks }, false, "cached"},
		{"older than the enrolment", func(jwks []byte) []byte { return jwks }, true, "enrolled"},
		{"garbled", func([]byte) []byte { return []byte("{") }, false, "enrolled"},
		{"empty", func([]byte) []byte { return []byte(`{"keys":[]}`) }, false, "enrolled"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			w := newWorld(t)
			signer, jwks := newKeys(t)
			cache := filepath.Join(w.dir, keysFile)
			must(t, os.WriteFile(cache, tt.cache(jwks), 0o600))
			if tt.later {
				must(t, os.Chtimes(cache, time.Time{}, time.Now().Add(-time.Hour)))
			}
			a := w.open()
			want := signGrant(t, w.Signer)
			if tt.want == "cached" {
				want = signGrant(t, signer)
			}
			if _, err := a.Trust.Keys.Grant(t.Context(), want); err != nil {
				t.Errorf("not the %s keys: %v", tt.want, err)
			}
		})
	}
}

// TestKeysMaxAge: while the control plane is away the cached keys are believed
// until they are too old, also by an agent that starts then, and believed again
// after news of them.
func TestKeysMaxAge(t *testing.T) {
	w := newWorld(t)
	signer, jwks := newKeys(t)
	cache := filepath.Join(w.dir, keysFile)
	must(t, os.WriteFile(cache, jwks, 0o600))
	age := func(d time.Duration) {
		must(t, os.Chtimes(cache, time.Time{}, time.Now().Add(-d)))
		must(t, os.Chtimes(w.file, time.Time{}, time.Now().Add(-24*time.Hour)))
	}
	w.Handle(agenttest.KeysRoute, func(rw http.ResponseWriter, _ *http.Request) { refuse(rw, http.StatusServiceUnavailable, "away") })
	age(59 * time.Minute)
	trust := w.open().Trust
	if _, err := trust.Keys.Grant(t.Context(), signGrant(t, signer)); err != nil || trust.Problem(time.Now()) != "" {
		t.Errorf("within their time: %v, %q", err, trust.Problem(time.Now()))
	}

	age(61 * time.Minute)
	trust = w.open().Trust
	if _, err := trust.Keys.Grant(t.Context(), signGrant(t, signer)); err == nil || protocol.KindOf(err) != protocol.KindUnavailable {
		t.Errorf("too old: %v", err)
	}
	if trust.Problem(time.Now()) == "" {
		t.Error("too old, and no problem")
	}
	if err := trust.Keys.Refresh(within(t)); err == nil {
		t.Error("the control plane is there")
	}
	publish(w.ControlPlane, jwks)
	must(t, trust.Keys.Refresh(within(t)))
	if _, err := trust.Keys.Grant(t.Context(), signGrant(t, signer)); err != nil || trust.Problem(time.Now()) != "" {
		t.Errorf("with news: %v, %q", err, trust.Problem(time.Now()))
	}
	if info, err := os.Stat(cache); err != nil || time.Since(info.ModTime()) > time.Minute {
		t.Errorf("the cache is as old as before: %v", err)
	}
}

// A file from the future is from now: clocks are set back.
func TestKeysFromTheFuture(t *testing.T) {
	w := newWorld(t)
	must(t, os.Chtimes(w.file, time.Time{}, time.Now().Add(24*time.Hour)))
	if fetched := *w.open().Trust.fetched.Load(); time.Since(fetched) < 0 {
		t.Errorf("fetched at %v", fetched)
	}
}

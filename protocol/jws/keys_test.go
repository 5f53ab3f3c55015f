package jws_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A source is a control plane that publishes key sets.
type source struct {
	delay time.Duration // of each answer

	mu sync.Mutex
	// Guarded by mu.
	jwks  []byte
	err   error
	calls int
}

func (s *source) publish(jwks []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jwks, s.err = jwks, err
}

func (s *source) fetch(ctx context.Context) ([]byte, error) {
	s.mu.Lock()
	s.calls++
	s.mu.Unlock()
	select {
	case <-time.After(s.delay):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jwks, s.err
}

func (s *source) wantCalls(t *testing.T, n int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls != n {
		t.Fatalf("%d fetches, want %d", s.calls, n)
	}
}

// grantBy returns a grant signed by k that is valid now.
func (k rawKey) grantBy() string {
	iat := time.Now().Unix()
	return k.typed(jws.TypeGrant, mustJSON(grantPayload().with("iat", iat).with("exp", iat+600)))
}

func TestKeysRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := newRawKey(t, "k1"), newRawKey(t, "k2")
		var cached []string
		src := &source{jwks: keySetOf(before.jwk(nil))}
		keys := jws.NewKeys(nil, jws.KeysOptions{
			Fetch:    src.fetch,
			OnUpdate: func(jwks []byte) { cached = append(cached, string(jwks)) },
		})
		noError(t, keys.Refresh(t.Context()))
		_, err := keys.Grant(t.Context(), before.grantBy())
		noError(t, err)
		src.wantCalls(t, 1)

		// A fetch has just been made, and yet the new key is known at once.
		src.publish(keySetOf(after.jwk(nil)), nil)
		_, err = keys.Grant(t.Context(), after.grantBy())
		noError(t, err)
		src.wantCalls(t, 2)

		// The old key is gone, and its tokens provoke nothing within the interval.
		for range 10 {
			_, err = keys.Grant(t.Context(), before.grantBy())
			wantKind(t, err, protocol.KindUnauthenticated)
		}
		src.wantCalls(t, 2)
		if len(cached) != 2 || cached[1] != string(keySetOf(after.jwk(nil))) {
			t.Errorf("cached %q", cached)
		}
	})
}

func TestKeysReplacedUnderSameKid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := newRawKey(t, "k1"), newRawKey(t, "k1")
		src := &source{jwks: keySetOf(after.jwk(nil))}
		keys := jws.NewKeys(set(t, before.jwk(nil)), jws.KeysOptions{Fetch: src.fetch})
		_, err := keys.Grant(t.Context(), after.grantBy())
		noError(t, err)
		src.wantCalls(t, 1)
	})
}

// TestKeysMalformedFetchesNothing: only steps 6 and 7 may be cured by a new set.
func TestKeysMalformedFetchesNothing(t *testing.T) {
	k := newRawKey(t, "k1")
	src := &source{jwks: keySetOf(k.jwk(nil))}
	keys := jws.NewKeys(set(t, k.jwk(nil)), jws.KeysOptions{Fetch: src.fetch, Now: clock(now)})
	for _, token := range []string{
		"", "x", k.token(`{"alg":"none","kid":"k2"}`, "{}"), k.token(`{"alg":"ES256"}`, "{}"),
		k.typed("at+jwt", "{}"), k.typed(jws.TypeGrant, "{}"), k.typed(jws.TypeGrant, mustJSON(grantPayload().with("exp", 0))),
	} {
		_, err := keys.Grant(t.Context(), token)
		wantKind(t, err, protocol.KindUnauthenticated)
	}
	src.wantCalls(t, 0)
}

func TestKeysSingleFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newRawKey(t, "k1")
		src := &source{delay: time.Second, jwks: keySetOf(k.jwk(nil))}
		keys := jws.NewKeys(nil, jws.KeysOptions{Fetch: src.fetch})
		var wg sync.WaitGroup
		errs := make([]error, 50)
		for i := range errs {
			wg.Go(func() {
				if i%10 == 0 {
					errs[i] = keys.Refresh(t.Context())
				} else {
					_, errs[i] = keys.Grant(t.Context(), k.grantBy())
				}
			})
		}
		wg.Wait()
		noError(t, errors.Join(errs...))
		src.wantCalls(t, 1)
	})
}

// TestKeysCallerGivesUp: a caller that leaves neither waits nor spoils the
// fetch for the others.
func TestKeysCallerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newRawKey(t, "k1")
		src := &source{delay: 2 * time.Second, jwks: keySetOf(k.jwk(nil))}
		keys := jws.NewKeys(nil, jws.KeysOptions{Fetch: src.fetch})
		start := time.Now()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := keys.Grant(short, k.grantBy())
			wantLater(t, err, protocol.KindUnauthenticated)
			if waited := time.Since(start); waited != time.Second {
				t.Errorf("waited %s", waited)
			}
		})
		synctest.Wait() // the fetch is this caller's
		wg.Go(func() {
			err := keys.Refresh(short)
			wantLater(t, err, protocol.KindUnavailable)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v hides its cause", err)
			}
		})
		_, err := keys.Grant(t.Context(), k.grantBy())
		noError(t, err)
		wg.Wait()
		src.wantCalls(t, 1)
	})
}

// wantLater is wantKind for goroutines, which must not call FailNow.
func wantLater(t *testing.T, err error, kind protocol.Kind) {
	t.Helper()
	if err == nil || protocol.KindOf(err) != kind {
		t.Errorf("error %v, want kind %s", err, kind)
	}
}

func TestKeysFetchHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &source{delay: time.Hour}
		keys := jws.NewKeys(nil, jws.KeysOptions{Fetch: src.fetch})
		start := time.Now()
		wantKind(t, keys.Refresh(t.Context()), protocol.KindUnavailable)
		if waited := time.Since(start); waited != 10*time.Second {
			t.Errorf("waited %s", waited)
		}
	})
}

func TestKeysFetchFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, stranger := newRawKey(t, "k1"), newRawKey(t, "k2")
		src := &source{}
		updates := 0
		keys := jws.NewKeys(set(t, k.jwk(nil)), jws.KeysOptions{
			Fetch: src.fetch, MinInterval: time.Minute, OnUpdate: func([]byte) { updates++ },
		})
		failures := []struct {
			jwks []byte
			err  error
		}{
			{nil, errors.New("connection refused")},
			{[]byte("<html>"), nil},
			{[]byte(`{"keys":[]}`), nil}, // no control plane is without a key
			{keySetOf(map[string]any{"kty": "RSA"}), nil},
			{make([]byte, jws.MaxKeySetBytes+1), nil},
		}
		for i, f := range failures {
			src.publish(f.jwks, f.err)
			wantKind(t, keys.Refresh(t.Context()), protocol.KindUnavailable)
			_, err := keys.Grant(t.Context(), k.grantBy())
			noError(t, err) // the set is as it was
			src.wantCalls(t, i+1)
		}
		// What a token provokes is rated by itself, and a failure counts too.
		for range 2 {
			_, err := keys.Grant(t.Context(), stranger.grantBy())
			wantKind(t, err, protocol.KindUnauthenticated)
			src.wantCalls(t, len(failures)+1)
		}
		if updates != 0 {
			t.Errorf("%d updates", updates)
		}
	})
}

func TestKeysMaxAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newRawKey(t, "k1")
		src := &source{err: errors.New("connection refused")}
		keys := jws.NewKeys(set(t, k.jwk(nil)), jws.KeysOptions{
			Fetch: src.fetch, MaxAge: time.Hour, FetchedAt: time.Now().Add(-30 * time.Minute),
		})
		time.Sleep(30 * time.Minute)
		_, err := keys.Grant(t.Context(), k.grantBy())
		noError(t, err)
		src.wantCalls(t, 0)

		time.Sleep(time.Millisecond) // too old: one fetch for each interval, none succeeds
		for range 3 {
			_, err = keys.Grant(t.Context(), k.grantBy())
			wantKind(t, err, protocol.KindUnavailable)
		}
		src.wantCalls(t, 1)

		src.publish(keySetOf(k.jwk(nil)), nil)
		time.Sleep(30 * time.Second)
		_, err = keys.Grant(t.Context(), k.grantBy())
		noError(t, err)
		src.wantCalls(t, 2)
		time.Sleep(time.Hour)
		_, err = keys.Grant(t.Context(), k.grantBy())
		noError(t, err)
		src.wantCalls(t, 2)
	})
}

func TestKeysStatic(t *testing.T) {
	k, stranger := newRawKey(t, "k1"), newRawKey(t, "k2")
	keys := k.static(t, now)
	noError(t, keys.Refresh(t.Context()))
	_, err := keys.Grant(t.Context(), stranger.typed(jws.TypeGrant, mustJSON(grantPayload())))
	if !errors.Is(err, jws.ErrUnknownKey) {
		t.Errorf("error %v", err)
	}
	_, err = jws.NewKeys(nil, jws.KeysOptions{}).Grant(t.Context(), k.grantBy())
	if !errors.Is(err, jws.ErrUnknownKey) {
		t.Errorf("error %v", err)
	}
}

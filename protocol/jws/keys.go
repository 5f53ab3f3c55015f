package jws

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// Defaults and limits of [KeysOptions].
const (
	defaultMinInterval = 30 * time.Second
	fetchTimeout       = 10 * time.Second // for one call of Fetch
)

// KeysOptions say where key sets come from and how long they are valid.
type KeysOptions struct {
	// Fetch returns the current JWK set. Its context ends after 10 s, not with the
	// caller that needs it. Nil: the set never changes.
	Fetch func(ctx context.Context) ([]byte, error)
	// MinInterval is the time between the starts of two fetches caused by tokens;
	// default 30 s. Refresh doesn't count. So a new key is known at once, and
	// garbage costs one fetch per interval.
	MinInterval time.Duration
	// MaxAge is how long a fetched set is valid; afterwards tokens are refused
	// with kind unavailable until a fetch succeeds. 0: no limit.
	MaxAge time.Duration
	// FetchedAt is when the initial set was fetched; default now.
	FetchedAt time.Time
	// Revoked makes Grant and Certificate refuse what it revokes; may be nil.
	Revoked *RevocationSet
	// Now is the clock; default [time.Now].
	Now func() time.Time
	// OnUpdate receives every fetched set that is in use from now on, for a cache
	// on disk. Calls don't overlap; those who wait for the fetch also wait for
	// OnUpdate.
	OnUpdate func(jwks []byte)
}

// Keys verifies objects against a refreshable key set. It is safe for
// concurrent use.
type Keys struct {
	// Static after construction.
	opts KeysOptions

	opened openedGrants

	mu sync.Mutex
	// Guarded by mu.
	set     *KeySet
	fetched time.Time // when the fetch of set began
	tried   time.Time // when a token last caused a fetch; zero before the first
	flight  *flight   // the running fetch, if any
}

// A flight is one fetch, shared by all who need it.
type flight struct {
	began time.Time
	done  chan struct{} // closed at the end
	err   error         // set before done is closed
}

// NewKeys returns Keys that begin with initial; nil is an empty set.
func NewKeys(initial *KeySet, opts KeysOptions) *Keys {
	if initial == nil {
		initial = &KeySet{}
	}
	if opts.MinInterval <= 0 {
		opts.MinInterval = defaultMinInterval
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.FetchedAt.IsZero() {
		opts.FetchedAt = opts.Now()
	}
	if opts.Revoked != nil && initial.Len() > 0 {
		opts.Revoked.trust(initial)
	}
	return &Keys{opts: opts, set: initial, fetched: opts.FetchedAt}
}

// Command verifies a command for audience. Failures are of kind
// unauthenticated, invalid, expired or unavailable. An expired command is
// returned with its error, so that a ledger can be asked for its outcome; it
// must not be run.
func (k *Keys) Command(ctx context.Context, token, audience string) (*Command, error) {
	t, err := k.verify(ctx, token)
	if err != nil {
		return nil, err
	}
	return openCommand(t, audience, k.opts.Now())
}

// Grant verifies a grant. Failures are of kind unauthenticated, expired or
// unavailable.
func (k *Keys) Grant(ctx context.Context, token string) (*Grant, error) {
	grant, err := k.grant(ctx, token)
	if err == nil && k.opts.Revoked != nil && k.opts.Revoked.Grant(grant) {
		return nil, refused("grant: it was revoked")
	}
	return grant, err
}

// grant is Grant without revocations. A grant comes with many requests, so its
// signature is verified once per key set, and its expiry each time.
func (k *Keys) grant(ctx context.Context, token string) (*Grant, error) {
	set, usable := k.current()
	if known, ok := k.opened.get(set, token); ok && usable {
		return &known, checkLife("grant", known.IssuedAt, known.ExpiresAt, k.opts.Now())
	}
	t, err := k.verify(ctx, token)
	if err != nil {
		return nil, err
	}
	grant, err := openGrant(t, k.opts.Now())
	if err != nil {
		return nil, err
	}
	grant.Kid = t.Kid
	if now, _ := k.current(); now == set { // the one that verified it
		k.opened.put(set, token, *grant)
	}
	return grant, nil
}

// Certificate verifies a certificate. Failures are of kind unauthenticated,
// expired or unavailable.
func (k *Keys) Certificate(ctx context.Context, token string) (*Certificate, error) {
	t, err := k.verify(ctx, token)
	if err != nil {
		return nil, err
	}
	certificate, err := openCertificate(t, k.opts.Now())
	if err == nil {
		certificate.Kid = t.Kid
	}
	if err == nil && k.opts.Revoked != nil && k.opts.Revoked.Certificate(certificate) {
		return nil, refused("certificate: it was revoked")
	}
	return certificate, err
}

// Refresh fetches the key set, or waits for the running fetch. A failure is of
// kind unavailable and leaves the set unchanged. Without Fetch it does nothing.
func (k *Keys) Refresh(ctx context.Context) error {
	if k.opts.Fetch == nil {
		return nil
	}
	k.mu.Lock()
	f := k.flight
	if f == nil {
		f = k.start(ctx)
	}
	k.mu.Unlock()
	return f.wait(ctx)
}

// verify applies the profile. An unknown kid or a wrong signature may mean that
// the set is out of date: then it refreshes, if the rate allows, and tries once
// more.
func (k *Keys) verify(ctx context.Context, token string) (Token, error) {
	set, usable := k.current()
	if !usable {
		if set = k.newer(ctx, set); set == nil {
			return Token{}, protocol.Errorf(protocol.KindUnavailable, "the signing keys can't be checked at the moment")
		}
		return set.Verify(token)
	}
	t, err := set.Verify(token)
	if !errors.Is(err, ErrUnknownKey) && !errors.Is(err, errSignature) {
		return t, err
	}
	if set = k.newer(ctx, set); set == nil {
		return Token{}, err
	}
	return set.Verify(token)
}

// Usable reports whether the set is young enough to verify with.
func (k *Keys) Usable() bool {
	_, usable := k.current()
	return usable
}

// current returns the set, and whether it is young enough.
func (k *Keys) current() (*KeySet, bool) {
	now := k.opts.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.set, k.opts.MaxAge <= 0 || now.Sub(k.fetched) <= k.opts.MaxAge
}

// newer returns a set fetched after used, or nil if there is none now.
func (k *Keys) newer(ctx context.Context, used *KeySet) *KeySet {
	k.mu.Lock()
	if k.set != used {
		defer k.mu.Unlock()
		return k.set
	}
	f := k.flight
	if f == nil && k.mayFetch() {
		f = k.start(ctx)
		k.tried = f.began
	}
	k.mu.Unlock()
	if f == nil || f.wait(ctx) != nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.set
}

// mayFetch reports whether a token may cause a fetch now. Called with mu held.
func (k *Keys) mayFetch() bool {
	return k.opts.Fetch != nil && (k.tried.IsZero() || k.opts.Now().Sub(k.tried) >= k.opts.MinInterval)
}

// start begins a fetch. Called with mu held and no flight under way.
func (k *Keys) start(ctx context.Context) *flight {
	f := &flight{began: k.opts.Now(), done: make(chan struct{})}
	k.flight = f
	// Those who need the result wait for f.done. The fetch outlives its caller, as
	// one that hangs up must not spoil it for others, and ends with fetchTimeout
	// at the latest.
	go k.fetch(context.WithoutCancel(ctx), f)
	return f
}

func (k *Keys) fetch(ctx context.Context, f *flight) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	set, jwks, err := k.fetchSet(ctx)
	if err == nil {
		k.mu.Lock()
		k.set, k.fetched = set, f.began
		k.mu.Unlock()
		if k.opts.Revoked != nil {
			k.opts.Revoked.trust(set)
		}
		if k.opts.OnUpdate != nil {
			k.opts.OnUpdate(jwks)
		}
	} else {
		f.err = protocol.Fault(protocol.KindUnavailable, err)
	}
	k.mu.Lock()
	k.flight = nil
	k.mu.Unlock()
	close(f.done)
}

// fetchSet fetches and parses a set. One without usable keys is an error: a
// control plane always has one, so the answer came from elsewhere.
func (k *Keys) fetchSet(ctx context.Context) (*KeySet, []byte, error) {
	jwks, err := k.opts.Fetch(ctx)
	if err != nil {
		return nil, nil, err
	}
	set, err := ParseKeySet(jwks)
	if err != nil {
		return nil, nil, err
	}
	if set.Len() == 0 {
		return nil, nil, errors.New("key set: no usable key")
	}
	return set, jwks, nil
}

// wait waits for the end of the fetch, or of ctx.
func (f *flight) wait(ctx context.Context) error {
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return protocol.Fault(protocol.KindUnavailable, ctx.Err())
	}
}

package authority

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/controlplane"
)

const (
	keysPath = "/.well-known/jwks.json"
	// keysFile is where the newest keys are in the state directory.
	keysFile = "jwks.json"
	// refreshInterval is how often the agent looks for new or revoked keys, and
	// for what else was revoked. A token under a key that isn't known yet makes
	// it look as well, see jws.KeysOptions.
	refreshInterval = 20 * time.Second
)

// Trust is what the sandbox believes: the control plane's keys, and what is void
// before its time.
type Trust struct {
	// Static after construction.
	Keys        *jws.Keys
	Revocations *Revocations
	client      *controlplane.Client
	file        string // of the newest keys
	maxAge      time.Duration
	changed     chan<- struct{}
	log         *slog.Logger

	fetched atomic.Pointer[time.Time] // when there was last news of the keys
}

// openTrust reads what was known when the agent last ran.
func openTrust(o Options, client *controlplane.Client) (*Trust, error) {
	t := &Trust{
		client: client, file: filepath.Join(o.Identity.stateDir, keysFile),
		maxAge: o.KeysMaxAge, changed: o.Changed, log: o.Log,
	}
	var err error
	if t.Revocations, err = openRevocations(o.Identity.stateDir, o.Log); err != nil {
		return nil, err
	}
	known, fetched, err := t.known(o.Identity)
	if err != nil {
		return nil, err
	}
	t.fetched.Store(&fetched)
	t.Keys = jws.NewKeys(known, jws.KeysOptions{
		Fetch: t.fetch, OnUpdate: t.store, MaxAge: t.maxAge, FetchedAt: fetched, Revoked: t.Revocations.Set,
	})
	return t, nil
}

// known returns the newest key set on disk, and when it was fetched: the cached
// one, or the one that came with the enrolment when that was written later or the
// cache is of no use.
func (t *Trust) known(id *Identity) (*jws.KeySet, time.Time, error) {
	enrolled, err := jws.ParseKeySet(id.Enrolment.JWKS)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("enrolment %s: jwks: %w", id.file, err)
	}
	began, err := modified(id.file)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("enrolment: %w", err)
	}
	written, err := modified(t.file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && began.After(written) { // by another control plane, perhaps
		return enrolled, began, nil
	}
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("cached keys: %w", err)
	}
	data, err := os.ReadFile(t.file)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("cached keys: %w", err)
	}
	cached, err := jws.ParseKeySet(data)
	if err != nil || cached.Len() == 0 {
		t.log.Warn("the cached keys are of no use; beginning with the enrolment's", "file", t.file, "err", err)
		return enrolled, began, nil
	}
	return cached, written, nil
}

// modified returns when a file was written, which is not in the future.
func modified(path string) (time.Time, error) {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}, err
	}
	if now := time.Now(); info.ModTime().After(now) {
		return now, nil
	}
	return info.ModTime(), nil
}

// fetch gets the control plane's key set.
func (t *Trust) fetch(ctx context.Context) ([]byte, error) {
	return t.client.Get(ctx, keysPath, protocol.MaxEnrolmentBytes)
}

// store caches a key set that was fetched just now.
func (t *Trust) store(jwks []byte) {
	now := time.Now()
	t.fetched.Store(&now)
	cached, err := os.ReadFile(t.file)
	if err == nil && bytes.Equal(cached, jwks) {
		err = os.Chtimes(t.file, time.Time{}, now) // its age counts
	} else {
		err = program.ReplaceFile(t.file, jwks, 0o600)
	}
	if err != nil {
		t.log.Warn("keys not cached", "err", err)
	}
}

// Problem returns why tokens are refused for want of news of the keys, empty when
// they aren't.
func (t *Trust) Problem(now time.Time) string {
	if now.Sub(*t.fetched.Load()) <= t.maxAge {
		return ""
	}
	return "the control plane's keys are older than " + t.maxAge.String() + ": nothing is believed"
}

// Follow looks for news of the keys, and of what is void, at once and at each
// interval until ctx ends. Where due doesn't hold it leaves that out.
func (t *Trust) Follow(ctx context.Context, due func() bool) {
	ticker := time.NewTicker(refreshInterval)
	defer ticker.Stop()
	for {
		if due() {
			if err := t.Keys.Refresh(ctx); err != nil && ctx.Err() == nil {
				t.log.Warn("keys not refreshed", "err", err)
			}
			if err := t.fetchRevocations(ctx); err != nil && ctx.Err() == nil {
				t.log.Warn("revocations not refreshed", "err", err)
			}
			wake(t.changed)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// fetchRevocations asks the control plane what is void.
func (t *Trust) fetchRevocations(ctx context.Context) error {
	text, err := t.client.Get(ctx, revocationsPath, protocol.MaxRevocationBytes)
	if err != nil {
		return err
	}
	lists, err := t.Keys.RevocationLists(ctx, string(text))
	return errors.Join(t.Revocations.apply(lists...), err)
}

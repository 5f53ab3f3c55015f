package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/tunnel"
)

const (
	keysPath = "/.well-known/jwks.json"
	// keysInterval is how often the agent looks for new or revoked keys, and
	// for what else was revoked. A token under a key that isn't known yet makes
	// it look as well, see jws.KeysOptions.
	keysInterval = 20 * time.Second
	// DefaultKeysMaxAge is how long keys are believed without news of them.
	DefaultKeysMaxAge = time.Hour
)

// knownKeys returns the newest key set on disk, and when it was fetched: the
// cached one, or the one that came with the enrolment when that was written
// later or the cache is of no use.
func (a *Agent) knownKeys() (*jws.KeySet, time.Time, error) {
	enrolled, err := jws.ParseKeySet(a.enrolment.JWKS)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("enrolment %s: jwks: %w", a.cfg.Enrolment, err)
	}
	began, err := modified(a.cfg.Enrolment)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("enrolment: %w", err)
	}
	path := filepath.Join(a.cfg.StateDir, keysFile)
	written, err := modified(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && began.After(written) { // by another control plane, perhaps
		return enrolled, began, nil
	}
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("cached keys: %w", err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("cached keys: %w", err)
	}
	cached, err := jws.ParseKeySet(data)
	if err != nil || cached.Len() == 0 {
		a.log.Warn("the cached keys are of no use; beginning with the enrolment's", "file", path, "err", err)
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

// storeKeys caches a key set that was fetched just now.
func (a *Agent) storeKeys(jwks []byte) {
	now := time.Now()
	a.keysFetched.Store(&now)
	path := filepath.Join(a.cfg.StateDir, keysFile)
	cached, err := os.ReadFile(path)
	if err == nil && bytes.Equal(cached, jwks) {
		err = os.Chtimes(path, time.Time{}, now) // its age counts
	} else {
		err = program.ReplaceFile(path, jwks, 0o600)
	}
	if err != nil {
		a.log.Warn("keys not cached", "err", err)
	}
}

// fetchKeys gets the control plane's key set.
func (a *Agent) fetchKeys(ctx context.Context) ([]byte, error) {
	return a.controlPlane.Get(ctx, keysPath, protocol.MaxEnrolmentBytes)
}

// keysTooOld reports whether tokens are refused for want of news of the keys.
func (a *Agent) keysTooOld(now time.Time) bool {
	return now.Sub(*a.keysFetched.Load()) > a.cfg.KeysMaxAge
}

// refresh keeps the keys, and what is known to be void, fresh while session is
// the primary tunnel.
func (a *Agent) refresh(ctx context.Context, session *tunnel.Session) {
	ticker := time.NewTicker(keysInterval)
	defer ticker.Stop()
	for {
		if a.tunnels.current() == session {
			if err := a.keys.Refresh(ctx); err != nil && ctx.Err() == nil {
				a.log.Warn("keys not refreshed", "err", err)
			}
			if err := a.fetchRevocations(ctx); err != nil && ctx.Err() == nil {
				a.log.Warn("revocations not refreshed", "err", err)
			}
			a.status.look()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

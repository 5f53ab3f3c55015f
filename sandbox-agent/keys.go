package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/tunnel"
)

const (
	// keysInterval is how often the agent looks for new or revoked keys.
	keysInterval = 30 * time.Second
	// maxKeys bounds a key set, in bytes.
	maxKeys = 256 << 10
)

// knownKeys returns the newest key set on disk: the cached one, or the one that
// came with the enrolment when that was written later or the cache is of no
// use.
func (a *Agent) knownKeys() (*jws.KeySet, error) {
	enrolled, err := jws.ParseKeySet(a.enrolment.JWKS)
	if err != nil {
		return nil, fmt.Errorf("enrolment %s: jwks: %w", a.cfg.Enrolment, err)
	}
	path := filepath.Join(a.cfg.StateDir, keysFile)
	written, err := modified(path)
	if errors.Is(err, fs.ErrNotExist) {
		return enrolled, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cached keys: %w", err)
	}
	if began, err := modified(a.cfg.Enrolment); err == nil && began.After(written) {
		return enrolled, nil // by another control plane, perhaps
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cached keys: %w", err)
	}
	cached, err := jws.ParseKeySet(data)
	if err != nil || cached.Len() == 0 {
		a.log.Warn("the cached keys are of no use; beginning with the enrolment's", "file", path, "err", err)
		return enrolled, nil
	}
	return cached, nil
}

func modified(path string) (time.Time, error) {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

// storeKeys caches a key set, unless it is there already.
func (a *Agent) storeKeys(jwks []byte) {
	path := filepath.Join(a.cfg.StateDir, keysFile)
	if cached, err := os.ReadFile(path); err == nil && bytes.Equal(cached, jwks) {
		return
	}
	if err := program.ReplaceFile(path, jwks, 0o600); err != nil {
		a.log.Warn("keys not cached", "err", err)
	}
}

// fetchKeys gets the control plane's key set through a connect stream, with
// TLS inside, so that the relay can neither read nor replace it.
func (a *Agent) fetchKeys(ctx context.Context) ([]byte, error) {
	client := a.controlPlane()
	defer client.CloseIdleConnections()
	url := "https://" + a.enrolment.ControlPlane.ServerName + "/.well-known/jwks.json"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("keys: status %d", resp.StatusCode)
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxKeys))
}

// controlPlane returns an HTTP client that reaches the control plane alone,
// verified by the name and authority in the enrolment.
func (a *Agent) controlPlane() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			session := a.tunnels.current()
			if session == nil {
				return nil, protocol.Errorf(protocol.KindUnavailable, "no tunnel")
			}
			stream, _, err := session.Open(ctx, protocol.LaneControl, protocol.Open{Kind: protocol.StreamConnect})
			if err != nil {
				return nil, err
			}
			return stream, nil
		},
		TLSClientConfig: &tls.Config{
			RootCAs: a.controlPlaneCA, ServerName: a.enrolment.ControlPlane.ServerName, MinVersion: tls.VersionTLS13,
		},
	}}
}

// refreshKeys keeps the key set fresh while session is the primary tunnel.
func (a *Agent) refreshKeys(ctx context.Context, session *tunnel.Session) {
	ticker := time.NewTicker(keysInterval)
	defer ticker.Stop()
	for {
		if a.tunnels.current() == session {
			if err := a.keys.Refresh(ctx); err != nil && ctx.Err() == nil {
				a.log.Warn("keys not refreshed", "err", err)
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

const (
	// keysInterval is how often the agent looks for new or revoked keys.
	keysInterval = 30 * time.Second
	// maxKeys bounds a key set, in bytes.
	maxKeys = 256 << 10
)

// knownKeys returns the newest key set on disk: the cached one, else the one
// that came with the enrolment.
func (a *Agent) knownKeys() (*jws.KeySet, error) {
	data, err := os.ReadFile(filepath.Join(a.cfg.StateDir, keysFile))
	if errors.Is(err, fs.ErrNotExist) {
		data, err = a.enrolment.JWKS, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cached keys: %w", err)
	}
	return jws.ParseKeySet(data)
}

func (a *Agent) storeKeys(jwks []byte) {
	if err := replaceFile(filepath.Join(a.cfg.StateDir, keysFile), jwks); err != nil {
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
	authority := x509.NewCertPool()
	authority.AppendCertsFromPEM([]byte(a.enrolment.ControlPlane.CAPEM))
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			session := a.session.Load()
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
			RootCAs: authority, ServerName: a.enrolment.ControlPlane.ServerName, MinVersion: tls.VersionTLS13,
		},
	}}
}

// refreshKeys keeps the key set fresh while a tunnel is up.
func (a *Agent) refreshKeys(ctx context.Context) {
	ticker := time.NewTicker(keysInterval)
	defer ticker.Stop()
	for {
		if err := a.keys.Refresh(ctx); err != nil && ctx.Err() == nil {
			a.log.Warn("keys not refreshed", "err", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

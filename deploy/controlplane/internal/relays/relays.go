// Package relays knows which relays are registered, and sends them requests.
package relays

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/clock"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
)

const (
	// Life is how long a registration lasts.
	Life = 30 * time.Second

	dialTimeout = 2 * time.Second
	idleTimeout = 2 * time.Minute
)

// A Store keeps the registrations.
type Store interface {
	Relays(ctx context.Context, since time.Time) ([]store.Relay, error)
}

// A Directory is the way to all relays.
type Directory struct {
	// Static after construction.
	store  Store
	clock  clock.Clock
	client *http.Client
}

// New returns the directory of the relays in st, for whom believed vouches at https
// URLs; nil stands for whom the system believes. Its requests go straight to relays: through no proxy and after no redirect.
func New(st Store, clk clock.Clock, believed *x509.CertPool) *Directory {
	return &Directory{store: st, clock: clk, client: &http.Client{
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
			TLSHandshakeTimeout: dialTimeout,
			TLSClientConfig:     &tls.Config{RootCAs: believed, MinVersion: tls.VersionTLS12},
			MaxIdleConnsPerHost: 16,
			IdleConnTimeout:     idleTimeout,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close closes idle connections.
func (d *Directory) Close() { d.client.CloseIdleConnections() }

// Registered returns the relays that have registered in the last [Life].
func (d *Directory) Registered(ctx context.Context) ([]store.Relay, error) {
	return d.store.Relays(ctx, d.clock.Now().Add(-Life))
}

// Post makes a request with a body to a path of relay, for [Directory.Do]. It
// asks for the relay's public origin, wherever the relay is reached: a relay
// answers to no other name.
func Post(ctx context.Context, relay store.Relay, path, contentType string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, relay.URL+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", contentType)
	if u, err := url.Parse(relay.PublicOrigin); err == nil && u.Host != "" {
		req.Host = u.Host
	}
	return req, nil
}

// Do sends a request to a relay.
func (d *Directory) Do(req *http.Request) (*http.Response, error) { return d.client.Do(req) }

package relays_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/clock"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/relays"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/program/certfile"
)

type nobody struct{}

func (nobody) Relays(context.Context, time.Time) ([]store.Relay, error) { return nil, nil }

// TestBelieved: a relay whose certificate a file vouches for is sent requests, and no
// other one at https.
func TestBelieved(t *testing.T) {
	relay := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	defer relay.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: relay.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	pool, err := certfile.Pool(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, believed := range []*x509.CertPool{pool, nil} {
		d := relays.New(nobody{}, clock.New(nil), believed)
		req, err := relays.Post(t.Context(), store.Relay{URL: relay.URL}, "/", "text/plain", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := d.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		if taken := err == nil && resp.StatusCode == http.StatusNoContent; taken != (believed != nil) {
			t.Errorf("with a CA %t: %v", believed != nil, err)
		}
		d.Close()
	}
}

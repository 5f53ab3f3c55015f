package controlplane

import (
	"context"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// newClient returns a client of a control plane that answers by handle.
func newClient(t *testing.T, handle http.HandlerFunc) (*Client, Dial) {
	t.Helper()
	s := httptest.NewTLSServer(handle)
	t.Cleanup(s.Close)
	dial := func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", s.Listener.Addr().String())
	}
	authority := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	c, err := New(protocol.EnrolledControlPlane{ServerName: "example.com", CAPEM: authority}, dial)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, dial
}

// TestAnswers: an answer comes as it is, but for one that is too long; a refusal
// has the kind of its status and the control plane's words, where it has any.
func TestAnswers(t *testing.T) {
	c, _ := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/long":
			io.WriteString(w, strings.Repeat("x", 11))
		case "/refused":
			w.WriteHeader(http.StatusConflict)
			io.WriteString(w, `{"error":{"message":"not again"}}`)
		case "/away":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/elsewhere":
			http.Redirect(w, r, "/", http.StatusFound)
		default:
			body, _ := io.ReadAll(r.Body)
			io.WriteString(w, r.Method+r.Header.Get("Content-Type")+r.Header.Get("X-Test")+string(body))
		}
	})
	if got, err := c.Get(t.Context(), "/", 10); err != nil || string(got) != "GET" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := c.Get(t.Context(), "/long", 10); err == nil || Refused(err) {
		t.Errorf("too long: %v", err)
	}
	for path, want := range map[string]struct {
		kind  protocol.Kind
		says  string
		final bool
	}{
		"/refused":   {protocol.KindConflict, "not again", true},
		"/away":      {protocol.KindUnavailable, "status 503", false},
		"/elsewhere": {protocol.KindInternal, "status 302", false},
	} {
		err := c.Post(t.Context(), path, nil, []byte("{}"))
		if !Refused(err) || protocol.KindOf(err) != want.kind || !strings.HasSuffix(err.Error(), want.says) || Final(err) != want.final {
			t.Errorf("%s: %v", path, err)
		}
	}
	answer, status, err := c.Call(t.Context(), "PUT", "/?a=b", http.Header{"X-Test": {"!"}}, []byte("{}"), 100)
	if err != nil || status != http.StatusOK || string(answer) != "PUTapplication/json!{}" {
		t.Errorf("%q, %d, %v", answer, status, err)
	}
	if _, status, err := c.Call(t.Context(), "GET", "/away", nil, nil, 100); err != nil || status != http.StatusServiceUnavailable {
		t.Errorf("%d, %v", status, err)
	}
}

// TestProve: the body is bound to the connection that it goes over.
func TestProve(t *testing.T) {
	c, dial := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		exporter, err := r.TLS.ExportKeyingMaterial(protocol.ExporterLabel, nil, exporterBytes)
		if err != nil {
			t.Error(err)
		}
		body, _ := io.ReadAll(r.Body)
		if string(body) != `"`+hex.EncodeToString(exporter)+`"` {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	proof := func(exporter []byte) (any, error) { return hex.EncodeToString(exporter), nil }
	for range 2 {
		if _, err := c.Prove(t.Context(), dial, "/", proof); err != nil {
			t.Error(err)
		}
	}
	broken := errors.New("no way")
	nowhere := func(context.Context) (net.Conn, error) { return nil, broken }
	if _, err := c.Prove(t.Context(), nowhere, "/", proof); !errors.Is(err, broken) {
		t.Errorf("nowhere: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	silent := func(context.Context) (net.Conn, error) {
		near, _ := net.Pipe()
		time.AfterFunc(time.Millisecond, cancel)
		return near, nil
	}
	if _, err := c.Prove(ctx, silent, "/", proof); err == nil {
		t.Error("somebody answered")
	}
}

// TestBackoff: pauses grow up to the longest, and begin anew after a success.
func TestBackoff(t *testing.T) {
	b := Backoff{Longest: time.Second}
	for _, most := range []time.Duration{FirstPause, 2 * FirstPause, 4 * FirstPause, time.Second, time.Second} {
		if d := b.Next(); d < most/2 || d > most {
			t.Errorf("%v, want up to %v", d, most)
		}
	}
	b.Reset()
	if d := b.Next(); d > FirstPause {
		t.Errorf("%v after a success", d)
	}
}

package link

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// TestFileThatShrinks: what a file has lost while it is sent is missing at the relay,
// neither padded nor waited for, and the next request finds everything as it was.
func TestFileThatShrinks(t *testing.T) {
	const size, left = 16 << 20, 8 << 20
	path := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(path, make([]byte, size), 0o600))
	var running atomic.Int32
	r, transport := serving(t, service{"GET /file": func(w http.ResponseWriter, req *http.Request) {
		running.Add(1)
		defer running.Add(-1)
		f, err := os.Open(path)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer f.Close()
		http.ServeContent(w, req, "", time.Time{}, f)
	}})
	resp, err := transport.RoundTrip(request(t, t.Context(), "GET", "/file", nil))
	must(t, err)
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	must(t, os.Truncate(path, left))
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil || n+1000 > left {
		t.Errorf("%d bytes of %d came, then %v", n+1000, left, err)
	}
	resp, err = transport.RoundTrip(request(t, t.Context(), "GET", "/file", nil))
	must(t, err)
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); n != left || err != nil {
		t.Errorf("afterwards: %d bytes, %v", n, err)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); running.Load() > 0 || r.agent.Stats().Streams > 0; <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("%d handlers, %d streams stay", running.Load(), r.agent.Stats().Streams)
		}
	}
}

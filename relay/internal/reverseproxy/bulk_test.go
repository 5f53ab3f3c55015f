package reverseproxy

import (
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// files serves one file of a folder, as an agent does.
func files(t *testing.T, content []byte) (path string, serve http.HandlerFunc) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(path, content, 0o600))
	return path, func(rw http.ResponseWriter, r *http.Request) {
		f, err := os.Open(path)
		if err != nil {
			http.Error(rw, err.Error(), http.StatusInternalServerError)
			return
		}
		defer f.Close()
		http.ServeContent(rw, r, "", time.Time{}, f)
	}
}

// noise returns bytes that repeat nowhere.
func noise(n int) []byte {
	b := make([]byte, n)
	random := rand.NewPCG(1, 2)
	for i := range b {
		b[i] = byte(random.Uint64())
	}
	return b
}

// Files of all sizes arrive as they are, and parts of them too.
func TestLongAnswers(t *testing.T) {
	content := noise(5<<20 + 7)
	_, serve := files(t, content)
	w := newWorld(t, serve, nil)
	for _, c := range []struct {
		part string
		want []byte
	}{
		{"", content}, {"bytes=1-", content[1:]}, {"bytes=5-262147", content[5:262148]}, {"bytes=5-262148", content[5:262149]},
		{"bytes=-3", content[len(content)-3:]},
	} {
		r := w.request(http.MethodGet, "/", nil)
		if c.part != "" {
			r.Header.Set("Range", c.part)
		}
		resp := w.do(r)
		got, err := io.ReadAll(resp.Body)
		if err != nil || sha256.Sum256(got) != sha256.Sum256(c.want) || resp.ContentLength != int64(len(c.want)) {
			t.Errorf("%q: %d, %d bytes, want %d, %v", c.part, resp.StatusCode, len(got), len(c.want), err)
		}
	}
	if resp := w.do(w.request(http.MethodHead, "/", nil)); resp.ContentLength != int64(len(content)) || resp.StatusCode != http.StatusOK {
		t.Errorf("HEAD: %d, %d bytes", resp.StatusCode, resp.ContentLength)
	}
}

// A long answer whose sandbox pauses is passed on as far as it has come.
func TestLongAnswerThatPauses(t *testing.T) {
	more := make(chan struct{})
	w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Length", "1000000")
		io.WriteString(rw, "first")
		http.NewResponseController(rw).Flush()
		<-more
		rw.Write(make([]byte, 1_000_000-5))
	}, nil)
	resp := w.do(w.request(http.MethodGet, "/", nil))
	first := make([]byte, 5)
	if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "first" {
		t.Errorf("%q, %v", first, err)
	}
	close(more)
	if n, err := io.Copy(io.Discard, resp.Body); n != 1_000_000-5 || err != nil {
		t.Errorf("%d more, %v", n, err)
	}
}

// A file that shrinks while it is sent is a broken body: it isn't padded, nobody
// waits for the rest, and nothing stays of the request.
func TestFileThatShrinks(t *testing.T) {
	const size, left = 16 << 20, 8 << 20
	path, serve := files(t, make([]byte, size))
	w := newWorld(t, serve, nil)
	resp := w.do(w.request(http.MethodGet, "/", nil))
	if _, err := io.ReadFull(resp.Body, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	must(t, os.Truncate(path, left))
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil || n+1000 > left {
		t.Errorf("%d bytes of %d came, then %v", n+1000, left, err)
	}
	eventually(t, "the request goes on", func() bool { return w.requests.count() == 0 })
	eventually(t, "the stream stays", func() bool { return w.over.Load() == w.streams.Load() })
	resp = w.do(w.request(http.MethodGet, "/", nil))
	if n, err := io.Copy(io.Discard, resp.Body); n != left || err != nil {
		t.Errorf("afterwards: %d bytes, %v", n, err)
	}
}

// A client that uploads a byte a second is told why it is ended, and counted; what
// others send meanwhile passes.
func TestUploadByTheByte(t *testing.T) {
	before := stallTimeout
	stallTimeout = 500 * time.Millisecond
	t.Cleanup(func() { stallTimeout = before }) // after the server, whose requests read it
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			io.WriteString(rw, "all")
		}
	}, func(o *Options) { o.BodyRate = bodyRateOfTest })
	trickle, feed := io.Pipe()
	defer feed.Close()
	go func() { // ends with the body
		tick := time.NewTicker(stallTimeout / 20) // never long enough for a pause to count
		defer tick.Stop()
		for {
			if _, err := feed.Write([]byte("x")); err != nil {
				return
			}
			<-tick.C
		}
	}()
	slow := make(chan string, 1)
	go func() { // received below
		resp, err := w.client.RoundTrip(w.request(http.MethodPut, "/", trickle))
		if err != nil {
			slow <- err.Error()
			return
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		slow <- resp.Status + " " + string(text)
	}()
	eventually(t, "it doesn't begin", func() bool { return w.streams.Load() == 1 })
	resp := w.do(w.request(http.MethodPut, "/", strings.NewReader(strings.Repeat("y", 1<<20))))
	if text, err := io.ReadAll(resp.Body); string(text) != "all" || err != nil {
		t.Errorf("another's upload: %q, %v", text, err)
	}
	if got := <-slow; !strings.HasPrefix(got, "400 ") || !strings.Contains(got, "stalled") {
		t.Errorf("it is told %q", got)
	}
	if n := testutil.ToFloat64(w.requests.metrics.cut.WithLabelValues(cutStalled)); n != 1 {
		t.Errorf("%v were counted", n)
	}
	eventually(t, "the request goes on", func() bool { return w.requests.count() == 0 })
	w.requests.Drain()
	eventually(t, "the stream stays", func() bool { return w.over.Load() == w.streams.Load() })
}

// bodyRateOfTest is a rate that a trickle of the test doesn't have.
const bodyRateOfTest = 4 << 10

package reverseproxy

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol/jws"
)

// TestKeptStreams: requests under one grant share a stream, one after the other;
// those under another one never do.
func TestKeptStreams(t *testing.T) {
	waiting, release := make(chan struct{}), make(chan struct{})
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.Host != Host {
			t.Errorf("host %q", r.Host)
		}
		if r.URL.Path == "/wait" {
			close(waiting)
			<-release
		}
		io.Copy(rw, r.Body)
	}, nil)
	defer w.requests.Drain()
	post := func(path, body string) {
		t.Helper()
		resp := w.do(w.request(http.MethodPost, path, strings.NewReader(body)))
		got, err := io.ReadAll(resp.Body)
		if err != nil || string(got) != body || resp.StatusCode != http.StatusOK {
			t.Errorf("%d %q, %v", resp.StatusCode, got, err)
		}
	}
	for range 20 {
		post("/", "again")
	}
	// A transport uses none again whose writer is late to say that it is done.
	alone := w.streams.Load()
	if alone > 5 {
		t.Errorf("%d streams for 20 requests", alone)
	}
	done := make(chan struct{})
	go func() { // waited for below
		defer close(done)
		post("/wait", "slow")
	}()
	<-waiting
	post("/", "beside it")
	close(release)
	<-done
	both := w.streams.Load()
	if both <= alone {
		t.Errorf("%d streams, and %d for two requests at once", alone, both)
	}
	w.grant, w.token = w.authority.Grant(func(g *jws.Grant) { g.ID = "gr_other" })
	post("/", "under another grant")
	if n := w.streams.Load(); n <= both {
		t.Errorf("%d streams, and %d with those of another grant", both, n)
	}
}

// TestDrainLeavesNoStream: a relay that is going away doesn't wait for requests
// that may not come.
func TestDrainLeavesNoStream(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) { io.Copy(rw, r.Body) }, nil)
	resp := w.do(w.request(http.MethodPost, "/", strings.NewReader("x")))
	io.Copy(io.Discard, resp.Body)
	w.requests.Drain()
	eventually(t, "the end of the stream", func() bool { return w.over.Load() == 1 })
}

// TestFound10IdleStreamsOfOnePerson: however many grants a person has, so many
// streams wait for requests.
func TestFound10IdleStreamsOfOnePerson(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) { io.Copy(rw, r.Body) }, nil)
	defer w.requests.Drain()
	const grants = 5 * maxIdlePerPerson
	for range grants {
		w.grant, w.token = w.authority.Grant(nil)
		resp := w.do(w.request(http.MethodPost, "/", strings.NewReader("x")))
		if got, err := io.ReadAll(resp.Body); string(got) != "x" || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
	}
	eventually(t, "the end of the oldest streams", func() bool { return w.over.Load() >= grants-maxIdlePerPerson })
}

package calls

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/loadtest/internal/generator"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
)

// A server is a baseline of the test's own, which can be made to misbehave.
type server struct {
	mu     sync.Mutex
	files  map[string][]byte
	status int                   // of every answer; 0: ok
	asked  func()                // at each request; nil: nothing
	change func(b []byte) []byte // what is read; nil: as it was written
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	if s.asked != nil {
		s.asked()
	}
	if s.status != 0 {
		w.WriteHeader(s.status)
		return
	}
	switch r.Method {
	case http.MethodPut:
		s.files[r.URL.Path] = body
	case http.MethodGet:
		b := s.files[r.URL.Path]
		if s.change != nil {
			b = s.change(b)
		}
		w.Write(b)
	}
}

// callingAt makes a caller of s and a function that gives it orders.
func callingAt(t *testing.T, s *server) (*measure.Recorder, func(order string, a Args) (Done, error)) {
	t.Helper()
	rec, do := callingWhile(t, s)
	return rec, func(order string, a Args) (Done, error) { return do(t.Context(), order, a) }
}

// callingWhile is callingAt with a context for each order.
func callingWhile(t *testing.T, s *server) (*measure.Recorder, func(ctx context.Context, order string, a Args) (Done, error)) {
	t.Helper()
	s.files = make(map[string][]byte)
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	spec, err := json.Marshal(Spec{Command: web.URL + "/command", Files: web.URL + "/files", Prefix: "direct_", Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	rec := measure.NewRecorder()
	rec.Begin(time.Now().Add(-time.Hour))
	w, err := New(t.Context(), &generator.Job{Spec: spec, Of: 1, Rec: rec})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return rec, func(ctx context.Context, order string, a Args) (Done, error) {
		arg, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := w.Do(ctx, order, arg)
		got, _ := answer.(Done)
		return got, err
	}
}

// Calls are made at their rate, timed, and counted.
func TestCalls(t *testing.T) {
	rec, do := callingAt(t, &server{})
	got, err := do(OrderCommands, Args{Rate: 200, Duration: 100 * time.Millisecond})
	if err != nil || got.Calls != 20 || got.Took < 90*time.Millisecond {
		t.Errorf("%+v %v", got, err)
	}
	if got, err = do(OrderFlood, Args{Clients: 4, Duration: 30 * time.Millisecond}); err != nil || got.Took < 30*time.Millisecond {
		t.Errorf("%+v %v", got, err)
	}
	for _, order := range []string{OrderUpload, OrderDownload} {
		if got, err = do(order, Args{Bytes: 100_000}); err != nil || got.Took <= 0 {
			t.Errorf("%s: %+v %v", order, got, err)
		}
	}
	if got, err = do(OrderSmall, Args{Rate: 500, Duration: 100 * time.Millisecond, Bytes: 100}); err != nil || got.Calls != 50 {
		t.Errorf("%+v %v", got, err)
	}
	s := rec.Snapshot()
	for _, name := range []string{"direct_command", "direct_small_upload", "direct_small_download"} {
		if _, ok := s.Latencies[name]; !ok {
			t.Errorf("%s wasn't timed", name)
		}
	}
	if s.Counters["failed_calls"] != 0 || s.Counters["corrupt_files"] != 0 {
		t.Errorf("%v %v", s.Counters, s.Failures)
	}
	if _, err := do("dance", Args{}); err == nil {
		t.Error("an unknown order was obeyed")
	}
}

// As many calls are made as clients get done, until there is no more time.
func TestFlood(t *testing.T) {
	const clients, most = 4, 100
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asked := 0
	s := &server{asked: func() {
		if asked++; asked == most {
			cancel()
		}
	}}
	rec, do := callingWhile(t, s)
	got, err := do(ctx, OrderFlood, Args{Clients: clients, Duration: time.Hour})
	if !errors.Is(err, context.Canceled) || got.Calls < most-clients || got.Calls > most+clients {
		t.Errorf("%+v %v", got, err)
	}
	if n := rec.Snapshot().Counters["failed_calls"]; n != 0 {
		t.Errorf("%d calls failed", n)
	}
}

// A file that comes back as another one is corrupt, whichever way it was read.
func TestCorruptFiles(t *testing.T) {
	rec, do := callingAt(t, &server{change: func(b []byte) []byte { return append([]byte("x"), b[1:]...) }})
	if _, err := do(OrderUpload, Args{Bytes: 1000}); err != nil {
		t.Fatal(err)
	}
	if _, err := do(OrderDownload, Args{Bytes: 1000}); err != nil {
		t.Fatal(err)
	}
	if n := rec.Snapshot().Counters["corrupt_files"]; n != 1 {
		t.Errorf("%d large files are corrupt, want 1", n)
	}
	if _, err := do(OrderSmall, Args{Rate: 1000, Duration: 20 * time.Millisecond, Bytes: 100}); err != nil {
		t.Fatal(err)
	}
	if n := rec.Snapshot().Counters["corrupt_files"]; n != 10 {
		t.Errorf("%d small files are corrupt, want 10", n)
	}
}

// What fails is counted with its reason, which holds no address: that is a
// secret of the baseline's.
func TestFailedCalls(t *testing.T) {
	s := &server{status: http.StatusTooManyRequests}
	rec, do := callingAt(t, s)
	if _, err := do(OrderCommands, Args{Rate: 100, Duration: 50 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	snapshot := rec.Snapshot()
	if snapshot.Counters["failed_calls"] != 5 {
		t.Errorf("%v", snapshot.Counters)
	}
	if text, err := json.Marshal(snapshot.Failures); err != nil || !strings.Contains(string(text), "429") || strings.Contains(string(text), "127.0.0.1") {
		t.Errorf("%s %v", text, err)
	}
	if _, err := do(OrderUpload, Args{Bytes: 10}); err == nil {
		t.Error("an upload that failed didn't")
	}
}

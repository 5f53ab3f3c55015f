package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "secret-of-webhook-0123456789"

// A receiver answers in the place of the network.
type receiver struct {
	mu     sync.Mutex
	got    []string        // bodies
	times  []time.Time     // of tries
	answer func(n int) int // status of the n-th try, from 1; 0: the connection breaks
	hold   chan struct{}   // not nil: tries wait until it is closed
}

func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.got = append(r.got, string(body))
	r.times = append(r.times, time.Now())
	n := len(r.got)
	r.mu.Unlock()
	if r.hold != nil {
		select {
		case <-r.hold:
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
	stamp, signature := req.Header.Get(TimestampHeader), req.Header.Get(SignatureHeader)
	if signature != Sign([]byte(secret), stamp, body) || stamp != strconv.FormatInt(time.Now().Unix(), 10) && r.hold == nil {
		return nil, fmt.Errorf("timestamp %q, signature %q", stamp, signature)
	}
	status := r.answer(n)
	if status == 0 {
		return nil, errors.New("connection refused")
	}
	return &http.Response{
		StatusCode: status, Body: io.NopCloser(strings.NewReader("answer")), Request: req,
		Header: http.Header{"Location": {"https://elsewhere.example/"}},
	}, nil
}

func always(status int) func(int) int { return func(int) int { return status } }

// run runs a sender for the receiver until the test's end, or until stop.
func run(t *testing.T, r *receiver, log io.Writer) (s *Sender, stop func()) {
	t.Helper()
	s, err := New(Config{
		URL: "https://hooks.example/x?token=canary-of-url", Secret: secret, Via: r,
		Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return s, stop
}

func TestDelivery(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer func(int) int
		tries  int
		reason Reason // empty: delivered
	}{
		{"at once", always(204), 1, ""},
		{"after faults", func(n int) int { return []int{0, 500, 503, 429, 408, 425, 200}[n-1] }, 7, ""},
		{"not a redirect", always(302), 1, Refused},
		{"gone", always(410), 1, Refused},
		{"not allowed", always(401), 1, Refused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				r := &receiver{answer: tt.answer}
				s, stop := run(t, r, &log)
				s.Send("wh_1", []byte("body"))
				time.Sleep(10 * time.Minute)
				stop()
				c := s.Counts()
				delivered := uint64(0)
				if tt.reason == "" {
					delivered = 1
				}
				if len(r.got) != tt.tries || c.Delivered != delivered || c.Tries != uint64(tt.tries) ||
					c.Dropped[tt.reason] != 1-delivered || r.got[0] != "body" {
					t.Errorf("%q, %+v\n%s", r.got, c, &log)
				}
				for _, canary := range []string{"canary", secret} {
					if strings.Contains(log.String(), canary) {
						t.Errorf("the log holds %s:\n%s", canary, &log)
					}
				}
			})
		})
	}
}

// TestPauses: the tries of five minutes, each later than the one before by at
// most a minute.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: always(0)}
		s, _ := run(t, r, io.Discard)
		s.Send("wh_1", nil)
		start := time.Now()
		time.Sleep(time.Hour)
		r.mu.Lock()
		defer r.mu.Unlock()
		limit := firstPause
		for i := 1; i < len(r.times); i++ {
			if pause := r.times[i].Sub(r.times[i-1]); pause < limit/2 || pause > limit {
				t.Errorf("pause %d is %v, want %v to %v", i, pause, limit/2, limit)
			}
			limit = min(2*limit, maxPause)
		}
		last := r.times[len(r.times)-1].Sub(start)
		if last > maxAge || last < maxAge-maxPause || s.Counts().Dropped[TooOld] != 1 {
			t.Errorf("the last of %d tries after %v, %+v", len(r.times), last, s.Counts())
		}
	})
}

// TestOneFailureStopsNoOther: what can't be delivered doesn't hold up the rest.
func TestOneFailureStopsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		r.answer = func(n int) int {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.got[n-1] == "bad" {
				return 500
			}
			return 200
		}
		s, _ := run(t, r, io.Discard)
		for range 10 {
			s.Send("wh_bad", []byte("bad"))
		}
		s.Send("wh_good", []byte("good"))
		synctest.Wait()
		if c := s.Counts(); c.Delivered != 1 || c.Tries != 11 {
			t.Errorf("%+v", c)
		}
	})
}

// TestQueueIsBounded: a receiver that hangs costs the oldest notices, and
// nobody's time.
func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := &receiver{answer: always(200), hold: make(chan struct{})}
		s, stop := run(t, r, &log)
		start := time.Now()
		for i := range MaxQueue + 50 {
			s.Send("wh", []byte(strconv.Itoa(i)))
			if i < senders {
				synctest.Wait() // these are under way
			}
		}
		if time.Since(start) != 0 {
			t.Error("sending took time")
		}
		if c := s.Counts(); c.Dropped[Overflow] != 50 {
			t.Errorf("%+v", c)
		}
		if n := strings.Count(log.String(), "dropped"); n != 1 {
			t.Errorf("%d lines about 50 drops at once", n)
		}
		close(r.hold)
		synctest.Wait()
		seen := make(map[string]bool)
		r.mu.Lock()
		for _, body := range r.got {
			seen[body] = true
		}
		r.mu.Unlock()
		for i := range MaxQueue + 50 {
			if want := i < senders || i >= senders+50; seen[strconv.Itoa(i)] != want {
				t.Fatalf("notice %d was sent is %v", i, !want)
			}
		}
		stop()
		if c := s.Counts(); c.Delivered != MaxQueue || c.Dropped[Shutdown] != 0 {
			t.Errorf("%+v", c)
		}
	})
}

func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: always(200), hold: make(chan struct{})}
		s, stop := run(t, r, io.Discard)
		for range senders + 3 {
			s.Send("wh", nil)
		}
		synctest.Wait()
		stop()
		if c := s.Counts(); c.Dropped[Shutdown] != senders+3 {
			t.Errorf("%+v", c)
		}
	})
}

// TestHangingReceiver: a try ends after 10 s.
func TestHangingReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: always(200), hold: make(chan struct{})}
		s, _ := run(t, r, io.Discard)
		s.Send("wh", nil)
		time.Sleep(tryTimeout + firstPause)
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.got) != 2 {
			t.Errorf("%d tries", len(r.got))
		}
	})
}

// TestNetwork delivers over a real connection, and follows no redirect.
func TestNetwork(t *testing.T) {
	got := make(chan *http.Request, 8)
	var bodies sync.Map
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		bodies.Store(r.URL.Path, string(body))
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "/followed", http.StatusTemporaryRedirect)
		}
		got <- r
	}))
	t.Cleanup(srv.Close)
	for _, path := range []string{"/hook", "/away"} {
		s, err := New(Config{URL: srv.URL + path, Secret: secret, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); s.Run(ctx) }()
		s.Send("wh_1", []byte(`{"a":1}`))
		r := <-got
		body, _ := bodies.Load(path)
		if r.Method != "POST" || r.Header.Get("Content-Type") != "application/json" || body != `{"a":1}` ||
			r.Header.Get(SignatureHeader) != Sign([]byte(secret), r.Header.Get(TimestampHeader), []byte(`{"a":1}`)) {
			t.Errorf("%s %v %v", r.Method, r.Header, body)
		}
		for range time.Tick(time.Millisecond) { // the answer is on its way
			if s.Counts().Tries > 0 || t.Context().Err() != nil {
				break
			}
		}
		cancel()
		<-done
	}
	if _, followed := bodies.Load("/followed"); followed {
		t.Error("the redirect was followed")
	}
}

func TestNew(t *testing.T) {
	for _, tt := range []struct {
		url, secret string
		ok          bool
	}{
		{"https://hooks.example/x", secret, true},
		{"https://hooks.example:8443/x?y=z", secret, true},
		{"http://127.0.0.1:8080/x", secret, true},
		{"http://127.9.9.9/", secret, true},
		{"http://[::1]:8080/x", secret, true},
		{"http://localhost:1", secret, true},
		{"http://hooks.example/x", secret, false},
		{"http://localhost.example/x", secret, false},
		{"http://10.0.0.1/x", secret, false},
		{"https://canary:pw@hooks.example/x", secret, false},
		{"https://canary@hooks.example/x", secret, false},
		{"https:///canary", secret, false},
		{"https://:443/canary", secret, false},
		{"https:canary.example", secret, false},
		{"ftp://canary.example", secret, false},
		{"canary.example/x", secret, false},
		{"https://hooks.example/x#canary", secret, false},
		{"https://hooks.example/%zzcanary", secret, false},
		{"", secret, false},
		{"https://hooks.example/x", "canary", false},
		{"https://hooks.example/x", "", false},
	} {
		_, err := New(Config{URL: tt.url, Secret: tt.secret})
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.url, err)
		}
		if err != nil && strings.Contains(err.Error(), "canary") {
			t.Errorf("%v quotes what it was given", err)
		}
	}
}

// TestSign pins the signature: receivers compute it by themselves.
func TestSign(t *testing.T) {
	const want = "v1=ceebd6e92fb675519759f0f831ff2b0ec333d9a79b8273d5a385de63e49ca26d"
	if got := Sign([]byte("0123456789abcdef"), "1700000000", []byte(`{"id":"wh_1"}`)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

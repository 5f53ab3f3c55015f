package sending

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol/seal"
)

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

var theKey = func() *seal.Key {
	key, err := seal.SharedKey(strings.Repeat("k", seal.MinSecret))
	if err != nil {
		panic(err)
	}
	return key
}()

func sender(url string) *Sender {
	return &Sender{URL: url + "/sync/sb/theaddress", Hostname: "laptop", Key: theKey, HTTP: Client()}
}

// TestSend: the sandbox opens what was meant, and its word comes back.
func TestSend(t *testing.T) {
	var got seal.Envelope
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		must(t, err)
		plain, err := theKey.Open(body)
		must(t, err)
		got, err = seal.Decode(plain, []int{seal.Version})
		must(t, err)
		_, _ = io.WriteString(w, `{"written":1,"dropped":2,"dropped_hosts":{"a":2},"refused":[],"ignored":[]}`)
	}))
	defer server.Close()
	answer, err := sender(server.URL).Send(t.Context(), 7, []seal.Cookie{{HostKey: "a.test", Name: "n", Value: "v", Path: "/"}}, true)
	must(t, err)
	if answer.Written != 1 || answer.DroppedHosts["a"] != 2 || got.Sequence != 7 || !got.Complete || got.SourceHostname != "laptop" || len(got.Cookies) != 1 || got.Cookies[0].Value != "v" {
		t.Errorf("answer %+v, envelope %+v", answer, got)
	}
	if _, err := sender(server.URL).Send(t.Context(), 8, nil, false); err != nil || got.Sequence != 8 || len(got.Cookies) != 0 {
		t.Errorf("no cookies are a set, too: %v", err)
	}
	big := []seal.Cookie{{Value: strings.Repeat("x", MaxBody)}}
	if _, err := sender(server.URL).Send(t.Context(), 9, big, false); err == nil || got.Sequence == 9 {
		t.Errorf("a body that the relay wouldn't take: %v", err)
	}
}

// TestRefusals: only a 200 is success, an error says what to do, and none of them has
// the address: who has that may push.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		status int
		passes bool
		says   string
	}{
		{204, false, "204"}, {400, false, "why not"}, {401, false, "keys differ"}, {404, false, "pair"}, {409, false, "later"},
		{413, false, "413"}, {429, true, "429"}, {500, true, "500"}, {503, true, "connected"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(c.status)
			if c.status != 204 {
				_, _ = io.WriteString(w, `{"error":{"message":"why not"}}`)
			}
		}))
		_, err := sender(server.URL).Send(t.Context(), 1, nil, false)
		if err == nil || Passing(err) != c.passes || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "theaddress") || After(err) != 7*time.Second {
			t.Errorf("%d: %v, passing %v, after %v", c.status, err, Passing(err), After(err))
		}
		server.Close()
		if _, err := sender(server.URL).Send(t.Context(), 1, nil, false); !Passing(err) || strings.Contains(err.Error(), "theaddress") {
			t.Errorf("nobody there: %v", err)
		}
	}
}

// TestRedirects: a relay may say that another one has the sandbox. The body goes
// again, whole; out of TLS, or around for ever, it doesn't.
func TestRedirects(t *testing.T) {
	var body int
	there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		body = len(data)
		_, _ = io.WriteString(w, `{}`)
	}))
	defer there.Close()
	here := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, there.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	defer here.Close()
	if _, err := sender(here.URL).Send(t.Context(), 1, nil, false); err != nil || body < seal.Overhead {
		t.Errorf("%d bytes: %v", body, err)
	}
	secure := httptest.NewTLSServer(here.Config.Handler)
	defer secure.Close()
	s, c := sender(secure.URL), *Client()
	c.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the test's own
	s.HTTP, body = &c, 0
	if _, err := s.Send(t.Context(), 1, nil, false); err == nil || body != 0 {
		t.Errorf("out of TLS: %v", err)
	}
	var round *httptest.Server
	times := 0
	round = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		times++
		http.Redirect(w, r, round.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	defer round.Close()
	if _, err := sender(round.URL).Send(t.Context(), 1, nil, false); err == nil || times > maxRedirects+2 {
		t.Errorf("%d times around: %v", times, err)
	}
}

// followed runs Follow in virtual time, and returns when it has pushed.
func followed(t *testing.T, answers []error, changes func(chan<- struct{})) (at []time.Duration, told []time.Duration, ended error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		c := make(chan struct{}, 1)
		go changes(c)
		ended = Follow(ctx, c, func(context.Context) error {
			at = append(at, time.Since(began))
			if len(at) <= len(answers) {
				return answers[len(at)-1]
			}
			return nil
		}, func(_ error, next time.Duration) { told = append(told, next) })
	})
	return at, told, ended
}

// TestFollow: once at first; after a change half a second after the last of a burst,
// never within two seconds of the push before, and of a browser that never rests every
// few seconds.
func TestFollow(t *testing.T) {
	change := func(c chan<- struct{}) {
		select {
		case c <- struct{}{}:
		default:
		}
	}
	at, _, ended := followed(t, nil, func(c chan<- struct{}) {
		time.Sleep(10 * time.Second)
		for range 3 { // the last one after 800 ms
			change(c)
			time.Sleep(400 * time.Millisecond)
		}
	})
	if want := []time.Duration{0, 11_300 * time.Millisecond}; !slices.Equal(at, want) || !errors.Is(ended, context.DeadlineExceeded) {
		t.Errorf("pushed at %v, want %v: %v", at, want, ended)
	}
	at, _, _ = followed(t, nil, func(c chan<- struct{}) { change(c) })
	if want := []time.Duration{0, Apart}; !slices.Equal(at, want) {
		t.Errorf("a change at once: pushed at %v, want %v", at, want)
	}
	at, _, _ = followed(t, nil, func(c chan<- struct{}) {
		for range 600 { // a minute
			change(c)
			time.Sleep(100 * time.Millisecond)
		}
	})
	if len(at) < 20 || len(at) > 32 {
		t.Errorf("in a minute without rest: %d pushes", len(at))
	}
	for i := 1; i < len(at); i++ {
		if at[i]-at[i-1] < Apart {
			t.Errorf("pushes %v and %v", at[i-1], at[i])
		}
	}
}

// TestFollowFails: what may pass is tried again, later each time and not before the
// relay has said; what won't ends it.
func TestFollowFails(t *testing.T) {
	busy, later := &Refusal{Status: 503}, &Refusal{Status: 429, After: 90 * time.Second}
	at, told, ended := followed(t, []error{busy, busy, busy, later, nil}, func(chan<- struct{}) {})
	if len(at) != 5 || len(told) != 4 || told[3] < 90*time.Second || at[4]-at[3] < 90*time.Second || !errors.Is(ended, context.DeadlineExceeded) {
		t.Fatalf("pushed at %v, told %v: %v", at, told, ended)
	}
	if told[2] < firstRetry || told[0] > firstRetry {
		t.Errorf("waits %v", told)
	}
	if busy := Later(errors.New("busy")); !Passing(busy) || Passing(errors.New("busy")) || busy.Error() != "busy" {
		t.Error("what is busy here isn't worth another try")
	}
	gone := &Refusal{Status: 404}
	if at, _, ended := followed(t, []error{gone}, func(chan<- struct{}) {}); len(at) != 1 || !errors.Is(ended, gone) {
		t.Errorf("pushed at %v: %v", at, ended)
	}
}

// TestChanges: of a file, of a journal beside it, and of one that takes its place;
// not of others.
func TestChanges(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "Cookies")
	must(t, os.WriteFile(file, []byte("1"), 0o600))
	changes, err := Changes(t.Context(), file)
	must(t, err)
	other := filepath.Join(dir, "History")
	must(t, os.WriteFile(other, []byte("1"), 0o600))
	told := func(what string) {
		t.Helper()
		select {
		case <-changes:
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: nothing was told", what)
		}
	}
	must(t, os.WriteFile(file+"-journal", []byte("1"), 0o600))
	told("a journal")
	for len(changes) > 0 {
		<-changes
	}
	must(t, os.Rename(other, file))
	told("another file in its place")
	if _, err := Changes(t.Context(), filepath.Join(dir, "none", "Cookies")); err == nil {
		t.Error("a folder that isn't there is watched")
	}
}

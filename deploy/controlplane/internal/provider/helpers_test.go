package provider

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "token-of-the-account"

// A withToken adds the account's token to requests.
type withToken struct{ http.RoundTripper }

func (w withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return w.RoundTripper.RoundTrip(r)
}

// A sent is a request as a provider got it.
type sent struct {
	line   string // method, path and query, which is decoded
	header http.Header
	body   string
}

// An upstream stands for a provider.
type upstream struct {
	t      *testing.T
	server *httptest.Server

	mu      sync.Mutex
	sent    []sent
	answers map[string]func(w http.ResponseWriter, r *http.Request) // by method and path as it was sent
}

func newUpstream(t *testing.T) *upstream {
	u := &upstream{t: t, answers: make(map[string]func(http.ResponseWriter, *http.Request))}
	u.server = httptest.NewServer(u)
	t.Cleanup(u.server.Close)
	return u
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		u.t.Error(err)
	}
	line := r.Method + " " + r.URL.EscapedPath()
	u.mu.Lock()
	answer := u.answers[line]
	shown := line
	if q := r.URL.Query(); len(q) > 0 {
		var parts []string
		for name, values := range q {
			for _, v := range values {
				parts = append(parts, name+"="+v)
			}
		}
		slices.Sort(parts)
		shown += "?" + strings.Join(parts, "&")
	}
	u.sent = append(u.sent, sent{shown, r.Header, string(body)})
	u.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer "+token {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if answer == nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	answer(w, r)
}

// on has a request answered. headers are names and values in turn.
func (u *upstream) on(line string, status int, body string, headers ...string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.answers[line] = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=UTF-8")
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// recorded returns a file of testdata: an answer in a provider's own shape.
func recorded(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// take returns the requests since it was last called.
func (u *upstream) take() []sent {
	u.mu.Lock()
	defer u.mu.Unlock()
	list := u.sent
	u.sent = nil
	return list
}

func (u *upstream) lines() []string {
	var lines []string
	for _, s := range u.take() {
		lines = append(lines, s.line)
	}
	return lines
}

func (u *upstream) call(action, args string) Call {
	provider, _, _ := strings.Cut(action, ".")
	return Call{
		Provider: provider, Action: action, Args: json.RawMessage(args),
		Client: &http.Client{Transport: withToken{u.server.Client().Transport}}, BaseURL: u.server.URL,
	}
}

// do executes an action that must succeed.
func (u *upstream) do(action, args string) json.RawMessage {
	u.t.Helper()
	answer, err := Execute(u.t.Context(), u.call(action, args))
	if err != nil {
		u.t.Fatalf("%s %s: %v", action, args, err)
	}
	return answer
}

// want executes an action and compares what came of it.
func (u *upstream) want(action, args, want string) {
	u.t.Helper()
	sameJSON(u.t, action, u.do(action, args), want)
}

// refused executes an action that must fail.
func (u *upstream) refused(action, args string) *Error {
	u.t.Helper()
	answer, err := Execute(u.t.Context(), u.call(action, args))
	var e *Error
	if !errors.As(err, &e) {
		u.t.Fatalf("%s %s: %s, %v", action, args, answer, err)
	}
	return e
}

// asked compares what was asked since the last time.
func (u *upstream) asked(want ...string) {
	u.t.Helper()
	if got := u.lines(); !slices.Equal(got, want) {
		u.t.Errorf("asked\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func sameJSON(t *testing.T, what string, got json.RawMessage, want string) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal(got, &g); err != nil {
		t.Errorf("%s: %s: %v", what, got, err)
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatalf("%s: %s: %v", what, want, err)
	}
	if !reflect.DeepEqual(g, w) {
		t.Errorf("%s: %s\nwant %s", what, got, want)
	}
}

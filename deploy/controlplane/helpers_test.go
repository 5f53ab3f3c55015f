package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/statedir"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/pgtest"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main{M: m}) }

const (
	aliceToken  = "token-of-alice-0123456789"
	bobToken    = "token-of-bob-0123456789"
	carolToken  = "token-of-carol-0123456789"
	daveToken   = "token-of-dave-0123456789" // a member of nothing
	relayToken  = "credential-of-relay-one-0123"
	relay2Token = "credential-of-relay-two-0123"
)

func testSeed() store.Seed {
	return store.Seed{
		Users: []store.SeedUser{
			{ID: "usr_alice", Name: "Alice", Token: aliceToken},
			{ID: "usr_bob", Name: "Bob", Token: bobToken},
			{ID: "usr_carol", Name: "Carol", Token: carolToken},
			{ID: "usr_dave", Name: "Dave", Token: daveToken},
		},
		Dashboards: []store.SeedDashboard{{
			ID: "dash_1", SandboxID: "sb_1", SessionID: "ses_1",
			Members: []store.SeedMember{
				{UserID: "usr_alice", Role: store.RoleOwner},
				{UserID: "usr_bob", Role: store.RoleEditor, Capabilities: "view control"},
				{UserID: "usr_carol", Role: store.RoleViewer},
			},
		}},
		Relays: []store.SeedRelay{
			{ID: "rl_1", Credential: relayToken},
			{ID: "rl_2", Credential: relay2Token},
		},
	}
}

// A testClock is a time that only the test moves.
type testClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *testClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *testClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// A plane is a control plane under test, with its real store and without a
// network between it and the test.
type plane struct {
	t       *testing.T
	server  *Server
	handler http.Handler
	clock   *testClock
	dir     string

	database  string // empty: SQLite
	configure func(*Config)
	log       *lockedBuffer
}

func newPlane(t *testing.T) *plane {
	t.Helper()
	return newPlaneWith(t, func(*Config) {})
}

// newPlaneWith returns a control plane whose configuration is changed first.
func newPlaneWith(t *testing.T, configure func(*Config)) *plane {
	t.Helper()
	dir := t.TempDir()
	seed, err := json.Marshal(testSeed())
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "seed.json"), seed, 0o600)
	p := &plane{
		t: t, dir: dir, log: &lockedBuffer{}, configure: configure,
		clock: &testClock{now: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)},
	}
	if strings.HasPrefix(t.Name(), onPostgres) {
		p.database = pgtest.New(t)
	} else {
		p.copyDatabase()
	}
	p.start()
	return p
}

// migrated is an empty database of this build's schema: to copy it is quicker
// than to make one for each test.
var migrated = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "controlplane")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, statedir.DatabaseFile)
	st, err := store.Open(context.Background(), path, nil)
	if err != nil {
		return nil, err
	}
	if err := st.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

func (p *plane) copyDatabase() {
	p.t.Helper()
	data, err := migrated()
	if err != nil {
		p.t.Fatal(err)
	}
	state := filepath.Join(p.dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		p.t.Fatal(err)
	}
	writeFile(p.t, filepath.Join(state, statedir.DatabaseFile), data, 0o600)
}

// onPostgres begins the names of the tests whose control plane is on Postgres.
const onPostgres = "TestOnPostgres/"

// start starts the control plane on p's state; it ends with the test.
func (p *plane) start() {
	p.t.Helper()
	cfg := Config{
		StateDir: filepath.Join(p.dir, "state"), Database: p.database, Listen: "127.0.0.1:0",
		DevSeed: filepath.Join(p.dir, "seed.json"), Revision: "rev1",
		Logger: slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Now:    p.clock.Now,
	}
	p.configure(&cfg)
	server, err := New(p.t.Context(), cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		server.close()
		if err := server.closeResources(); err != nil {
			p.t.Errorf("close: %v", err)
		}
	})
	p.server, p.handler = server, server.handler()
}

type call struct {
	method, path, token string
	body                string
	header              map[string]string
}

// serve makes a request.
func (p *plane) serve(c call) *httptest.ResponseRecorder {
	p.t.Helper()
	r := httptest.NewRequestWithContext(p.t.Context(), c.method, c.path, strings.NewReader(c.body))
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	for k, v := range c.header {
		r.Header.Set(k, v)
	}
	w := &deadlineRecorder{httptest.NewRecorder()}
	p.handler.ServeHTTP(w, r)
	return w.ResponseRecorder
}

// do makes a request and returns the answer's status and body.
func (p *plane) do(c call) (int, map[string]any, http.Header) {
	p.t.Helper()
	w := p.serve(c)
	var body map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		p.t.Errorf("%s %s: %q is not JSON: %v", c.method, c.path, w.Body, err)
	}
	return w.Code, body, w.Header()
}

// deadlineRecorder has the deadline that a real connection has.
type deadlineRecorder struct{ *httptest.ResponseRecorder }

func (deadlineRecorder) SetWriteDeadline(time.Time) error { return nil }

// want makes a request and fails the test unless it is answered with status
// and, for an error, with the given name.
func (p *plane) want(c call, status int, name string) map[string]any {
	p.t.Helper()
	got, body, _ := p.do(c)
	gotName := ""
	if e, ok := body["error"].(map[string]any); ok {
		gotName, _ = e["name"].(string)
	}
	if got != status || gotName != name {
		p.t.Errorf("%s %s %s: status %d, body %v; want %d %s", c.method, c.path, c.body, got, body, status, name)
	}
	return body
}

// grant buys a grant.
func (p *plane) grant(token, body string) string {
	p.t.Helper()
	grant, _ := p.want(call{"POST", "/grants", token, body, nil}, http.StatusOK, "")["grant"].(string)
	return grant
}

// register registers relay 1 at url.
func (p *plane) register(id, credential, url string) {
	p.t.Helper()
	p.want(call{"PUT", "/internal/relays/" + id, credential,
		`{"url":"` + url + `","tunnel":"127.0.0.1:4433","public_origin":"http://127.0.0.1:8080"}`, nil}, http.StatusOK, "")
}

// keys verifies with what the control plane publishes.
func (p *plane) keys() *jws.Keys {
	p.t.Helper()
	w := httptest.NewRecorder()
	p.handler.ServeHTTP(w, httptest.NewRequestWithContext(p.t.Context(), "GET", "/.well-known/jwks.json", nil))
	set, err := jws.ParseKeySet(w.Body.Bytes())
	if err != nil || set.Len() != 1 {
		p.t.Fatalf("jwks %q: %d keys, %v", w.Body, set.Len(), err)
	}
	return jws.NewKeys(set, jws.KeysOptions{Now: p.clock.Now})
}

// A fakeRelay answers commands as the test says.
type fakeRelay struct {
	*httptest.Server
	mu        sync.Mutex
	envelopes []protocol.CommandEnvelope
	settled   []string // "TOKEN BODY" of each /control/settled
	unsettled int      // so many of them are answered 404
	browsers  string   // the answer of /control/browsers; empty: 404, as of an older relay
	paths     []string // of the commands
}

func newFakeRelay(t *testing.T, answer func(w http.ResponseWriter, env protocol.CommandEnvelope)) *fakeRelay {
	t.Helper()
	f := &fakeRelay{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var env protocol.CommandEnvelope
		data, err := io.ReadAll(r.Body)
		if r.URL.Path == "/control/settled" {
			w.WriteHeader(f.settle(web.Bearer(r) + " " + string(data)))
			return
		}
		if r.URL.Path == "/control/browsers" {
			if f.browsers == "" {
				w.WriteHeader(http.StatusNotFound)
			}
			io.WriteString(w, f.browsers)
			return
		}
		if err != nil || !strings.HasPrefix(r.URL.String(), "/control/commands?wait=1") || json.Unmarshal(data, &env) != nil {
			t.Errorf("relay got %s %s %q, %v", r.Method, r.URL, data, err)
		}
		f.mu.Lock()
		f.envelopes = append(f.envelopes, env)
		f.paths = append(f.paths, r.URL.String())
		f.mu.Unlock()
		answer(w, env)
	}))
	t.Cleanup(f.Close)
	return f
}

// settle takes what is posted to /control/settled, and returns the status.
func (f *fakeRelay) settle(what string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settled = append(f.settled, what)
	if f.unsettled > 0 {
		f.unsettled--
		return http.StatusNotFound
	}
	return http.StatusNoContent
}

func (f *fakeRelay) got() []protocol.CommandEnvelope {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.envelopes
}

// callback answers with a callback of the given members.
func callback(members string) func(http.ResponseWriter, protocol.CommandEnvelope) {
	return func(w http.ResponseWriter, env protocol.CommandEnvelope) {
		io.WriteString(w, `{"type":"control.callback","commandId":"`+string(env.CommandID)+`","at":1,`+members+`}`)
	}
}

func status(code int) func(http.ResponseWriter, protocol.CommandEnvelope) {
	return func(w http.ResponseWriter, _ protocol.CommandEnvelope) {
		w.WriteHeader(code)
		io.WriteString(w, `{"error":{"message":"said the relay","name":"LimitError"}}`)
	}
}

func writeFile(t *testing.T, path string, data []byte, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, data, mode); err != nil {
		t.Fatal(err)
	}
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func verifyCommand(t *testing.T, keys *jws.Keys, token string) *jws.Command {
	t.Helper()
	cmd, err := keys.Command(context.Background(), token, jws.AudienceAgent)
	if err != nil {
		t.Fatalf("the command isn't valid: %v", err)
	}
	return cmd
}

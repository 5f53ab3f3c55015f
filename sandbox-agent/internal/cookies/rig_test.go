package cookies

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/audit"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/protocol/seal"
)

const (
	sandbox = protocol.SandboxID("sb_test")
	sid     = protocol.SessionID("ses_a")
	alice   = protocol.UserID("usr_alice")
	bob     = protocol.UserID("usr_bob")
	origin  = "https://relay.example"
	// canary stands in each value: it may be seen in Chromium alone.
	canary = "canary-value"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if gap := os.Getenv(childGap); gap != "" {
			runIntoGap(dir, gap)
			return
		}
		runChild(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// A fakeChromium has what was set and not removed.
type fakeChromium struct {
	mu     sync.Mutex
	has    map[seal.CookieID]seal.Cookie
	sets   int
	refuse func(seal.Cookie) string
	fails  error
	before func() // called in SetCookies, without a lock
}

func (f *fakeChromium) SetCookies(_ context.Context, _ protocol.SessionID, cookies []seal.Cookie) (map[int]string, error) {
	if f.before != nil {
		f.before()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sets++
	if f.fails != nil {
		return nil, f.fails
	}
	refused := map[int]string{}
	for i, c := range cookies {
		if f.refuse != nil && f.refuse(c) != "" {
			refused[i] = f.refuse(c)
			continue
		}
		f.has[c.ID()] = c
	}
	return refused, nil
}

func (f *fakeChromium) RemoveCookies(_ context.Context, _ protocol.SessionID, ids []seal.CookieID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range ids {
		delete(f.has, id)
	}
	return f.fails
}

// values returns what it has, as "host name=value".
func (f *fakeChromium) values() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return values(slices.Collect(maps.Values(f.has)))
}

func values(cookies []seal.Cookie) string {
	var all []string
	for _, c := range cookies {
		all = append(all, c.HostKey+" "+c.Name+"="+strings.TrimPrefix(c.Value, canary))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// plainSeal takes boxes that are JSON.
type plainSeal struct{}

func (plainSeal) Open(box []byte) (secrets op.SyncSecrets, err error) {
	return secrets, json.Unmarshal(box, &secrets)
}

type auditLog struct {
	mu   sync.Mutex
	list []audit.Sync
}

func (a *auditLog) Sync(s audit.Sync) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = append(a.list, s)
}

// A rig is a sink.
type rig struct {
	*Sink
	t        testing.TB
	o        Options
	chromium *fakeChromium
	audit    *auditLog
	log      *lockedBuffer
	sequence int64
}

type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func newRig(t testing.TB, options ...func(*Options)) *rig {
	r := &rig{t: t, chromium: &fakeChromium{has: map[seal.CookieID]seal.Cookie{}}, audit: &auditLog{}, log: &lockedBuffer{}}
	r.o = Options{
		Dir: filepath.Join(inMemory(t), "sync"), Sandbox: sandbox, Seal: plainSeal{}, Chromium: r.chromium, Audit: r.audit, Isolated: true,
		Log: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, option := range options {
		option(&r.o)
	}
	r.reopen()
	return r
}

// inMemory is a folder for a test, if possible one where an fsync takes no time.
func inMemory(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "cookies-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// reopen is what the end of one agent and the start of another one do.
func (r *rig) reopen() {
	r.t.Helper()
	var err error
	r.Sink, err = Open(r.o)
	must(r.t, err)
}

func must(t interface {
	Helper()
	Fatal(...any)
}, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// run has a command carried out.
func (r *rig) run(user protocol.UserID, kind string, body op.Body) (protocol.OpResult, error) {
	raw, err := json.Marshal(op.Op{Kind: kind, Body: body})
	must(r.t, err)
	c := &jws.Command{
		Target: protocol.CommandTarget{SandboxID: sandbox, SessionID: sid}, Op: raw, UserID: user,
		Reply: &jws.Reply{URL: origin + "/control/callback"},
	}
	_, decoded, err := op.Decode(raw)
	must(r.t, err)
	run, err := r.Operations()[kind](c, decoded)
	if err != nil {
		return protocol.OpResult{}, err
	}
	return run(context.Background())
}

// A source is the other side of a pairing.
type source struct {
	r        *rig
	id       protocol.PairingID
	url      string
	path     string
	key      *seal.Key
	hostname string
}

// share pairs by a secret.
func (r *rig) share(secret string) *source {
	r.t.Helper()
	box, err := json.Marshal(op.SyncSecrets{SharedSecret: secret})
	must(r.t, err)
	result, err := r.run(alice, op.KindSyncPair, &op.SyncPairSealed{Step: op.SyncSecret, Name: "laptop", Sealed: box})
	must(r.t, err)
	key, err := seal.SharedKey(secret)
	must(r.t, err)
	return &source{r, result.Pairing, result.URL, strings.TrimPrefix(result.URL, origin), key, "host"}
}

// laptop pairs by a secret of its own.
func (r *rig) laptop(name string) *source { return r.share(strings.Repeat(name+"-canary-secret", 4)) }

// post sends a body.
func (s *source) post(sealed []byte) *httptest.ResponseRecorder {
	return s.r.ask(httptest.NewRequest(http.MethodPost, s.path, bytes.NewReader(sealed)))
}

func (r *rig) ask(request *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, request)
	return w
}

func (s *source) seal(e seal.Envelope) []byte {
	plain, err := e.Encode()
	must(s.r.t, err)
	return s.key.Seal(plain)
}

// envelope is one with the next sequence.
func (s *source) envelope(cookies ...seal.Cookie) seal.Envelope {
	s.r.sequence++
	return seal.Envelope{Version: 1, SourceHostname: s.hostname, Sequence: s.r.sequence, Cookies: cookies}
}

// push sends cookies, which has to succeed.
func (s *source) push(cookies ...seal.Cookie) op.SyncAnswer {
	s.r.t.Helper()
	return s.pushed(s.envelope(cookies...))
}

func (s *source) pushed(e seal.Envelope) (answer op.SyncAnswer) {
	s.r.t.Helper()
	w := s.post(s.seal(e))
	if w.Code != http.StatusOK || w.Body.Len() > maxAnswer {
		s.r.t.Fatalf("%d with %d bytes: %.300s", w.Code, w.Body.Len(), w.Body)
	}
	must(s.r.t, json.Unmarshal(w.Body.Bytes(), &answer))
	return answer
}

// refused sends a body that has to be refused.
func (s *source) refused(status int, sealed []byte) string {
	s.r.t.Helper()
	before, sets := s.r.chromium.values(), s.r.chromium.sets
	w := s.post(sealed)
	var body struct{ Error protocol.ErrorBody }
	if w.Code != status || json.Unmarshal(w.Body.Bytes(), &body) != nil || body.Error.Name == "" || body.Error.Message == "" {
		s.r.t.Errorf("%d, want %d: %.300s", w.Code, status, w.Body)
	}
	if s.r.chromium.values() != before || s.r.chromium.sets != sets {
		s.r.t.Errorf("refused with %d, it has %s, and had %s", w.Code, s.r.chromium.values(), before)
	}
	return body.Error.Message
}

// has says what is in Chromium, and would be in a new one.
func (r *rig) has(want string) {
	r.t.Helper()
	if got := r.chromium.values(); got != want {
		r.t.Errorf("Chromium has %q, want %q", got, want)
	}
	if got := values(r.Kept(sid)); got != want {
		r.t.Errorf("kept is %q, want %q", got, want)
	}
}

func cookie(host, name, value string) seal.Cookie {
	return seal.Cookie{HostKey: host, Name: name, Value: canary + value, Path: "/", SameSite: -1, Priority: 1, SourcePort: -1}
}

// noCanary: no value and no secret is in a text.
func (r *rig) noCanary(texts ...string) {
	r.t.Helper()
	for _, text := range append(texts, r.log.String()) {
		if i := strings.Index(text, "canary"); i >= 0 {
			r.t.Errorf("a secret is told: …%.200s", text[max(0, i-80):])
		}
	}
}

package extension_test

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/extension"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/protocol/seal"
)

// A sink stands for a relay with a sandbox behind it, the control plane, and a site
// of somebody else's, at shop.site.localhost.
type sink struct {
	relay, control, site *httptest.Server
	shop                 string // an address of the site's

	mu      sync.Mutex
	changed chan struct{}
	private *ecdh.PrivateKey
	key     *seal.Key
	print   string          // the fingerprint that the sandbox has
	pushed  []seal.Envelope // as they were opened
	at      []time.Time     // when each came
	refuse  int             // status of pushes; 0: they are taken
	ops     []string        // steps and kinds
	faults  []string
}

const syncAddress = "/sync/sb_1/abcdefghijklmnopqrstuvwxyz"

func newSink(t testing.TB, extensionID string) *sink {
	t.Helper()
	s := &sink{changed: make(chan struct{})}
	s.relay = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Origin") != "chrome-extension://"+extensionID || r.Header.Get("Cookie") != "" || r.Header.Get("Authorization") != "" || r.URL.Path != syncAddress {
			s.fault("a push to %s with %v", r.URL.Path, r.Header)
		}
		s.push(w, r)
	}))
	s.control = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer ut_alice" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if r.URL.Path == "/auth/me" {
			session := func(id, name string, may ...string) any {
				return object{"id": id, "dashboard": name, "sandbox": "sb_1", "capabilities": may}
			}
			answer(w, object{"user": object{"id": "usr_alice", "name": "alice"}, "sessions": []any{session("ses_0", "Watched", "view"), session("ses_1", "Demo", "view", "sync"), session("ses_2", "Other", "view", "sync")}})
			return
		}
		s.command(w, r)
	}))
	s.site = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, line := range r.URL.Query()["set"] {
			w.Header().Add("Set-Cookie", line)
		}
		htmlPage("A shop", "<h1>A shop</h1>")(w, r)
	}))
	s.shop = strings.Replace(s.site.URL, "127.0.0.1", "shop.site.localhost", 1)
	t.Cleanup(func() {
		for _, server := range []*httptest.Server{s.relay, s.control, s.site} {
			server.CloseClientConnections()
			server.Close()
		}
		for _, fault := range s.faults {
			t.Error(fault)
		}
	})
	return s
}

func (s *sink) fault(format string, args ...any) {
	s.do(func() { s.faults = append(s.faults, fmt.Sprintf(format, args...)) })
}

func (s *sink) do(what func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what()
	close(s.changed)
	s.changed = make(chan struct{})
}

// until waits for what happens here.
func (s *sink) until(t testing.TB, what string, so func() bool) {
	t.Helper()
	ctx := patience(t)
	for {
		s.mu.Lock()
		done, changed := so(), s.changed
		s.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("never: %s; pushed was %+v", what, s.pushed)
		}
	}
}

// command is POST /commands: the sandbox pairs, and ends pairings.
func (s *sink) command(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Target struct{ SessionID string }
		Op     struct {
			op.SyncPair
			Kind string
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || asked.Target.SessionID != "ses_1" {
		s.fault("a command for %q (%v)", asked.Target.SessionID, err)
	}
	result := object{}
	s.do(func() {
		s.ops = append(s.ops, asked.Op.Kind+" "+asked.Op.Step)
		switch asked.Op.Step {
		case op.SyncBegin:
			s.private, _ = ecdh.X25519().GenerateKey(rand.Reader)
			result = object{"pairing": "prg_1", "sinkPublicKey": s.private.PublicKey().Bytes(), "sinkHostname": "sink"}
		case op.SyncFinish:
			code, err := seal.ParseCode(asked.Op.Code)
			if err == nil {
				var paired seal.Paired
				paired, err = seal.Pair(s.private, asked.Op.SourcePublicKey, code)
				s.key, _ = paired.Key()
				s.print = paired.Fingerprint()
			}
			if err != nil || s.print != asked.Op.Fingerprint {
				s.faults = append(s.faults, fmt.Sprintf("the pairing: %v, fingerprint %s", err, asked.Op.Fingerprint))
			}
			result = object{"pairing": "prg_1", "url": s.relay.URL + syncAddress, "fingerprint": s.print}
		}
	})
	answer(w, object{"commandId": "cmd_1", "status": "ok", "result": result})
}

// push is the sandbox's answer to an envelope.
func (s *sink) push(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.do(func() {
		if s.refuse != 0 {
			w.WriteHeader(s.refuse)
			return
		}
		plain, err := s.key.Open(body)
		if err != nil {
			s.faults = append(s.faults, "a body doesn't open")
			return
		}
		e, err := seal.Decode(plain, []int{seal.Version})
		if last := len(s.pushed) - 1; err != nil || !e.Complete || last >= 0 && e.Sequence <= s.pushed[last].Sequence {
			s.faults = append(s.faults, fmt.Sprintf("an envelope that isn't one: %v, sequence %d", err, e.Sequence))
		}
		s.pushed, s.at = append(s.pushed, e), append(s.at, time.Now())
		removed := 0
		if n := len(s.pushed); n > 1 {
			removed = max(0, len(s.pushed[n-2].Cookies)-len(e.Cookies))
		}
		answer(w, op.SyncAnswer{Written: len(e.Cookies), Removed: removed, DroppedHosts: map[string]int{}})
	})
}

// names are those of the cookies that the last envelope has; s.mu is held.
func (s *sink) names() []string {
	if len(s.pushed) == 0 {
		return []string{"nothing was pushed"}
	}
	names := []string{}
	for _, c := range s.pushed[len(s.pushed)-1].Cookies {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	return names
}

// has waits until the sandbox has exactly these cookies.
func (s *sink) has(t testing.TB, names ...string) {
	t.Helper()
	s.until(t, fmt.Sprintf("the sandbox has %v", names), func() bool { return slices.Equal(s.names(), names) })
}

// A syncRig is a browser with the part sync, and the popup's page in a tab.
type syncRig struct {
	*rig
	*sink
}

// newSyncRig starts one. The permission that Chrome would ask the person for, as she
// adds the site, is given beforehand: a headless browser has nobody to ask.
func newSyncRig(t testing.TB, width, height int64, parts ...string) *syncRig {
	t.Helper()
	if testing.Short() {
		t.Skip("a browser")
	}
	id := make1(t, syncFor("https://relay.example", "https://control.example")).ID
	s := newSink(t, id)
	e := make1(t, extension.Options{Parts: parts, Origins: []string{s.relay.URL}, ControlPlane: s.control.URL})
	var m map[string]any
	err := json.Unmarshal(e.Files["manifest.json"], &m)
	if err == nil {
		m["host_permissions"] = append(m["host_permissions"].([]any), "*://*.site.localhost/*")
		e.Files["manifest.json"], err = json.Marshal(m)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{TB: t, id: e.ID}
	r.browser, r.end = launch(t, e, t.TempDir())
	r.popup = newTab(t, r.browser, width, height, "chrome-extension://"+e.ID+"/sync.html")
	r.popup.until(`typeof chrome.cookies === 'object'`)
	return &syncRig{r, s}
}

// visit opens an address in a tab, which stays.
func (r *syncRig) visit(sets ...string) *tab {
	r.Helper()
	return newTab(r.TB, r.browser, 800, 600, r.setting(sets...))
}

// setting is the address of a page that sets cookies.
func (r *syncRig) setting(sets ...string) string {
	address := r.shop + "/?"
	for _, set := range sets {
		address += "set=" + url.QueryEscape(set) + "&"
	}
	return address
}

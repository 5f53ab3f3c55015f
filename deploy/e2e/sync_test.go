package e2e

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/protocol/seal"
)

// A laptop is one that is paired with a session.
type laptop struct {
	t        *testing.T
	s        *Stack
	pairing  protocol.PairingID
	url      string
	key      *seal.Key
	sequence int64
}

// syncCommand runs an operation at the control plane's own address.
func syncCommand(ctx context.Context, t *testing.T, s *Stack, user, kind string, body op.Body) (result protocol.OpResult, fault *protocol.ErrorBody) {
	t.Helper()
	var answer struct {
		Result *protocol.OpResult  `json:"result"`
		Error  *protocol.ErrorBody `json:"error"`
	}
	_, data, err := Call(ctx, http.MethodPost, s.Ready.ControlPlane.URL+"/commands", s.Ready.User(user).Token,
		map[string]any{"target": map[string]any{"sessionId": s.Ready.SessionID}, "op": op.Op{Kind: kind, Body: body}})
	must(t, err)
	must(t, json.Unmarshal(data, &answer))
	if answer.Result != nil {
		result = *answer.Result
	}
	return result, answer.Error
}

// pair pairs a laptop as fairlead-source does: keys and code go by way of the
// control plane.
func pair(ctx context.Context, t *testing.T, s *Stack, user string) *laptop {
	t.Helper()
	begun, fault := syncCommand(ctx, t, s, user, op.KindSyncPair, &op.SyncPair{Step: op.SyncBegin, Name: user + "'s laptop"})
	if fault != nil {
		t.Fatal(fault.Message)
	}
	private, err := ecdh.X25519().GenerateKey(rand.Reader)
	must(t, err)
	code := seal.NewCode()
	paired, err := seal.Pair(private, begun.SinkPublicKey, code)
	must(t, err)
	finished, fault := syncCommand(ctx, t, s, user, op.KindSyncPair, &op.SyncPair{
		Step: op.SyncFinish, Pairing: begun.Pairing, SourcePublicKey: private.PublicKey().Bytes(), SourceHostname: "laptop",
		Fingerprint: paired.Fingerprint(), Code: string(code),
	})
	if fault != nil {
		t.Fatal(fault.Message)
	}
	if finished.Fingerprint != paired.Fingerprint() {
		t.Fatalf("fingerprints %s and %s", finished.Fingerprint, paired.Fingerprint())
	}
	key, err := paired.Key()
	must(t, err)
	return &laptop{t: t, s: s, pairing: begun.Pairing, url: finished.URL, key: key}
}

// body seals cookies with the next sequence.
func (l *laptop) body(cookies ...seal.Cookie) []byte {
	l.t.Helper()
	l.sequence++
	plain, err := seal.Envelope{Version: seal.Version, SourceHostname: "laptop", Sequence: l.sequence, Cookies: cookies}.Encode()
	must(l.t, err)
	return l.key.Seal(plain)
}

// post is what a source does with a body.
func (l *laptop) post(ctx context.Context, body []byte) (int, string) {
	l.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url, bytes.NewReader(body))
	must(l.t, err)
	resp, err := http.DefaultClient.Do(req)
	must(l.t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	must(l.t, err)
	return resp.StatusCode, string(data)
}

// push pushes cookies, all of which are taken.
func (l *laptop) push(ctx context.Context, cookies ...seal.Cookie) {
	l.t.Helper()
	status, text := l.post(ctx, l.body(cookies...))
	var answer op.SyncAnswer
	if err := json.Unmarshal([]byte(text), &answer); status != http.StatusOK || err != nil || answer.Written != len(cookies) {
		l.t.Fatalf("status %d: %s", status, text)
	}
}

// Values of cookies. The relay sees the first ones, since the test has the page
// read to it; nobody but the two browsers sees the other.
const (
	canary       = "canary-7f3a9c51e0-"
	sealedCanary = "unseen-d1b2c7f804-"
)

// otherSite is a cookie of a site that nobody opens.
func otherSite(value string) seal.Cookie {
	c := loginCookie("elsewhere", sealedCanary+value, time.Hour)
	c.HostKey, c.Secure, c.SourceScheme, c.SourcePort = ".unseen.example", 1, 2, 443
	return c
}

// loginCookie is one of a page at the sandbox's own address.
func loginCookie(name, value string, lives time.Duration) seal.Cookie {
	c := seal.Cookie{HostKey: "127.0.0.1", Name: name, Value: value, Path: "/", HTTPOnly: 1, Priority: 1, SameSite: 1, SourceScheme: 1, SourcePort: -1}
	if lives > 0 {
		c.Expires, c.HasExpires, c.Persistent = seal.ToMicros(time.Now().Add(lives)), 1, 1
	}
	return c
}

// sent opens a page in the sandbox's Chromium, and returns the cookies that its
// server sees.
func sent(ctx context.Context, t *testing.T, s *Stack, port int) map[string]string {
	t.Helper()
	c := tools(ctx, t, s, "alice")
	c.want(ctx, t, "", "browser_navigate", map[string]any{"url": fmt.Sprintf("http://127.0.0.1:%d/headers", port)})
	text, failed, err := c.Call(ctx, "browser_evaluate", map[string]any{"script": "document.body.innerText"})
	if err != nil || failed {
		t.Fatalf("%s: %v", text, err)
	}
	seen := map[string]string{}
	for _, name := range []string{"stopped", "session", "running", "file", "later"} {
		if _, after, found := strings.Cut(text, name+"="); found {
			value, _, _ := strings.Cut(after, ";")
			value, _, _ = strings.Cut(value, `"`)
			seen[name] = strings.TrimSuffix(value, `\`)
		}
	}
	return seen
}

// TestSealedSync: a page in the sandbox's Chromium is sent exactly the cookies that
// a laptop has pushed: to one that has never run, that runs, that has stopped, and
// to the next agent's. What is sent again changes nothing; with the pairing its
// cookies go.
func TestSealedSync(t *testing.T) {
	findChromium(t)
	s := own(t)
	ctx := within(t)
	l := pair(ctx, t, s, "alice")
	_, port := startWebapp(t, s)
	want := map[string]string{}
	see := func(when string) {
		t.Helper()
		if seen := sent(ctx, t, s, port); !maps.Equal(seen, want) {
			t.Fatalf("%s: the server sees %v, want %v", when, slices.Sorted(maps.Keys(seen)), slices.Sorted(maps.Keys(want)))
		}
	}
	first := l.body(loginCookie("stopped", canary+"s-1", time.Hour), loginCookie("session", canary+"s-2", 0), otherSite("1"))
	if status, text := l.post(ctx, first); status != http.StatusOK {
		t.Fatalf("status %d: %s", status, text)
	}
	want["stopped"], want["session"] = canary+"s-1", canary+"s-2"
	see("pushed before its first start")
	l.push(ctx, loginCookie("running", canary+"r-1", time.Hour), otherSite("2"))
	want["running"] = canary + "r-1"
	see("pushed while it runs")
	tools(ctx, t, s, "alice").want(ctx, t, "", "browser_stop", map[string]any{})
	l.push(ctx, loginCookie("file", canary+"f-1", time.Hour), loginCookie("running", canary+"r-2", time.Hour))
	want["file"], want["running"] = canary+"f-1", canary+"r-2"
	see("pushed after its stop")
	if status, _ := l.post(ctx, first); status != http.StatusConflict {
		t.Errorf("again: status %d", status)
	}
	see("after a replay")
	if status, _ := l.post(ctx, append([]byte{0}, l.body()[1:]...)); status != http.StatusUnauthorized {
		t.Errorf("changed: status %d", status)
	}

	s.Ready.Sandboxes[0].PID = restartAgent(t, s.Ready.Sandboxes[0].PID)
	await(t, "the sandbox", func() bool {
		alice := s.Ready.User("alice")
		grant, err := alice.Grant(ctx, s.Ready.SessionID)
		must(t, err)
		status, _, err := Call(ctx, http.MethodGet, fmt.Sprintf("%s/sessions/%s/sync", alice.Base, s.Ready.SessionID), grant, nil)
		return err == nil && status == http.StatusOK
	})
	if status, _ := l.post(ctx, first); status != http.StatusConflict {
		t.Errorf("again, to the next agent: status %d", status)
	}
	_, port = startWebapp(t, s)
	see("after the agent's restart")

	carol, _ := readSync(ctx, t, s, "carol")
	if len(carol.Pairings) != 1 || carol.Pairings[0].URL != "" || carol.Pairings[0].Last == nil {
		t.Errorf("a viewer reads %+v", carol.Pairings)
	}
	if alice, raw := readSync(ctx, t, s, "alice"); alice.Pairings[0].URL != l.url || strings.Contains(raw, canary) {
		t.Errorf("the owner reads %s", raw)
	}
	if _, fault := syncCommand(ctx, t, s, "alice", op.KindSyncUnpair, &op.SyncUnpair{Pairing: l.pairing}); fault != nil {
		t.Fatal(fault.Message)
	}
	clear(want)
	see("after the pairing's end")
	for _, r := range s.Ready.Relays {
		if remembers(t, r.PID, sealedCanary) {
			t.Error("the relay's memory holds a value")
		}
	}
	logs, err := filepath.Glob(filepath.Join(s.Dir, "logs", "*"))
	must(t, err)
	if len(logs) < 3 {
		t.Fatalf("only the logs %v", logs)
	}
	for _, log := range logs {
		text, err := os.ReadFile(log)
		must(t, err)
		if bytes.Contains(text, []byte(canary)) || bytes.Contains(text, []byte(sealedCanary)) || bytes.Contains(text, []byte(path.Base(l.url))) {
			t.Errorf("%s has a value, or the pairing's address", log)
		}
		if bytes.Contains(text, []byte("cookies wait for a browser's next start")) {
			t.Errorf("%s: a Chromium that had stopped didn't get cookies in its file", log)
		}
	}
	if status, _ := l.post(ctx, l.body()); status != http.StatusNotFound {
		t.Errorf("after the pairing's end: status %d", status)
	}
}

// remembers reports whether a process has a text anywhere in its memory.
func remembers(t *testing.T, pid int, text string) bool {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	must(t, err)
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	must(t, err)
	defer memory.Close()
	read := 0
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var rights string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &rights); err != nil || !strings.HasPrefix(rights, "rw") {
			continue
		}
		part := make([]byte, to-from)
		n, _ := memory.ReadAt(part, from) // of pages that can't be read there is nothing
		read += n
		if bytes.Contains(part[:n], []byte(text)) {
			return true
		}
	}
	if read < 1<<20 {
		t.Fatalf("only %d bytes of process %d can be read", read, pid)
	}
	return false
}

// TestSyncVersions: a pairing takes version 1 alone until somebody who may says
// otherwise; then today's source gets through, whose tarballs and secrets nobody
// needs here.
func TestSyncVersions(t *testing.T) {
	s := own(t)
	ctx := within(t)
	l := pair(ctx, t, s, "alice")
	later := func(sequence int) []byte {
		return l.key.Seal(fmt.Appendf(nil, `{"protocol_version":2,"source_hostname":"vm","sequence":%d,"cookies":[{"host_key":".a.test","name":"n","value":"v","path":"/",`+
			`"expires_utc":0,"is_secure":0,"is_httponly":0,"last_access_utc":0,"has_expires":0,"is_persistent":0,"priority":1,"samesite":-1,"source_scheme":1,"source_port":80}],`+
			`"local_storage_tarball":"AAAA","indexed_db_tarball":"AAAA","indexed_db_skipped":["x"],"secrets":{"gh":{"token":"t"}}}`, sequence))
	}
	if status, text := l.post(ctx, later(1)); status != http.StatusBadRequest || !strings.Contains(text, "1") || !strings.Contains(text, "2") {
		t.Errorf("status %d: %s", status, text)
	}
	accept := &op.SyncAccept{Pairing: l.pairing, Versions: []int{1, 2}}
	if _, fault := syncCommand(ctx, t, s, "carol", op.KindSyncAccept, accept); fault == nil {
		t.Error("a viewer changes it")
	}
	if _, fault := syncCommand(ctx, t, s, "alice", op.KindSyncAccept, accept); fault != nil {
		t.Fatal(fault.Message)
	}
	status, text := l.post(ctx, later(1))
	var answer op.SyncAnswer
	if err := json.Unmarshal([]byte(text), &answer); err != nil || status != http.StatusOK || answer.Written != 1 ||
		!slices.Equal(slices.Sorted(slices.Values(answer.Ignored)), []string{"indexed_db_skipped", "indexed_db_tarball", "local_storage_tarball", "secrets"}) {
		t.Errorf("status %d: %s", status, text)
	}
	policy := &op.SyncPolicy{Policy: "allowlist", Domains: []op.SyncDomain{{Pattern: "%.b.test"}}}
	if _, fault := syncCommand(ctx, t, s, "alice", op.KindSyncPolicy, policy); fault != nil {
		t.Fatal(fault.Message)
	}
	status, text = l.post(ctx, later(2))
	if err := json.Unmarshal([]byte(text), &answer); err != nil || status != http.StatusOK || answer.Written != 0 || answer.DroppedHosts[".a.test"] != 1 {
		t.Errorf("under another policy: status %d: %s", status, text)
	}
}

// readSync is GET /sessions/{sid}/sync.
func readSync(ctx context.Context, t *testing.T, s *Stack, user string) (state op.SyncState, raw string) {
	t.Helper()
	u := s.Ready.User(user)
	grant, err := u.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	status, data, err := Call(ctx, http.MethodGet, fmt.Sprintf("%s/sessions/%s/sync", u.Base, s.Ready.SessionID), grant, nil)
	must(t, err)
	if status != http.StatusOK {
		t.Fatalf("status %d: %s", status, data)
	}
	must(t, json.Unmarshal(data, &state))
	return state, string(data)
}

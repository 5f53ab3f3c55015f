package cookies

import (
	"bytes"
	"crypto/ecdh"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fairlead/fairlead/deploy/program/sitepolicy"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/protocol/seal"
)

// A vectorFile is testdata/sealed-sync.json.
type vectorFile struct {
	Keys []struct {
		Secret       string `json:"secret_utf8"`
		SinkPrivate  string `json:"sink_x25519_private_hex"`
		SourcePublic []byte `json:"source_x25519_public_b64"`
		Salt         string `json:"hkdf_salt_utf8"`
	} `json:"key_derivation"`
	Vectors []struct {
		ID, Key, Why string
		Sealed       []byte `json:"sealed_b64"`
		Status       int    `json:"seed_status"`
	}
}

// TestVectors sends the vectors: each gets what the seed says.
func TestVectors(t *testing.T) {
	data, err := os.ReadFile("testdata/sealed-sync.json")
	must(t, err)
	var f vectorFile
	must(t, json.Unmarshal(data, &f))
	r := newRig(t)
	_, err = r.run(alice, op.KindSyncPolicy, &op.SyncPolicy{Policy: "blocklist", Domains: []op.SyncDomain{{Pattern: "blocked.test"}, {Pattern: "%.BLOCKED.test"}}})
	must(t, err)
	raw, err := hex.DecodeString(f.Keys[2].SinkPrivate)
	must(t, err)
	private, err := ecdh.X25519().NewPrivateKey(raw)
	must(t, err)
	paired, err := seal.Pair(private, f.Keys[2].SourcePublic, seal.Code(f.Keys[2].Salt))
	must(t, err)
	result, err := r.add(sid, origin, storedPairing{ID: protocol.NewPairingID(), User: alice, Mode: modePaired, Secret: paired[:]})
	must(t, err)
	keys := map[string]*source{"K-shared": r.share(f.Keys[0].Secret), "K-paired": {r: r, path: strings.TrimPrefix(result.URL, origin)}}
	for _, v := range f.Vectors {
		if w := keys[v.Key].post(v.Sealed); w.Code != v.Status {
			t.Errorf("%s (%s): %d, want %d: %s", v.ID, v.Why, w.Code, v.Status, w.Body)
		}
	}
	// All again, also after a restart: those that were taken are old now.
	for range 2 {
		for _, v := range f.Vectors {
			want := v.Status
			if want == http.StatusOK {
				want = http.StatusConflict
			}
			if w := keys[v.Key].post(v.Sealed); w.Code != want {
				t.Errorf("%s (%s), again: %d, want %d: %s", v.ID, v.Why, w.Code, want, w.Body)
			}
		}
		r.reopen()
	}
}

// TestOrder: of two faults the one that is looked for earlier is the answer, and an
// envelope with any of them leaves the sequence as it was.
func TestOrder(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxBytes = 2000 })
	s := r.laptop("a")
	s.push(cookie("a.test", "n", "1"))
	type attempt struct {
		method, path, plain string
		envelope            seal.Envelope
		tail                int
		flip                byte
	}
	faults := []struct {
		name   string
		status int
		make   func(*attempt)
	}{
		{"method", 405, func(a *attempt) { a.method = http.MethodPut }},
		{"address", 404, func(a *attempt) { a.path = a.path[:len(a.path)-1] }},
		{"size", 413, func(a *attempt) { a.tail = 2000 }},
		{"seal", 401, func(a *attempt) { a.flip = 1 }},
		{"JSON", 400, func(a *attempt) { a.plain = "{" }},
		{"version", 400, func(a *attempt) { a.envelope.Version = 3 }},
		{"sequence", 409, func(a *attempt) { a.envelope.Sequence = 1 }},
		{"policy", 500, func(*attempt) { must(t, os.WriteFile(policyPath(r.dirOf(sid)), []byte("version: 2\n"), 0o600)) }},
	}
	send := func(a attempt) *httptest.ResponseRecorder {
		plain, err := a.envelope.Encode()
		must(t, err)
		if a.plain != "" {
			plain = []byte(a.plain)
		}
		sealed := append(s.key.Seal(plain), make([]byte, a.tail)...)
		sealed[0] ^= a.flip
		return r.ask(httptest.NewRequest(a.method, a.path, bytes.NewReader(sealed)))
	}
	for i, first := range faults {
		for _, second := range faults[i:] {
			whole := attempt{method: http.MethodPost, path: s.path, envelope: s.envelope(cookie("a.test", "n", first.name+second.name))}
			bad := whole
			second.make(&bad)
			first.make(&bad)
			if w := send(bad); w.Code != first.status {
				t.Errorf("%s and %s: %d, want %d: %s", first.name, second.name, w.Code, first.status, w.Body)
			}
			if err := os.Remove(policyPath(r.dirOf(sid))); err != nil && second.name == "policy" {
				t.Error(err)
			}
			if w := send(whole); w.Code != http.StatusOK {
				t.Errorf("after %s and %s the same one without a fault: %d %s", first.name, second.name, w.Code, w.Body)
			}
		}
	}
	r.noCanary()
}

// TestPolicyFails: whatever is wrong with the policy, nothing is taken and the sequence
// isn't spent.
func TestPolicyFails(t *testing.T) {
	r := newRig(t)
	s := r.laptop("a")
	s.push(cookie("a.test", "n", "0"))
	for _, text := range []string{
		"version: 1\ndomains: [\n", "version: 1\nfoo: 1\n", "version: 2\n", "version: 1\npolicy: Allowlist\n", "version: 1\ndomains:\n  - pattern: \"\"\n", "", "# nothing\n", "\x00",
	} {
		must(t, os.WriteFile(policyPath(r.dirOf(sid)), []byte(text), 0o600))
		e := s.envelope(cookie("a.test", "n", "1"))
		s.refused(http.StatusInternalServerError, s.seal(e))
		if len(r.Kept(sid)) != 0 {
			t.Errorf("%q: cookies are given to a browser", text)
		}
		must(t, os.Remove(policyPath(r.dirOf(sid))))
		if got := s.pushed(e); got.Written != 1 {
			t.Errorf("%q: then %+v", text, got)
		}
	}
	must(t, os.Mkdir(policyPath(r.dirOf(sid)), 0o700))
	s.refused(http.StatusInternalServerError, s.seal(s.envelope()))
	must(t, os.Remove(policyPath(r.dirOf(sid))))
	// An empty allowlist takes nothing; a thousand % take no time.
	must(t, os.WriteFile(policyPath(r.dirOf(sid)), []byte("version: 1\npolicy: allowlist\n"), 0o600))
	if got := s.push(cookie("a.test", "n", "2"), cookie("b.test", "n", "2"), cookie("a.test", "m", "2")); got.Dropped != 3 || got.DroppedHosts["a.test"] != 2 {
		t.Errorf("%+v", got)
	}
	must(t, os.WriteFile(policyPath(r.dirOf(sid)), []byte("version: 1\ndomains:\n  - pattern: \""+strings.Repeat("%a", 500)+"\"\n"), 0o600))
	if got := s.push(cookie(strings.Repeat("a", 499)+"b", "n", "3")); got.Dropped != 0 {
		t.Errorf("%+v", got)
	}
	if len(r.audit.list) == 0 || filepath.Base(policyPath(r.dirOf(sid))) != sitepolicy.Name {
		t.Error("nothing is recorded")
	}
}

// TestStoreFails: where sequences can't be read or written nothing is written.
func TestStoreFails(t *testing.T) {
	r := newRig(t)
	s := r.laptop("a")
	s.push(cookie("a.test", "n", "0"))
	path := filepath.Join(r.dirOf(sid), string(s.id), trackerName)
	good, err := os.ReadFile(path)
	must(t, err)
	for _, bad := range []string{"", "{", `{"format":2,"last":{}}`, `{"format":1}`, string(good[:len(good)-3]), strings.Repeat(" ", maxTrackerBytes+1), `{"format":1,"last":{"host":1.5}}`} {
		must(t, os.WriteFile(path, []byte(bad), 0o600))
		s.refused(http.StatusInternalServerError, s.seal(s.envelope(cookie("a.test", "n", "1"))))
		if now, err := os.ReadFile(path); err != nil || string(now) != bad {
			t.Errorf("%q was changed", bad)
		}
	}
	must(t, os.Remove(path))
	s.refused(http.StatusInternalServerError, s.seal(s.envelope(cookie("a.test", "n", "1"))))
	must(t, os.Mkdir(path, 0o700))
	s.refused(http.StatusInternalServerError, s.seal(s.envelope(cookie("a.test", "n", "1"))))
	must(t, os.Remove(path))
	must(t, os.WriteFile(path, good, 0o600))
	s.refused(http.StatusConflict, s.seal(seal.Envelope{Version: 1, SourceHostname: "host", Sequence: 1}))
	s.push(cookie("a.test", "n", "2"))
	r.has("a.test n=2")
	// The kept set can't be written: the sequence is spent, and Chromium untouched.
	kept := filepath.Join(r.dirOf(sid), string(s.id), keptName)
	must(t, os.Remove(kept))
	must(t, os.Mkdir(kept, 0o700))
	e := s.envelope(cookie("a.test", "n", "3"))
	s.refused(http.StatusInternalServerError, s.seal(e))
	must(t, os.Remove(kept))
	s.refused(http.StatusConflict, s.seal(e))
	s.push(cookie("a.test", "n", "4"))
	r.has("a.test n=4")
	r.noCanary()
}

// TestHostnames: each has a counter of its own, for each pairing; there are 64.
func TestHostnames(t *testing.T) {
	r := newRig(t)
	a, b := r.laptop("a"), r.laptop("b")
	one := func(name string, sequence int64) seal.Envelope {
		return seal.Envelope{Version: 1, SourceHostname: name, Sequence: sequence}
	}
	for i := range maxHostnames {
		a.pushed(one(fmt.Sprintf("host-%d-ü<\u2028", i), -1<<63+int64(i)))
	}
	if text := a.refused(http.StatusBadRequest, a.seal(one("another", 1))); !strings.Contains(text, "64") {
		t.Error(text)
	}
	a.pushed(one("host-3-ü<\u2028", 1<<63-1))
	a.refused(http.StatusConflict, a.seal(one("host-3-ü<\u2028", 1<<63-2)))
	b.pushed(one("host-3-ü<\u2028", 1))
	b.pushed(one("another", 1))
	b.pushed(one("Another", 1))
	b.refused(http.StatusBadRequest, b.seal(one(strings.Repeat("h", 1<<20), 1)))
	b.pushed(one(strings.Repeat("\"", seal.MaxHostname), 1))
	b.refused(http.StatusConflict, b.seal(one(strings.Repeat("\"", seal.MaxHostname), 1)))
}

// TestCut: a body that is cut anywhere, or changed in any bit of nonce and tag, opens
// nothing.
func TestCut(t *testing.T) {
	r := newRig(t)
	s := r.laptop("a")
	e := s.envelope(cookie("a.test", "n", "1"))
	sealed := s.seal(e)
	for n := range sealed {
		s.refused(http.StatusUnauthorized, bytes.Clone(sealed[:n]))
	}
	for bit := range 28 * 8 {
		at := bit / 8
		if at >= 12 {
			at += len(sealed) - 28
		}
		flipped := bytes.Clone(sealed)
		flipped[at] ^= 1 << (bit % 8)
		s.refused(http.StatusUnauthorized, flipped)
	}
	s.pushed(e)
	r.has("a.test n=1")
}

// TestVersions: the later one is taken where somebody says so, and what it brings
// besides is named.
func TestVersions(t *testing.T) {
	r := newRig(t)
	s := r.laptop("a")
	later := func(sequence int) []byte {
		return s.key.Seal(fmt.Appendf(nil, `{"protocol_version":2,"source_hostname":"h","sequence":%d,"cookies":null,"secrets":{"cli":{"K":"canary"}},"local_storage_tarball":"Y2FuYXJ5"}`, sequence))
	}
	if text := s.refused(http.StatusBadRequest, later(1)); !strings.Contains(text, "version 2") || !strings.Contains(text, "[1]") {
		t.Error(text)
	}
	accept := func(versions ...int) {
		t.Helper()
		_, err := r.run(bob, op.KindSyncAccept, &op.SyncAccept{Pairing: s.id, Versions: versions})
		must(t, err)
	}
	accept(1, 2)
	r.reopen()
	var answer op.SyncAnswer
	w := s.post(later(1))
	if must(t, json.Unmarshal(w.Body.Bytes(), &answer)); w.Code != 200 || fmt.Sprint(answer.Ignored) != "[local_storage_tarball secrets]" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	s.push(cookie("a.test", "n", "1"))
	accept(1)
	s.refused(http.StatusBadRequest, later(2))
	r.noCanary(w.Body.String())
}

// TestOnce: of many that send one sequence at once exactly one is taken.
func TestOnce(t *testing.T) {
	r := newRig(t)
	s := r.laptop("a")
	for range 20 {
		e := s.envelope(cookie("a.test", "n", "1"))
		var taken, old atomic.Int32
		var wait sync.WaitGroup
		for range 20 {
			sealed := s.seal(e)
			wait.Go(func() {
				switch w := s.post(sealed); w.Code {
				case http.StatusOK:
					taken.Add(1)
				case http.StatusConflict:
					old.Add(1)
				default:
					t.Error(w.Code, w.Body)
				}
			})
		}
		wait.Wait()
		if taken.Load() != 1 || old.Load() != 19 {
			t.Errorf("%d were taken, %d are old", taken.Load(), old.Load())
		}
	}
	if len(r.audit.list) != 20 {
		t.Errorf("%d are recorded", len(r.audit.list))
	}
}

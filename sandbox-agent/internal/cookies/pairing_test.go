package cookies

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/protocol/seal"
	"github.com/fairlead/fairlead/sandbox-agent/internal/route"
)

// A handshake is what a source does to pair.
type handshake struct {
	r       *rig
	begun   *protocol.SyncResult
	private *ecdh.PrivateKey
	code    seal.Code
}

func (r *rig) begin() *handshake {
	r.t.Helper()
	result, err := r.run(alice, op.KindSyncPair, &op.SyncPairSealed{Step: op.SyncBegin, Name: "Alice's laptop"})
	must(r.t, err)
	private, err := ecdh.X25519().GenerateKey(rand.Reader)
	must(r.t, err)
	return &handshake{r, result.SyncResult, private, seal.NewCode()}
}

func (h *handshake) secret() seal.Paired {
	paired, err := seal.Pair(h.private, h.begun.SinkPublicKey, h.code)
	must(h.r.t, err)
	return paired
}

// finish tells the sink of a key, a fingerprint and a code.
func (h *handshake) finish(user protocol.UserID, public []byte, fingerprint string, code seal.Code) (*protocol.SyncResult, error) {
	box, err := json.Marshal(op.SyncSecrets{Code: string(code)})
	must(h.r.t, err)
	result, err := h.r.run(user, op.KindSyncPair, &op.SyncPairSealed{
		Step: op.SyncFinish, Pairing: h.begun.Pairing, SourcePublicKey: public, SourceHostname: "laptop.lan", Fingerprint: fingerprint, Sealed: box,
	})
	return result.SyncResult, err
}

func (h *handshake) right() (*protocol.SyncResult, error) {
	return h.finish(alice, h.private.PublicKey().Bytes(), h.secret().Fingerprint(), h.code)
}

func (h *handshake) source(result *protocol.SyncResult) *source {
	key, err := h.secret().Key()
	must(h.r.t, err)
	return &source{h.r, result.Pairing, result.URL, strings.TrimPrefix(result.URL, origin), key, "host"}
}

func (r *rig) gone(err error, kind protocol.Kind) {
	r.t.Helper()
	if err == nil || protocol.KindOf(err) != kind {
		r.t.Errorf("%v, want %s", err, kind)
	}
}

// TestPairing: both sides have one secret, and what is sealed with it is taken, also
// by the next agent.
func TestPairing(t *testing.T) { synctest.Test(t, testPairing) }

func testPairing(t *testing.T) {
	r := newRig(t)
	h := r.begin()
	if got := time.UnixMilli(h.begun.ExpiresAt); time.Until(got) != openFor || h.begun.SinkHostname == "" || len(h.begun.SinkPublicKey) != 32 {
		t.Errorf("%+v", h.begun)
	}
	result, err := h.right()
	must(t, err)
	if result.Fingerprint != h.secret().Fingerprint() || !strings.HasPrefix(result.URL, origin+"/sync/sb_test/") || result.Warning != "" || result.Pairing != h.begun.Pairing {
		t.Errorf("%+v", result)
	}
	s := h.source(result)
	s.push(cookie("a.test", "n", "1"))
	r.reopen()
	r.has("a.test n=1")
	s.push(cookie("b.test", "n", "1"))
	r.has("a.test n=1, b.test n=1")
	must(t, filepath.WalkDir(r.o.Dir, func(path string, d fs.DirEntry, err error) error {
		must(t, err)
		info, err := d.Info()
		must(t, err)
		if mode := info.Mode().Perm(); mode != 0o600 && !d.IsDir() || mode != 0o700 && d.IsDir() {
			t.Errorf("%s has mode %o", path, mode)
		}
		return nil
	}))
	_, err = h.right()
	r.gone(err, protocol.KindNotFound)
	r.noCanary(fmt.Sprintf("%+v", result))
}

// TestPairingFails: a pairing can be finished once, in time, by whoever began it, and
// with what it was begun for.
func TestPairingFails(t *testing.T) { synctest.Test(t, testPairingFails) }

func testPairingFails(t *testing.T) {
	r := newRig(t)
	public := func(h *handshake) []byte { return h.private.PublicKey().Bytes() }
	h := r.begin()
	_, err := h.finish(bob, public(h), h.secret().Fingerprint(), h.code)
	r.gone(err, protocol.KindForbidden)
	_, err = h.finish(alice, public(h), h.secret().Fingerprint(), "AAAA-AAAA-AAAA") // a code that is wrong
	r.gone(err, protocol.KindUnauthenticated)
	_, err = h.right()
	r.gone(err, protocol.KindNotFound)
	h = r.begin()
	_, err = h.finish(alice, public(h), "00000000", h.code)
	r.gone(err, protocol.KindUnauthenticated)
	if name := protocol.KindOf(err).Name(); name != "AuthError" {
		t.Error(name)
	}
	for _, low := range [][]byte{make([]byte, 32), append([]byte{1}, make([]byte, 31)...)} {
		h = r.begin()
		_, err = h.finish(alice, low, h.secret().Fingerprint(), h.code)
		r.gone(err, protocol.KindInvalid)
	}
	h = r.begin()
	time.Sleep(openFor)
	_, err = h.right()
	r.gone(err, protocol.KindExpired)
	h = r.begin()
	r.reopen() // keys that wait are nowhere but in memory
	_, err = h.right()
	r.gone(err, protocol.KindNotFound)
	_, err = r.run(alice, op.KindSyncPair, &op.SyncPairSealed{Step: op.SyncSecret, Sealed: []byte(`{"code":"EHQE-STSS"}`)})
	r.gone(err, protocol.KindInvalid)
	_, err = r.run(alice, op.KindSyncPair, &op.SyncPairSealed{Step: op.SyncSecret, Sealed: []byte(`{"sharedSecret":"canary"}`)})
	r.gone(err, protocol.KindInvalid)
	r.noCanary(err.Error())
	_, err = r.run(alice, op.KindSyncPair, &op.SyncPairSealed{Step: op.SyncSecret, Sealed: []byte("canary")})
	r.gone(err, protocol.KindInvalid)
	r.noCanary(err.Error())
	if entries, err := os.ReadDir(r.o.Dir); err != nil || len(entries) != 0 {
		t.Errorf("%v is left, %v", entries, err)
	}
}

// TestPairingAtOnce: of fifty that finish one pairing one does.
func TestPairingAtOnce(t *testing.T) {
	r := newRig(t)
	h := r.begin()
	fingerprint := h.secret().Fingerprint()
	var done atomic.Int32
	var wait sync.WaitGroup
	for range 50 {
		wait.Go(func() {
			if _, err := h.finish(alice, h.private.PublicKey().Bytes(), fingerprint, h.code); err == nil {
				done.Add(1)
			} else if protocol.KindOf(err) != protocol.KindNotFound {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if done.Load() != 1 {
		t.Errorf("%d have paired", done.Load())
	}
}

// TestPairingGivenUp: one that is ended before it is finished makes room at once.
func TestPairingGivenUp(t *testing.T) {
	r := newRig(t)
	var last *handshake
	for range 2 * maxOpen {
		last = r.begin()
		_, err := r.run(bob, op.KindSyncUnpair, &op.SyncUnpair{Pairing: last.begun.Pairing})
		must(t, err)
	}
	_, err := last.right()
	r.gone(err, protocol.KindNotFound)
	_, err = r.run(bob, op.KindSyncUnpair, &op.SyncUnpair{Pairing: last.begun.Pairing})
	r.gone(err, protocol.KindNotFound)
}

// TestPairingBounds: five wait at once, and maxPairings stand.
func TestPairingBounds(t *testing.T) { synctest.Test(t, testPairingBounds) }

func testPairingBounds(t *testing.T) {
	r := newRig(t)
	var waiting []*handshake
	for range maxOpen {
		waiting = append(waiting, r.begin())
	}
	begin := func() error {
		_, err := r.run(bob, op.KindSyncPair, &op.SyncPairSealed{Step: op.SyncBegin})
		return err
	}
	r.gone(begin(), protocol.KindTooMany)
	time.Sleep(openFor)
	must(t, begin()) // those are void
	_, err := waiting[0].right()
	r.gone(err, protocol.KindNotFound)
	var last *source
	for i := range maxPairings {
		last = r.laptop(fmt.Sprint(i))
	}
	r.gone(begin(), protocol.KindTooMany)
	r.reopen()
	r.gone(begin(), protocol.KindTooMany)
	_, err = r.run(bob, op.KindSyncUnpair, &op.SyncUnpair{Pairing: last.id})
	must(t, err)
	must(t, begin())
}

// TestUnisolated: where programs could read the cookies nothing is paired or taken,
// unless the operator allows it.
func TestUnisolated(t *testing.T) {
	r := newRig(t)
	s := r.laptop("a")
	s.push(cookie("a.test", "n", "1"))
	r.o.Isolated = false
	r.reopen()
	_, err := r.run(alice, op.KindSyncPair, &op.SyncPairSealed{Step: op.SyncBegin})
	r.gone(err, protocol.KindUnsupported)
	if !strings.Contains(err.Error(), "--sync-unisolated") {
		t.Error(err)
	}
	s.refused(http.StatusNotImplemented, s.seal(s.envelope()))
	if len(r.Kept(sid)) != 0 {
		t.Error("a browser is given cookies")
	}
	r.o.Unisolated = true
	r.reopen()
	r.has("a.test n=1")
	r.begin()
}

// TestState: everybody who may view reads whose logins there are; addresses are for
// who may pair; values for nobody.
func TestState(t *testing.T) { synctest.Test(t, testState) }

func testState(t *testing.T) {
	r := newRig(t)
	state := func(caps ...protocol.Capability) (state op.SyncState, text string, status int) {
		mux := http.NewServeMux()
		r.Routes(mux)
		q := httptest.NewRequest(http.MethodGet, "/sessions/ses_a/sync", nil)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, q.WithContext(route.WithGrant(q.Context(), &jws.Grant{Session: sid, PTYs: []string{"*"}, Caps: caps})))
		if w.Code == 200 {
			must(t, json.Unmarshal(w.Body.Bytes(), &state))
		}
		return state, w.Body.String(), w.Code
	}
	if _, text, status := state(protocol.CapView); status != 200 || text != `{"policy":{"policy":"sync-all","domains":[]},"pairings":[],"sites":[]}`+"\n" {
		t.Errorf("%d %s", status, text)
	}
	if _, _, status := state(protocol.CapSync); status != http.StatusForbidden {
		t.Error(status)
	}
	a, b := r.laptop("a"), r.laptop("b")
	paired := time.Now().UnixMilli()
	_, err := r.run(alice, op.KindSyncPolicy, &op.SyncPolicy{Policy: "blocklist", Domains: []op.SyncDomain{{Pattern: "x.test", Description: "ours"}}})
	must(t, err)
	bad := cookie("bad.test", "n", "1")
	bad.Value = strings.Repeat("v", 4097)
	e := a.envelope(cookie(".a.test", "n", "1"), cookie("a.test", "n", "1"), cookie("b.test", "n", "1"), cookie("x.test", "n", "1"), bad)
	a.pushed(e)
	b.push(cookie("b.test", "n", "1"))
	for range 2 {
		got, text, _ := state(protocol.CapView, protocol.CapSync)
		if fmt.Sprint(got.Sites) != fmt.Sprintf("[{a.test 2 %s} {b.test 1 %s} {b.test 1 %s}]", a.id, min(a.id, b.id), max(a.id, b.id)) {
			t.Errorf("%v", got.Sites)
		}
		if fmt.Sprint(got.Policy) != "{blocklist [{x.test ours}] }" || len(got.Pairings) != 2 {
			t.Errorf("%+v", got)
		}
		for _, p := range got.Pairings {
			if p.User != alice || p.Name != "laptop" || p.Mode != modeSecret || len(p.Fingerprint) != 8 || fmt.Sprint(p.Versions) != "[1]" || p.PairedAt != paired {
				t.Errorf("%+v", p)
			}
			if want := (op.SyncPush{At: p.Last.At, Hostname: "host", Sequence: e.Sequence, Written: 3, Dropped: 1, Refused: 1}); p.ID == a.id && (p.URL != a.url || *p.Last != want || want.At < paired || want.At > time.Now().UnixMilli()) {
				t.Errorf("%+v, %+v", p, p.Last)
			}
		}
		_, hidden, _ := state(protocol.CapView)
		if strings.Contains(hidden, "/sync/") {
			t.Error("a viewer reads an address")
		}
		r.noCanary(text, hidden)
		r.reopen()
	}
	must(t, os.WriteFile(policyPath(r.dirOf(sid)), nil, 0o600))
	if got, _, _ := state(protocol.CapView); got.Policy.Error == "" || got.Policy.Policy != "" {
		t.Errorf("%+v", got.Policy)
	}
}

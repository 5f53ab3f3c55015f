package source

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/protocol/seal"
)

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

const aToken = "ut_thesecretone"

// A world is a control plane with one session, whose sandbox it plays.
type world struct {
	t      *testing.T
	url    string
	folder string
	id     protocol.SessionID
	caps   []protocol.Capability

	mu       sync.Mutex
	between  bool // somebody puts a key of theirs in the sandbox's place
	private  *ecdh.PrivateKey
	versions []int
	silent   bool // it takes what is pushed, and its answer is lost
	waiting  int  // pairings that have begun
	pairings map[protocol.PairingID]*seal.Key
	posted   []seal.Envelope
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, folder: filepath.Join(t.TempDir(), "config"), id: protocol.NewSessionID(), caps: []protocol.Capability{protocol.CapView, protocol.CapSync}, pairings: map[protocol.PairingID]*seal.Key{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /auth/me", func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+aToken {
			rw.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.answer(rw, map[string]any{"user": map[string]any{"name": "alice"}, "sessions": []map[string]any{{"id": w.id, "dashboard": "d", "capabilities": w.caps}}})
	})
	mux.HandleFunc("POST /commands", w.command)
	mux.HandleFunc("POST /sync/sb/{pairing}", w.push)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	w.url = server.URL
	return w
}

func (w *world) answer(rw http.ResponseWriter, v any) {
	if err := json.NewEncoder(rw).Encode(v); err != nil {
		w.t.Error(err)
	}
}

// command is POST /commands: what the sandbox does with sync.pair and the others.
func (w *world) command(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var asked struct {
		Op struct {
			Kind string `json:"kind"`
			op.SyncPair
			Versions []int `json:"versions"`
		} `json:"op"`
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		w.t.Error(err)
	}
	result := protocol.SyncResult{Pairing: asked.Op.Pairing}
	var fault string
	switch {
	case asked.Op.Kind == op.KindSyncAccept:
		w.versions = asked.Op.Versions
	case asked.Op.Kind == op.KindSyncUnpair:
		delete(w.pairings, asked.Op.Pairing)
		w.waiting = 0
	case asked.Op.Step == op.SyncBegin:
		w.waiting++
		key, err := ecdh.X25519().GenerateKey(rand.Reader)
		must(w.t, err)
		w.private = key
		result = protocol.SyncResult{Pairing: protocol.NewPairingID(), SinkPublicKey: key.PublicKey().Bytes(), SinkHostname: "sink.sb"}
		if w.between {
			theirs, err := ecdh.X25519().GenerateKey(rand.Reader)
			must(w.t, err)
			result.SinkPublicKey = theirs.PublicKey().Bytes()
		}
	case asked.Op.Step == op.SyncFinish:
		w.waiting--
		paired, err := seal.Pair(w.private, asked.Op.SourcePublicKey, seal.Code(asked.Op.Code))
		must(w.t, err)
		if paired.Fingerprint() != asked.Op.Fingerprint {
			fault = "the fingerprints differ"
			break
		}
		key, err := paired.Key()
		must(w.t, err)
		w.pairings[asked.Op.Pairing] = key
		result.Fingerprint, result.URL = paired.Fingerprint(), w.url+"/sync/sb/"+string(asked.Op.Pairing)
	case asked.Op.Step == op.SyncSecret:
		key, err := seal.SharedKey(asked.Op.SharedSecret)
		must(w.t, err)
		result.Pairing = protocol.NewPairingID()
		w.pairings[result.Pairing] = key
		result.Fingerprint, result.URL, result.Warning = "0badc0de", w.url+"/sync/sb/"+string(result.Pairing), "a secret that others have seen"
	}
	if fault != "" {
		w.answer(rw, map[string]any{"error": protocol.ErrorBody{Message: fault, Name: "AuthError"}})
		return
	}
	w.answer(rw, map[string]any{"result": result})
}

func (w *world) push(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := w.pairings[protocol.PairingID(r.PathValue("pairing"))]
	if key == nil {
		rw.WriteHeader(http.StatusNotFound)
		return
	}
	body, _ := io.ReadAll(r.Body)
	plain, err := key.Open(body)
	must(w.t, err)
	e, err := seal.Decode(plain, []int{seal.Version})
	must(w.t, err)
	w.posted = append(w.posted, e)
	if w.silent {
		panic(http.ErrAbortHandler)
	}
	w.answer(rw, op.SyncAnswer{Written: len(e.Cookies)})
}

// runs runs the program, and returns its exit status and all that it says.
func (w *world) runs(stdin string, args ...string) (status int, said string) {
	w.t.Helper()
	var out bytes.Buffer
	status = program.Execute(w.t.Context(), program.System{
		Args: append(args, "--config-dir", w.folder), LookupEnv: func(string) (string, bool) { return "", false },
		Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &out,
	}, "fairlead-source", "test", Declare)
	if said = out.String(); strings.Contains(said, aToken) {
		w.t.Errorf("%s says the token", args)
	}
	return status, said
}

// wants runs the program, which ends with the status and says the text.
func (w *world) wants(status int, says string, args ...string) {
	w.t.Helper()
	if got, said := w.runs(aToken, args...); got != status || !strings.Contains(said, says) {
		w.t.Errorf("%s: status %d, want %d with %q: %s", args, got, status, says, said)
	}
}

// TestLogin: with a token, or the console's link; to a control plane's own address.
func TestLogin(t *testing.T) {
	w := newWorld(t)
	w.wants(1, "not logged in", "pair")
	w.wants(1, "https://", "login", "http://control.example.com")
	w.wants(1, "like https://control", "login", "control.example.com")
	w.wants(0, "alice", "login", w.url)
	if status, said := w.runs("http://relay.test/#token="+aToken+"&x=1\n", "login", w.url); status != 0 {
		t.Error(said)
	}
	if status, said := w.runs("ut_wrong", "login", w.url); status != 1 || !strings.Contains(said, "token") {
		t.Error(said)
	}
	if status, said := w.runs("", "login", w.url); status != 1 || !strings.Contains(said, "token is needed") {
		t.Error(said)
	}
	w.wants(1, "no session", "login", w.url, "--session", string(protocol.NewSessionID()))
	w.caps = w.caps[:1]
	w.wants(1, "may not", "login", w.url)
	w.wants(2, "unknown", "nonsense")
}

// TestPair: only once, with nothing on the list but what was named, and with the key
// for its owner alone. Where somebody stands between, nothing is kept.
func TestPair(t *testing.T) {
	w := newWorld(t)
	w.wants(0, "", "login", w.url)
	w.between = true
	w.wants(1, "fingerprints differ", "pair")
	w.wants(0, "pairing   none", "status")
	w.between = false
	w.wants(2, "one of them", "pair", "--all", "--site", "a.test")
	w.wants(2, "--code", "pair", "--source", "http://127.0.0.1:1/pair")
	w.wants(1, "", "pair", "--site", "bücher.test")
	w.wants(0, "Nothing is sent yet", "pair")
	w.wants(1, "paired already", "pair")
	w.wants(0, "No site's", "accounts", "list")
	w.wants(0, "is sent", "accounts", "on", "https://GitHub.com/login")
	w.wants(0, `{"domains":["github.com"],"patterns":[],"policy":"allowlist"}`, "accounts", "list", "--json")
	w.wants(0, `"changed":false`, "accounts", "on", "github.com", "--json")
	w.wants(0, "isn't sent", "accounts", "off", "github.com")
	w.wants(0, "Unpaired", "unpair")
	if len(w.pairings) != 0 {
		t.Error("the sandbox has it still")
	}
	w.wants(1, "not paired", "unpair")
	w.wants(0, "ALL your cookies", "pair", "--all")
	w.wants(0, `"policy":"sync-all"`, "accounts", "list", "--json")
	must(t, os.WriteFile(filepath.Join(w.folder, "blocklist.yaml"), []byte("version: 1\nnonsense: yes\n"), 0o600))
	w.wants(1, "policy", "push")
	w.wants(1, "fail     policy", "doctor")
	if len(w.posted) != 0 {
		t.Error("something was sent")
	}
}

// TestPairList: a pairing begins with what was named, and a list of what isn't sent has
// no site sent without --all. What its owner wrote beside the list stays.
func TestPairList(t *testing.T) {
	w := newWorld(t)
	w.wants(0, "", "login", w.url)
	w.wants(0, "pair --site a.test", "accounts", "on", "a.test")
	w.wants(0, "isn't sent", "accounts", "off", "bank.test")
	w.wants(1, "pair --all sends every site", "pair")
	if len(w.pairings) != 0 {
		t.Fatal("paired, with all sites but one")
	}
	w.wants(0, "but for 1 site on the list", "pair", "--all")
	w.wants(0, `{"domains":["bank.test"],"patterns":[],"policy":"blocklist"}`, "accounts", "list", "--json")
	w.wants(0, "", "unpair")
	w.wants(0, "of 1 site will", "pair", "--site", "a.test")
	w.wants(0, `{"domains":["a.test"],"patterns":[],"policy":"allowlist"}`, "accounts", "list", "--json")
	w.wants(0, "", "unpair")
	w.wants(0, "of 2 sites will", "pair", "--site", "b.test")
	w.wants(0, "", "unpair")
	list := filepath.Join(w.folder, "blocklist.yaml")
	text, err := os.ReadFile(list)
	must(t, err)
	text = append(text, "# and that is why\n"...)
	must(t, os.WriteFile(list, text, 0o600))
	w.wants(0, `"domains":["a.test","b.test"]`, "pair", "--json")
	if after, err := os.ReadFile(list); err != nil || !bytes.Equal(after, text) {
		t.Errorf("the list was %s, and is %s", text, after)
	}
	w.wants(0, "", "unpair")
	w.wants(0, `"warnings":["ALL`, "pair", "--all", "--json")
}

// TestErrorsInJSON: an error has a message and a name whatever is wrong, the command
// line, too.
func TestErrorsInJSON(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		status int
		name   string
		args   []string
	}{
		{2, "RequestError", []string{"push", "--nonsense"}},
		{2, "RequestError", []string{"nonsense"}},
		{2, "RequestError", []string{"accounts", "on"}},
		{2, "RequestError", []string{"push", "--once", "--watch"}},
		{2, "RequestError", []string{"pair", "--keyring-password-file", "/nonexistent"}},
		{1, "RequestError", []string{"accounts", "on", "bücher.test"}},
		{1, "RequestError", []string{"login", "http://control.example.com"}},
		{1, "AuthError", []string{"login", w.url}}, // the token is another one
		{1, "AuthError", []string{"pair"}},
		{1, "TargetError", []string{"push"}},
		{1, "TargetError", []string{"unpair"}},
	} {
		var out, said bytes.Buffer
		status := program.Execute(t.Context(), program.System{
			Args: append(c.args, "--json", "--config-dir", w.folder), LookupEnv: func(string) (string, bool) { return "", false },
			Stdin: strings.NewReader("ut_another"), Stdout: &out, Stderr: &said,
		}, "fairlead-source", "test", Declare)
		var answer struct{ Error protocol.ErrorBody }
		if err := json.Unmarshal(out.Bytes(), &answer); err != nil || status != c.status || answer.Error.Name != c.name || answer.Error.Message == "" {
			t.Errorf("%s: status %d, %s%v", c.args, status, out.Bytes(), err)
		}
	}
	w.wants(0, "", "login", w.url)
	w.between = true
	w.wants(1, `"name":"AuthError"`, "pair", "--json")
}

// TestInterrupted: a command that was interrupted doesn't end like one that is done.
func TestInterrupted(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, said bytes.Buffer
	status := program.Execute(ctx, program.System{
		Args: []string{"login", w.url, "--config-dir", w.folder, "--json"}, LookupEnv: func(string) (string, bool) { return "", false },
		Stdin: strings.NewReader(aToken), Stdout: &out, Stderr: &said,
	}, "fairlead-source", "test", Declare)
	if status != 1 || !strings.Contains(out.String(), `"message":"interrupted"`) {
		t.Errorf("status %d: %s%s", status, out.Bytes(), said.Bytes())
	}
}

// TestSharedSecret: it works without a pairing of keys, and there is a warning.
func TestSharedSecret(t *testing.T) {
	w := newWorld(t)
	w.wants(0, "", "login", w.url)
	file := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(file, []byte("short"), 0o600))
	w.wants(1, "32", "pair", "--shared-secret-file", file)
	must(t, os.WriteFile(file, []byte(strings.Repeat("s", 32)+"\n"), 0o600))
	w.wants(0, "WARNING: a secret", "pair", "--shared-secret-file", file)
	w.wants(1, "warn     key", "doctor") // and it fails: there is no browser
}

// A seedProgram is seed 004's own source while it waits to be paired.
type seedProgram struct {
	code seal.Code
	key  seal.Paired
	sink string
}

func (p *seedProgram) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Version  int    `json:"protocol_version"`
		Code     string `json:"code"`
		Key      []byte `json:"sink_public_key"`
		Hostname string `json:"sink_hostname"`
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || asked.Version != 1 || r.Method != http.MethodPost || r.URL.Path != "/pair" {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	if asked.Code != string(p.code) {
		http.Error(w, "wrong code", http.StatusUnauthorized)
		return
	}
	p.answer(w, asked.Key, asked.Hostname)
}

func (p *seedProgram) answer(w http.ResponseWriter, theirs []byte, hostname string) {
	private, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err == nil {
		p.key, err = seal.Pair(private, theirs, p.code)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	p.sink = hostname
	_ = json.NewEncoder(w).Encode(map[string]any{"protocol_version": 1, "source_public_key": private.PublicKey().Bytes(), "source_hostname": "laptop.ts.net", "fingerprint": p.key.Fingerprint()})
}

// TestPairOtherFails: what a try has begun in the sandbox ends with it, so that the next
// one has room, and the code goes to no other address.
func TestPairOtherFails(t *testing.T) {
	w := newWorld(t)
	w.wants(0, "", "login", w.url)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the code went on") }))
	defer elsewhere.Close()
	seed := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/on":
			http.Redirect(rw, r, elsewhere.URL+"/pair", http.StatusTemporaryRedirect)
		case "/later":
			_, _ = io.WriteString(rw, `{"protocol_version":2}`)
		case "/key":
			_, _ = io.WriteString(rw, `{"protocol_version":1,"source_public_key":"AAAA","source_hostname":"x","fingerprint":"00000000"}`)
		case "/between":
			key, err := ecdh.X25519().GenerateKey(rand.Reader)
			must(t, err)
			(&seedProgram{code: "AAAA-AAAA"}).answer(rw, key.PublicKey().Bytes(), "x")
		default:
			http.Error(rw, "wrong code", http.StatusUnauthorized)
		}
	}))
	defer seed.Close()
	for path, says := range map[string]string{"/on": "307", "/later": "version 2", "/key": "sandbox has not", "/between": "fingerprints differ", "/pair": "wrong code"} {
		w.wants(1, says, "pair", "--source", seed.URL+path, "--code", "AAAA-AAAA")
		if w.waiting != 0 || len(w.pairings) != 0 {
			t.Errorf("%s: %d wait, %d are paired", path, w.waiting, len(w.pairings))
		}
	}
	w.wants(2, "say nothing", "pair", "--source", seed.URL+"/pair", "--code", "AAAA-AAAA", "--site", "a.test")
}

// TestPairOther: the seed's program has the key that the sandbox has, with codes of
// either length, and nothing of it is here.
func TestPairOther(t *testing.T) {
	for _, code := range []seal.Code{"ABCD-EFGH-IJKL", "EHQE-STSS"} {
		w := newWorld(t)
		w.wants(0, "", "login", w.url)
		seed := &seedProgram{code: code}
		server := httptest.NewServer(seed)
		defer server.Close()
		w.wants(1, "wrong code", "pair", "--source", server.URL+"/pair", "--code", "AAAA-AAAA")
		w.wants(1, "in the clear", "pair", "--source", "http://laptop.example/pair", "--code", string(code))
		typed := strings.ToLower(strings.ReplaceAll(string(code), "-", " "))
		w.wants(0, "peer:\n  hostname: sink.sb", "pair", "--source", server.URL, "--code", typed, "--accept-version-2")
		if len(w.pairings) != 1 || seed.sink != "sink.sb" || len(w.versions) != 2 {
			t.Fatalf("%d pairings, by %q, versions %v", len(w.pairings), seed.sink, w.versions)
		}
		key, err := seed.key.Key()
		must(t, err)
		for _, sandbox := range w.pairings {
			if plain, err := sandbox.Open(key.Seal([]byte("from the seed's program"))); err != nil || string(plain) != "from the seed's program" {
				t.Errorf("the two have different keys: %v", err)
			}
		}
		if keys, _ := filepath.Glob(filepath.Join(w.folder, "keys", "*")); len(keys) != 0 {
			t.Errorf("here are %v", keys)
		}
		w.wants(0, "pairing   none", "status")
		server.Close()
		w.wants(1, "can't be reached", "pair", "--source", server.URL, "--code", string(code))
	}
}

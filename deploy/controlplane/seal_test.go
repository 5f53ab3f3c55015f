package controlplane

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/statedir"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/envseal"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
)

// openEnv returns the env.apply in a signed command, and its values.
func (b *testSandbox) openEnv(t *testing.T, keys *jws.Keys, token string) (op.EnvSealed, protocol.EnvValues) {
	t.Helper()
	var signed op.EnvSealed
	if err := json.Unmarshal(verifyCommand(t, keys, token).Op, &signed); err != nil {
		t.Fatal(err)
	}
	private, err := b.device.ECDH()
	if err != nil {
		t.Fatal(err)
	}
	values, err := envseal.Open[protocol.EnvValues](private, envseal.Env, b.id, signed.Sealed)
	if err != nil {
		t.Fatal(err)
	}
	return signed, values
}

// envPlane is a control plane with an enrolled sandbox and a relay.
func envPlane(t *testing.T) (*plane, *testSandbox, *fakeRelay) {
	t.Helper()
	p := newPlane(t)
	b := p.enrolled(p.agentListener(), "sb_1")
	relay := newFakeRelay(t, callback(`"status":"ok","result":{"kind":"env.apply"}`))
	p.register("rl_1", relayToken, relay.URL)
	// What the relay answers counts as undelivered, for the sandbox hasn't
	// signed it: these tests are about what is sent.
	return p, b, relay
}

func envOp(members string) string {
	return `"target":` + inSession + `,"op":{"kind":"env.apply",` + members + `}`
}

// TestSeal: what is signed of an env.apply names variables, and only the
// sandbox reads values.
func TestSeal(t *testing.T) {
	p, b, _ := envPlane(t)
	grant := p.grant(aliceToken, `{"session_id":"ses_1"}`)
	for _, target := range []string{inSession, onPTY} {
		answer := p.want(signCall(grant, "k"+strconv.Itoa(len(target)), `"target":`+target+`,"op":{"kind":"env.apply",
			"set":{"ZONE":"eu","ARCH":"arm"},"unset":["OLD","GONE"],"applyNow":true,
			"secrets":{"MY_KEY":{"value":"canary-0123456789","brokerProtected":true}},
			"approvedDomains":[{"secret":"MY_KEY","domain":"api.example.com","headerFormat":"Token %s"}]}`), http.StatusOK, "")
		token := answer["envelope"].(map[string]any)["jws"].(string)
		signed, values := b.openEnv(t, p.keys(), token)
		want := op.EnvSealed{
			Names: []string{"ARCH", "MY_KEY", "ZONE"}, Sealed: signed.Sealed, Unset: []string{"GONE", "OLD"}, ApplyNow: true,
		}
		if !reflect.DeepEqual(signed, want) {
			t.Errorf("signed %+v", signed)
		}
		if wantValues := (protocol.EnvValues{
			Set:             map[string]string{"ZONE": "eu", "ARCH": "arm"},
			Secrets:         map[string]protocol.EnvSecret{"MY_KEY": {Value: "canary-0123456789", BrokerProtected: true}},
			ApprovedDomains: []protocol.ApprovedDomain{{Secret: "MY_KEY", Domain: "api.example.com", HeaderFormat: "Token %s"}},
		}); !reflect.DeepEqual(values, wantValues) {
			t.Errorf("sealed %+v", values)
		}
		var asked protocol.CommandTarget
		if err := json.Unmarshal([]byte(target), &asked); err != nil {
			t.Fatal(err)
		}
		if got := verifyCommand(t, p.keys(), token).Target; got.PTYID != asked.PTYID || got.SandboxID != "sb_1" {
			t.Errorf("target %+v, want %+v", got, asked)
		}
	}
}

// TestSealSync: of a sync.pair the code and the secret are in a box of their own
// purpose, and begin has none.
func TestSealSync(t *testing.T) {
	p, b, _ := envPlane(t)
	grant := p.grant(aliceToken, `{"session_id":"ses_1"}`)
	private, err := b.device.ECDH()
	if err != nil {
		t.Fatal(err)
	}
	const canary = "canary-7f3a9c51e0-7f3a9c51e0-7f3a9c51e0"
	sign := func(key, members string) (signed op.SyncPairSealed) {
		t.Helper()
		answer := p.want(signCall(grant, key, `"target":`+inSession+`,"op":{"kind":"sync.pair",`+members+`}`), http.StatusOK, "")
		raw := verifyCommand(t, p.keys(), answer["envelope"].(map[string]any)["jws"].(string)).Op
		if err := json.Unmarshal(raw, &signed); err != nil || strings.Contains(string(raw), "canary") {
			t.Fatalf("%s: %v", raw, err)
		}
		return signed
	}
	if signed := sign("k1", `"step":"begin","name":"laptop"`); !reflect.DeepEqual(signed, op.SyncPairSealed{Step: op.SyncBegin, Name: "laptop"}) {
		t.Errorf("%+v", signed)
	}
	signed := sign("k2", `"step":"secret","sharedSecret":"`+canary+`"`)
	secrets, err := envseal.Open[op.SyncSecrets](private, envseal.Sync, b.id, signed.Sealed)
	if err != nil || secrets.SharedSecret != canary {
		t.Errorf("%v", err)
	}
	if _, err := envseal.Open[op.SyncSecrets](private, envseal.Env, b.id, signed.Sealed); err == nil {
		t.Error("it opens as variables")
	}
	carol := p.grant(carolToken, `{"session_id":"ses_1"}`)
	p.want(signCall(carol, "k3", `"target":`+inSession+`,"op":{"kind":"sync.pair","step":"begin"}`), http.StatusForbidden, "AuthError")
}

// TestSealedTwice: the same request under a key is the same command, also in the
// next process; other values are another request.
func TestSealedTwice(t *testing.T) {
	p, _, _ := envPlane(t)
	grant := p.grant(aliceToken, `{"session_id":"ses_1"}`)
	secret := func(value string) string { return envOp(`"set":{"A":"1"},"secrets":{"KEY":{"value":"` + value + `"}}`) }
	first := p.want(signCall(grant, "k1", secret("canary-1")), http.StatusOK, "")
	p.start()
	same := `"op":{"secrets":{"KEY":{"brokerProtected":false,"value":"canary-1"}},"kind":"env.apply","set":{"A":"1"}},"target":{"session_id":"ses_1"}`
	if again := p.want(signCall(grant, "k1", same), http.StatusOK, ""); !reflect.DeepEqual(again, first) {
		t.Errorf("again %v, want %v", again, first)
	}
	p.want(signCall(grant, "k1", secret("canary-2")), http.StatusConflict, "RequestError")
	p.want(signCall(grant, "k1", envOp(`"set":{"A":"2"},"secrets":{"KEY":{"value":"canary-1"}}`)), http.StatusConflict, "RequestError")
}

// TestNothingToSealTo: without the sandbox's key nothing is signed.
func TestNothingToSealTo(t *testing.T) {
	p := newPlane(t)
	p.register("rl_1", relayToken, "http://127.0.0.1:1")
	grant := p.grant(aliceToken, `{"session_id":"ses_1"}`)
	refused := func() {
		t.Helper()
		answer := p.want(signCall(grant, "k", envOp(`"set":{"A":"1"}`)), http.StatusServiceUnavailable, "InternalError")
		if text, _ := answer["error"].(map[string]any)["message"].(string); !strings.Contains(text, "sb_1 is not enrolled") {
			t.Errorf("%q", text)
		}
	}
	refused()
	p.enrolled(p.agentListener(), "sb_1")
	p.want(signCall(grant, "k", envOp(`"set":{"A":"1"}`)), http.StatusOK, "")
	if err := p.server.store.Fleet.RevokeSandbox(t.Context(), "sb_1", p.clock.Now()); err != nil {
		t.Fatal(err)
	}
	grant = p.grant(aliceToken, `{"session_id":"ses_1"}`)
	refused()
}

var allowedBytes = regexp.MustCompile(`the values take (\d+) bytes as JSON, beside these names (\d+) are allowed`)

// TestTooLargeToSign: the error says how much would fit, and that much fits.
func TestTooLargeToSign(t *testing.T) {
	p, b, _ := envPlane(t)
	grant := p.grant(aliceToken, `{"session_id":"ses_1"}`)
	secret := func(size int) string { return envOp(`"secrets":{"KEY":{"value":"` + strings.Repeat("x", size) + `"}}`) }
	answer := p.want(signCall(grant, "k", secret(50_000)), http.StatusRequestEntityTooLarge, "LimitError")
	text, _ := answer["error"].(map[string]any)["message"].(string)
	found := allowedBytes.FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("%q", text)
	}
	take, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	allowed, err := strconv.Atoi(found[2])
	if err != nil || allowed < 30_000 || allowed > 40_000 {
		t.Fatalf("%q, %v", text, err)
	}
	frame := take - 50_000 // of JSON around the secret
	fits := p.want(signCall(grant, "k", secret(allowed-frame)), http.StatusOK, "")
	if _, values := b.openEnv(t, p.keys(), fits["envelope"].(map[string]any)["jws"].(string)); len(values.Secrets["KEY"].Value) != allowed-frame {
		t.Error("other values were sealed")
	}
	t.Logf("%d bytes of values are allowed", allowed)
	p.want(signCall(grant, "k2", secret(allowed-frame+32)), http.StatusRequestEntityTooLarge, "LimitError")
}

// TestCanary: a value is nowhere but in the box, whatever becomes of its command.
func TestCanary(t *testing.T) {
	const canary = "canary-7f3a9c51e0"
	p, _, relay := envPlane(t)
	grant := p.grant(aliceToken, `{"session_id":"ses_1"}`)
	bob := p.grant(bobToken, `{"session_id":"ses_1"}`)
	var answers bytes.Buffer
	ask := func(c call) { answers.Write(p.serve(c).Body.Bytes()) }
	for i, members := range []string{
		`"secrets":{"KEY":{"value":"` + canary + `"}}`,
		`"set":{"PLAIN":"` + canary + `"},"applyNow":true`,
		`"set":{"PLAIN":"` + canary + `","HOME":"x"}`,
		`"set":{"PLAIN":"` + canary + `\u0000"}`,
		`"set":["` + canary + `"]`,
		`"secrets":{"KEY":"` + canary + `"}`,
		`"secrets":{"KEY":{"value":["` + canary + `"]}}`,
		`"secrets":{"KEY":{"value":"` + canary + `","brokerProtected":"` + canary + `"}}`,
		`"secrets":{"KEY":{"value":"` + canary + strings.Repeat("x", 50_000) + `"}}`,
		`"secrets":{"KEY":{"value":"` + canary + `"}},"force":true`,
		`"secrets":{"KEY":{"value":"` + canary + `"},"KEY":{"value":"` + canary + `"}}`,
		`"secrets":{"KEY":{"value":"` + canary + `"}},"approvedDomains":[{"secret":"KEY","domain":"a","headerFormat":"` + canary + `"}]`,
		`"secrets":{"KEY":{"value":"` + canary + `"`,
	} {
		key := "k" + strconv.Itoa(i)
		ask(signCall(grant, key, envOp(members)))
		ask(signCall(grant, key, envOp(members)))
		ask(signCall(grant, "k0", envOp(members)))
		ask(signCall(bob, key, envOp(members)))
		c := commandCall(aliceToken, "{"+envOp(members)+"}")
		c.header = map[string]string{"Idempotency-Key": "c" + strconv.Itoa(i)}
		ask(c)
	}
	// A number is quoted by encoding/json where something else belongs.
	const number = "73190284655501"
	ask(signCall(grant, "n1", envOp(`"set":{"PIN":`+number+`}`)))
	ask(signCall(grant, "n2", envOp(`"secrets":{"PIN":{"value":`+number+`}}`)))
	ask(signCall(grant, "n3", envOp(`"secrets":`+number)))
	ask(getAs(aliceToken, "/commands"))
	ask(getAs(aliceToken, "/commands?session_id=ses_1"))
	for _, env := range relay.got() {
		ask(getAs(aliceToken, "/commands/"+string(env.CommandID)))
		if data, err := json.Marshal(env); err != nil || containsAny(data, canary) {
			t.Errorf("a relay reads the value, %v", err)
		}
	}
	if len(relay.got()) < 2 || bytes.Contains(answers.Bytes(), []byte(`"too many`)) {
		t.Fatalf("too little was tried:\n%s", &answers)
	}
	for _, secret := range []string{canary, number} {
		for where, data := range p.everything() {
			if containsAny(data, secret) {
				t.Errorf("%s holds the value %s", where, secret)
			}
		}
		if containsAny(answers.Bytes(), secret) {
			t.Errorf("an answer holds the value %s", secret)
		}
	}
	if log := p.log.String(); !strings.Contains(log, "command signed") || !strings.Contains(log, "request refused") {
		t.Error("the log is not the one that was to be searched")
	}
}

// everything returns what the control plane has written by now: its files, the
// database's among them, and the log.
func (p *plane) everything() map[string][]byte {
	p.t.Helper()
	all := map[string][]byte{"the log": []byte(p.log.String())}
	var names []string
	err := filepath.WalkDir(filepath.Join(p.dir, "state"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, d.Name())
			all[path], err = os.ReadFile(path)
		}
		return err
	})
	if err != nil || !slices.Contains(names, statedir.DatabaseFile) || !slices.Contains(names, statedir.DatabaseFile+"-wal") {
		p.t.Fatalf("%v, %v", names, errors.Join(err))
	}
	return all
}

// containsAny reports whether data holds text as it is, in base64 at whatever
// position, or in the base64 of base64.
func containsAny(data []byte, text string) bool {
	if bytes.Contains(data, []byte(text)) {
		return true
	}
	for range 2 {
		next := ""
		for skip := range 3 {
			whole := base64.StdEncoding.EncodeToString(append(make([]byte, skip), text...))
			inner := whole[4 : len(whole)-4] // what depends on the text alone
			for _, form := range []string{inner, strings.NewReplacer("+", "-", "/", "_").Replace(inner)} {
				if bytes.Contains(data, []byte(form)) {
					return true
				}
			}
			if skip == 0 {
				next = inner
			}
		}
		text = next
	}
	return false
}

func TestContainsAny(t *testing.T) {
	const text = "canary-7f3a9c51e0"
	for _, prefix := range []string{"", "a", "ab", "abc"} {
		once := base64.RawURLEncoding.EncodeToString([]byte(prefix + text + "tail of it"))
		twice := base64.RawURLEncoding.EncodeToString([]byte("x" + once))
		if !containsAny([]byte("--"+once+"--"), text) || prefix == "" && !containsAny([]byte(twice), text) {
			t.Errorf("not found after %q", prefix)
		}
	}
	if containsAny([]byte("canary-7f3a9c51e1"), text) {
		t.Error("found where it isn't")
	}
}

// TestEnvDispatched: an env.apply goes its way as any command does.
func TestEnvDispatched(t *testing.T) {
	p, b, relay := envPlane(t)
	p.clock.Advance(time.Second)
	p.serve(commandCall(aliceToken, "{"+envOp(`"unset":["OLD"]`)+"}"))
	envs := relay.got()
	if len(envs) != 1 {
		t.Fatalf("%d commands", len(envs))
	}
	signed, values := b.openEnv(t, p.keys(), envs[0].JWS)
	if len(signed.Names) != 0 || !slices.Equal(signed.Unset, []string{"OLD"}) || !reflect.DeepEqual(values, protocol.EnvValues{}) {
		t.Errorf("%+v, %+v", signed, values)
	}
	p.want(commandCall(bobToken, "{"+envOp(`"unset":["OLD"]`)+"}"), http.StatusForbidden, "AuthError")
}

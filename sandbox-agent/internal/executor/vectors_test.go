package executor

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// A vector is one row of the battery in protocol/jws/testdata.
type vector struct {
	ID       string          `json:"id"`
	Case     string          `json:"case"`
	Expected string          `json:"expected"`
	Token    *string         `json:"token"`
	JWKS     json.RawMessage `json:"jwks"`
}

type battery struct {
	JWKS json.RawMessage `json:"default_jwks"`
	D    string          `json:"signing_key_p256_d"`
	Rows []vector        `json:"rows"`
}

func readBattery(t *testing.T) (battery, *ecdsa.PrivateKey) {
	t.Helper()
	data, err := os.ReadFile("../../../protocol/jws/testdata/jws.json")
	must(t, err)
	var all battery
	must(t, json.Unmarshal(data, &all))
	d, err := base64.RawURLEncoding.DecodeString(all.D)
	must(t, err)
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), d)
	must(t, err)
	return all, key
}

// trust makes the agent believe the keys of a row.
func (b *bench) trust(t *testing.T, all battery, row vector) {
	t.Helper()
	jwks := all.JWKS
	if row.JWKS != nil {
		jwks = row.JWKS
	}
	keys, err := jws.ParseKeySet(jwks)
	must(t, err)
	b.Keys = jws.NewKeys(keys, jws.KeysOptions{Now: b.clock})
}

// TestVectors: no token of the battery runs, the good ones included: they are
// made for a browser.
func TestVectors(t *testing.T) {
	b := newBench(t)
	all, _ := readBattery(t)
	n := 0
	for _, row := range all.Rows {
		b.trust(t, all, row)
		if row.Token != nil {
			n++
			b.refuse(*row.Token, "AuthError")
			b.refuse(" "+*row.Token, "AuthError")
		}
	}
	if n < 50 {
		t.Errorf("only %d tokens", n)
	}
}

// ranHeaders are the rows whose header is good.
var ranHeaders = map[string]bool{
	"A0": true, "A13": true, // spelled with escapes, equal after decoding
	"H9": true, // whitespace
}

// TestHeaders gives the header of each token in the battery to a command that
// the agent would run, signed anew by the battery's key: only good headers run.
func TestHeaders(t *testing.T) {
	b := newBench(t)
	all, key := readBattery(t)
	tried := 0
	for _, row := range all.Rows {
		if row.Token == nil || !strings.ContainsAny(row.ID[:1], "AEKTCH") {
			continue // S, X, P, L and J are about something else than the header
		}
		part, _, _ := strings.Cut(*row.Token, ".")
		header, err := base64.RawURLEncoding.DecodeString(part)
		if err != nil {
			continue
		}
		tried++
		text := string(header)
		if !strings.Contains(text, `"typ"`) {
			text = strings.Replace(text, "{", `{"typ":"command+jws",`, 1)
		}
		payload, err := json.Marshal(b.command(`{"kind":"pty.create"}`))
		must(t, err)
		b.trust(t, all, row)
		token := rawToken(b, key, text, string(payload))
		if ranHeaders[row.ID] {
			if c, _ := b.execute(token); c.Status != protocol.StatusOK {
				t.Errorf("%s %s: %+v", row.ID, row.Case, c.Error)
			}
			continue
		}
		b.refuse(token, "AuthError")
	}
	if tried < 30 {
		t.Errorf("only %d headers", tried)
	}
}

// TestPayloads are the battery's rows about sizes and claims, for our audience.
func TestPayloads(t *testing.T) {
	b := newBench(t)
	good, err := json.Marshal(b.command(`{"kind":"pty.create"}`))
	must(t, err)
	change := func(from, to string) string {
		changed := strings.Replace(string(good), from, to, 1)
		if changed == string(good) {
			t.Fatalf("no %s in %s", from, good)
		}
		return b.signRaw(changed)
	}
	huge := strings.Repeat("x", 1<<20)
	header := func(name string, value any) string {
		return b.signHeader(map[string]any{"alg": "ES256", "kid": b.signer.Kid(), "typ": jws.TypeCommand, name: value}, string(good))
	}
	for what, token := range map[string]string{
		"empty": "", "dots": strings.Repeat(".", 1<<20), "deep": strings.Repeat("[", 1<<20),
		"huge kid": header("kid", huge), "huge member": header("x", huge), "no typ": b.signHeader(map[string]any{"alg": "ES256", "kid": b.signer.Kid()}, string(good)),
		"grant's typ": header("typ", jws.TypeGrant), "typ in capitals": header("typ", "COMMAND+JWS"),
		"huge payload": change(`"tr_1"`, `"tr_1","x":"`+huge+`"`), "deep payload": b.signRaw(strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000)),
		"no payload": b.signRaw(""), "array": b.signRaw("[" + string(good) + "]"), "two objects": b.signRaw(string(good) + string(good)), "not UTF-8": change("tr_1", "tr_\xff"),
		"no iss": change(`"iss":"control-server",`, ""), "other iss": change("control-server", "Control-Server"),
		"no aud": change(`"aud":"sandbox-agent",`, ""), "aud in capitals": change("sandbox-agent", "Sandbox-Agent"), "two aud": change(`"sandbox-agent"`, `["sandbox-agent"]`),
		"two kinds": change(`"kind":"pty.create"`, `"kind":"session.create","kind":"pty.create"`), "two targets": change(`"target":`, `"target":{},"target":`),
		"variant member": change(`"target":`, `"Target":{"sandboxId":"sb_2"},"target":`), "variant in target": change(`"sandboxId":`, `"SANDBOXID":"sb_2","sandboxId":`),
		"Kelvin sign": change(`"kind":`, `"\u212aind":"session.delete","kind":`),
	} {
		t.Run(what, func(t *testing.T) {
			b.t = t
			b.refuse(token, "AuthError")
		})
	}
}

// TestNothingIsFetched: whatever addresses a token has, nobody is called.
func TestNothingIsFetched(t *testing.T) {
	b := newBench(t)
	var called atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called.Add(1) }))
	server.Config.ConnState = func(net.Conn, http.ConnState) { called.Add(1) }
	server.Start()
	defer server.Close()
	good, err := json.Marshal(b.command(`{"kind":"pty.create"}`))
	must(t, err)
	jwk := json.RawMessage(fmt.Sprintf(`{"kty":"EC","kid":"k","jku":%q}`, server.URL))
	for name, value := range map[string]any{
		"jku": server.URL + "/jwks.json", "x5u": server.URL + "/chain.pem", "jwk": jwk, "x5c": []string{server.URL}, "iss": server.URL, "url": server.URL,
		"kid": server.URL + "/key", "typ": server.URL, "zip": server.URL, "crit": []string{server.URL},
	} {
		b.refuse(b.signHeader(map[string]any{"alg": "ES256", "kid": b.signer.Kid(), "typ": jws.TypeCommand, name: value}, string(good)), "AuthError")
	}
	c := b.command(`{"kind":"pty.create"}`)
	c.Reply = &jws.Reply{URL: server.URL + "/control/callback", CallbackToken: "ct_1"}
	if got, _ := b.execute(b.sign(c)); got.Status != protocol.StatusOK {
		t.Errorf("%+v", got.Error)
	}
	if n := called.Load(); n != 0 {
		t.Errorf("%d connections", n)
	}
}

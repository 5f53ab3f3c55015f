package controlapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
)

// refusals returns how many commands were refused so far, by kind and name.
func (w *world) refusals() map[string]float64 {
	w.t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "fairlead_rejects_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, pair := range metric.GetLabel() {
				labels[pair.GetName()] = pair.GetValue()
			}
			counts[labels["kind"]+" "+labels["name"]] += metric.GetCounter().GetValue()
		}
	}
	return counts
}

// expectRefusal posts body, which must be refused as kind and counted, without
// reaching the sandbox.
func (w *world) expectRefusal(t *testing.T, body string, kind protocol.Kind) {
	t.Helper()
	label := kind.String() + " " + kind.Name()
	before, reached := w.refusals()[label], w.reached.Load()
	answer := w.do(http.MethodPost, "/control/commands?wait=1", "", body)
	expect(t, answer, kind.Status(), `"name":"`+kind.Name()+`"`)
	if w.refusals()[label] != before+1 {
		t.Errorf("not counted as %s: %v", label, w.refusals())
	}
	if w.reached.Load() != reached {
		t.Error("it reached the sandbox")
	}
}

// atNoon gives the authority a clock that stands.
func atNoon(a *relaytest.Authority) time.Time {
	noon := time.UnixMilli(1730000000000)
	set, err := jws.ParseKeySet(a.JWKS)
	if err != nil {
		panic(err)
	}
	a.Keys = jws.NewKeys(set, jws.KeysOptions{Now: func() time.Time { return noon }})
	return noon
}

// The window of a command is exact to the millisecond.
func TestTheWindowOfACommand(t *testing.T) {
	authority := relaytest.NewAuthority(t)
	now := atNoon(authority)
	w := newWorldOf(t, authority, http.NotFound)
	close(w.answering)
	const ttl = 30_000
	skew := protocol.ClockSkew.Milliseconds()
	for name, c := range map[string]struct {
		issued int64 // ms from now
		status int
		name   string
	}{
		"as far ahead as may be":   {skew, 200, `"ok"`},
		"a millisecond more":       {skew + 1, 401, "AuthError"},
		"as far behind as may be":  {-ttl - skew, 200, `"ok"`},
		"a millisecond more back":  {-ttl - skew - 1, 401, "ExpiredError"},
		"a day":                    {-24 * 3_600_000, 401, "ExpiredError"},
		"now":                      {0, 200, `"ok"`},
		"a time that overflows":    {math.MaxInt64 - now.UnixMilli(), 401, "AuthError"},
		"long before time started": {math.MinInt64 / 2, 401, "ExpiredError"},
	} {
		t.Run(name, func(t *testing.T) {
			env := authority.Command(func(cmd *jws.Command) { cmd.IssuedAt, cmd.TTLMs = now.UnixMilli()+c.issued, ttl })
			expect(t, w.post("/control/commands?wait=1", env), c.status, c.name)
		})
	}
}

// payloadOf returns what is signed in env.
func payloadOf(t *testing.T, env protocol.CommandEnvelope) map[string]any {
	t.Helper()
	data, err := base64.RawURLEncoding.DecodeString(strings.Split(env.JWS, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	var payload map[string]any
	if err := json.Unmarshal(data, &payload); err != nil {
		t.Fatal(err)
	}
	return payload
}

// unsigned returns the envelope of a command whose payload was changed after it
// was signed.
func unsigned(t *testing.T, a *relaytest.Authority, name string, value any) string {
	t.Helper()
	env := a.Command(nil)
	payload, parts := payloadOf(t, env), strings.Split(env.JWS, ".")
	payload[name] = value
	env.JWS = parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(mustJSON(payload))) + "." + parts[2]
	return mustJSON(env)
}

func mustJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// signedAs returns the envelope of a signed command after change, and what the
// envelope says after hint.
func signedAs(a *relaytest.Authority, change func(*jws.Command), hint func(*protocol.CommandEnvelope)) string {
	env := a.Command(change)
	if hint != nil {
		hint(&env)
	}
	return mustJSON(env)
}

func TestBadCommands(t *testing.T) {
	authority := relaytest.NewAuthority(t)
	w := newWorldOf(t, authority, http.NotFound)
	close(w.answering)
	good := mustJSON(authority.Command(nil))
	edit := func(name string, value any) string { return unsigned(t, authority, name, value) }
	for name, c := range map[string]struct {
		body string
		want protocol.Kind
	}{
		"nothing":               {"", protocol.KindInvalid},
		"not JSON":              {"{", protocol.KindInvalid},
		"no object":             {"[1]", protocol.KindInvalid},
		"null":                  {"null", protocol.KindInvalid},
		"not UTF-8":             {"{\"type\":\"\xff\"}", protocol.KindInvalid},
		"deep":                  {strings.Repeat(`{"target":`, 7_000), protocol.KindInvalid},
		"deep and whole":        {`{"x":` + strings.Repeat("[", 30_000) + strings.Repeat("]", 30_000) + `}`, protocol.KindInvalid},
		"large":                 {`{"jws":"` + strings.Repeat("a", maxEnvelope) + `"}`, protocol.KindTooLarge},
		"a mebibyte of dots":    {`{"jws":"` + strings.Repeat(".", 1<<20) + `"}`, protocol.KindTooLarge},
		"a token over its size": {`{"jws":"` + strings.Repeat("a", protocol.MaxTokenBytes+1) + `"}`, protocol.KindUnauthenticated},
		"no token":              {"{}", protocol.KindUnauthenticated},
		"number for a token":    {`{"jws":1}`, protocol.KindInvalid},
		"two objects":           {good + good, protocol.KindInvalid},
		"wrong type":            {signedAs(authority, nil, func(e *protocol.CommandEnvelope) { e.Type = "control.callback" }), protocol.KindInvalid},
		"another sandbox":       {signedAs(authority, nil, func(e *protocol.CommandEnvelope) { e.Target.SandboxID = "sb_x" }), protocol.KindUnauthenticated},
		"no target":             {signedAs(authority, nil, func(e *protocol.CommandEnvelope) { e.Target = protocol.CommandTarget{} }), protocol.KindUnauthenticated},
		"another id":            {signedAs(authority, nil, func(e *protocol.CommandEnvelope) { e.CommandID = "cmd_x" }), protocol.KindUnauthenticated},
		"another trace":         {signedAs(authority, nil, func(e *protocol.CommandEnvelope) { e.TraceID = "tr_x" }), protocol.KindUnauthenticated},
		"another time":          {signedAs(authority, nil, func(e *protocol.CommandEnvelope) { e.IssuedAt++ }), protocol.KindUnauthenticated},
		"another life":          {signedAs(authority, nil, func(e *protocol.CommandEnvelope) { e.TTLMs = math.MaxInt64 }), protocol.KindUnauthenticated},
		"another's key":         {mustJSON(relaytest.NewAuthority(t).Command(nil)), protocol.KindUnauthenticated},
		"another payload":       {edit("op", map[string]any{"kind": "pty.close"}), protocol.KindUnauthenticated},
		"a life of nothing":     {edit("ttlMs", 0), protocol.KindUnauthenticated},
		"for the other side":    {signedAs(authority, func(c *jws.Command) { c.Audience = jws.AudienceExtension }, nil), protocol.KindUnauthenticated},
		"for a page, for us":    {signedAs(authority, forPage, func(e *protocol.CommandEnvelope) { e.Target.SandboxID = relaytest.Sandbox }), protocol.KindUnauthenticated},
		"an op nobody knows":    {signedAs(authority, func(c *jws.Command) { forPage(c); c.Op = json.RawMessage(`{"kind":"cdp.eval"}`) }, nil), protocol.KindUnsupported},
	} {
		t.Run(name, func(t *testing.T) { w.expectRefusal(t, c.body, c.want) })
	}
	token := strings.Split(good, `"jws":"`)[1][:40]
	if log := w.logged.String(); strings.Contains(log, token) || !strings.Contains(log, "kind=unauthenticated") {
		t.Errorf("log: %s", log)
	}
	if lines := strings.Count(w.logged.String(), "\n"); lines > 5 { // one for each kind above
		t.Errorf("%d lines of log", lines)
	}
}

// What is well signed and wrong all the same, as no signer of ours would sign it.
func TestBadPayloads(t *testing.T) {
	authority := relaytest.NewAuthority(t)
	w := newWorldOf(t, authority, http.NotFound)
	close(w.answering)
	good := resigned(t, authority, "ttlMs", "30000")
	expect(t, w.do(http.MethodPost, "/control/commands?wait=1", "", good), http.StatusOK)
	for name, c := range map[string]struct {
		member, value string
		want          protocol.Kind
	}{
		"no life":              {"ttlMs", "0", protocol.KindInvalid},
		"a negative one":       {"ttlMs", "-1", protocol.KindInvalid},
		"too long a life":      {"ttlMs", "600001", protocol.KindInvalid},
		"a day":                {"ttlMs", "86400000", protocol.KindInvalid},
		"the longest number":   {"ttlMs", "9223372036854775807", protocol.KindInvalid},
		"more than that":       {"ttlMs", "9223372036854775808", protocol.KindInvalid},
		"part of one":          {"ttlMs", "1.5", protocol.KindInvalid},
		"a text":               {"ttlMs", `"30000"`, protocol.KindInvalid},
		"an endless number":    {"issuedAt", "1e400", protocol.KindInvalid},
		"no kind":              {"op", "{}", protocol.KindInvalid},
		"no op":                {"op", "null", protocol.KindInvalid},
		"a list for an op":     {"op", "[]", protocol.KindInvalid},
		"deep op":              {"op", `{"kind":"pty.create","x":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + "}", protocol.KindUnauthenticated},
		"members twice":        {"op", `{"kind":"pty.create","kind":"pty.close"}`, protocol.KindUnauthenticated},
		"members but for case": {"op", `{"kind":"pty.create","Kind":"pty.close"}`, protocol.KindUnauthenticated},
		"another issuer":       {"iss", `"control-server2"`, protocol.KindUnauthenticated},
		"two audiences":        {"aud", `["sandbox-agent"]`, protocol.KindUnauthenticated},
		"an id that is none":   {"commandId", `"../x"`, protocol.KindInvalid},
		"a target that is no":  {"target", `{"sandboxId":"../x"}`, protocol.KindInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			w.expectRefusal(t, resigned(t, authority, c.member, c.value), c.want)
		})
	}
}

// resigned returns the envelope of a command with one member of the payload
// replaced before it was signed.
func resigned(t *testing.T, a *relaytest.Authority, member, value string) string {
	t.Helper()
	env := a.Command(nil)
	payload := map[string]string{}
	for name, v := range payloadOf(t, env) {
		payload[name] = mustJSON(v)
	}
	payload[member] = value
	var members []string // by hand: an encoder would not write all of the values
	for name, v := range payload {
		members = append(members, `"`+name+`":`+v)
	}
	env.JWS = a.Sign([]byte("{" + strings.Join(members, ",") + "}"))
	return mustJSON(env)
}

// An operation or a member that only a newer sandbox knows is its own to judge.
func TestTheSandboxJudgesOperations(t *testing.T) {
	w := newWorld(t, http.NotFound)
	close(w.answering)
	for i, op := range []string{`{"kind":"pty.dance"}`, `{"kind":"pty.create","colour":"red"}`} {
		env := w.authority.Command(func(c *jws.Command) { c.Op = json.RawMessage(op) })
		expect(t, w.post("/control/commands?wait=1", env), http.StatusOK)
		if int(w.reached.Load()) != i+1 {
			t.Errorf("%s did not reach the sandbox", op)
		}
	}
}

// Every token of the battery, in an envelope that agrees with it.
func TestTheBattery(t *testing.T) {
	data, err := os.ReadFile("../../../protocol/jws/testdata/jws.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		JWKS json.RawMessage `json:"default_jwks"`
		Rows []struct {
			ID, Case, Expected string
			Error              string `json:"error_name"`
			Token              *string
			JWKS               json.RawMessage
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, row := range file.Rows {
		if row.Token == nil {
			continue // described only
		}
		tried++
		t.Run(row.ID, func(t *testing.T) {
			authority := relaytest.NewAuthority(t)
			if authority.JWKS = row.JWKS; row.JWKS == nil {
				authority.JWKS = file.JWKS
			}
			atNoon(authority)
			w := newWorldOf(t, authority, http.NotFound)
			close(w.answering)
			for _, target := range []protocol.CommandTarget{{SandboxID: relaytest.Sandbox}, {ExtensionID: "extension"}} {
				body := mustJSON(protocol.CommandEnvelope{
					Type: protocol.EnvelopeType, CommandID: "cmd_1", IssuedAt: 1730000000000, TTLMs: 30000, Target: target, JWS: *row.Token,
				})
				answer := w.do(http.MethodPost, "/control/commands?wait=1", "", body)
				if answer.Code < 400 {
					t.Errorf("%s: %d", row.Case, answer.Code)
				}
				if row.Expected == "reject" {
					expect(t, answer, http.StatusUnauthorized, row.Error)
				}
			}
			if w.reached.Load() != 0 {
				t.Error("it reached the sandbox")
			}
		})
	}
	if tried < 50 {
		t.Errorf("only %d tokens", tried)
	}
}

// Unknown key ids make the relay look for new keys once, whatever their number.
func TestUnknownKeysAreNotAFlood(t *testing.T) {
	authority := relaytest.NewAuthority(t)
	var fetches atomic.Int32
	var later atomic.Int64 // how far the clock has moved
	began := time.Now()
	set, err := jws.ParseKeySet(authority.JWKS)
	if err != nil {
		t.Fatal(err)
	}
	authority.Keys = jws.NewKeys(set, jws.KeysOptions{
		Now: func() time.Time { return began.Add(time.Duration(later.Load())) },
		Fetch: func(context.Context) ([]byte, error) {
			fetches.Add(1)
			return authority.JWKS, nil
		},
	})
	w := newWorldOf(t, authority, http.NotFound)
	signature := strings.Repeat("A", 86)
	flood := func(n int) {
		for i := range n {
			header := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"alg":"ES256","kid":"k%d","typ":"command+jws"}`, i))
			answer := w.do(http.MethodPost, "/control/commands", "", `{"jws":"`+header+".e30."+signature+`"}`)
			if answer.Code != http.StatusUnauthorized {
				t.Fatalf("%d %s", answer.Code, answer.Body)
			}
		}
	}
	flood(10_000)
	if n := fetches.Load(); n != 1 {
		t.Errorf("%d fetches", n)
	}
	later.Store(int64(30 * time.Second))
	flood(100)
	if n := fetches.Load(); n != 2 {
		t.Errorf("%d fetches half a minute later", n)
	}
	if n := w.refusals()["unauthenticated AuthError"]; n != 10_100 {
		t.Errorf("%v counted", n)
	}
	if lines := strings.Count(w.logged.String(), "\n"); lines != 1 {
		t.Errorf("%d lines of log", lines)
	}
}

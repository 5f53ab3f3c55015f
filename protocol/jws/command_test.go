package jws_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

func TestCommandSeed(t *testing.T) {
	// The payload of seed 003 §6.1, byte for byte, under a header without typ.
	const payload = `{
  "iss": "control-server",
  "aud": "browser-extension",
  "commandId": "cmd_1",
  "traceId": "tr_1",
  "issuedAt": 1730000000000,
  "ttlMs": 30000,
  "target": { "tabId": 123 },
  "op": { "kind": "cdp.send", "method": "Runtime.evaluate", "params": { "expression": "1+1" } },
  "reply": { "url": "https://control.example.com/control/callback", "callbackToken": "ct_1" }
}`
	k := newRawKey(t, "k1")
	c, err := k.static(t, now).Command(t.Context(), k.typed("", payload), jws.AudienceExtension)
	noError(t, err)
	if c.CommandID != "cmd_1" || c.TraceID != "tr_1" || c.Target.TabID != 123 || c.Kind() != "cdp.send" ||
		c.Reply.CallbackToken != "ct_1" || !c.Deadline().Equal(now.Add(30*time.Second)) {
		t.Errorf("got %+v", c)
	}
	_, err = k.static(t, now).Command(t.Context(), k.typed("", payload), jws.AudienceAgent)
	wantKind(t, err, protocol.KindUnauthenticated)
}

func TestCommandTimes(t *testing.T) {
	const ms = time.Millisecond
	k := newRawKey(t, "k1")
	issued, ttl := now, 30*time.Second
	token := k.typed(jws.TypeCommand, mustJSON(commandPayload()))
	for _, tt := range []struct {
		name string
		at   time.Time
		kind protocol.Kind // KindInternal: accepted
	}{
		{"60.001 s ahead of us", issued.Add(-jws.Skew - ms), protocol.KindUnauthenticated},
		{"60 s ahead of us", issued.Add(-jws.Skew), protocol.KindInternal},
		{"59.999 s ahead of us", issued.Add(-jws.Skew + ms), protocol.KindInternal},
		{"at once", issued, protocol.KindInternal},
		{"1 ms before the end of skew", issued.Add(ttl + jws.Skew - ms), protocol.KindInternal},
		{"at the end of skew", issued.Add(ttl + jws.Skew), protocol.KindInternal},
		{"1 ms after the end of skew", issued.Add(ttl + jws.Skew + ms), protocol.KindExpired},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := k.static(t, tt.at).Command(t.Context(), token, jws.AudienceAgent)
			if tt.kind == protocol.KindInternal {
				noError(t, err)
				return
			}
			wantKind(t, err, tt.kind)
			if known := c != nil; known != (tt.kind == protocol.KindExpired) {
				t.Fatalf("command %v beside %v", c, err)
			}
		})
	}
}

func TestCommandMembers(t *testing.T) {
	k := newRawKey(t, "k1")
	const auth, invalid, expired, fine = protocol.KindUnauthenticated, protocol.KindInvalid, protocol.KindExpired, protocol.KindInternal
	for _, tt := range []struct {
		name   string
		member string
		value  any
		kind   protocol.Kind
	}{
		{"ttl 1 ms", "ttlMs", 1, fine},
		{"ttl at the limit", "ttlMs", 600_000, fine},
		{"ttl over the limit", "ttlMs", 600_001, invalid},
		{"ttl 0", "ttlMs", 0, invalid},
		{"ttl −1", "ttlMs", -1, invalid},
		{"ttl missing", "ttlMs", nil, invalid},
		{"ttl fraction", "ttlMs", 30000.5, invalid},
		{"ttl string", "ttlMs", "30000", invalid},
		{"ttl max int64", "ttlMs", int64(math.MaxInt64), invalid},
		{"ttl beyond int64", "ttlMs", uint64(math.MaxUint64), invalid},
		{"issued at max int64", "issuedAt", int64(math.MaxInt64), auth},
		{"issued at min int64", "issuedAt", int64(math.MinInt64), expired},
		{"issued at 0", "issuedAt", 0, expired},
		{"issued string", "issuedAt", "1730000000000", invalid},
		{"iss number", "iss", 1, auth},
		{"iss other case", "iss", "Control-Server", auth},
		{"aud array", "aud", []string{"sandbox-agent"}, auth},
		{"aud missing", "aud", nil, auth},
		{"aud empty", "aud", "", auth},
		{"command id missing", "commandId", nil, invalid},
		{"command id path", "commandId", "../x", invalid},
		{"command id too long", "commandId", strings.Repeat("x", 129), invalid},
		{"trace id missing", "traceId", nil, invalid},
		{"target missing", "target", nil, fine},
		{"target array", "target", []int{}, invalid},
		{"target with a bad id", "target", object{"sandboxId": "a b"}, invalid},
		{"target with a bad pty", "target", object{"ptyId": "/"}, invalid},
		{"tab fraction", "target", object{"tabId": 1.5}, invalid},
		{"op missing", "op", nil, invalid},
		{"op array", "op", []int{}, invalid},
		{"op without kind", "op", object{"method": "x"}, invalid},
		{"op kind number", "op", object{"kind": 1}, invalid},
		{"reply missing", "reply", nil, fine},
		{"reply string", "reply", "https://x.test", invalid},
		{"grant id", "grantId", "gr_1", fine},
		{"bad grant id", "grantId", "gr 1", invalid},
		{"bad user id", "userId", "-usr", invalid},
		{"unknown member", "later", object{"a": 1}, invalid},
		{"member without a name", "", 1, invalid},
		{"member without a name in target", "target", object{"": 1}, invalid},
		{"unknown member of target", "target", object{"later": 1}, invalid},
		{"unknown member of reply", "reply", object{"url": "https://x.test", "callbackToken": "ct", "later": 1}, invalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			token := k.typed(jws.TypeCommand, mustJSON(commandPayload().with(tt.member, tt.value)))
			_, err := k.static(t, now).Command(t.Context(), token, jws.AudienceAgent)
			if tt.kind == fine {
				noError(t, err)
				return
			}
			wantKind(t, err, tt.kind)
		})
	}
}

func TestCommandTypes(t *testing.T) {
	k := newRawKey(t, "k1")
	for _, tt := range []struct {
		typ, audience string
		ok            bool
	}{
		{jws.TypeCommand, jws.AudienceAgent, true},
		{jws.TypeCommand, jws.AudienceExtension, true},
		{"", jws.AudienceExtension, true},
		{"", jws.AudienceAgent, false},
		{jws.TypeGrant, jws.AudienceAgent, false},
		{jws.TypeGrant, jws.AudienceExtension, false},
		{"Command+JWS", jws.AudienceAgent, false},
		{"application/command+jws", jws.AudienceAgent, false},
	} {
		token := k.typed(tt.typ, mustJSON(commandPayload().with("aud", tt.audience)))
		_, err := k.static(t, now).Command(t.Context(), token, tt.audience)
		if ok := err == nil; ok != tt.ok {
			t.Errorf("typ %q for %s: %v", tt.typ, tt.audience, err)
		}
	}
}

// TestTwins puts pairs of members that some parsers take for one into every
// place of a payload.
func TestTwins(t *testing.T) {
	k := newRawKey(t, "k1")
	whole := mustJSON(commandPayload())
	insert := func(after, text string) string { return strings.Replace(whole, after, after+text, 1) }
	for name, payload := range map[string]string{
		"top level":                 insert(`{`, `"op":{"kind":"session.delete"},`),
		"top level, other case":     insert(`{`, `"OP":{"kind":"session.delete"},`),
		"in op":                     insert(`"op":{`, `"kind":"session.delete",`),
		"in op, other case":         insert(`"op":{`, `"Kind":"session.delete",`),
		"in op, escaped":            insert(`"op":{`, `"k\u0069nd":"session.delete",`),
		"in op, Kelvin sign":        insert(`"op":{`, "\"\u212aind\":\"session.delete\","),
		"in target":                 insert(`"target":{`, `"sandboxId":"sb_2",`),
		"in reply":                  insert(`"reply":{`, `"url":"https://evil.test",`),
		"in an unknown member":      insert(`{`, `"x":{"a":1,"a":1},`),
		"in an array":               insert(`{`, `"x":[1,[{"a":1,"b":{},"A":1}]],`),
		"far down":                  insert(`{`, `"x":`+strings.Repeat(`{"a":[`, 1000)+`{"a":1,"a":2}`+strings.Repeat(`]}`, 1000)+`,`),
		"name that is empty":        insert(`{`, `"":1,"":2,`),
		"long s":                    insert(`{`, "\"x\":{\"s\":1,\"\u017f\":2},"),
		"alone, other case":         strings.Replace(whole, `"ttlMs"`, `"TTLMS"`, 1),
		"alone in op, other case":   strings.Replace(whole, `"kind"`, `"Kind"`, 1),
		"alone in op, a later read": strings.Replace(whole, `"cols"`, `"Cols"`, 1),
		"alone in target":           strings.Replace(whole, `"sandboxId"`, `"sandboxID"`, 1),
		"alone in reply":            strings.Replace(whole, `"url"`, `"URL"`, 1),
		"trailing object":           whole + "{}",
		"deeper than JSON goes":     insert(`{`, `"x":`+strings.Repeat("[", 10_001)+strings.Repeat("]", 10_001)+`,`),
		"lone surrogates":           insert(`{`, `"x":{"\ud800":1,"\ud801":2},`),
		"an array":                  "[" + whole + "]",
		"null":                      "null",
	} {
		t.Run(name, func(t *testing.T) {
			if payload == whole {
				t.Fatal("the case changes nothing")
			}
			_, err := k.static(t, now).Command(t.Context(), k.typed(jws.TypeCommand, payload), jws.AudienceAgent)
			wantKind(t, err, protocol.KindUnauthenticated)
			if !strings.Contains(err.Error(), "payload") {
				t.Fatalf("refused for another reason: %v", err)
			}
		})
	}
	for name, payload := range map[string]string{
		"same name in siblings": insert(`"op":{`, `"x":[{"a":1},{"a":1},{"b":{"a":1},"a":1}],`),
		"value equal to a name": insert(`"op":{`, `"x":"op","y":["op","op"],`),
		"params are not ours":   insert(`"op":{`, `"params":{"Kind":1,"URL":2},`),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := k.static(t, now).Command(t.Context(), k.typed(jws.TypeCommand, payload), jws.AudienceAgent)
			noError(t, err)
		})
	}
}

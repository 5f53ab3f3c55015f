package jws_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-jose/go-jose/v4"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// FuzzVerify: whatever verifies is canonical, and go-jose alone agrees.
func FuzzVerify(f *testing.F) {
	file := readVectors(f)
	for _, row := range file.Rows {
		if row.Token != nil {
			f.Add(*row.Token)
		}
	}
	ks, err := jws.ParseKeySet(file.DefaultJWKS)
	noError(f, err)
	var library jose.JSONWebKeySet
	noError(f, json.Unmarshal(file.DefaultJWKS, &library))
	f.Fuzz(func(t *testing.T, token string) {
		got, err := ks.Verify(token)
		if err != nil {
			wantKind(t, err, protocol.KindUnauthenticated)
			return
		}
		parsed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.ES256})
		noError(t, err)
		payload, err := parsed.Verify(&library)
		noError(t, err)
		if !bytes.Equal(payload, got.Payload) || !utf8.Valid(got.Payload) || got.Kid != "k1" {
			t.Fatalf("got %+v, the library %q", got, payload)
		}
		part := strings.Split(token, ".")[1]
		if b64.EncodeToString(got.Payload) != part {
			t.Fatalf("%q is not the one spelling of its payload", part)
		}
	})
}

// FuzzParseKeySet: no input panics, and every key is either usable or counted.
func FuzzParseKeySet(f *testing.F) {
	file := readVectors(f)
	f.Add([]byte(file.DefaultJWKS))
	for _, row := range file.Rows {
		if row.JWKS != nil {
			f.Add([]byte(row.JWKS))
		}
	}
	k := file.key(f)
	f.Add(keySetOf(k.jwk(object{"kid": "a"}), k.jwk(object{"use": "enc"}), k.jwk(object{"d": file.D}), 1))
	f.Fuzz(func(t *testing.T, data []byte) {
		ks, err := jws.ParseKeySet(data)
		if err != nil {
			if kind := protocol.KindOf(err); kind != protocol.KindInvalid && kind != protocol.KindTooLarge {
				t.Fatalf("kind %s", kind)
			}
			return
		}
		var raw map[string]json.RawMessage
		noError(t, json.Unmarshal(data, &raw))
		var all []json.RawMessage
		if raw["keys"] != nil {
			noError(t, json.Unmarshal(raw["keys"], &all))
		}
		if ks.Len()+ks.Ignored() != len(all) {
			t.Fatalf("%d keys and %d ignored of %d", ks.Len(), ks.Ignored(), len(all))
		}
	})
}

// FuzzCommand signs arbitrary payloads. An accepted one satisfies the rules,
// and a reader that takes the last of several members agrees with us.
func FuzzCommand(f *testing.F) {
	k := newRawKey(f, "k1")
	keys := k.static(f, now)
	whole := mustJSON(commandPayload())
	f.Add(whole)
	f.Add(strings.Replace(whole, `{`, `{"OP":{},`, 1))
	f.Add(strings.Replace(whole, `"ttlMs"`, `"TTLMS"`, 1))
	f.Add(strings.Replace(whole, `30000`, `3e4`, 1))
	f.Add(`{"iss":"control-server","aud":"sandbox-agent"}`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, payload string) {
		token := k.typed(jws.TypeCommand, payload)
		c, err := keys.Command(t.Context(), token, jws.AudienceAgent)
		if err != nil {
			switch kind := protocol.KindOf(err); kind {
			case protocol.KindUnauthenticated, protocol.KindInvalid, protocol.KindExpired:
			default:
				t.Fatalf("kind %s: %v", kind, err)
			}
			return
		}
		if !protocol.ValidID(c.CommandID) || !protocol.ValidID(c.TraceID) || c.Kind() == "" || c.Audience != jws.AudienceAgent ||
			c.TTLMs < 1 || c.TTLMs > protocol.MaxCommandTTL.Milliseconds() || c.Deadline().Add(jws.Skew).Before(now) {
			t.Fatalf("accepted %+v", c)
		}
		var exact map[string]any // exact names, as a script in a browser reads them
		noError(t, json.Unmarshal([]byte(payload), &exact))
		if exact["commandId"] != string(c.CommandID) || exact["op"].(map[string]any)["kind"] != c.Kind() {
			t.Fatalf("another reader sees %v", exact)
		}
	})
}

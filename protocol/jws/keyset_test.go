package jws_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// TestParseKeySetOneByOne puts each unusable key before a good one, which must
// stay usable.
func TestParseKeySetOneByOne(t *testing.T) {
	bad, good := newRawKey(t, "bad"), newRawKey(t, "good")
	p := bad.jwk(nil)
	x, y := p["x"].(string), p["y"].(string)
	zero := b64.EncodeToString(make([]byte, 32))
	for name, jwk := range map[string]string{
		"unknown kty":        `{"kty":"AKP2","kid":"bad"}`,
		"no kty":             mustJSON(bad.jwk(object{"kty": nil})),
		"RSA":                `{"kty":"RSA","kid":"bad","n":"AQAB","e":"AQAB"}`,
		"oct":                `{"kty":"oct","kid":"bad","k":"MDEyMzQ1Njc4OWFiY2RlZg"}`,
		"Ed25519":            `{"kty":"OKP","crv":"Ed25519","kid":"bad","x":"` + x + `"}`,
		"P-384":              mustJSON(bad.jwk(object{"crv": "P-384"})),
		"use enc":            mustJSON(bad.jwk(object{"use": "enc"})),
		"use null":           strings.Replace(mustJSON(bad.jwk(object{"use": "?"})), `"?"`, "null", 1),
		"alg ES384":          mustJSON(bad.jwk(object{"alg": "ES384"})),
		"alg null":           strings.Replace(mustJSON(bad.jwk(object{"alg": "?"})), `"?"`, "null", 1),
		"key_ops sign":       mustJSON(bad.jwk(object{"key_ops": []string{"sign"}})),
		"key_ops a string":   mustJSON(bad.jwk(object{"key_ops": "verify"})),
		"private":            mustJSON(bad.jwk(object{"d": zero})),
		"private null":       strings.Replace(mustJSON(bad.jwk(object{"d": "?"})), `"?"`, "null", 1),
		"kid missing":        mustJSON(bad.jwk(object{"kid": nil})),
		"kid empty":          mustJSON(bad.jwk(object{"kid": ""})),
		"kid number":         mustJSON(bad.jwk(object{"kid": 1})),
		"kid long":           mustJSON(bad.jwk(object{"kid": strings.Repeat("k", 129)})),
		"x missing":          mustJSON(bad.jwk(object{"x": nil})),
		"x short":            mustJSON(bad.jwk(object{"x": x[:42]})),
		"x long":             mustJSON(bad.jwk(object{"x": x + "A"})),
		"x padded":           mustJSON(bad.jwk(object{"x": x + "="})),
		"x with a line feed": mustJSON(bad.jwk(object{"x": x[:42] + "\n"})),
		"y not base64url":    mustJSON(bad.jwk(object{"y": strings.Repeat("+", 43)})),
		"off the curve":      mustJSON(bad.jwk(object{"x": y, "y": x})),
		"infinity":           mustJSON(bad.jwk(object{"x": zero, "y": zero})),
		"member twice":       strings.Replace(mustJSON(p), `{`, `{"kid":"good",`, 1),
		"case variant":       strings.Replace(mustJSON(p), `{`, `{"KID":"good",`, 1),
		"no object":          `"key"`,
		"null":               `null`,
	} {
		t.Run(name, func(t *testing.T) {
			ks, err := jws.ParseKeySet([]byte(`{"keys":[` + jwk + `,` + mustJSON(good.jwk(nil)) + `]}`))
			noError(t, err)
			if ks.Len() != 1 || ks.Ignored() != 1 {
				t.Fatalf("%d keys, %d ignored", ks.Len(), ks.Ignored())
			}
			_, err = ks.Verify(good.typed("", "{}"))
			noError(t, err)
			_, err = ks.Verify(bad.typed("", "{}"))
			wantKind(t, err, protocol.KindUnauthenticated)
		})
	}
}

func TestParseKeySetUsable(t *testing.T) {
	k := newRawKey(t, "k1")
	for name, changes := range map[string]object{
		"bare":           nil,
		"use sig":        {"use": "sig"},
		"alg ES256":      {"alg": "ES256"},
		"key_ops verify": {"key_ops": []string{"sign", "verify"}},
		"other members":  {"x5t": "AA", "exp": 1, "ext": true},
		"odd kid":        {"kid": "../../etc/passwd"},
	} {
		if ks := set(t, k.jwk(changes)); ks.Len() != 1 || ks.Ignored() != 0 {
			t.Errorf("%s: %d keys, %d ignored", name, ks.Len(), ks.Ignored())
		}
	}
}

// TestFound08SharedKid: of two keys with one kid neither verifies anything, in
// whatever order they come and whatever the other one is; a third key does.
func TestFound08SharedKid(t *testing.T) {
	first, second, third := newRawKey(t, "k1"), newRawKey(t, "k1"), newRawKey(t, "k2")
	for name, other := range map[string]object{
		"another key":      second.jwk(nil),
		"the same key":     first.jwk(nil),
		"of another type":  {"kty": "RSA", "kid": "k1", "n": "AQAB", "e": "AQAB"},
		"for encryption":   second.jwk(object{"use": "enc"}),
		"of a future type": {"kty": "AKP2", "kid": "k1"},
		"that is private":  second.jwk(object{"d": "AA"}),
	} {
		for order, ks := range map[string]*jws.KeySet{
			"before": set(t, other, first.jwk(nil), third.jwk(nil)),
			"after":  set(t, first.jwk(nil), third.jwk(nil), other),
		} {
			if ks.Len() != 1 || ks.Ignored() != 2 {
				t.Errorf("%s %s: %d keys, %d ignored", name, order, ks.Len(), ks.Ignored())
			}
			for _, key := range []rawKey{first, second} {
				_, err := ks.Verify(key.typed("", "{}"))
				wantKind(t, err, protocol.KindUnauthenticated)
			}
			_, err := ks.Verify(third.typed("", "{}"))
			noError(t, err)
		}
	}
}

// TestFound08SharedKidOfOthers: what another library is given of a set has no key
// that shares its kid, nor what could be read in two ways.
func TestFound08SharedKidOfOthers(t *testing.T) {
	const good = `{"kty":"RSA","kid":"good","n":"AQAB","e":"AQAB"}`
	for _, c := range []struct{ keys, want string }{
		{good, good},
		{`{"kty":"EC","kid":"a"},` + good + `,{"kty":"RSA","kid":"a"}`, good},
		{`{"kty":"EC","KID":"a"},` + good + `,{"kty":"EC","kid":"a"}`, good},
		{`{"kty":"EC","kid":"good","kid":"b"},` + good, good},
		{`1,"x",null,` + good, good},
		{`{"kty":"EC"},{"kty":"RSA"},` + good, `{"kty":"EC"},{"kty":"RSA"},` + good},
	} {
		got, err := jws.WithoutSharedKids([]byte(`{"keys":[` + c.keys + `]}`))
		noError(t, err)
		if want := `{"keys":[` + c.want + `]}`; string(got) != want {
			t.Errorf("%s: %s, want %s", c.keys, got, want)
		}
	}
	for _, none := range []string{``, `[]`, `{"keys":1}`} {
		_, err := jws.WithoutSharedKids([]byte(none))
		wantKind(t, err, protocol.KindInvalid)
	}
}

func TestParseKeySetShape(t *testing.T) {
	for _, empty := range []string{`{}`, `{"keys":null}`, `{"keys":[]}`, `{"Keys":[{}]}`, ` {"other":1} `} {
		ks, err := jws.ParseKeySet([]byte(empty))
		noError(t, err)
		if ks.Len() != 0 || ks.Ignored() != 0 {
			t.Errorf("%s: %d keys, %d ignored", empty, ks.Len(), ks.Ignored())
		}
	}
	for _, none := range []string{``, `null`, `[]`, `"keys"`, `{"keys":{}}`, `{"keys":1}`, `{"keys":[]`, "{\"\xff\":1}", `<html>`} {
		_, err := jws.ParseKeySet([]byte(none))
		wantKind(t, err, protocol.KindInvalid)
	}
	pad := strings.Repeat(" ", jws.MaxKeySetBytes-2)
	_, err := jws.ParseKeySet([]byte("{" + pad + "}"))
	noError(t, err)
	_, err = jws.ParseKeySet([]byte("{" + pad + " }"))
	wantKind(t, err, protocol.KindTooLarge)
}

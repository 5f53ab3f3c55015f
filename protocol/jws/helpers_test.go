package jws_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// now is when the tests happen: the issuedAt of seed 003's examples.
var now = time.UnixMilli(1730000000000)

func clock(t time.Time) func() time.Time { return func() time.Time { return t } }

var b64 = base64.RawURLEncoding

// A rawKey signs anything, right or wrong. It shares no code with the package,
// so the two check each other.
type rawKey struct {
	priv *ecdsa.PrivateKey
	kid  string
}

func newRawKey(tb testing.TB, kid string) rawKey {
	tb.Helper()
	priv, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return rawKey{priv, kid}
}

// jwk returns the public key with the given members added or replaced; a nil
// value removes one.
func (k rawKey) jwk(changes map[string]any) map[string]any {
	point, err := k.priv.PublicKey.Bytes()
	if err != nil {
		panic(err)
	}
	m := map[string]any{"kty": "EC", "crv": "P-256", "kid": k.kid, "x": b64.EncodeToString(point[1:33]), "y": b64.EncodeToString(point[33:])}
	for name, v := range changes {
		m[name] = v
		if v == nil {
			delete(m, name)
		}
	}
	return m
}

// token signs payload under header, both as they are.
func (k rawKey) token(header, payload string) string {
	input := b64.EncodeToString([]byte(header)) + "." + b64.EncodeToString([]byte(payload))
	return input + "." + b64.EncodeToString(k.signature(input))
}

func (k rawKey) signature(input string) []byte {
	sum := sha256.Sum256([]byte(input))
	r, s, err := ecdsa.Sign(rand.Reader, k.priv, sum[:])
	if err != nil {
		panic(err)
	}
	sig := make([]byte, 64)
	r.FillBytes(sig[:32])
	s.FillBytes(sig[32:])
	return sig
}

// typed signs payload under a header with typ.
func (k rawKey) typed(typ, payload string) string {
	header := map[string]string{"alg": "ES256", "kid": k.kid}
	if typ != "" {
		header["typ"] = typ
	}
	return k.token(mustJSON(header), payload)
}

// set returns a key set of the given JWKs.
func set(tb testing.TB, jwks ...any) *jws.KeySet {
	tb.Helper()
	ks, err := jws.ParseKeySet([]byte(mustJSON(map[string]any{"keys": jwks})))
	if err != nil {
		tb.Fatal(err)
	}
	return ks
}

// static returns Keys that know k and think it is at.
func (k rawKey) static(tb testing.TB, at time.Time) *jws.Keys {
	return jws.NewKeys(set(tb, k.jwk(nil)), jws.KeysOptions{Now: clock(at)})
}

func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// An object is a payload under construction.
type object map[string]any

// with returns a copy of o with the given changes; a nil value removes a member.
func (o object) with(name string, value any) object {
	next := object{}
	for k, v := range o {
		next[k] = v
	}
	next[name] = value
	if value == nil {
		delete(next, name)
	}
	return next
}

func commandPayload() object {
	return object{
		"iss": "control-server", "aud": "sandbox-agent", "commandId": "cmd_1", "traceId": "tr_1",
		"issuedAt": now.UnixMilli(), "ttlMs": 30000,
		"target": object{"sandboxId": "sb_1", "sessionId": "ses_1"},
		"op":     object{"kind": "pty.create", "cols": 80, "rows": 24},
		"reply":  object{"url": "https://control.example.com/control/callback", "callbackToken": "ct_1"},
	}
}

func grantPayload() object {
	return object{
		"iss": "control-server", "aud": "fairlead", "sub": "usr_1", "name": "Alice", "dashboard": "dash_1",
		"sandbox": "sb_1", "session": "ses_1", "ptys": []string{"*"}, "caps": []string{"view", "control"},
		"iat": now.Unix(), "exp": now.Unix() + 300, "jti": "gr_1",
	}
}

func certificatePayload(device rawKey) object {
	return object{
		"iss": "control-server", "aud": "fairlead", "sub": "sb_1", "jwk": device.jwk(object{"kid": nil}),
		"iat": now.Unix(), "exp": now.Unix() + 3600, "jti": "crt_1",
	}
}

// wantKind fails the test unless err is of kind.
func wantKind(tb testing.TB, err error, kind protocol.Kind) {
	tb.Helper()
	var e *protocol.Error
	if !errors.As(err, &e) {
		tb.Fatalf("error %v, want kind %s", err, kind)
	}
	if e.Kind != kind {
		tb.Fatalf("kind %s (%v), want %s", e.Kind, err, kind)
	}
}

func noError(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

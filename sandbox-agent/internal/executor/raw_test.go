package executor

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"

	"github.com/fairlead/fairlead/protocol/jws"
)

// signRaw signs any payload as a command, with b's key and no regard for the
// rules.
func (b *bench) signRaw(payload string) string {
	b.t.Helper()
	return b.signHeader(map[string]any{"alg": "ES256", "kid": b.signer.Kid(), "typ": jws.TypeCommand}, payload)
}

func (b *bench) signHeader(header map[string]any, payload string) string {
	b.t.Helper()
	file, err := b.signer.MarshalPrivate()
	must(b.t, err)
	var jwk struct{ D string }
	must(b.t, json.Unmarshal(file, &jwk))
	d, err := base64.RawURLEncoding.DecodeString(jwk.D)
	must(b.t, err)
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), d)
	must(b.t, err)
	head, err := json.Marshal(header)
	must(b.t, err)
	return rawToken(b, key, string(head), payload)
}

func rawToken(b *bench, key *ecdsa.PrivateKey, header, payload string) string {
	b.t.Helper()
	signed := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString([]byte(payload))
	sum := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	must(b.t, err)
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

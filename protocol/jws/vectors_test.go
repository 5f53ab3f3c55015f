package jws_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// A vector is one row of testdata/jws.json.
type vector struct {
	ID       string          `json:"id"`
	Case     string          `json:"case"`
	Expected string          `json:"expected"`
	Error    string          `json:"error_name"`
	Token    *string         `json:"token"`
	TokenLen int             `json:"token_len"`
	JWKS     json.RawMessage `json:"jwks"`
}

type vectorFile struct {
	DefaultJWKS json.RawMessage `json:"default_jwks"`
	D           string          `json:"signing_key_p256_d"`
	Rows        []vector        `json:"rows"`
}

func readVectors(tb testing.TB) vectorFile {
	tb.Helper()
	data, err := os.ReadFile("testdata/jws.json")
	noError(tb, err)
	var f vectorFile
	noError(tb, json.Unmarshal(data, &f))
	return f
}

// key returns the key that signed the vectors.
func (f vectorFile) key(tb testing.TB) rawKey {
	tb.Helper()
	d, err := b64.DecodeString(f.D)
	noError(tb, err)
	priv, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), d)
	noError(tb, err)
	return rawKey{priv, "k1"}
}

// A layer says where a row is decided.
type layer string

const (
	inProfile layer = "profile" // KeySet.Verify refuses, with the key that the row intends in the set
	inKeySet  layer = "key set" // ParseKeySet ignores the row's key, so that KeySet.Verify finds none
	inObject  layer = "object"  // KeySet.Verify accepts, Keys.Command refuses
	accepted  layer = "valid"   // KeySet.Verify accepts, and Keys.Command too where the payload is a command
)

// A verdict is our answer to a row: its layer, what the refusal says, and why
// where the file leaves a choice.
type verdict struct {
	layer layer
	says  string // part of the message
	why   string
}

// What refusals say.
const (
	saysSize      = "larger than 65536 bytes"
	saysForm      = "not a compact JWS"
	saysAlg       = "alg must be ES256"
	saysMember    = "only alg, kid and typ are allowed"
	saysKid       = "kid is missing or unusable"
	saysTwice     = "a member is there twice"
	saysLength    = "signature must have 64 bytes"
	saysUnknown   = "signed by an unknown key"
	saysSignature = "wrong signature"
	saysNotJSON   = "not valid JSON"
	saysAudience  = "made for another audience"
)

// verdicts has one entry for each row, no more.
var verdicts = map[string]verdict{
	"A0":  {accepted, "", ""},
	"A1b": {inProfile, saysForm, "the empty signature is seen before alg none"},
	"A3":  {inProfile, saysAlg, ""},
	"A5":  {inProfile, saysAlg, ""},
	"A7":  {inProfile, saysAlg, ""},
	"A9":  {inProfile, saysAlg, ""},
	"A11": {inProfile, saysAlg, ""},
	"A13": {accepted, "", "equal after JSON decoding"},
	"A15": {inProfile, saysAlg, ""},
	"A17": {inProfile, saysAlg, "the RSA key is ignored as well"},
	"E1":  {inProfile, saysAlg, "the Ed25519 key is ignored as well"},
	"E2":  {inProfile, saysAlg, "the small-order key is ignored as well"},
	"E4":  {inProfile, saysAlg, "the Ed25519 key is ignored as well"},
	"K1":  {inProfile, saysKid, ""},
	"K3":  {inProfile, saysKid, ""},
	"K5":  {inProfile, saysUnknown, "a kid is only ever looked up in a map"},
	"K7":  {inProfile, saysSize, ""},
	"K9":  {inKeySet, saysUnknown, ""},
	"K11": {inProfile, saysAlg, "the oct key is ignored as well"},
	"K13": {inKeySet, saysUnknown, ""},
	"J0":  {accepted, "", ""},
	"J2":  {inKeySet, saysUnknown, ""},
	"J4":  {inKeySet, saysUnknown, ""},
	"J6":  {inKeySet, saysUnknown, ""},
	"T1":  {inProfile, saysMember, ""},
	"T3":  {inProfile, saysMember, ""},
	"T5":  {inProfile, saysMember, "file: accept, or reject by profile; ours is closed to x5u"},
	"T7":  {inProfile, saysMember, "file: accept, or reject by profile; ours is closed to jwk"},
	"T9":  {inObject, "typ must be command+jws", "file: reject if typ is pinned; it is, by the object, since KeySet.Verify serves three types"},
	"C2":  {inProfile, saysMember, ""},
	"C4":  {inProfile, saysMember, ""},
	"C6":  {inProfile, saysMember, ""},
	"C8":  {inProfile, saysMember, ""},
	"C10": {inProfile, saysMember, ""},
	"C12": {inProfile, saysMember, ""},
	"H1":  {inProfile, saysTwice, ""},
	"H3":  {inProfile, saysMember, "Alg is not alg"},
	"H5":  {inProfile, "not a JSON object", ""},
	"H7":  {inProfile, saysNotJSON, "a BOM is no part of JSON"},
	"H8":  {inProfile, "not valid UTF-8", ""},
	"H9":  {accepted, "", "whitespace inside the header's JSON is legal"},
	"H11": {inProfile, saysSize, ""},
	"H13": {inProfile, saysTwice, ""},
	"S2":  {inProfile, saysForm, ""},
	"S4":  {inObject, saysNotJSON, "file: accept, reject later, for the payload is no SignedCommand"},
	"S6":  {inProfile, saysForm, ""},
	"S8":  {inProfile, saysForm, ""},
	"S9b": {inProfile, saysForm, ""},
	"S10": {inProfile, saysForm, ""},
	"S12": {inProfile, saysForm, ""},
	"S14": {inProfile, "not canonical base64url", ""},
	"S16": {inProfile, saysForm, ""},
	"S18": {inProfile, saysForm, ""},
	"X1":  {inProfile, saysSignature, ""},
	"X3":  {inProfile, saysSignature, ""},
	"X5":  {inProfile, saysSignature, ""},
	"X7":  {inProfile, saysLength, ""},
	"X9":  {inProfile, saysLength, ""},
	"X11": {inProfile, saysSignature, ""},
	"X13": {inProfile, saysMember, ""},
	"P1":  {inProfile, saysSize, ""},
	"P3":  {inObject, saysNotJSON, "file: accept, reject later, for the payload is no SignedCommand"},
	"L0":  {accepted, "", ""},
	"L2":  {inObject, "iss must be control-server", ""},
	"L4":  {inObject, saysAudience, ""},
	"L6":  {inObject, saysAudience, ""},
	"L8":  {inObject, "expired", ""},
	"L10": {inObject, saysTwice, "at depth 2, in op"},
}

// acceptedLater are rows that the file accepts because their signature is
// valid; our object layer refuses their payload.
var acceptedLater = map[string]bool{"S4": true, "P3": true}

// closed are rows that the file lets a closed profile reject.
var closed = map[string]bool{"T5": true, "T7": true}

func TestVectors(t *testing.T) {
	file := readVectors(t)
	if len(file.Rows) != 68 || len(verdicts) != len(file.Rows) {
		t.Fatalf("%d rows, %d verdicts, want 68 of each", len(file.Rows), len(verdicts))
	}
	for _, row := range file.Rows {
		t.Run(row.ID, func(t *testing.T) { runVector(t, file, row) })
	}
}

func runVector(t *testing.T, file vectorFile, row vector) {
	v, ok := verdicts[row.ID]
	if !ok {
		t.Fatalf("no verdict for %q", row.Case)
	}
	if accepts := v.layer == accepted; accepts != (row.Expected == "accept") && !acceptedLater[row.ID] && !closed[row.ID] {
		t.Fatalf("verdict %q contradicts the file's %q", v.layer, row.Expected)
	}
	token, jwks := buildVector(t, file, row)
	ks, err := jws.ParseKeySet(jwks)
	noError(t, err)
	if usable := ks.Len() == 1; usable != (v.layer != inKeySet) && !foreignKey[row.ID] {
		t.Fatalf("%d usable keys, %d ignored", ks.Len(), ks.Ignored())
	}

	_, err = ks.Verify(token)
	if v.layer == inProfile || v.layer == inKeySet {
		wantKind(t, err, protocol.KindUnauthenticated)
	} else {
		noError(t, err)
	}

	_, err = jws.NewKeys(ks, jws.KeysOptions{Now: clock(now)}).Command(t.Context(), token, jws.AudienceExtension)
	switch {
	case v.layer != accepted:
		want := row.Error
		if want == "" {
			want = "AuthError" // T5, T7, S4, P3: accepted by the file, refused by us
		}
		if err == nil || protocol.AsError(err).Body().Name != want || !strings.Contains(err.Error(), v.says) {
			t.Fatalf("Command: %v, want %s that says %q", err, want, v.says)
		}
	case row.Token != nil || row.ID == "J0":
		// The file's baseline payload lacks traceId and op: authentic, yet no
		// complete SignedCommand of seed 003.
		wantKind(t, err, protocol.KindInvalid)
	default:
		noError(t, err)
	}
}

// foreignKey are rows whose key set holds a key that ES256 can't use: the
// profile refuses the token's alg before it looks for a key.
var foreignKey = map[string]bool{"A17": true, "E1": true, "E2": true, "E4": true, "K11": true}

// buildVector returns a row's token and key set. It builds the case of a row
// without a token.
func buildVector(t *testing.T, file vectorFile, row vector) (token string, jwks []byte) {
	t.Helper()
	jwks = file.DefaultJWKS
	if row.JWKS != nil {
		jwks = row.JWKS
	}
	if row.ID == "E2" { // the file has the token, the small-order key is to be built
		identity := append([]byte{1}, make([]byte, 31)...)
		jwks = keySetOf(map[string]any{"kty": "OKP", "crv": "Ed25519", "kid": "k1", "x": b64.EncodeToString(identity)})
	}
	if row.Token != nil {
		if len(*row.Token) != row.TokenLen {
			t.Fatalf("token of %d bytes, the file says %d", len(*row.Token), row.TokenLen)
		}
		return *row.Token, jwks
	}
	k := file.key(t)
	baseline := mustJSON(object{"iss": "control-server", "aud": "browser-extension", "commandId": "cmd_1", "issuedAt": now.UnixMilli(), "ttlMs": 30000})
	huge := strings.Repeat("x", 1<<20)
	switch row.ID {
	case "K7":
		return k.token(mustJSON(object{"alg": "ES256", "kid": huge}), baseline), jwks
	case "H11":
		return k.token(mustJSON(object{"alg": "ES256", "kid": "k1", "x": huge}), baseline), jwks
	case "P1":
		return k.typed("", mustJSON(object{"x": strings.Repeat(huge, 8)})), jwks
	case "S6":
		return "", jwks
	case "J0":
		return k.typed("", baseline), keySetOf(k.jwk(nil))
	case "J2":
		x := k.jwk(nil)["x"].(string)
		short, err := b64.DecodeString(x)
		noError(t, err)
		return k.typed("", baseline), keySetOf(k.jwk(object{"x": b64.EncodeToString(short[1:])}))
	case "J4":
		return k.typed("", baseline), keySetOf(k.jwk(object{"d": file.D}))
	case "J6":
		return k.typed("", baseline), []byte(`{}`)
	}
	return k.typed("", claims(t, row.ID)), jwks
}

func keySetOf(jwks ...any) []byte { return []byte(mustJSON(map[string]any{"keys": jwks})) }

// claims builds the payload of an L row: seed 003's SignedCommand with the one
// change that the row describes.
func claims(t *testing.T, id string) string {
	t.Helper()
	whole := commandPayload().with("aud", "browser-extension").with("target", object{"tabId": 123}).
		with("op", object{"kind": "cdp.send", "method": "Runtime.evaluate", "params": object{"expression": "1+1"}})
	switch id {
	case "L0":
		return mustJSON(whole)
	case "L2":
		return mustJSON(whole.with("iss", nil))
	case "L4":
		return mustJSON(whole.with("aud", nil))
	case "L6":
		return mustJSON(whole.with("aud", "Browser-Extension"))
	case "L8":
		return mustJSON(whole.with("issuedAt", 1).with("ttlMs", 1))
	case "L10":
		return strings.Replace(mustJSON(whole), `"method":`, `"method":"Page.navigate","method":`, 1)
	}
	t.Fatalf("no case built for row %s", id)
	return ""
}

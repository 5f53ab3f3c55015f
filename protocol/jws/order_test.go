package jws_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// A draft is a token in the making: each step of README.md can be made to fail
// in it on its own.
type draft struct {
	header      object
	payload     object
	junk        string // put at the start of the payload object
	badPayload  bool   // invalid UTF-8 at the payload's end
	badBits     bool   // unused bits set in the signature part
	suffix      string // after the token
	flip        bool   // changes the signature
	knownSigner bool
}

// fault breaks d at one step; the check is then refused with kind.
type fault struct {
	step string
	kind protocol.Kind
	says string
	make func(d *draft)
}

// profileFaults break steps 1 to 7, in this order.
var profileFaults = []fault{
	{"size", protocol.KindUnauthenticated, "larger than", func(d *draft) { d.suffix += strings.Repeat("A", protocol.MaxTokenBytes) }},
	{"form", protocol.KindUnauthenticated, "not a compact JWS", func(d *draft) { d.suffix += "\n" }},
	{"encoding", protocol.KindUnauthenticated, "not canonical", func(d *draft) { d.badBits = true }},
	{"header", protocol.KindUnauthenticated, "header:", func(d *draft) { d.header = d.header.with("crit", []string{}) }},
	{"bytes", protocol.KindUnauthenticated, "payload is not valid UTF-8", func(d *draft) { d.badPayload = true }},
	{"key", protocol.KindUnauthenticated, "unknown key", func(d *draft) { d.knownSigner = false }},
	{"signature", protocol.KindUnauthenticated, "wrong signature", func(d *draft) { d.flip = true }},
}

// member returns a fault that sets a member of the payload.
func member(name string, value any) func(*draft) {
	return func(d *draft) { d.payload = d.payload.with(name, value) }
}

func wrongType(d *draft) { d.header = d.header.with("typ", "at+jwt") }
func twin(d *draft)      { d.junk = `"x":{"y":[{"a":1,"A":2}]},` }

var commandFaults = []fault{
	{"typ", protocol.KindUnauthenticated, "typ must be", wrongType},
	{"payload", protocol.KindUnauthenticated, "there twice", twin},
	{"parties", protocol.KindUnauthenticated, "another audience", member("aud", "someone-else")},
	{"members", protocol.KindInvalid, "traceId", member("traceId", "no id")},
	{"span", protocol.KindInvalid, "ttlMs", member("ttlMs", 0)},
	{"future", protocol.KindUnauthenticated, "future", member("issuedAt", now.UnixMilli()+60_001)},
	{"expiry", protocol.KindExpired, "expired", member("issuedAt", now.UnixMilli()-90_001)},
}

var grantFaults = []fault{
	{"typ", protocol.KindUnauthenticated, "typ must be", wrongType},
	{"payload", protocol.KindUnauthenticated, "there twice", twin},
	{"parties", protocol.KindUnauthenticated, "another audience", member("aud", "sandbox-agent")},
	{"members", protocol.KindUnauthenticated, "sandbox", member("sandbox", "no id")},
	{"span", protocol.KindUnauthenticated, "longer than", func(d *draft) {
		d.payload = d.payload.with("exp", d.payload["iat"].(int64)+601)
	}},
	{"future", protocol.KindUnauthenticated, "future", func(d *draft) {
		d.payload = d.payload.with("iat", now.Unix()+61).with("exp", now.Unix()+62)
	}},
	{"expiry", protocol.KindExpired, "expired", func(d *draft) {
		d.payload = d.payload.with("iat", now.Unix()-200).with("exp", now.Unix()-61)
	}},
}

func certificateFaults() []fault {
	faults := slices.Clone(grantFaults)
	faults[3] = fault{"members", protocol.KindUnauthenticated, "jwk", member("jwk", object{"kty": "RSA"})}
	faults[4] = fault{"span", protocol.KindUnauthenticated, "not in order", func(d *draft) {
		d.payload = d.payload.with("exp", d.payload["iat"])
	}}
	return faults
}

// token writes d out.
func (d draft) token(k rawKey) string {
	payload := mustJSON(d.payload)
	if d.junk != "" {
		payload = "{" + d.junk + payload[1:]
	}
	if d.badPayload {
		payload += "\xff"
	}
	token := k.token(mustJSON(d.header), payload)
	if d.flip {
		dot := strings.LastIndexByte(token, '.')
		sig := k.signature("something else")
		token = token[:dot+1] + b64.EncodeToString(sig)
	}
	if d.badBits {
		const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
		last := strings.IndexByte(digits, token[len(token)-1])
		token = token[:len(token)-1] + digits[last|1:last|1+1]
	}
	return token + d.suffix
}

// TestOrder checks for each step that it decides, alone and when all later
// steps would fail too.
func TestOrder(t *testing.T) {
	k, other := newRawKey(t, "k1"), newRawKey(t, "k2")
	for _, tt := range []struct {
		typ     string
		payload object
		faults  []fault
		open    func(*jws.Keys, string) error
	}{
		{jws.TypeCommand, commandPayload(), commandFaults, func(keys *jws.Keys, token string) error {
			_, err := keys.Command(t.Context(), token, jws.AudienceAgent)
			return err
		}},
		{jws.TypeGrant, grantPayload(), grantFaults, func(keys *jws.Keys, token string) error {
			_, err := keys.Grant(t.Context(), token)
			return err
		}},
		{jws.TypeCertificate, certificatePayload(newRawKey(t, "")), certificateFaults(), func(keys *jws.Keys, token string) error {
			_, err := keys.Certificate(t.Context(), token)
			return err
		}},
	} {
		sound := draft{
			header:      object{"alg": "ES256", "kid": "k1", "typ": tt.typ},
			payload:     tt.payload,
			knownSigner: true,
		}
		faults := slices.Concat(profileFaults, tt.faults)
		for i, f := range faults {
			// Making the later faults first leaves to f what it shares with them.
			for name, made := range map[string][]fault{"alone": {f}, "before all later": faults[i:]} {
				t.Run(tt.typ+"/"+f.step+"/"+name, func(t *testing.T) {
					d := sound
					for _, f := range slices.Backward(made) {
						f.make(&d)
					}
					known := set(t, k.jwk(nil))
					if !d.knownSigner {
						known = set(t, other.jwk(nil))
					}
					err := tt.open(jws.NewKeys(known, jws.KeysOptions{Now: clock(now)}), d.token(k))
					wantKind(t, err, f.kind)
					if !strings.Contains(err.Error(), f.says) {
						t.Fatalf("%v, want one that says %q", err, f.says)
					}
				})
			}
		}
		noError(t, tt.open(k.static(t, now), sound.token(k)))
	}
}

// TestREADME keeps the numbered list in README.md and the tests together.
func TestREADME(t *testing.T) {
	text, err := os.ReadFile("README.md")
	noError(t, err)
	var listed []string
	for _, m := range regexp.MustCompile(`(?m)^\d+\. \*\*([a-z ]+)\*\*`).FindAllSubmatch(text, -1) {
		listed = append(listed, string(m[1]))
	}
	for _, object := range [][]fault{commandFaults, grantFaults, certificateFaults()} {
		var tested []string
		for _, f := range slices.Concat(profileFaults, object) {
			tested = append(tested, f.step)
		}
		if !slices.Equal(listed, tested) {
			t.Errorf("README.md lists %q, the tests have %q", listed, tested)
		}
	}
}

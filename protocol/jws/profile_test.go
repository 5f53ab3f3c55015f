package jws_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

func TestVerifyHeader(t *testing.T) {
	k := newRawKey(t, "k1")
	ks := set(t, k.jwk(nil))
	for _, tt := range []struct {
		name, header string
		ok           bool
	}{
		{"alg and kid", `{"alg":"ES256","kid":"k1"}`, true},
		{"with typ", `{"typ":"grant+jws","kid":"k1","alg":"ES256"}`, true},
		{"escaped names", `{"\u0061lg":"ES256","k\u0069d":"k1"}`, true},
		{"typ empty", `{"alg":"ES256","kid":"k1","typ":""}`, false},
		{"typ null", `{"alg":"ES256","kid":"k1","typ":null}`, false},
		{"typ number", `{"alg":"ES256","kid":"k1","typ":1}`, false},
		{"kid null", `{"alg":"ES256","kid":null}`, false},
		{"kid empty", `{"alg":"ES256","kid":""}`, false},
		{"alg null", `{"alg":null,"kid":"k1"}`, false},
		{"alg lower case", `{"alg":"es256","kid":"k1"}`, false},
		{"alg twin", `{"alg":"ES256","ALG":"none","kid":"k1"}`, false},
		{"alg twice, once escaped", `{"alg":"ES256","\u0061lg":"ES256","kid":"k1"}`, false},
		{"kid with the Kelvin sign", "{\"alg\":\"ES256\",\"\u212aid\":\"k1\"}", false},
		{"zip", `{"alg":"ES256","kid":"k1","zip":"DEF"}`, false},
		{"cty", `{"alg":"ES256","kid":"k1","cty":"JWT"}`, false},
		{"trailing data", `{"alg":"ES256","kid":"k1"}{}`, false},
		{"comment", `{"alg":"ES256",/**/"kid":"k1"}`, false},
		{"string", `"ES256"`, false},
		{"null", `null`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ks.Verify(k.token(tt.header, "{}"))
			if tt.ok {
				noError(t, err)
				return
			}
			wantKind(t, err, protocol.KindUnauthenticated)
			if !strings.Contains(err.Error(), "header") {
				t.Fatalf("refused for another reason: %v", err)
			}
		})
	}
}

func TestVerifyReturnsToken(t *testing.T) {
	k := newRawKey(t, "k1")
	got, err := set(t, k.jwk(nil)).Verify(k.typed("grant+jws", "payload"))
	noError(t, err)
	if got.Kid != "k1" || got.Type != "grant+jws" || string(got.Payload) != "payload" {
		t.Fatalf("got %+v", got)
	}
}

func TestVerifySize(t *testing.T) {
	k := newRawKey(t, "k1")
	ks := set(t, k.jwk(nil))
	// A signature has 86 digits; the rest is shared by header and payload.
	header := mustJSON(object{"alg": "ES256", "kid": "k1"})
	for b64.EncodedLen(len(header))%4 != 0 {
		header += " "
	}
	rest := protocol.MaxTokenBytes - len("..") - 86 - b64.EncodedLen(len(header))
	token := k.token(header, strings.Repeat(" ", b64.DecodedLen(rest)))
	if len(token) != protocol.MaxTokenBytes {
		t.Fatalf("built %d bytes", len(token))
	}
	_, err := ks.Verify(token)
	noError(t, err)
	_, err = ks.Verify(k.token(header, strings.Repeat(" ", b64.DecodedLen(rest)+1)))
	wantKind(t, err, protocol.KindUnauthenticated)
}

// TestVerifyOneSpelling replaces each byte of a token by characters that
// decoders are known to skip, convert or ignore the low bits of, and inserts
// them: nothing but the token itself may verify.
func TestVerifyOneSpelling(t *testing.T) {
	k := newRawKey(t, "k1")
	ks := set(t, k.jwk(nil))
	token := k.typed("", `{"a":1}`)
	for i := range len(token) {
		low := string([]byte{token[i] ^ 1})
		for _, c := range []string{"\n", "\r", " ", "\x00", "\x80", "=", "+", "/", ".", "A", low} {
			if c == token[i:i+1] {
				continue
			}
			for _, other := range []string{token[:i] + c + token[i+1:], token[:i] + c + token[i:]} {
				if _, err := ks.Verify(other); err == nil {
					t.Fatalf("byte %d may be changed by %q", i, c)
				}
			}
		}
	}
}

func TestVerifyUnknownKey(t *testing.T) {
	k, other := newRawKey(t, "k1"), newRawKey(t, "k2")
	_, err := set(t, k.jwk(nil)).Verify(other.typed("", "{}"))
	wantKind(t, err, protocol.KindUnauthenticated)
	if !errors.Is(err, jws.ErrUnknownKey) {
		t.Errorf("%v: want ErrUnknownKey in the chain", err)
	}
	other.kid = "k1"
	_, err = set(t, k.jwk(nil)).Verify(other.typed("", "{}"))
	wantKind(t, err, protocol.KindUnauthenticated)
	if errors.Is(err, jws.ErrUnknownKey) {
		t.Errorf("%v: a wrong signature is not an unknown key", err)
	}
}

// TestRefusalsQuoteNothing checks that errors can be shown and logged.
func TestRefusalsQuoteNothing(t *testing.T) {
	k := newRawKey(t, "sesame")
	keys := newRawKey(t, "k1").static(t, now)
	for _, token := range []string{
		"sesame", k.typed("sesame", "sesame"), k.token(`{"sesame":1}`, "{}"),
		k.typed(jws.TypeGrant, mustJSON(grantPayload().with("sub", "sesame!"))),
	} {
		_, err := keys.Grant(t.Context(), token)
		if err == nil || strings.Contains(err.Error(), "sesame") {
			t.Errorf("error %v", err)
		}
	}
}

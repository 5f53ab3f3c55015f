package jws_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

func TestDeviceKey(t *testing.T) {
	made, err := jws.GenerateDeviceKey()
	noError(t, err)
	file, err := made.MarshalPrivate()
	noError(t, err)
	device, err := jws.ParseDeviceKey(file)
	noError(t, err)

	s, err := jws.GenerateSigner()
	noError(t, err)
	token, err := s.SignCertificate(sampleCertificate(made))
	noError(t, err)
	crt, err := jws.NewKeys(keySet(t, s), jws.KeysOptions{Now: clock(now)}).Certificate(t.Context(), token)
	noError(t, err)
	public, err := crt.PublicKey()
	noError(t, err)

	transcript := protocol.HelloTranscript("rl_1", make([]byte, protocol.NonceBytes), []byte("exporter"))
	sig, err := device.Sign(transcript)
	noError(t, err)
	if !jws.VerifyDevice(public, transcript, sig) {
		t.Error("the certified key doesn't verify its own signature")
	}
	elsewhere := protocol.HelloTranscript("rl_2", make([]byte, protocol.NonceBytes), []byte("exporter"))
	for name, ok := range map[string]bool{
		"another relay":  jws.VerifyDevice(public, elsewhere, sig),
		"no signature":   jws.VerifyDevice(public, transcript, nil),
		"half signature": jws.VerifyDevice(public, transcript, sig[:len(sig)-1]),
	} {
		if ok {
			t.Errorf("%s: verified", name)
		}
	}
	if text := fmt.Sprintf("%v %+v %#v", device, device, device); strings.Contains(text, "PrivateKey") {
		t.Error("printing shows the private key")
	}
	if strings.Contains(string(device.PublicJWK()), `"d"`) {
		t.Error("the public JWK has a private member")
	}
}

func TestCertificateMembers(t *testing.T) {
	k, device := newRawKey(t, "k1"), newRawKey(t, "")
	d, err := device.priv.Bytes()
	noError(t, err)
	good := certificatePayload(device)
	for _, tt := range []struct {
		name    string
		payload object
		ok      bool
	}{
		{"good", good, true},
		{"for years", good.with("exp", now.Unix()+10*365*86400), true},
		{"jwk with a kid", good.with("jwk", device.jwk(object{"kid": "device"})), true},
		{"jwk missing", good.with("jwk", nil), false},
		{"jwk private", good.with("jwk", device.jwk(object{"d": b64.EncodeToString(d)})), false},
		{"jwk for encryption", good.with("jwk", device.jwk(object{"use": "enc"})), false},
		{"sub missing", good.with("sub", nil), false},
		{"jti missing", good.with("jti", nil), false},
		{"no time at all", good.with("exp", now.Unix()), false},
		{"case variant", good.with("SUB", "sb_2"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := k.static(t, now).Certificate(t.Context(), k.typed(jws.TypeCertificate, mustJSON(tt.payload)))
			if tt.ok {
				noError(t, err)
				return
			}
			wantKind(t, err, protocol.KindUnauthenticated)
		})
	}
}

func TestParseDeviceKeyRefuses(t *testing.T) {
	if _, err := jws.ParseDeviceKey([]byte(mustJSON(newRawKey(t, "").jwk(nil)))); err == nil {
		t.Error("a public key was taken for a device key")
	}
}

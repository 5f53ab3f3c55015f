package jws_test

import (
	"crypto"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

func sampleCommand() jws.Command {
	return jws.Command{
		Audience: jws.AudienceAgent, CommandID: "cmd_1", TraceID: "tr_1", IssuedAt: now.UnixMilli(), TTLMs: 30000,
		Target: protocol.CommandTarget{SandboxID: "sb_1", SessionID: "ses_1", PTYID: "pty_1"},
		Op:     json.RawMessage(`{"kind":"pty.close"}`),
		Reply:  &jws.Reply{URL: "https://control.example.com/control/callback", CallbackToken: "ct_1"},
		UserID: "usr_1", GrantID: "gr_1",
	}
}

func sampleGrant() jws.Grant {
	return jws.Grant{
		Subject: "usr_1", Name: "Alice", Dashboard: "dash_1", Sandbox: "sb_1", Session: "ses_1", PTYs: []string{jws.AllPTYs},
		Caps: []protocol.Capability{protocol.CapView}, IssuedAt: now.Unix(), ExpiresAt: now.Unix() + 600, ID: "gr_1",
	}
}

func sampleCertificate(device *jws.DeviceKey) jws.Certificate {
	return jws.Certificate{Subject: "sb_1", JWK: device.PublicJWK(), IssuedAt: now.Unix(), ExpiresAt: now.Unix() + 86400, ID: "crt_1"}
}

// keySet returns the published keys of signers.
func keySet(tb testing.TB, signers ...*jws.Signer) *jws.KeySet {
	tb.Helper()
	jwks, err := jws.MarshalKeySet(signers...)
	noError(tb, err)
	ks, err := jws.ParseKeySet(jwks)
	noError(tb, err)
	if ks.Len() != len(signers) || ks.Ignored() != 0 {
		tb.Fatalf("%d keys, %d ignored", ks.Len(), ks.Ignored())
	}
	return ks
}

func TestSignRoundTrip(t *testing.T) {
	s, err := jws.GenerateSigner()
	noError(t, err)
	device, err := jws.GenerateDeviceKey()
	noError(t, err)
	keys := jws.NewKeys(keySet(t, s), jws.KeysOptions{Now: clock(now)})

	command, err := s.SignCommand(sampleCommand())
	noError(t, err)
	c, err := keys.Command(t.Context(), command, jws.AudienceAgent)
	noError(t, err)
	wantCommand := sampleCommand()
	wantCommand.Issuer = jws.Issuer
	if !reflect.DeepEqual(*c, wantCommand) {
		t.Errorf("got %+v, want %+v", *c, wantCommand)
	}

	grant, err := s.SignGrant(sampleGrant())
	noError(t, err)
	g, err := keys.Grant(t.Context(), grant)
	noError(t, err)
	wantGrant := sampleGrant()
	wantGrant.Issuer, wantGrant.Audience, wantGrant.Kid = jws.Issuer, jws.AudienceFairlead, s.Kid()
	if !reflect.DeepEqual(*g, wantGrant) {
		t.Errorf("got %+v, want %+v", *g, wantGrant)
	}

	certificate, err := s.SignCertificate(sampleCertificate(device))
	noError(t, err)
	crt, err := keys.Certificate(t.Context(), certificate)
	noError(t, err)
	if crt.Subject != "sb_1" || crt.Expires().Unix() != now.Unix()+86400 {
		t.Errorf("got %+v", crt)
	}
}

func TestSignRefuses(t *testing.T) {
	s, err := jws.GenerateSigner()
	noError(t, err)
	command := func(change func(*jws.Command)) error {
		c := sampleCommand()
		change(&c)
		_, err := s.SignCommand(c)
		return err
	}
	grant := func(change func(*jws.Grant)) error {
		g := sampleGrant()
		change(&g)
		_, err := s.SignGrant(g)
		return err
	}
	for name, err := range map[string]error{
		"no audience":     command(func(c *jws.Command) { c.Audience = "" }),
		"no op":           command(func(c *jws.Command) { c.Op = nil }),
		"op no JSON":      command(func(c *jws.Command) { c.Op = json.RawMessage(`{`) }),
		"op with twins":   command(func(c *jws.Command) { c.Op = json.RawMessage(`{"kind":"a","x":{"y":1,"Y":2}}`) }),
		"op case variant": command(func(c *jws.Command) { c.Op = json.RawMessage(`{"kind":"a","Cols":1}`) }),
		"no trace id":     command(func(c *jws.Command) { c.TraceID = "" }),
		"ttl":             command(func(c *jws.Command) { c.TTLMs = 600_001 }),
		"grant too long":  grant(func(g *jws.Grant) { g.ExpiresAt++ }),
		"cnf no JSON":     grant(func(g *jws.Grant) { g.Confirm = json.RawMessage(`x`) }),
		"cnf with twins":  grant(func(g *jws.Grant) { g.Confirm = json.RawMessage(`{"a":1,"a":1}`) }),
		"jwk": func() error {
			_, err := s.SignCertificate(jws.Certificate{Subject: "sb_1", ID: "crt_1", IssuedAt: 1, ExpiresAt: 2, JWK: json.RawMessage(`{}`)})
			return err
		}(),
	} {
		t.Run(name, func(t *testing.T) { wantKind(t, err, protocol.KindInvalid) })
	}
	err = command(func(c *jws.Command) {
		c.Op = json.RawMessage(`{"kind":"a","x":"` + strings.Repeat("x", 48<<10) + `"}`)
	})
	wantKind(t, err, protocol.KindTooLarge)
}

func TestSignerFile(t *testing.T) {
	s, err := jws.GenerateSigner()
	noError(t, err)
	file, err := s.MarshalPrivate()
	noError(t, err)
	again, err := jws.ParseSigner(file)
	noError(t, err)
	token, err := again.SignGrant(sampleGrant())
	noError(t, err)
	_, err = keySet(t, s).Verify(token)
	noError(t, err)
	if again.Kid() != s.Kid() {
		t.Errorf("kid %s, was %s", again.Kid(), s.Kid())
	}

	published, err := jws.MarshalKeySet(s)
	noError(t, err)
	var private struct {
		D string `json:"d"`
	}
	noError(t, json.Unmarshal(file, &private))
	for name, text := range map[string]string{
		"key set": string(published), "%v": fmt.Sprintf("%v", s), "%+v": fmt.Sprintf("%+v", s), "%#v": fmt.Sprintf("%#v", s), "JSON": mustJSON(s),
	} {
		if strings.Contains(text, private.D) || strings.Contains(text, "PrivateKey") {
			t.Errorf("%s shows the private key", name)
		}
	}
	if _, err := jws.MarshalKeySet(s, again); err == nil {
		t.Error("a key set with one kid twice")
	}
}

func TestSignerKid(t *testing.T) {
	s, err := jws.GenerateSigner()
	noError(t, err)
	file, err := s.MarshalPrivate()
	noError(t, err)
	var key jose.JSONWebKey // RFC 7638, computed from the file by the library
	noError(t, json.Unmarshal(file, &key))
	sum, err := key.Thumbprint(crypto.SHA256)
	noError(t, err)
	if s.Kid() != b64.EncodeToString(sum) {
		t.Errorf("kid %s", s.Kid())
	}
}

func TestParseSignerRefuses(t *testing.T) {
	k, other := newRawKey(t, "k1"), newRawKey(t, "k1")
	d, err := k.priv.Bytes()
	noError(t, err)
	good := k.jwk(object{"d": b64.EncodeToString(d)})
	s, err := jws.ParseSigner([]byte(mustJSON(good)))
	noError(t, err)
	if s.Kid() != "k1" {
		t.Errorf("kid %s", s.Kid())
	}
	for name, jwk := range map[string]any{
		"no d":         k.jwk(nil),
		"d of another": other.jwk(object{"d": good["d"]}),
		"d short":      k.jwk(object{"d": b64.EncodeToString(d[1:])}),
		"d zero":       k.jwk(object{"d": b64.EncodeToString(make([]byte, 32))}),
		"kid long":     k.jwk(object{"d": good["d"], "kid": strings.Repeat("k", 129)}),
		"for encoding": k.jwk(object{"d": good["d"], "use": "enc"}),
		"RSA":          k.jwk(object{"d": good["d"], "kty": "RSA"}),
		"an array":     []any{good},
	} {
		if _, err := jws.ParseSigner([]byte(mustJSON(jwk))); err == nil {
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(err.Error(), good["d"].(string)) {
			t.Errorf("%s: the error shows the key", name)
		}
	}
}

// A key's id can be written on a command line.
func TestGeneratedKidIsNoFlag(t *testing.T) {
	for range 500 {
		signer, err := jws.GenerateSigner()
		noError(t, err)
		if signer.Kid()[0] == '-' {
			t.Fatalf("kid %s", signer.Kid())
		}
	}
}

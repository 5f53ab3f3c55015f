package controlplane

import (
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/fleet"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// kidOf returns the kid in a token's header, unverified.
func kidOf(t *testing.T, p *plane, token string) string {
	t.Helper()
	keys, err := ListKeys(filepath.Join(p.dir, "state"), p.clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		header := `{"alg":"ES256","kid":"` + key.Kid + `"`
		if strings.HasPrefix(token, base64URL(header)[:40]) {
			return key.Kid
		}
	}
	t.Fatalf("no known key signed %s", token)
	return ""
}

// TestRunningServerFollowsKeys changes the keys as the command line does, while
// a server runs on them.
func TestRunningServerFollowsKeys(t *testing.T) {
	p := newPlane(t)
	state := filepath.Join(p.dir, "state")
	first := p.server.keys.Signer().Kid()
	before := p.grant(aliceToken, `{"session_id":"ses_1"}`)

	next, err := RotateKey(state, DefaultPrepublish, p.clock.Now)
	if err != nil {
		t.Fatal(err)
	}
	jwks, header := p.text("/.well-known/jwks.json")
	if !strings.Contains(jwks, first) || !strings.Contains(jwks, next.Kid) {
		t.Errorf("JWKS %s, want both keys", jwks)
	}
	if header.Get("Cache-Control") != "public, max-age=5" {
		t.Errorf("Cache-Control %q", header.Get("Cache-Control"))
	}
	if kid := kidOf(t, p, p.grant(aliceToken, `{"session_id":"ses_1"}`)); kid != first {
		t.Error("the new key signs too early")
	}
	p.clock.Advance(DefaultPrepublish)
	if kid := kidOf(t, p, p.grant(aliceToken, `{"session_id":"ses_1"}`)); kid != next.Kid {
		t.Error("the new key doesn't sign")
	}

	// What the old key signed is good until it is revoked.
	p.register("rl_1", relayToken, "http://127.0.0.1:1")
	p.want(signCall(before, "k1", createPTY), http.StatusOK, "")
	if signs, err := RevokeKey(state, first, false, p.clock.Now); err != nil || signs.Kid != next.Kid {
		t.Fatalf("%+v, %v", signs, err)
	}
	p.want(signCall(before, "k1", createPTY), http.StatusUnauthorized, "AuthError")
	if jwks, _ := p.text("/.well-known/jwks.json"); strings.Contains(jwks, first) {
		t.Error("a revoked key is published")
	}
	if _, err := RevokeKey(state, next.Kid, false, p.clock.Now); protocol.KindOf(err) != protocol.KindConflict {
		t.Errorf("revoking the only key: %v", err)
	}
	last, err := RevokeKey(state, next.Kid, true, p.clock.Now)
	if err != nil {
		t.Fatal(err)
	}
	grant := p.grant(aliceToken, `{"session_id":"ses_1"}`)
	if kid := kidOf(t, p, grant); kid != last.Kid {
		t.Errorf("%s signs, want %s", kid, last.Kid)
	}
	if _, err := p.keys().Grant(t.Context(), grant); err != nil {
		t.Error(err)
	}
}

// TestRevokeNoKeys: where there are no keys, none is made to be revoked.
func TestRevokeNoKeys(t *testing.T) {
	if _, err := RevokeKey(filepath.Join(t.TempDir(), "state"), "kid", true, time.Now); err == nil {
		t.Error("a key was revoked in a directory that doesn't exist")
	}
}

// TestCertificateKeepsKey: a key is published as long as a certificate of it.
func TestCertificateKeepsKey(t *testing.T) {
	p := newPlane(t)
	srv := p.agentListener()
	b := p.enrolled(srv, "sb_1")
	if _, err := RotateKey(filepath.Join(p.dir, "state"), 0, p.clock.Now); err != nil {
		t.Fatal(err)
	}
	p.clock.Advance(fleet.DefaultCertificateLife)
	if _, err := p.server.keys.Keys().Certificate(t.Context(), b.certificate); err != nil {
		t.Errorf("a certificate of the old key: %v", err)
	}
	p.clock.Advance(2 * time.Hour)
	if _, err := p.server.keys.Keys().Certificate(t.Context(), b.certificate); !errors.Is(err, jws.ErrUnknownKey) {
		t.Errorf("after its end the old key is still there: %v", err)
	}
}

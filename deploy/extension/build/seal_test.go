package main

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/fairlead/fairlead/deploy/program/bundle"
	"github.com/fairlead/fairlead/protocol/seal"
)

// A source is what the extension's scripts say as one: its half of a key, and what it
// seals.
type source struct {
	PublicKey   []byte `json:"publicKey"`
	Fingerprint string `json:"fingerprint"`
	Body        []byte `json:"body"`
}

// TestSeal has the extension's scripts pair with Go's sink, and seal: Go opens it,
// finds each cookie as it was meant, and nothing that Chromium wouldn't take.
func TestSeal(t *testing.T) {
	t.Parallel()
	node, dir := node(t), t.TempDir()
	options, err := options(console)
	if err != nil {
		t.Fatal(err)
	}
	options.EntryPoints, options.Outdir = []string{filepath.Join(web, "src/sync/sealed.ts")}, dir
	options.OutExtension, options.Platform, options.Write = map[string]string{".js": ".mjs"}, api.PlatformNode, true
	if err := bundle.Failed(api.Build(options).Errors); err != nil {
		t.Fatal(err)
	}
	private, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	const expires = 1_900_000_000.123457 // seconds since 1970, as Chrome's API has them
	cookie := func(name string, members map[string]any) map[string]any {
		c := map[string]any{"domain": "a.example", "hostOnly": true, "name": name, "value": "é\u2028\"", "path": "/", "secure": true, "httpOnly": true, "sameSite": "lax", "session": true}
		for k, v := range members {
			c[k] = v
		}
		return c
	}
	code := seal.NewCode()
	asked, err := json.Marshal(map[string]any{
		"sinkPublicKey": private.PublicKey().Bytes(), "code": code, "sequence": int64(1_700_000_000_123),
		"cookies": []any{
			cookie("a", nil), cookie("b", map[string]any{"domain": ".a.example", "hostOnly": false, "session": false, "expirationDate": expires, "sameSite": "no_restriction"}),
			cookie("c", map[string]any{"secure": false, "httpOnly": false, "sameSite": "unspecified"}), cookie("__Host-d", map[string]any{"sameSite": "strict"}),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(node, filepath.Join(dir, "sealed.mjs"))
	cmd.Stdin = bytes.NewReader(asked)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var said source
	if err := json.Unmarshal(out, &said); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	paired, err := seal.Pair(private, said.PublicKey, code)
	if err != nil {
		t.Fatal(err)
	}
	if paired.Fingerprint() != said.Fingerprint {
		t.Fatalf("fingerprints %s and %s", said.Fingerprint, paired.Fingerprint())
	}
	opened(t, paired, said.Body, expires)
}

// opened checks what the body holds.
func opened(t *testing.T, paired seal.Paired, body []byte, expires float64) {
	t.Helper()
	key, err := paired.Key()
	if err != nil {
		t.Fatal(err)
	}
	changed := slices.Clone(body)
	changed[len(changed)-1] ^= 1
	if _, err := key.Open(changed); err == nil {
		t.Error("a changed body opens")
	}
	plain, err := key.Open(body)
	if err != nil {
		t.Fatal(err)
	}
	e, err := seal.Decode(plain, []int{seal.Version})
	if err != nil {
		t.Fatalf("%s: %v", plain, err)
	}
	if e.SourceHostname != "browser" || e.Sequence != 1_700_000_000_123 || !e.Complete || e.Ignored != nil {
		t.Errorf("the envelope is %+v", e)
	}
	at := time.UnixMicro(int64(expires * 1e6))
	one := seal.Cookie{HostKey: "a.example", Name: "a", Value: "é\u2028\"", Path: "/", Secure: 1, HTTPOnly: 1, Priority: 1, SameSite: 1, SourcePort: -1}
	want := []seal.Cookie{one, one, one, one}
	want[1].HostKey, want[1].Name, want[1].SameSite, want[1].HasExpires, want[1].Persistent, want[1].Expires = ".a.example", "b", 0, 1, 1, seal.ToMicros(at)
	want[2].Name, want[2].SameSite, want[2].Secure, want[2].HTTPOnly = "c", -1, 0, 0
	want[3].Name, want[3].SameSite = "__Host-d", 2
	if !slices.Equal(e.Cookies, want) {
		t.Errorf("cookies\n%+v, want\n%+v", e.Cookies, want)
	}
	for _, c := range e.Cookies {
		if err := c.Check(at.Add(-time.Hour)); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
}

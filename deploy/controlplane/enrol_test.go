package controlplane

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/fleet"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/keyring"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/statedir"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// enrolConfig returns a working configuration and the device key in it.
func enrolConfig(t *testing.T) (fleet.EnrolConfig, *jws.DeviceKey) {
	t.Helper()
	dir := t.TempDir()
	device, err := jws.GenerateDeviceKey()
	if err != nil {
		t.Fatal(err)
	}
	cert, _, _ := testCertificate(t, "ca")
	cfg := fleet.EnrolConfig{
		Location: statedir.Location{StateDir: filepath.Join(dir, "state")}, Sandbox: "sb_1", DeviceKey: filepath.Join(dir, "device.jwk"),
		Reach:    fleet.Reach{CA: cert, ServerName: "control.fairlead.test", Relays: []string{"127.0.0.1:4433"}, RelayCA: cert},
		ValidFor: time.Hour, Out: filepath.Join(dir, "enrolment.json"),
	}
	writeFile(t, cfg.DeviceKey, device.PublicJWK(), 0o644)
	return cfg, device
}

func TestEnrol(t *testing.T) {
	cfg, device := enrolConfig(t)
	for range 2 { // a second time changes nothing that matters
		if err := fleet.Enrol(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(cfg.Out); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("enrolment file: %v, %v", info, err)
	}
	data, err := os.ReadFile(cfg.Out)
	if err != nil {
		t.Fatal(err)
	}
	e, err := protocol.ParseEnrolment(data)
	if err != nil {
		t.Fatal(err)
	}
	set, err := jws.ParseKeySet(e.JWKS)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := jws.NewKeys(set, jws.KeysOptions{}).Certificate(t.Context(), e.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	public, err := cert.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	signature, err := device.Sign([]byte("transcript"))
	if err != nil || !jws.VerifyDevice(public, []byte("transcript"), signature) {
		t.Errorf("the certified key isn't the device's: %v", err)
	}
	if cert.Subject != "sb_1" || e.SandboxID != "sb_1" || e.ControlPlane.ServerName != cfg.ServerName {
		t.Errorf("enrolment %+v of certificate %+v", e, cert)
	}

	// The server goes on with the keys that enrol made.
	keys, err := keyring.OpenIn(cfg.StateDir, keyring.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if kid := keys.Signer().Kid(); !strings.Contains(string(e.JWKS), kid) {
		t.Errorf("the server signs with %s, the enrolment has %s", kid, e.JWKS)
	}
}

// TestEnrolAnotherKey: a sandbox keeps its key until an operator says otherwise.
func TestEnrolAnotherKey(t *testing.T) {
	cfg, _ := enrolConfig(t)
	if err := fleet.Enrol(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(cfg.Out)
	if err != nil {
		t.Fatal(err)
	}
	other, err := jws.GenerateDeviceKey()
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, cfg.DeviceKey, other.PublicJWK(), 0o644)
	if err := fleet.Enrol(t.Context(), cfg); protocol.KindOf(err) != protocol.KindConflict {
		t.Errorf("error %v, want a conflict", err)
	}
	if after, err := os.ReadFile(cfg.Out); err != nil || string(after) != string(before) {
		t.Errorf("a refused enrolment was written: %v", err)
	}
	cfg.Replace = true
	if err := fleet.Enrol(t.Context(), cfg); err != nil {
		t.Error(err)
	}
}

func TestEnrolInvalid(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(cfg *fleet.EnrolConfig) string // returns what the error must name
	}{
		{"sandbox", func(cfg *fleet.EnrolConfig) string { cfg.Sandbox = ""; return "certificate for" }},
		{"relay", func(cfg *fleet.EnrolConfig) string { cfg.Relays = []string{"nowhere"}; return `"nowhere"` }},
		{"server name", func(cfg *fleet.EnrolConfig) string { cfg.ServerName = ""; return "server_name" }},
		{"CA", func(cfg *fleet.EnrolConfig) string { cfg.CA = cfg.DeviceKey; return "control_plane.ca_pem" }},
		{"missing CA", func(cfg *fleet.EnrolConfig) string { cfg.RelayCA = "missing.pem"; return "missing.pem" }},
		{"missing key", func(cfg *fleet.EnrolConfig) string { cfg.DeviceKey = "missing.jwk"; return "missing.jwk" }},
		{"no key", func(cfg *fleet.EnrolConfig) string { cfg.DeviceKey = cfg.CA; return cfg.CA }},
		{"life", func(cfg *fleet.EnrolConfig) string { cfg.ValidFor = 0; return "certificate for" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg, _ := enrolConfig(t)
			want := tt.spoil(&cfg)
			err := fleet.Enrol(t.Context(), cfg)
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want one line with %q", err, want)
			}
			if _, err := os.Stat(cfg.Out); err == nil {
				t.Error("an enrolment was written")
			}
		})
	}
}

// TestEnrolPrivateKey: a private key given by mistake gets into no file.
func TestEnrolPrivateKey(t *testing.T) {
	cfg, device := enrolConfig(t)
	private, err := device.MarshalPrivate()
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, cfg.DeviceKey, private, 0o600)
	err = fleet.Enrol(t.Context(), cfg)
	if err == nil {
		t.Fatal("a private key was certified")
	}
	var jwk struct{ D string }
	if e := json.Unmarshal(private, &jwk); e != nil || jwk.D == "" || strings.Contains(err.Error(), jwk.D) {
		t.Errorf("error %q quotes the key (%v)", err, e)
	}
}

func TestSeedInvalid(t *testing.T) {
	for _, tt := range []struct{ old, new, want string }{
		{`"sandbox_id":"sb_1"`, `"sandbox_id":"a b"`, "sandbox_id is not an id"},
		{`"session_id":"ses_1"`, `"session_id":""`, "session_id is not an id"},
		{`"role":"viewer"`, `"role":"king"`, `"king"`},
		{`"user_id":"usr_bob"`, `"user_id":"usr_eve"`, `"usr_eve"`},
		{`"token":"` + bobToken + `"`, `"token":"short"`, "user usr_bob is shorter"},
		{`"token":"` + bobToken + `"`, `"token":"` + aliceToken + `"`, "user usr_bob is another's too"},
		{`"credential":"` + relayToken + `"`, `"credential":""`, "relay rl_1 is shorter"},
		{`"name":"Bob"`, `"name":"Bob","nick":"b"`, "unknown field"},
		{`"id":"rl_1"`, `"id":"rl 1"`, "not an id"},
		{`"id":"usr_bob"`, `"id":"usr_alice"`, "usr_alice"},
	} {
		p := newPlane(t)
		file := filepath.Join(p.dir, "seed.json")
		seed, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		changed := strings.Replace(string(seed), tt.old, tt.new, 1)
		if changed == string(seed) {
			t.Fatalf("%s isn't in the seed", tt.old)
		}
		writeFile(t, file, []byte(changed), 0o600)
		err = loadSeed(t.Context(), p.server.store, file)
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), file) ||
			strings.Contains(err.Error(), "token-of") {
			t.Errorf("%s: error %v, want %q", tt.new, err, tt.want)
		}
	}
}

func TestSeedOpenToOthers(t *testing.T) {
	p := newPlane(t)
	file := filepath.Join(p.dir, "seed.json")
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := loadSeed(t.Context(), p.server.store, file); err == nil || !strings.Contains(err.Error(), "mode 0640") {
		t.Errorf("error %v, want one about the mode", err)
	}
}

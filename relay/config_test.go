package relay

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
)

func TestMain(m *testing.M) {
	deregisterTimeout = slowly
	goleak.VerifyTestMain(relaytest.Patient(m))
}

// complete returns a configuration with nothing missing.
func complete() Config {
	return Config{
		Logger: slog.New(slog.DiscardHandler), Listen: "127.0.0.1:0", TunnelListen: "127.0.0.1:0", AdminListen: "127.0.0.1:0",
		TunnelCert: "cert.pem", TunnelKey: "key.pem",
		Upstream: Upstream{ControlPlaneURL: "http://127.0.0.1:1", ControlPlaneConnect: "127.0.0.1:2", Credential: "secret"},
	}
}

func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		want   string // part of the error; empty: none
	}{
		"complete":                {func(*Config) {}, ""},
		"no tunnel certificate":   {func(c *Config) { c.TunnelCert = "" }, "--tunnel-cert"},
		"no tunnel key":           {func(c *Config) { c.TunnelKey = "" }, "--tunnel-key"},
		"no control plane":        {func(c *Config) { c.ControlPlaneURL = "" }, "--control-plane-url"},
		"no connect address":      {func(c *Config) { c.ControlPlaneConnect = "" }, "--control-plane-connect"},
		"no credential":           {func(c *Config) { c.Credential = "" }, "--credential-file"},
		"control plane by ftp":    {func(c *Config) { c.ControlPlaneURL = "ftp://x" }, "--control-plane-url"},
		"nobody to believe":       {func(c *Config) { c.ControlPlaneCA = "cert.pem" }, "--control-plane-url"},
		"no CA":                   {func(c *Config) { c.ControlPlaneURL, c.ControlPlaneCA = "https://x", "none.pem" }, "--control-plane-ca"},
		"no certificate in it":    {func(c *Config) { c.ControlPlaneURL, c.ControlPlaneCA = "https://x", "config_test.go" }, "config_test.go"},
		"control plane, no host":  {func(c *Config) { c.ControlPlaneURL = "http://" }, "--control-plane-url"},
		"certificate without key": {func(c *Config) { c.Cert = "x" }, "--cert and --key"},
		"plain beyond loopback":   {func(c *Config) { c.Listen = "0.0.0.0:80" }, "not loopback"},
		"plain, all addresses":    {func(c *Config) { c.Listen = ":80" }, "not loopback"},
		"plain behind a proxy":    {func(c *Config) { c.Listen, c.BehindProxy = ":80", true }, ""},
		"TLS beyond loopback":     {func(c *Config) { c.Listen, c.Cert, c.Key = ":443", "x", "y" }, ""},
		"plain on ::1":            {func(c *Config) { c.Listen = "[::1]:80" }, ""},
		"plain on localhost":      {func(c *Config) { c.Listen = "localhost:80" }, ""},

		"previews":                      {func(c *Config) { c.PreviewListen = "127.0.0.1:0" }, ""},
		"previews beyond loopback":      {func(c *Config) { c.PreviewListen, c.PreviewOrigin = ":81", "https://p.example" }, "not loopback"},
		"previews behind a proxy":       {func(c *Config) { c.PreviewListen, c.PreviewOrigin, c.BehindProxy = ":81", "https://p.example", true }, ""},
		"previews with TLS, no origin":  {func(c *Config) { c.PreviewListen, c.Cert, c.Key = ":81", "x", "y" }, "--preview-origin"},
		"an origin without a listener":  {func(c *Config) { c.PreviewOrigin = "https://p.example" }, "--preview-listen"},
		"previews at an address":        {func(c *Config) { c.PreviewListen, c.PreviewOrigin = "127.0.0.1:0", "http://127.0.0.1:81" }, "an address"},
		"previews at no origin":         {func(c *Config) { c.PreviewListen, c.PreviewOrigin = "127.0.0.1:0", "p.example" }, "--preview-origin"},
		"previews at the public origin": {previewsAt("https://one.example", "https://one.example:81"), "public origin"},
		"previews below it":             {previewsAt("https://one.example", "https://p.one.example"), "public origin"},
		"it below previews":             {previewsAt("https://one.p.example", "https://p.example"), "public origin"},
		"previews beside it":            {previewsAt("https://one.example", "https://p.example"), ""},
		"previews below localhost":      {previewsAt("http://localhost:80", "http://preview.localhost:81"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := complete()
			c.change(&cfg)
			err := cfg.check()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if err == nil && (cfg.RelayID == "" || cfg.DrainTimeout != 10*time.Second) {
				t.Errorf("defaults: %q, %v", cfg.RelayID, cfg.DrainTimeout)
			}
		})
	}
}

func previewsAt(public, origin string) func(*Config) {
	return func(c *Config) {
		c.PublicOrigins, c.PreviewListen, c.PreviewOrigin = []string{public}, "127.0.0.1:0", origin
	}
}

func TestOrigins(t *testing.T) {
	at := &net.TCPAddr{IP: net.IPv6zero, Port: 8443}
	cfg := complete()
	want := []string{"http://127.0.0.1:8443", "http://localhost:8443", "http://[::1]:8443"}
	if got := cfg.origins(at); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	cfg.PublicOrigins = []string{"https://relay.example"}
	if got := cfg.origins(at); !slices.Equal(got, cfg.PublicOrigins) {
		t.Errorf("%q", got)
	}
}

func TestDerivedKeys(t *testing.T) {
	cfg := complete()
	if cfg.resetKey() != nil || cfg.tokenKey() != nil {
		t.Error("keys without a secret")
	}
	cfg.Secret = []byte("s1")
	other := cfg
	other.Secret = []byte("s2")
	if len(cfg.resetKey()) != 32 || bytes.Equal(cfg.resetKey(), cfg.tokenKey()) || bytes.Equal(cfg.resetKey(), other.resetKey()) ||
		!bytes.Equal(cfg.resetKey(), cfg.resetKey()) {
		t.Error("keys must differ by secret and purpose, and stay the same")
	}
}

func TestNewNamesWhatIsWrong(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	cfg := complete()
	cfg.Listen = busy.Addr().String()
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "public listener") || !strings.Contains(err.Error(), cfg.Listen) {
		t.Errorf("busy port: %v", err)
	}
	cfg = complete()
	cfg.TunnelCert = filepath.Join(t.TempDir(), "none.pem")
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), cfg.TunnelCert) {
		t.Errorf("no certificate: %v", err)
	}
	cfg.TunnelKey = cfg.TunnelCert
	if err := os.WriteFile(cfg.TunnelCert, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), cfg.TunnelCert) {
		t.Errorf("unreadable certificate: %v", err)
	}
}

// TestFound19IdentityAndAddress: the credential says which relay it is for, and
// a relay names an address at which it can be reached.
func TestFound19IdentityAndAddress(t *testing.T) {
	for _, c := range []struct {
		id     protocol.RelayID
		secret string
		want   protocol.RelayID // empty: an error
		madeUp bool
	}{
		{"", "rl_one.secret", "rl_one", false},
		{"rl_one", "rl_one.secret", "rl_one", false},
		{"rl_two", "rl_one.secret", "", false},
		{"rl_two", "rc_secret", "rl_two", false},
		{"rl_two", "other.secret", "rl_two", false},
		{"", "rc_secret", "rl_", true},
		{"", "rl_o ne.secret", "rl_", true},
	} {
		cfg := complete()
		cfg.RelayID, cfg.Credential = c.id, c.secret
		err := cfg.check()
		if (err != nil) != (c.want == "") || err == nil && (!strings.HasPrefix(string(cfg.RelayID), string(c.want)) || cfg.madeUp != c.madeUp) {
			t.Errorf("%+v: %q, %v, %v", c, cfg.RelayID, cfg.madeUp, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error quotes the credential: %v", err)
		}
	}
	const origin = "https://relay.example"
	for _, c := range []struct{ own, cert, plane, given, want string }{
		{"http://127.0.0.1:80", "", "http://127.0.0.1:1", "", "http://127.0.0.1:80"},
		{"http://[::]:80", "", "http://127.0.0.1:1", "", "http://127.0.0.1:80"},
		{"http://0.0.0.0:80", "", "http://localhost", "", "http://127.0.0.1:80"},
		{"http://0.0.0.0:80", "", "https://control.example", "", origin},
		{"https://0.0.0.0:443", "cert.pem", "http://127.0.0.1:1", "", origin},
		{"http://192.0.2.1:80", "", "http://127.0.0.1:1", "", origin},
		{"http://[::]:80", "", "http://127.0.0.1:1", "https://a.example", "https://a.example"},
	} {
		cfg := Config{Cert: c.cert, Upstream: Upstream{ControlPlaneURL: c.plane}, AdvertiseURL: c.given}
		if got := cfg.advertised(c.own, origin); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
	for _, c := range []struct{ own, given, want string }{
		{"127.0.0.1:4433", "", "127.0.0.1:4433"}, {"192.0.2.1:4433", "", "192.0.2.1:4433"},
		{"[::]:4433", "", "relay.example:4433"}, {"0.0.0.0:4433", "a.example:1", "a.example:1"},
	} {
		if got := (&Config{AdvertiseTunnel: c.given}).advertisedTunnel(c.own, origin); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

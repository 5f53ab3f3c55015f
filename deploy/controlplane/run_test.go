package controlplane

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/statedir"
)

// testConfig returns a working configuration in a directory of its own.
func testConfig(t *testing.T) Config {
	t.Helper()
	return Config{
		StateDir: filepath.Join(t.TempDir(), "state"), Listen: "127.0.0.1:0",
		Revision: "rev1", Logger: slog.New(slog.DiscardHandler),
	}
}

// testCertificate writes a self-signed certificate for name and returns its
// file, its key's file and a pool that trusts it.
func testCertificate(t *testing.T, name string) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	writeFile(t, cert, certPEM, 0o600)
	writeFile(t, key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600)
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(certPEM)
	return cert, key, pool
}

// running returns a server that runs until stop, which fails the test if it ended badly.
func running(t *testing.T, cfg Config) (server *Server, stop func()) {
	t.Helper()
	server, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }() // stop waits for it
	return server, func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	}
}

func get(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	res, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if res.ProtoMajor != 1 {
		t.Errorf("%s spoke %s", url, res.Proto)
	}
	return res.StatusCode, string(data)
}

// TestRun serves on both listeners, and again from the same state.
func TestRun(t *testing.T) {
	cfg := testConfig(t)
	cert, key, pool := testCertificate(t, "control.fairlead.test")
	cfg.TLSListen, cfg.TLSCert, cfg.TLSKey = "127.0.0.1:0", cert, key
	transport := &http.Transport{
		ForceAttemptHTTP2: true, // in vain
		TLSClientConfig:   &tls.Config{RootCAs: pool, ServerName: "control.fairlead.test"},
	}
	client := &http.Client{Transport: transport}

	var first string
	for range 2 {
		server, stop := running(t, cfg)
		status, jwks := get(t, client, server.URL()+"/.well-known/jwks.json")
		agentStatus, agentJWKS := get(t, client, "https://"+server.TLSAddr()+"/.well-known/jwks.json")
		if status != 200 || agentStatus != 200 || jwks != agentJWKS {
			t.Errorf("JWKS %d %q, to agents %d %q", status, jwks, agentStatus, agentJWKS)
		}
		if status, _ := get(t, client, "https://"+server.TLSAddr()+"/auth/me"); status != 404 {
			t.Errorf("agents get %d from /auth/me", status)
		}
		if first == "" {
			first = jwks
		}
		if jwks != first {
			t.Error("the second start has other keys")
		}
		transport.CloseIdleConnections()
		stop()
	}
}

// TestRenewedCertificate puts another certificate in the place of the one with
// which the server began.
func TestRenewedCertificate(t *testing.T) {
	const name = "control.fairlead.test"
	cfg, clock := testConfig(t), &testClock{now: time.Now()}
	var old *x509.CertPool
	cfg.TLSListen, cfg.Now = "127.0.0.1:0", clock.Now
	cfg.TLSCert, cfg.TLSKey, old = testCertificate(t, name)
	server, stop := running(t, cfg)
	verify := func(pool *x509.CertPool) {
		t.Helper()
		conn, err := tls.Dial("tcp", server.TLSAddr(), &tls.Config{RootCAs: pool, ServerName: name})
		if err != nil {
			t.Error(err)
			return
		}
		conn.Close()
	}
	verify(old)
	cert, key, renewed := testCertificate(t, name)
	for from, to := range map[string]string{cert: cfg.TLSCert, key: cfg.TLSKey} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	verify(old) // no look is due
	clock.Advance(time.Second)
	verify(renewed)
	stop()
}

// TestListenTLS: with a certificate the first listener speaks TLS alone, and may be on any
// address.
func TestListenTLS(t *testing.T) {
	const name = "control.fairlead.test"
	cfg := testConfig(t)
	var pool *x509.CertPool
	cfg.Listen = "0.0.0.0:0"
	cfg.Cert, cfg.Key, pool = testCertificate(t, name)
	server, stop := running(t, cfg)
	if want := "https://" + server.public.Addr().String(); server.URL() != want {
		t.Errorf("its URL is %s, want %s", server.URL(), want)
	}
	_, port, err := net.SplitHostPort(server.public.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: name}}}
	for scheme, want := range map[string]int{"https": http.StatusOK, "http": http.StatusBadRequest} {
		resp, err := client.Get(scheme + "://127.0.0.1:" + port + "/healthz")
		if err != nil {
			t.Errorf("%s: %v", scheme, err)
			continue
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %s", scheme, resp.Status)
		}
	}
	stop()
	cfg.Key = ""
	if _, err := New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "--key") {
		t.Errorf("without a key: %v", err)
	}
}

// TestShutdownEndsDispatch ends the server while a relay doesn't answer.
func TestShutdownEndsDispatch(t *testing.T) {
	p := newPlane(t)
	asked, release := make(chan struct{}), make(chan struct{})
	relay, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	go func() { // ends with release
		conn, err := relay.Accept()
		if err != nil {
			return
		}
		close(asked)
		<-release
		conn.Close()
	}()
	p.register("rl_1", relayToken, "http://"+relay.Addr().String())
	go func() { // ends once the relay was asked
		<-asked
		p.server.close()
	}()
	body := p.want(commandCall(aliceToken, createBody), http.StatusOK, "InternalError")
	if body["status"] != "unknown" {
		t.Errorf("%v, want status unknown", body)
	}
	close(release)
}

// keyFile puts a signing key file into the state and returns its path.
func keyFile(t *testing.T, cfg *Config, text string, mode os.FileMode) string {
	t.Helper()
	dir := filepath.Join(cfg.StateDir, "keys")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "20260102T030405Z-x.jwk")
	writeFile(t, file, []byte(text), mode)
	return file
}

func TestNewRefuses(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for _, tt := range []struct {
		name  string
		spoil func(cfg *Config) string // returns what the error must name
	}{
		{"busy port", func(cfg *Config) string { cfg.Listen = busy.Addr().String(); return cfg.Listen }},
		{"not loopback", func(cfg *Config) string { cfg.Listen = "0.0.0.0:0"; return "loopback" }},
		{"every interface", func(cfg *Config) string { cfg.Listen = ":0"; return "loopback" }},
		{"no port", func(cfg *Config) string { cfg.Listen = "127.0.0.1"; return "127.0.0.1" }},
		{"no state directory", func(cfg *Config) string { cfg.StateDir = ""; return "state directory" }},
		{"malformed key", func(cfg *Config) string { return keyFile(t, cfg, "{", 0o600) }},
		{"public key", func(cfg *Config) string { return keyFile(t, cfg, `{"kty":"EC"}`, 0o600) }},
		{"key open to others", func(cfg *Config) string { return keyFile(t, cfg, "{}", 0o644) }},
		{"key is a directory", func(cfg *Config) string {
			file := filepath.Join(cfg.StateDir, "keys", "20260102T030405Z-x.jwk")
			if err := os.MkdirAll(file, 0o700); err != nil {
				t.Fatal(err)
			}
			return file
		}},
		{"key without a time", func(cfg *Config) string {
			file := keyFile(t, cfg, "{}", 0o600)
			renamed := filepath.Join(filepath.Dir(file), "mine.jwk")
			if err := os.Rename(file, renamed); err != nil {
				t.Fatal(err)
			}
			return renamed
		}},
		{"database is none", func(cfg *Config) string {
			file := filepath.Join(cfg.StateDir, statedir.DatabaseFile)
			if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
				t.Fatal(err)
			}
			writeFile(t, file, []byte(strings.Repeat("not a database ", 100)), 0o600)
			return file
		}},
		{"certificate", func(cfg *Config) string {
			cfg.TLSListen, cfg.TLSCert, cfg.TLSKey = "127.0.0.1:0", "missing.pem", "missing.key"
			return "missing.pem"
		}},
		{"seed", func(cfg *Config) string { cfg.DevSeed = "missing.json"; return "missing.json" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := testConfig(t)
			want := tt.spoil(&cfg)
			server, err := New(t.Context(), cfg)
			if err == nil {
				server.close()
				t.Fatalf("started all the same; close: %v", server.closeResources())
			}
			if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q, want one line with %q", err, want)
			}
		})
	}
}

func TestStateIsPrivate(t *testing.T) {
	p := newPlane(t)
	err := filepath.Walk(filepath.Join(p.dir, "state"), func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(p.dir, "state", statedir.DatabaseFile+"-wal"))
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{aliceToken, relayToken} {
		if strings.Contains(string(data), secret) {
			t.Error("the database holds a token in the clear")
		}
	}
}

package relay

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
	"github.com/fairlead/fairlead/tunnel"
)

const otherOrigin, otherTunnel = "https://two.example", "two.example:4433"

// slowly is how long anything may take on a machine that has much else to do, and
// longDrain a drain that outlasts it by far.
const slowly, longDrain = 30 * time.Second, 3 * time.Minute

// A world is a relay, its control plane, and one agent.
type world struct {
	t         *testing.T
	authority *relaytest.Authority
	pool      *x509.CertPool
	cfg       Config
	puts      chan bool // whether a registration says draining
	alone     bool      // there is no other relay yet but for one that drains

	addresses chan Addresses // once ready
	stop      context.CancelFunc
	ended     chan error
}

func newWorld(t *testing.T, drain time.Duration) *world { return newWorldOf(t, drain, false) }

func newWorldOf(t *testing.T, drain time.Duration, alone bool) *world {
	w := &world{
		t: t, alone: alone, authority: relaytest.NewAuthority(t), cfg: complete(),
		puts: make(chan bool, 16), addresses: make(chan Addresses, 1), ended: make(chan error, 1),
	}
	plane := httptest.NewServer(http.HandlerFunc(w.controlPlane))
	t.Cleanup(plane.Close)
	w.cfg.ControlPlaneURL, w.cfg.DrainTimeout = plane.URL, drain
	w.cfg.TunnelCert, w.cfg.TunnelKey, w.pool = certificate(t)
	w.cfg.PublicOrigins = []string{"https://one.example", otherOrigin}
	w.cfg.OnReady = func(a Addresses) error {
		w.addresses <- a
		return nil
	}
	r, err := New(w.cfg)
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	go func() { w.ended <- r.Run(ctx) }() // received by finish
	t.Cleanup(stop)
	return w
}

func (w *world) controlPlane(rw http.ResponseWriter, r *http.Request) {
	if r.URL.Path == revocationsPath {
		io.WriteString(rw, w.authority.Revocations(0))
		return
	}
	if r.Method != http.MethodPut {
		rw.Write(w.authority.JWKS)
		return
	}
	var body struct {
		Draining bool `json:"draining"`
	}
	json.NewDecoder(r.Body).Decode(&body)
	w.puts <- body.Draining
	if w.alone && !body.Draining {
		io.WriteString(rw, `{"relays":[]}`)
		return
	}
	json.NewEncoder(rw).Encode(map[string]any{"relays": []map[string]string{
		{"id": "rl_3", "tunnel": "nonsense", "public_origin": "https://unlisted.example"},
		{"id": "rl_2", "tunnel": otherTunnel, "public_origin": otherOrigin},
	}})
}

// dial registers an agent as primary.
func (w *world) dial(addr string) *tunnel.Session {
	w.t.Helper()
	key, err := jws.GenerateDeviceKey()
	must(w.t, err)
	now := time.Now()
	certificate, err := w.authority.Signer.SignCertificate(jws.Certificate{
		Subject: relaytest.Sandbox, JWK: key.PublicJWK(), IssuedAt: now.Unix(), ExpiresAt: now.Add(time.Hour).Unix(), ID: "cert_1",
	})
	must(w.t, err)
	session, err := tunnel.Dial(w.t.Context(), tunnel.DialConfig{
		Addr: addr, TLS: &tls.Config{RootCAs: w.pool},
		Hello: func(c protocol.Challenge, exporter []byte) (protocol.Hello, error) {
			signature, err := key.Sign(protocol.HelloTranscript(c.RelayID, c.Nonce, exporter))
			return protocol.Hello{
				MinVersion: protocol.MinVersion, MaxVersion: protocol.MaxVersion, SandboxID: relaytest.Sandbox,
				Certificate: certificate, Generation: 1, InstanceID: "instance1", Isolation: "none", Signature: signature,
			}, err
		},
	})
	must(w.t, err)
	must(w.t, session.SendRole(protocol.Role{Primary: true, Generation: 1}))
	return session
}

// finish returns how long the relay takes to end from now on.
func (w *world) finish() time.Duration {
	w.t.Helper()
	began := time.Now()
	select {
	case err := <-w.ended:
		must(w.t, err)
	case <-time.After(longDrain):
		w.t.Fatal("the relay doesn't end")
	}
	return time.Since(began)
}

// TestDrain: the relay takes back its registration, tells the agent where else
// to go, and gives a command under way the time it needs.
func TestDrain(t *testing.T) {
	w := newWorld(t, longDrain)
	at := <-w.addresses
	if draining := <-w.puts; draining {
		t.Error("registered as draining")
	}
	agent := w.dial(at.Tunnel)
	if welcome := agent.Welcome(); welcome.Origin != "https://one.example" {
		t.Errorf("WELCOME %+v", welcome)
	}
	running, finish := make(chan struct{}), make(chan struct{})
	env := w.authority.Command(nil)
	relaytest.Answer(t, agent, func(in *tunnel.Incoming) {
		stream, err := in.Accept(protocol.Opened{})
		if err != nil {
			return
		}
		defer stream.Close()
		close(running)
		<-finish
		protocol.Write(stream, relaytest.OK(env.CommandID, protocol.OpResult{}))
	})
	answered := make(chan int, 1)
	go func() { answered <- submit(at.URL, env) }() // received below
	<-running
	w.stop()
	if m := <-agent.GoAways(); m.Reason != protocol.KindRestarting || !slices.Equal(m.Alternates, []string{otherTunnel}) ||
		m.DeadlineMS < longDrain.Milliseconds()/2 || m.DeadlineMS > longDrain.Milliseconds() {
		t.Errorf("GOAWAY %+v", m)
	}
	draining := false
	for len(w.puts) > 0 { // it may have been registered again before
		draining = <-w.puts
	}
	if !draining {
		t.Error("GOAWAY comes before the end of the registration")
	}
	must(t, agent.SendRole(protocol.Role{Generation: 2, Origin: otherOrigin}))
	close(finish)
	if status := <-answered; status != http.StatusOK {
		t.Errorf("the command under way is answered with %d", status)
	}
	agent.Close()
	if took := w.finish(); took > slowly {
		t.Errorf("ended %v after everybody had left", took)
	}
}

func submit(url string, env protocol.CommandEnvelope) int {
	body, err := json.Marshal(env)
	if err != nil {
		return 0
	}
	req, err := http.NewRequest(http.MethodPost, url+"/control/commands?wait=1", bytes.NewReader(body))
	if err != nil {
		return 0
	}
	req.Host = "one.example"
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// TestDrainEndsInTime: an agent that doesn't leave doesn't keep the relay.
// TestDrainOfANewcomer: a relay that knows no other one waits longer for the control
// plane, which may: without it nobody could be sent anywhere.
func TestDrainOfANewcomer(t *testing.T) {
	defer func(before time.Duration) { deregisterTimeout = before }(deregisterTimeout)
	deregisterTimeout = 0
	w := newWorldOf(t, longDrain, true)
	at := <-w.addresses
	for len(w.puts) > 0 {
		<-w.puts
	}
	agent := w.dial(at.Tunnel)
	w.stop()
	if m := <-agent.GoAways(); len(m.Alternates) != 1 {
		t.Errorf("GOAWAY %+v", m)
	}
	agent.Close()
	w.finish()
}

func TestDrainEndsInTime(t *testing.T) {
	const drain = 600 * time.Millisecond
	w := newWorld(t, drain)
	agent := w.dial((<-w.addresses).Tunnel)
	defer agent.Close()
	w.stop()
	if took := w.finish(); took > drain+slowly {
		t.Errorf("ended after %v", took)
	}
	<-agent.Done()
	if protocol.KindOf(agent.Err()) != protocol.KindRestarting {
		t.Errorf("the tunnel ended with %v", agent.Err())
	}
}

// certificate makes a certificate for loopback.
func certificate(t *testing.T) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	must(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	must(t, err)
	cert, key = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	must(t, os.WriteFile(cert, certPEM, 0o600))
	must(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(certPEM)
	return cert, key, pool
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

package agent

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/tunnel"
)

func TestMain(m *testing.M) {
	firstPatience = protocol.HandshakeTimeout // a slow machine has no relay that was killed
	goleak.VerifyTestMain(m)
}

const (
	sandbox    = protocol.SandboxID("sb_1")
	serverName = "controlplane.test"

	// patience is how long tests wait for what must come.
	patience = time.Minute
)

// A world is what an agent deals with: its directories, and a control plane
// and a relay of the test's own.
type world struct {
	t      *testing.T
	cfg    Config
	log    *lockedBuffer
	ca     tls.Certificate
	caPEM  string
	signer *jws.Signer // of the enrolment

	// Guarded by mu: what the control plane answers.
	mu     sync.Mutex
	jwks   []byte
	routes map[string]http.HandlerFunc
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(filepath.Dir(dir), 0o755)) // terminals' users pass through
	must(t, os.Chmod(dir, 0o755))
	w := &world{t: t, log: &lockedBuffer{}, routes: map[string]http.HandlerFunc{}}
	w.cfg = Config{
		StateDir: filepath.Join(dir, "state"), Workspace: filepath.Join(dir, "workspace"), Homes: filepath.Join(dir, "homes"),
		BrokerListen: "127.0.0.1:0", EgressListen: "127.0.0.1:0", MCPListen: "127.0.0.1:0",
		Revision: "rev1", Logger: slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	must(t, os.Mkdir(w.cfg.StateDir, 0o700))
	w.ca = certify(t, nil, "test CA")
	w.caPEM = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.ca.Certificate[0]}))
	w.signer, w.jwks = newKeys(t)
	w.enrol(func(*protocol.Enrolment) {})
	return w
}

func newKeys(t *testing.T) (*jws.Signer, []byte) {
	t.Helper()
	signer, err := jws.GenerateSigner()
	must(t, err)
	jwks, err := jws.MarshalKeySet(signer)
	must(t, err)
	return signer, jwks
}

// enrol writes the enrolment, which change may change.
func (w *world) enrol(change func(*protocol.Enrolment)) {
	w.t.Helper()
	e := protocol.Enrolment{
		SandboxID: sandbox, Certificate: "a.b.c",
		ControlPlane: protocol.EnrolledControlPlane{ServerName: serverName, CAPEM: w.caPEM},
		JWKS:         w.jwks, Relays: []string{"127.0.0.1:1"}, RelayCAPEM: w.caPEM,
	}
	change(&e)
	data, err := json.Marshal(e)
	must(w.t, err)
	must(w.t, os.WriteFile(filepath.Join(w.cfg.StateDir, enrolmentFile), data, 0o600))
}

// start makes an agent, which ends with the test.
func (w *world) start() *Agent {
	w.t.Helper()
	a, err := New(w.cfg)
	must(w.t, err)
	w.t.Cleanup(a.close)
	return a
}

// certify makes a certificate for a server, or without an authority one for
// itself.
func certify(t *testing.T, authority *tls.Certificate, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		BasicConstraintsValid: true, IsCA: authority == nil,
	}
	parent, parentKey := template, any(key)
	if authority != nil {
		parent, parentKey = authority.Leaf, authority.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	must(t, err)
	leaf, err := x509.ParseCertificate(der)
	must(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// listen starts a relay that lets admit decide, as the agent's only one.
func (w *world) listen(admit func(*tunnel.Registration) error) *tunnel.Listener {
	w.t.Helper()
	l := w.listenAs("rl_1", originOne, admit)
	w.cfg.Relays = []string{l.Addr().String()}
	return l
}

func (w *world) listenAs(id protocol.RelayID, origin string, admit func(*tunnel.Registration) error) *tunnel.Listener {
	w.t.Helper()
	conns := w.serveTLS(certify(w.t, &w.ca, serverName))
	return w.listenWith(tunnel.ListenConfig{
		RelayID: id, Origin: origin,
		Admit: func(_ context.Context, r *tunnel.Registration) error { return admit(r) },
		Connect: func(ctx context.Context, _ net.Addr) (net.Conn, error) {
			near, far := net.Pipe()
			select {
			case conns <- far:
				return near, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
	})
}

// listenWith starts a relay of cfg.
func (w *world) listenWith(cfg tunnel.ListenConfig) *tunnel.Listener {
	w.t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(w.t, err)
	cfg.Conn, cfg.TrustOrigin = conn, func(string) bool { return true }
	cfg.TLS = &tls.Config{Certificates: []tls.Certificate{certify(w.t, &w.ca, "relay.test")}}
	l, err := tunnel.Listen(cfg)
	must(w.t, err)
	w.t.Cleanup(func() { l.Close() })
	return l
}

// answerConnect serves the control plane on the connect streams of relay, the
// relay's end of a tunnel, until that ends.
func (w *world) answerConnect(relay *tunnel.Session, server tls.Certificate) {
	conns := w.serveTLS(server)
	done := make(chan struct{})
	w.t.Cleanup(func() {
		relay.Close()
		<-done
	})
	go func() { // the test's end waits for it
		defer close(done)
		for {
			in, err := relay.Accept(context.Background())
			if err != nil {
				return
			}
			if in.Open.Kind != protocol.StreamConnect {
				w.t.Errorf("the agent opens %s", in.Open.Kind)
			}
			if stream, err := in.Accept(protocol.Opened{}); err == nil {
				conns <- stream
			}
		}
	}()
}

// serveTLS serves the control plane on the connections that it is given.
func (w *world) serveTLS(server tls.Certificate) (conns chan<- net.Conn) {
	l := &connListener{make(chan net.Conn), make(chan struct{}), sync.Once{}}
	s := &http.Server{
		Handler:  http.HandlerFunc(w.answer),
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	done := make(chan struct{})
	go func() { // the test's end waits for it
		defer close(done)
		s.Serve(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{server}}))
	}()
	w.t.Cleanup(func() {
		s.Close()
		<-done
	})
	return l.conns
}

// answer is what the control plane says: what handle has for the route, or keys.
func (w *world) answer(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	handle, jwks := w.routes[r.Method+" "+r.URL.Path], w.jwks
	w.mu.Unlock()
	switch {
	case handle != nil:
		handle(rw, r)
	case r.URL.Path == keysPath:
		rw.Write(jwks)
	default:
		refuse(rw, http.StatusNotFound, "no such route")
	}
}

// handle sets what the control plane answers on a route, "GET /path".
func (w *world) handle(route string, f http.HandlerFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.routes[route] = f
}

func refuse(rw http.ResponseWriter, status int, message string) {
	rw.WriteHeader(status)
	json.NewEncoder(rw).Encode(map[string]any{"error": protocol.ErrorBody{Message: message}})
}

// A connListener accepts the connections that it is given.
type connListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *connListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *connListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *connListener) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "memory"} }

// waitFor waits until until holds.
func waitFor(t *testing.T, what string, until func() bool) {
	t.Helper()
	ctx := within(t)
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	for !until() {
		select {
		case <-poll.C:
		case <-ctx.Done():
			t.Fatalf("in vain: %s", what)
		}
	}
}

// within returns a context that ends before a test would hang.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

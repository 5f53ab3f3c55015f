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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	sandbox    = protocol.SandboxID("sb_1")
	serverName = "controlplane.test"
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

	mu   sync.Mutex
	jwks []byte // guarded by mu: what the control plane answers
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(filepath.Dir(dir), 0o755)) // terminals' users pass through
	must(t, os.Chmod(dir, 0o755))
	w := &world{t: t, log: &lockedBuffer{}}
	w.cfg = Config{
		StateDir: filepath.Join(dir, "state"), Workspace: filepath.Join(dir, "workspace"), Homes: filepath.Join(dir, "homes"),
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
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(w.t, err)
	l, err := tunnel.Listen(tunnel.ListenConfig{
		Conn: conn, RelayID: id, Origin: origin, TrustOrigin: func(string) bool { return true },
		TLS:   &tls.Config{Certificates: []tls.Certificate{certify(w.t, &w.ca, "relay.test")}},
		Admit: func(_ context.Context, r *tunnel.Registration) error { return admit(r) },
	})
	must(w.t, err)
	w.t.Cleanup(func() { l.Close() })
	return l
}

// answerConnect serves the control plane on the connect streams of relay, the
// relay's end of a tunnel, until that ends.
func (w *world) answerConnect(relay *tunnel.Session, server tls.Certificate) {
	var serving sync.WaitGroup
	done := make(chan struct{})
	w.t.Cleanup(func() { <-done })
	go func() { // the test's end waits for it
		defer close(done)
		defer serving.Wait()
		for {
			in, err := relay.Accept(context.Background())
			if err != nil {
				return
			}
			if in.Open.Kind != protocol.StreamConnect {
				w.t.Errorf("the agent opens %s", in.Open.Kind)
			}
			stream, err := in.Accept(protocol.Opened{})
			if err != nil {
				return
			}
			serving.Go(func() { w.serveKeys(tls.Server(stream, &tls.Config{Certificates: []tls.Certificate{server}})) })
		}
	}()
}

// serveKeys answers one request for keys.
func (w *world) serveKeys(conn net.Conn) {
	defer conn.Close()
	buf := make([]byte, 4096)
	n, err := conn.Read(buf)
	if err != nil || !bytes.HasPrefix(buf[:n], []byte("GET /.well-known/jwks.json HTTP/1.1\r\n")) {
		return
	}
	w.mu.Lock()
	jwks := w.jwks
	w.mu.Unlock()
	(&http.Response{
		StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Close: true,
		ContentLength: int64(len(jwks)), Body: http.NoBody,
	}).Write(conn)
	conn.Write(jwks)
}

// within returns a context that ends before a test would hang.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
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

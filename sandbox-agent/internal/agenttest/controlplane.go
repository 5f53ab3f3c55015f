package agenttest

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/tunnel"
)

// What a control plane's enrolments say.
const (
	Sandbox    = protocol.SandboxID("sb_1")
	serverName = "controlplane.test"
)

// A ControlPlane answers an agent over the connections that it is given.
type ControlPlane struct {
	CA     *Authority
	Signer *jws.Signer // of enrolments; its key is in the first key set

	tb              testing.TB
	conns, impostor chan<- net.Conn // to be answered

	// Guarded by mu.
	mu     sync.Mutex
	jwks   []byte
	routes map[string]http.HandlerFunc
}

// NewControlPlane starts a control plane, which ends with the test.
func NewControlPlane(tb testing.TB) *ControlPlane {
	tb.Helper()
	c := &ControlPlane{CA: NewAuthority(tb), tb: tb, routes: map[string]http.HandlerFunc{}}
	c.Signer, c.jwks = NewKeys(tb)
	c.conns, c.impostor = c.serve(c.CA), c.serve(NewAuthority(tb))
	return c
}

// NewKeys returns a signing key and the key set with its public half.
func NewKeys(tb testing.TB) (*jws.Signer, []byte) {
	tb.Helper()
	signer, err := jws.GenerateSigner()
	Must(tb, err)
	jwks, err := jws.MarshalKeySet(signer)
	Must(tb, err)
	return signer, jwks
}

// Known says how agents know the control plane.
func (c *ControlPlane) Known() protocol.EnrolledControlPlane {
	return protocol.EnrolledControlPlane{ServerName: serverName, CAPEM: c.CA.PEM}
}

// Enrolment returns one with a certificate of that text.
func (c *ControlPlane) Enrolment(certificate string) protocol.Enrolment {
	c.mu.Lock()
	defer c.mu.Unlock()
	return protocol.Enrolment{
		SandboxID: Sandbox, Certificate: certificate, ControlPlane: c.Known(),
		JWKS: c.jwks, Relays: []string{"127.0.0.1:1"}, RelayCAPEM: c.CA.PEM,
	}
}

// Certified returns an enrolment of a device key that is valid for so long.
func (c *ControlPlane) Certified(device json.RawMessage, id string, issued time.Time, life time.Duration) protocol.Enrolment {
	c.tb.Helper()
	certificate, err := c.Signer.SignCertificate(jws.Certificate{
		Subject: Sandbox, JWK: device, IssuedAt: issued.Unix(), ExpiresAt: issued.Add(life).Unix(), ID: id,
	})
	Must(c.tb, err)
	return c.Enrolment(certificate)
}

// Renews has the control plane renew certificates for whoever proves to have the
// key; those that it makes are called next. asked receives what is renewed.
func (c *ControlPlane) Renews(device json.RawMessage, next string, life time.Duration) (asked <-chan string) {
	requests := make(chan string, 100)
	c.Handle("POST /certificate", func(rw http.ResponseWriter, r *http.Request) {
		var req protocol.RenewRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil || !Proven(r, device, req.Signature, protocol.RenewTranscript) {
			Refuse(rw, http.StatusUnauthorized, "not the certified key")
			return
		}
		requests <- req.Certificate
		json.NewEncoder(rw).Encode(c.Certified(device, next, time.Now(), life))
	})
	return requests
}

// Proven reports whether signature is the device key's over the transcript of
// the connection.
func Proven(r *http.Request, device json.RawMessage, signature []byte, transcript func(protocol.SandboxID, []byte) []byte) bool {
	key, err := (&jws.Certificate{JWK: device}).PublicKey()
	if err != nil {
		return false
	}
	exporter, err := r.TLS.ExportKeyingMaterial(protocol.ExporterLabel, nil, 32)
	return err == nil && jws.VerifyDevice(key, transcript(Sandbox, exporter), signature)
}

// Grant returns a grant of the id gr_1 that signer has signed.
func Grant(tb testing.TB, signer *jws.Signer) string {
	tb.Helper()
	now := time.Now().Unix()
	token, err := signer.SignGrant(jws.Grant{
		Issuer: jws.Issuer, Audience: jws.AudienceFairlead, Subject: "usr_1", Sandbox: Sandbox,
		PTYs: []string{jws.AllPTYs}, Caps: []protocol.Capability{protocol.CapView},
		IssuedAt: now, ExpiresAt: now + 60, ID: "gr_1",
	})
	Must(tb, err)
	return token
}

// Handle sets what the control plane answers on a route, "GET /path"; nil is what
// it answers without.
func (c *ControlPlane) Handle(route string, f http.HandlerFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.routes[route] = f
}

// Publish sets the key set.
func (c *ControlPlane) Publish(jwks []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jwks = jwks
}

func (c *ControlPlane) answer(rw http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	handle, jwks := c.routes[r.Method+" "+r.URL.Path], c.jwks
	c.mu.Unlock()
	switch {
	case handle != nil:
		handle(rw, r)
	case r.URL.Path == "/.well-known/jwks.json":
		rw.Write(jwks)
	default:
		Refuse(rw, http.StatusNotFound, "no such route")
	}
}

// Refuse answers with an error.
func Refuse(rw http.ResponseWriter, status int, message string) {
	rw.WriteHeader(status)
	json.NewEncoder(rw).Encode(map[string]any{"error": protocol.ErrorBody{Message: message}})
}

// Dial opens a connection to the control plane.
func (c *ControlPlane) Dial(ctx context.Context) (net.Conn, error) { return dial(ctx, c.conns) }

// DialImpostor opens a connection to somebody who says the same, and whom another
// authority has certified.
func (c *ControlPlane) DialImpostor(ctx context.Context) (net.Conn, error) {
	return dial(ctx, c.impostor)
}

func dial(ctx context.Context, to chan<- net.Conn) (net.Conn, error) {
	near, far, err := socketPair()
	if err != nil {
		return nil, err
	}
	select {
	case to <- far:
		return near, nil
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), near.Close(), far.Close())
	}
}

// socketPair returns the ends of a connection. In contrast to net.Pipe's it
// buffers: both ends of a TLS handshake may write at the same time.
func socketPair() (near, far net.Conn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	ends := [2]net.Conn{}
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "socket")
		conn, connErr := net.FileConn(file) // it has a descriptor of its own
		ends[i], err = conn, errors.Join(err, connErr, file.Close())
	}
	return ends[0], ends[1], err
}

// Connect answers the connect streams of relay, the relay's end of a tunnel,
// until that ends.
func (c *ControlPlane) Connect(relay *tunnel.Session) {
	done := make(chan struct{})
	c.tb.Cleanup(func() {
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
				c.tb.Errorf("the agent opens %s", in.Open.Kind)
			}
			if stream, err := in.Accept(protocol.Opened{}); err == nil {
				c.conns <- stream
			}
		}
	}()
}

// serve answers on the connections that it is given.
func (c *ControlPlane) serve(by *Authority) chan<- net.Conn {
	l := &connListener{conns: make(chan net.Conn), done: make(chan struct{})}
	s := &http.Server{
		Handler:  http.HandlerFunc(c.answer),
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	done := make(chan struct{})
	go func() { // the test's end waits for it
		defer close(done)
		s.Serve(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{by.Certify(c.tb, serverName)}}))
	}()
	c.tb.Cleanup(func() {
		s.Close()
		<-done
	})
	return l.conns
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

package agenttest

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/tunnel"
)

// What a control plane's enrolments say.
const (
	Sandbox    = protocol.SandboxID("sb_1")
	serverName = "controlplane.test"
)

// KeysRoute is where a control plane has its key set.
const KeysRoute = "GET /.well-known/jwks.json"

// A ControlPlane answers an agent over the connections that it is given.
type ControlPlane struct {
	CA     *Authority
	Signer *jws.Signer // its key set has this key

	tb     testing.TB
	jwks   []byte
	server *httptest.Server

	// Guarded by mu.
	mu     sync.Mutex
	routes map[string]http.HandlerFunc
	relays []string // of enrolments
}

// NewControlPlane starts a control plane, which ends with the test.
func NewControlPlane(tb testing.TB) *ControlPlane {
	tb.Helper()
	c := &ControlPlane{CA: NewAuthority(tb), tb: tb, routes: map[string]http.HandlerFunc{}, relays: []string{"127.0.0.1:1"}}
	var err error
	c.Signer, err = jws.GenerateSigner()
	Must(tb, err)
	c.jwks, err = jws.MarshalKeySet(c.Signer)
	Must(tb, err)
	c.Handle(KeysRoute, func(rw http.ResponseWriter, _ *http.Request) { rw.Write(c.jwks) })
	c.server = httptest.NewUnstartedServer(http.HandlerFunc(c.answer))
	c.server.TLS = &tls.Config{Certificates: []tls.Certificate{c.CA.certify(tb, serverName)}}
	c.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	c.server.StartTLS()
	tb.Cleanup(c.server.Close)
	return c
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
		JWKS: c.jwks, Relays: c.relays, RelayCAPEM: c.CA.PEM,
	}
}

// List sets the relays of later enrolments.
func (c *ControlPlane) List(relays ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.relays = relays
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

// Handle sets what the control plane answers on a route, "GET /path".
func (c *ControlPlane) Handle(route string, f http.HandlerFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.routes[route] = f
}

func (c *ControlPlane) answer(rw http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	handle := c.routes[r.Method+" "+r.URL.Path]
	c.mu.Unlock()
	if handle == nil {
		Refuse(rw, http.StatusNotFound, "no such route")
		return
	}
	handle(rw, r)
}

// Refuse answers with an error.
func Refuse(rw http.ResponseWriter, status int, message string) {
	rw.WriteHeader(status)
	json.NewEncoder(rw).Encode(map[string]any{"error": protocol.ErrorBody{Message: message}})
}

// Dial opens a connection to the control plane.
func (c *ControlPlane) Dial(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", c.server.Listener.Addr().String())
}

// Connect answers the connect streams of relay, the relay's end of a tunnel,
// until that ends.
func (c *ControlPlane) Connect(relay *tunnel.Session) {
	var running sync.WaitGroup // the test's end waits for it
	c.tb.Cleanup(func() {
		relay.Close()
		running.Wait()
	})
	running.Go(func() {
		for {
			in, err := relay.Accept(context.Background())
			if err != nil {
				return
			}
			if in.Open.Kind != protocol.StreamConnect {
				c.tb.Errorf("the agent opens %s", in.Open.Kind)
			}
			stream, err := in.Accept(protocol.Opened{})
			if err != nil {
				continue
			}
			conn, err := c.Dial(context.Background())
			if err != nil {
				stream.Close()
				continue
			}
			copying := func(to, from net.Conn) {
				io.Copy(to, from)
				to.Close()
				from.Close()
			}
			running.Go(func() { copying(stream, conn) })
			running.Go(func() { copying(conn, stream) })
		}
	})
}

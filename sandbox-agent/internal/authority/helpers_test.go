package authority

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/agenttest"
	"github.com/fairlead/fairlead/tunnel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const sandbox = agenttest.Sandbox

// These are short for what agenttest has.
var must, within, waitFor, refuse = agenttest.Must, agenttest.Within, agenttest.WaitFor, agenttest.Refuse

// A world is what a sandbox's authority deals with: a state directory, a control
// plane, and the ways to that.
type world struct {
	*agenttest.ControlPlane
	t       *testing.T
	dir     string
	file    string // of the enrolment
	log     *agenttest.Log
	audit   recorded
	changed chan struct{}
	adopted adopted

	registered, unregistered atomic.Bool                            // these ways are open; the first is at the start
	astray                   atomic.Pointer[agenttest.ControlPlane] // where the ways lead instead
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	must(t, os.Mkdir(dir, 0o700))
	w := &world{
		ControlPlane: agenttest.NewControlPlane(t), t: t, dir: dir, file: filepath.Join(dir, EnrolmentFile),
		log: &agenttest.Log{}, changed: make(chan struct{}, 1), adopted: make(adopted, 10),
	}
	w.registered.Store(true)
	w.enrol(w.Enrolment("a.b.c"))
	return w
}

// enrol writes an enrolment.
func (w *world) enrol(e protocol.Enrolment) {
	w.t.Helper()
	data, err := json.Marshal(e)
	must(w.t, err)
	must(w.t, os.WriteFile(w.file, data, 0o600))
}

// enrolFor writes an enrolment with a certificate of its own, issued some time
// ago.
func (w *world) enrolFor(issued time.Time, life time.Duration) (certificate string) {
	w.t.Helper()
	device, err := DeviceKey(w.dir)
	must(w.t, err)
	e := w.Certified(device.PublicJWK(), "crt_old", issued, life)
	w.enrol(e)
	return e.Certificate
}

// open returns the sandbox's authority, which is closed with the test.
func (w *world) open() *Authority {
	w.t.Helper()
	id, err := Load(w.dir, w.file)
	must(w.t, err)
	a, err := Open(Options{
		Identity: id, KeysMaxAge: time.Hour, Dialer: ways{w}, Relays: w.adopted, Audit: &w.audit, Changed: w.changed, Log: w.log.Logger(),
	})
	must(w.t, err)
	w.t.Cleanup(func() { a.Close() })
	return a
}

// run has f run until the test ends.
func run(t *testing.T, f func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { // waited for below
		defer close(done)
		f(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// ways are those to a world's control plane that are open.
type ways struct{ w *world }

var errClosed = protocol.Errorf(protocol.KindUnavailable, "no way")

func (d ways) Dial(ctx context.Context) (net.Conn, error) {
	return d.dial(ctx, &d.w.registered)
}

func (d ways) DialUnregistered(ctx context.Context) (net.Conn, error) {
	return d.dial(ctx, &d.w.unregistered)
}

func (d ways) dial(ctx context.Context, open *atomic.Bool) (net.Conn, error) {
	if !open.Load() {
		return nil, errClosed
	}
	if other := d.w.astray.Load(); other != nil {
		return other.Dial(ctx)
	}
	return d.w.Dial(ctx)
}

// adopted receives the lists of relays that renewals bring.
type adopted chan []string

func (a adopted) Adopt(relays []string) { a <- relays }

// recorded is an audit log of so many records.
type recorded struct{ sequence uint64 }

func (r *recorded) Head() (protocol.AuditHead, []byte, error) {
	return protocol.AuditHead{Sequence: r.sequence}, []byte("signature"), nil
}

// listen starts a relay through which unregistered agents reach the control
// plane.
func (w *world) listen() (addr string) {
	w.t.Helper()
	return w.CA.Listen(w.t, tunnel.ListenConfig{
		RelayID: "rl_1", Connect: func(ctx context.Context, _ net.Addr) (net.Conn, error) { return w.Dial(ctx) },
	}).Addr().String()
}

// newKeys returns a signing key and the key set with its public half.
func newKeys(t *testing.T) (*jws.Signer, []byte) {
	t.Helper()
	signer, err := jws.GenerateSigner()
	must(t, err)
	jwks, err := jws.MarshalKeySet(signer)
	must(t, err)
	return signer, jwks
}

// signGrant returns a grant of the id gr_1.
func signGrant(t *testing.T, signer *jws.Signer) string {
	t.Helper()
	now := time.Now().Unix()
	token, err := signer.SignGrant(jws.Grant{
		Issuer: jws.Issuer, Audience: jws.AudienceFairlead, Subject: "usr_1", Sandbox: sandbox,
		PTYs: []string{jws.AllPTYs}, Caps: []protocol.Capability{protocol.CapView},
		IssuedAt: now, ExpiresAt: now + 60, ID: "gr_1",
	})
	must(t, err)
	return token
}

// publish sets the control plane's key set.
func publish(to *agenttest.ControlPlane, jwks []byte) {
	to.Handle(agenttest.KeysRoute, func(rw http.ResponseWriter, _ *http.Request) { rw.Write(jwks) })
}

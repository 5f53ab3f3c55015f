package wsslink

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/tunnel/internal/carrier"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func certificate(t testing.TB) (server, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	parsed, err := x509.ParseCertificate(der)
	must(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return &tls.Config{
			Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS13,
		},
		&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}
}

// A world is a relay's Listener on loopback.
type world struct {
	*Listener
	addr string
	tls  *tls.Config   // of agents
	told chan struct{} // after an outcome

	mu       sync.Mutex
	outcomes map[Outcome]int
	waiting  int // slots that are taken
}

// enter has slots for all.
func (w *world) enter(net.Addr, func()) (leave func()) {
	w.waits(1)
	return func() { w.waits(-1) }
}

// waits changes the number of slots that are taken, and returns it.
func (w *world) waits(change int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting += change
	return w.waiting
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{outcomes: map[Outcome]int{}, told: make(chan struct{}, 1)}
	w.Listener = NewListener(func(o Outcome) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.outcomes[o]++
		select {
		case w.told <- struct{}{}:
		default:
		}
	}, w.enter, slog.New(slog.DiscardHandler))
	var server *tls.Config
	server, w.tls = certificate(t)
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	w.addr = tcp.Addr().String()
	w.Serve(tcp, server)
	t.Cleanup(func() { w.Close() })
	return w
}

func (w *world) counted(o Outcome) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.outcomes[o]
}

// awaits waits until an outcome has been counted so often: the agent's end may
// know first.
func (w *world) awaits(t testing.TB, o Outcome, n int) {
	t.Helper()
	late := within(t)
	for w.counted(o) < n {
		select {
		case <-w.told:
		case <-late.Done():
			t.Fatalf("%d times %s, want %d", w.counted(o), o, n)
		}
	}
}

// pair returns both ends of a link and of its first stream.
func (w *world) pair(t testing.TB) (agent, relay carrier.Conn, near, far carrier.Stream) {
	t.Helper()
	agent, err := Dial(within(t), w.addr, w.tls)
	must(t, err)
	relay, err = w.Accept(within(t))
	must(t, err)
	near, err = agent.Open(within(t))
	must(t, err)
	far, err = relay.Accept(within(t))
	must(t, err)
	return agent, relay, near, far
}

// join makes further streams of a link possible, as WELCOME does.
func join(agent, relay carrier.Conn) {
	agent.(carrier.Joiner).Join(relay.(carrier.Joiner).Secret())
}

// over waits for the end of a link.
func over(t testing.TB, conn carrier.Conn) error {
	t.Helper()
	select {
	case <-conn.Done():
		return conn.Err()
	case <-within(t).Done():
		t.Fatal("the link goes on")
		return nil
	}
}

package quiclink

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel/internal/carrier"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A mortal is a socket that can die as a killed process's does: without a word.
type mortal struct {
	net.PacketConn
	dead atomic.Bool
	once bool // one packet gets in, of at most 64 B: QUIC probes the path with others
	kept bool // the socket outlives it, for who comes after

	had bool // owned by who reads
}

func (m *mortal) ReadFrom(p []byte) (n int, from net.Addr, err error) {
	for {
		n, from, err = m.PacketConn.ReadFrom(p)
		if err != nil || !m.once {
			return n, from, err
		}
		if n <= 64 && !m.had {
			m.had = true
			return n, from, nil
		}
	}
}

func (m *mortal) Close() error {
	if m.kept {
		return nil
	}
	return m.PacketConn.Close()
}

func (m *mortal) WriteTo(p []byte, to net.Addr) (int, error) {
	if m.dead.Load() {
		return len(p), nil
	}
	return m.PacketConn.WriteTo(p, to)
}

// A relay is a listener that can be killed.
type relay struct {
	t        *testing.T
	socket   *mortal
	listener *Listener
}

// ackDelay is longer than QUIC holds back an acknowledgement.
const ackDelay = 50 * time.Millisecond

var resetKey, tokenKey = make([]byte, 32), make([]byte, 32)

func start(t *testing.T, socket *mortal, config *tls.Config) *relay {
	t.Helper()
	listener, err := Listen(socket, config, resetKey, tokenKey)
	must(t, err)
	return &relay{t: t, socket: socket, listener: listener}
}

// loopback returns a socket of its own.
func loopback(t *testing.T) *mortal {
	t.Helper()
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	return &mortal{PacketConn: socket}
}

func (r *relay) kill() {
	r.socket.dead.Store(true)
	r.listener.Close()
}

// connect returns the agent's end of a connection to r and a stream of it that
// r has seen.
func connect(t *testing.T, r *relay, pool *x509.CertPool) (carrier.Conn, carrier.Stream) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := Dial(ctx, r.listener.Addr().String(), &tls.Config{RootCAs: pool})
	must(t, err)
	s, err := conn.Open(ctx)
	must(t, err)
	must(t, protocol.Write(s, protocol.Ping{}))
	accepted, err := r.listener.Accept(ctx)
	must(t, err)
	peer, err := accepted.Accept(ctx)
	must(t, err)
	_, err = io.ReadFull(peer, make([]byte, 13))
	must(t, err)
	must(t, protocol.Write(peer, protocol.Pong{}))
	_, err = io.ReadFull(s, make([]byte, 13))
	must(t, err)
	<-time.After(ackDelay) // from then on a PING is all that a packet holds
	return conn, s
}

// died waits for the end of conn after the agent's next PING.
func died(t *testing.T, conn carrier.Conn, s carrier.Stream) error {
	t.Helper()
	if err := protocol.Write(s, protocol.Ping{ID: 1}); err != nil {
		t.Logf("the PING: %v", err)
	}
	select {
	case <-conn.Done():
		return conn.Err()
	case <-time.After(time.Minute):
		t.Fatal("the agent goes on with a dead relay")
		return nil
	}
}

// A relay that was killed and started again on its port ends the tunnels of
// its predecessor with the first packet, a lone PING.
func TestStatelessReset(t *testing.T) {
	config, pool := certificate(t)
	first := start(t, loopback(t), config)
	conn, s := connect(t, first, pool)
	first.socket.kept = true // so that nobody else, and no ICMP answer, comes in between
	first.kill()
	socket := first.socket.PacketConn
	must(t, socket.SetDeadline(time.Time{}))
	second := start(t, &mortal{PacketConn: socket, once: true}, config)
	defer second.kill()
	err := died(t, conn, s)
	if reset := (*quic.StatelessResetError)(nil); !errors.As(err, &reset) {
		t.Errorf("ended with %v, want a stateless reset", err)
	}
}

// The ICMP answer of a host where nobody listens ends a tunnel at once.
func TestNobodyListens(t *testing.T) {
	config, pool := certificate(t)
	r := start(t, loopback(t), config)
	conn, s := connect(t, r, pool)
	addr := r.listener.Addr().String()
	r.kill()
	if err := died(t, conn, s); !refused(err) { // silence has another one, later
		t.Errorf("ended with %v", err)
	}
	if _, err := Dial(t.Context(), addr, &tls.Config{RootCAs: pool}); !refused(err) {
		t.Errorf("a dial to nobody ended with %v", err)
	}
}

func refused(err error) bool {
	return err != nil && (errors.Is(err, syscall.ECONNREFUSED) || strings.Contains(err.Error(), "refused"))
}

func certificate(t *testing.T) (*tls.Config, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	leaf, err := x509.ParseCertificate(der)
	must(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, pool
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

package baseline

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
)

const (
	rawALPN = "fairlead-baseline"
	// rawIdle ends a QUIC connection that is silent for so long; rawKeepAlive
	// keeps it between two blocks.
	rawIdle      = 10 * time.Second
	rawKeepAlive = 2 * time.Second
	// certificateLife outlasts every run.
	certificateLife = 7 * 24 * time.Hour
)

// rawConfig is that of the tunnel's QUIC connections as far as throughput goes:
// the library's own windows.
func rawConfig() *quic.Config {
	return &quic.Config{MaxIdleTimeout: rawIdle, KeepAlivePeriod: rawKeepAlive}
}

// sinks are the listeners that take what [transfer] sends: over TCP, over QUIC,
// and through a tunnel whose relay end they are.
type sinks struct {
	at     addresses
	cert   tls.Certificate
	cancel context.CancelFunc
	tcp    net.Listener
	raw    *quic.Listener
	tunnel *tunnel.Listener

	serving sync.WaitGroup

	mu       sync.Mutex
	sessions map[protocol.SandboxID]*tunnel.Session // guarded by mu
}

func listenSinks(ctx context.Context) (_ *sinks, err error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &sinks{cancel: cancel, sessions: make(map[protocol.SandboxID]*tunnel.Session)}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	cert, ca, err := certificate()
	if err != nil {
		return nil, err
	}
	s.cert, s.at.CA = cert, ca
	if s.tcp, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	config := &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{rawALPN}}
	if s.raw, err = quic.ListenAddr("127.0.0.1:0", config, rawConfig()); err != nil {
		return nil, err
	}
	if err := s.listenTunnel(cert); err != nil {
		return nil, err
	}
	s.at.TCP, s.at.QUIC, s.at.Tunnel = s.tcp.Addr().String(), s.raw.Addr().String(), s.tunnel.Addr().String()
	s.serving.Go(func() { s.serveTCP(ctx) })
	s.serving.Go(func() { s.serveQUIC(ctx) })
	s.serving.Go(func() { s.serveTunnel(ctx) })
	return s, nil
}

func (s *sinks) listenTunnel(cert tls.Certificate) error {
	socket, listener, err := samePort()
	if err != nil {
		return err
	}
	s.tunnel, err = tunnel.Listen(tunnel.ListenConfig{
		Conn: socket, WebSocket: listener, TLS: &tls.Config{Certificates: []tls.Certificate{cert}}, RelayID: "rl_baseline",
		Admit: func(context.Context, *tunnel.Registration) error { return nil },
	})
	return err
}

// portAttempts is how often a port is tried that must be free for UDP and TCP.
const portAttempts = 20

// samePort listens on one port of loopback for both carriers.
func samePort() (udp net.PacketConn, tcp net.Listener, err error) {
	for range portAttempts {
		if udp, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
			return nil, nil, err
		}
		if tcp, err = net.Listen("tcp", udp.LocalAddr().String()); err == nil {
			return udp, tcp, nil
		}
		udp.Close()
	}
	return nil, nil, err
}

func (s *sinks) close() {
	s.cancel()
	if s.tcp != nil {
		s.tcp.Close()
	}
	if s.raw != nil {
		s.raw.Close()
	}
	if s.tunnel != nil {
		s.tunnel.Close()
	}
	s.serving.Wait()
}

func (s *sinks) serveTCP(ctx context.Context) {
	for {
		conn, err := s.tcp.Accept()
		if err != nil {
			return
		}
		s.serving.Go(func() {
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			drain(conn) //nolint:errcheck // the other end misses the answer
		})
	}
}

func (s *sinks) serveQUIC(ctx context.Context) {
	for {
		conn, err := s.raw.Accept(ctx)
		if err != nil {
			return
		}
		s.serving.Go(func() {
			defer conn.CloseWithError(0, "")
			for {
				stream, err := conn.AcceptStream(ctx)
				if err != nil {
					return
				}
				s.serving.Go(func() {
					defer stream.Close()
					drain(stream) //nolint:errcheck // the other end misses the answer
				})
			}
		})
	}
}

func (s *sinks) serveTunnel(ctx context.Context) {
	for {
		session, err := s.tunnel.Accept(ctx)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.sessions[session.Hello().SandboxID] = session
		s.mu.Unlock()
	}
}

// tunnelStreams asks the relay's end of a tunnel for streams.
type tunnelStreams struct {
	Sandbox protocol.SandboxID `json:"sandbox"`
	Streams int                `json:"streams"`
	Bulk    bool               `json:"bulk"` // as downloads are, else as terminals
}

// lanes carry the streams as a relay spreads terminals.
var lanes = [...]protocol.Lane{protocol.LaneTerminal0, protocol.LaneTerminal1, protocol.LaneTerminal2, protocol.LaneTerminal3}

// openStreams opens streams to an agent, as a relay does, which then sends.
func (s *sinks) openStreams(ctx context.Context, want tunnelStreams) error {
	s.mu.Lock()
	session := s.sessions[want.Sandbox]
	s.mu.Unlock()
	if session == nil {
		return errors.New("no such tunnel")
	}
	for i := range want.Streams {
		lane, kind := lanes[i%len(lanes)], protocol.StreamTerminal
		if want.Bulk {
			lane, kind = protocol.LaneBulk, protocol.StreamHTTP
		}
		stream, _, err := session.Open(ctx, lane, protocol.Open{Kind: kind})
		if err != nil {
			return fmt.Errorf("stream %d: %w", i+1, err)
		}
		s.serving.Go(func() { // ends with the tunnel
			defer stream.Close()
			drain(stream) //nolint:errcheck // the other end misses the answer
		})
	}
	return nil
}

// certificate makes a certificate for loopback and returns it as PEM, too.
func certificate() (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(certificateLife),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, block, nil
}

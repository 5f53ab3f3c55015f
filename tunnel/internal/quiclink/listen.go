package quiclink

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"golang.org/x/time/rate"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel/internal/carrier"
)

// A Listener accepts connections from agents.
type Listener struct {
	// Static after construction.
	transport *quic.Transport
	listener  *quic.Listener
	socket    net.PacketConn
	repeater  *repeater     // nil unless the socket is the kernel's
	joining   chan struct{} // a semaphore of connections that are joining
	running   sync.WaitGroup

	// Guarded by mu.
	mu    sync.Mutex
	links map[string]*link // joinable links by their protocol name
}

// Listen accepts connections on socket, which it owns. The keys are 32 bytes
// each, or empty; with the same keys a restarted relay ends its predecessor's
// connections at once (RFC 9000 §10.3).
func Listen(socket net.PacketConn, tlsConfig *tls.Config, resetKey, tokenKey []byte) (*Listener, error) {
	l := &Listener{socket: socket, joining: make(chan struct{}, maxJoining), links: map[string]*link{}}
	free := rate.NewLimiter(freeHandshakesPerSecond, freeHandshakeBurst)
	l.transport = &quic.Transport{
		Conn:                socket,
		ConnectionIDLength:  connectionIDBytes,
		VerifySourceAddress: func(net.Addr) bool { return !free.Allow() },
	}
	if udp, ok := socket.(*net.UDPConn); ok {
		var err error
		if l.repeater, err = newRepeater(udp); err != nil {
			return nil, fmt.Errorf("quiclink: %w", err)
		}
		l.transport.Conn = l.repeater
	}
	if len(resetKey) == len(quic.StatelessResetKey{}) {
		l.transport.StatelessResetKey = (*quic.StatelessResetKey)(resetKey)
	}
	if len(tokenKey) == len(quic.TokenGeneratorKey{}) {
		l.transport.TokenGeneratorKey = (*quic.TokenGeneratorKey)(tokenKey)
	}
	tlsConfig = withALPN(tlsConfig, protocol.ALPN)
	tlsConfig.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		return l.joinable(tlsConfig, hello.SupportedProtos)
	}
	var err error
	if l.listener, err = l.transport.Listen(tlsConfig, config()); err != nil {
		return nil, errors.Join(fmt.Errorf("quiclink: %w", err), l.transport.Close())
	}
	return l, nil
}

// joinable returns the configuration for a connection that wants to join a
// link, nil for others. If the link isn't here the connection fails at once,
// and the agent opens its stream on the connection that it has.
func (l *Listener) joinable(base *tls.Config, protocols []string) (*tls.Config, error) {
	if len(protocols) != 1 || !strings.HasPrefix(protocols[0], joinALPN) {
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.links[protocols[0]] == nil {
		return nil, errors.New("quiclink: no such link")
	}
	config := withALPN(base, protocols[0])
	config.GetConfigForClient = nil
	return config, nil
}

// Accept returns the next connection after its TLS handshake.
func (l *Listener) Accept(ctx context.Context) (carrier.Conn, error) {
	for {
		conn, err := l.listener.Accept(ctx)
		if err != nil {
			return nil, err
		}
		alpn := conn.ConnectionState().TLS.NegotiatedProtocol
		if alpn == protocol.ALPN {
			k := newLink(conn, nil, l)
			l.watch(conn, k)
			return k, nil
		}
		select {
		case l.joining <- struct{}{}:
			l.running.Go(func() {
				defer func() { <-l.joining }()
				l.join(alpn, conn)
			})
		default:
			conn.CloseWithError(quic.ApplicationErrorCode(protocol.KindTooMany), "too many handshakes")
		}
	}
}

// join makes the first stream of conn a stream of the named link, if it has
// that link's secret.
func (l *Listener) join(alpn string, conn *quic.Conn) {
	ctx, cancel := context.WithTimeout(conn.Context(), protocol.HandshakeTimeout)
	defer cancel()
	s, err := conn.AcceptStream(ctx)
	if err != nil {
		conn.CloseWithError(quic.ApplicationErrorCode(protocol.KindInvalid), "no stream in time")
		return
	}
	secret := make([]byte, secretBytes)
	s.SetReadDeadline(time.Now().Add(protocol.HandshakeTimeout))
	_, err = io.ReadFull(s, secret)
	s.SetReadDeadline(time.Time{})
	l.mu.Lock()
	to := l.links[alpn]
	l.mu.Unlock()
	if err != nil || to == nil || !to.adopt(secret, conn, s) {
		conn.CloseWithError(quic.ApplicationErrorCode(protocol.KindForbidden), "no such link")
		return
	}
	l.watch(conn, to)
}

// Joins implements wsslink.Host.
func (l *Listener) Joins(secret []byte) bool {
	to := l.of(secret)
	return to != nil && to.has(secret)
}

// Adopt implements wsslink.Host.
func (l *Listener) Adopt(secret []byte, s carrier.Stream) bool {
	to := l.of(secret)
	return to != nil && to.has(secret) && to.deliver(s)
}

// of returns the link of a name that is made of the secret.
func (l *Listener) of(secret []byte) *link {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.links[joinName(secret)]
}

// watch repeats small packets of k's connection while some are lost.
func (l *Listener) watch(conn *quic.Conn, k *link) {
	if l.repeater != nil {
		l.repeater.watch(conn, &k.quality)
	}
}

// offer lets connections join k until it ends.
func (l *Listener) offer(k *link, secret []byte) {
	alpn := joinName(secret)
	l.mu.Lock()
	l.links[alpn] = k
	l.mu.Unlock()
	context.AfterFunc(k.conn.Context(), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.links, alpn)
	})
}

// joinName returns the protocol name for joining the link with secret. It is
// visible on the path, so it is a hash.
func joinName(secret []byte) string {
	sum := sha256.Sum256(append([]byte("fairlead lane "), secret...))
	return joinALPN + encoding.EncodeToString(sum[:])
}

// Addr returns the local address.
func (l *Listener) Addr() net.Addr { return l.socket.LocalAddr() }

// Close ends the listener and all its connections.
func (l *Listener) Close() error {
	err := errors.Join(l.listener.Close(), l.transport.Close(), l.socket.Close())
	l.running.Wait()
	return err
}

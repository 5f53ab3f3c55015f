// Package quiclink carries tunnels over QUIC.
package quiclink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel/internal/carrier"
)

const (
	// idleTimeout ends a silent connection. The tunnel's PINGs are much more
	// frequent.
	idleTimeout = 10 * time.Second
	// maxStreams bounds the streams a peer may have open: the control stream
	// and its lanes.
	maxStreams = 16
	// Handshakes beyond these rates must prove their address first (RFC 9000
	// §8.1), so that a flood with forged addresses is cheap for us.
	freeHandshakesPerSecond = 50
	freeHandshakeBurst      = 100

	// connectionIDBytes is the length of the relay's connection ids. quic-go
	// answers a packet with a stateless reset only if the reset is shorter, which
	// a lone PING with the default of 4 B (40 B in all) doesn't allow.
	connectionIDBytes = 12

	// maxReason bounds the reason of a close in bytes: it must fit one packet, or
	// quic-go sends no close.
	maxReason = 256

	exporterLabel = "EXPORTER-fairlead"
	exporterBytes = 32
)

func config() *quic.Config {
	return &quic.Config{
		HandshakeIdleTimeout:  protocol.HandshakeTimeout / 2, // quic-go allows twice that in all
		MaxIdleTimeout:        idleTimeout,
		MaxIncomingStreams:    maxStreams,
		MaxIncomingUniStreams: -1,
	}
}

func withALPN(config *tls.Config, alpn string) *tls.Config {
	config = config.Clone()
	config.NextProtos = []string{alpn}
	return config
}

// Dial connects to a relay at addr ("host:port").
func Dial(ctx context.Context, addr string, tlsConfig *tls.Config) (carrier.Conn, error) {
	remote, err := resolve(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("quiclink: %w", err)
	}
	tlsConfig = tlsConfig.Clone()
	if tlsConfig.ServerName == "" {
		tlsConfig.ServerName, _, _ = net.SplitHostPort(addr)
	}
	if tlsConfig.ClientSessionCache == nil { // further lanes dial the same relay
		tlsConfig.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	}
	d := &dialer{remote: remote, tls: tlsConfig}
	conn, err := d.dial(ctx, protocol.ALPN, 0)
	if err != nil {
		return nil, err
	}
	return newLink(conn, d, nil), nil
}

// resolve returns a relay's address.
func resolve(ctx context.Context, addr string) (*net.UDPAddr, error) {
	host, service, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "udp", service)
	if err != nil {
		return nil, err
	}
	ips, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil {
		return nil, err
	}
	for _, ip := range ips { // like net.ResolveUDPAddr
		if ip.IP.To4() != nil {
			return &net.UDPAddr{IP: ip.IP, Port: port}, nil
		}
	}
	return &net.UDPAddr{IP: ips[0].IP, Port: port, Zone: ips[0].Zone}, nil
}

// A dialer dials one relay.
type dialer struct {
	remote  *net.UDPAddr
	tls     *tls.Config
	quality quality
}

// dial dials over a new socket.
func (d *dialer) dial(ctx context.Context, alpn string, keepAlive time.Duration) (*quic.Conn, error) {
	socket, err := connectedSocket(d.remote)
	if err != nil {
		return nil, fmt.Errorf("quiclink: %w", err)
	}
	repeating, err := newRepeater(socket)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("quiclink: %w", err), socket.Close())
	}
	repeating.join()
	transport := &quic.Transport{Conn: repeating}
	options := config()
	options.KeepAlivePeriod = keepAlive
	conn, err := transport.Dial(ctx, d.remote, withALPN(d.tls, alpn), options)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("quiclink: %w", err), transport.Close(), socket.Close())
	}
	repeating.watch(conn, &d.quality)
	context.AfterFunc(conn.Context(), func() { // the socket serves only this connection
		transport.Close()
		socket.Close()
	})
	return conn, nil
}

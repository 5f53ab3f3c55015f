package wsslink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel/internal/carrier"
)

// Dial connects to a relay at addr ("host:port") and verifies it as tlsConfig
// says. If the relay refuses, the error is a *protocol.Error.
func Dial(ctx context.Context, addr string, tlsConfig *tls.Config) (carrier.Conn, error) {
	d := newDialer(addr, tlsConfig)
	s, header, err := d.dial(ctx, nil)
	if err != nil {
		return nil, err
	}
	exporter, err := exporterOf(s.raw, header)
	if err != nil {
		s.raw.Close()
		return nil, err
	}
	l := newLink(exporter, s.raw.RemoteAddr())
	l.dial = func(ctx context.Context, secret []byte) (*socket, error) {
		s, _, err := d.dial(ctx, secret)
		return s, err
	}
	l.first, l.opener = s, s
	return l, l.add(s)
}

// forHTTP returns config for TLS 1.3 and HTTP/1.1, which allows upgrades.
func forHTTP(config *tls.Config) *tls.Config {
	config = config.Clone()
	config.NextProtos, config.MinVersion = []string{"http/1.1"}, tls.VersionTLS13
	return config
}

// exporterOf returns what binds a registration to the connection, nothing if
// the relay says that TLS ends in front of it. Lying about that is useless: the
// relay verifies against what it knows itself.
func exporterOf(raw *rawConn, header http.Header) ([]byte, error) {
	if slices.Contains(header.Values(exporterHeader), exporterNone) {
		return nil, nil
	}
	state := raw.Conn.(*tls.Conn).ConnectionState()
	return state.ExportKeyingMaterial(exporterLabel, nil, exporterBytes)
}

// A dialer opens the sockets of one link.
type dialer struct {
	addr string // the relay's name
	at   string // where it is
	tls  *tls.Config
}

func newDialer(addr string, tlsConfig *tls.Config) *dialer {
	d := &dialer{addr: addr, at: addr, tls: forHTTP(tlsConfig)}
	if d.tls.ServerName == "" {
		d.tls.ServerName, _, _ = net.SplitHostPort(addr)
	}
	return d
}

// dial opens a socket, and returns the relay's response header; with a secret
// it joins that tunnel.
func (d *dialer) dial(ctx context.Context, secret []byte) (*socket, http.Header, error) {
	raw, err := d.connect(ctx) // a Transport would continue dialling after the end of ctx
	if err != nil {
		return nil, nil, d.refusal(ctx, nil, err)
	}
	transport := &http.Transport{ // for one connection, without a proxy
		DialTLSContext:    func(context.Context, string, string) (net.Conn, error) { return raw, nil },
		DisableKeepAlives: true,
	}
	header := http.Header{}
	if len(secret) > 0 {
		header.Set(secretHeader, encoding.EncodeToString(secret))
	}
	ws, response, err := websocket.Dial(ctx, "wss://"+d.addr+Path, &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}},
		HTTPHeader: header, Subprotocols: []string{Subprotocol}, CompressionMode: websocket.CompressionDisabled,
	})
	if err == nil && ws.Subprotocol() != Subprotocol {
		err = errors.New("the relay doesn't speak " + Subprotocol)
	}
	if err != nil {
		raw.Close()
		return nil, nil, d.refusal(ctx, response, err)
	}
	return newSocket(ws, raw, true), response.Header, nil
}

// refusal returns why there is no socket.
func (d *dialer) refusal(ctx context.Context, response *http.Response, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("wsslink: %w", ctx.Err())
	}
	if response == nil || response.StatusCode == http.StatusSwitchingProtocols {
		return fmt.Errorf("wsslink: %w", err)
	}
	kind := protocol.KindByStatus(response.StatusCode)
	return protocol.Errorf(kind, "wsslink: the relay answers %d", response.StatusCode)
}

// connect opens a TLS connection.
func (d *dialer) connect(ctx context.Context) (*rawConn, error) {
	tcp, err := (&net.Dialer{}).DialContext(ctx, "tcp", d.at)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(tcp, d.tls)
	if err := conn.HandshakeContext(ctx); err != nil {
		tcp.Close()
		return nil, err
	}
	return &rawConn{Conn: conn, tcp: tcp}, nil
}

// A rawConn is a connection whose Close doesn't block: TLS would send a close
// alert, which WebSocket close frames make unnecessary.
type rawConn struct {
	net.Conn
	tcp    net.Conn
	failed atomic.Bool // a read has failed

	sent, received atomic.Uint64 // bytes inside TLS
}

func (c *rawConn) Close() error { return c.tcp.Close() }

func (c *rawConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.received.Add(uint64(n))
	if err != nil {
		c.failed.Store(true)
	}
	return n, err
}

func (c *rawConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.sent.Add(uint64(n))
	return n, err
}

package baseline

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
)

// QUICAddr, TCPAddr and TunnelAddr are where the process listens ("host:port"),
// for who wants to put something in between.
func (s *Server) QUICAddr() string   { return s.at.QUIC }
func (s *Server) TCPAddr() string    { return s.at.TCP }
func (s *Server) TunnelAddr() string { return s.at.Tunnel }

// SendTCP sends over one TCP connection for the time of d. via is dialled
// instead of the process, unless it is empty.
func (s *Server) SendTCP(ctx context.Context, via string, d time.Duration) (Transfer, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", cmp.Or(via, s.at.TCP))
	if err != nil {
		return Transfer{}, fmt.Errorf("raw TCP: %w", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(d + answerTimeout)); err != nil {
		return Transfer{}, err
	}
	return transfer(ctx, []halfCloser{conn.(*net.TCPConn)}, d)
}

// A QUIC is a connection to the process.
type QUIC struct{ conn *quic.Conn }

// DialQUIC connects to the process, or to via unless that is empty.
func (s *Server) DialQUIC(ctx context.Context, via string) (*QUIC, error) {
	conn, err := quic.DialAddr(ctx, cmp.Or(via, s.at.QUIC), &tls.Config{
		RootCAs: s.pool, ServerName: "127.0.0.1", NextProtos: []string{rawALPN},
	}, rawConfig())
	if err != nil {
		return nil, fmt.Errorf("raw QUIC: %w", err)
	}
	return &QUIC{conn}, nil
}

// Send sends over one stream of the connection for the time of d.
func (q *QUIC) Send(ctx context.Context, d time.Duration) (Transfer, error) {
	stream, err := q.conn.OpenStreamSync(ctx)
	if err != nil {
		return Transfer{}, fmt.Errorf("raw QUIC: %w", err)
	}
	defer stream.CancelRead(0)
	if err := stream.SetDeadline(time.Now().Add(d + answerTimeout)); err != nil {
		return Transfer{}, err
	}
	return transfer(ctx, []halfCloser{quicStream{stream}}, d)
}

// Close ends the connection.
func (q *QUIC) Close() { q.conn.CloseWithError(0, "") }

type quicStream struct{ *quic.Stream }

func (s quicStream) CloseWrite() error { return s.Stream.Close() }

// A Tunnel is the agent's end of a tunnel to the process.
type Tunnel struct {
	server  *Server
	session *tunnel.Session
}

// DialTunnel registers at the process as an agent does at a relay, at via unless
// that is empty, over one carrier. sandbox tells several tunnels apart.
func (s *Server) DialTunnel(ctx context.Context, via string, carrier tunnel.Carrier, sandbox protocol.SandboxID) (*Tunnel, error) {
	session, err := tunnel.Dial(ctx, tunnel.DialConfig{
		Addr: cmp.Or(via, s.at.Tunnel), TLS: &tls.Config{RootCAs: s.pool, ServerName: "127.0.0.1"},
		Carriers: []tunnel.Carrier{carrier},
		Hello: func(protocol.Challenge, []byte) (protocol.Hello, error) {
			return protocol.Hello{
				MinVersion: protocol.MinVersion, MaxVersion: protocol.MaxVersion, SandboxID: sandbox,
				Certificate: "none", Generation: 1, InstanceID: "baseline", Isolation: "none",
			}, nil
		},
	})
	if err != nil {
		return nil, fmt.Errorf("tunnel: %w", err)
	}
	return &Tunnel{s, session}, nil
}

// Send sends on several streams at once for the time of d, spread over the
// lanes as terminals are.
func (t *Tunnel) Send(ctx context.Context, streams int, d time.Duration) (Transfer, error) {
	return t.send(ctx, tunnelStreams{Streams: streams}, d)
}

// SendBulk sends on one stream for the time of d, as a download does.
func (t *Tunnel) SendBulk(ctx context.Context, d time.Duration) (Transfer, error) {
	return t.send(ctx, tunnelStreams{Streams: 1, Bulk: true}, d)
}

func (t *Tunnel) send(ctx context.Context, open tunnelStreams, d time.Duration) (Transfer, error) {
	open.Sandbox = t.session.Hello().SandboxID
	want, err := json.Marshal(open)
	if err != nil {
		return Transfer{}, err
	}
	asked := make(chan error, 1)
	go func() { // ends before this function, which receives
		var opened int
		asked <- t.server.post(ctx, "/tunnel", want, &opened)
	}()
	conns, err := t.accept(ctx, open.Streams, d)
	if err = errors.Join(err, <-asked); err != nil {
		return Transfer{}, fmt.Errorf("tunnel: %w", err)
	}
	defer func() {
		for _, c := range conns {
			c.(*tunnel.Stream).Close()
		}
	}()
	return transfer(ctx, conns, d)
}

func (t *Tunnel) accept(ctx context.Context, streams int, d time.Duration) ([]halfCloser, error) {
	var conns []halfCloser
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	for range streams {
		in, err := t.session.Accept(ctx)
		if err != nil {
			return conns, err
		}
		stream, err := in.Accept(protocol.Opened{})
		if err != nil {
			return conns, err
		}
		if err := stream.SetDeadline(time.Now().Add(d + answerTimeout)); err != nil {
			return conns, err
		}
		conns = append(conns, stream)
	}
	return conns, nil
}

// Close ends the tunnel.
func (t *Tunnel) Close() { t.session.Close() }

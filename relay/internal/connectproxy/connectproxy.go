// Package connectproxy joins sandboxes and the control plane: connect streams are
// opaque bytes to one configured address, nothing else.
package connectproxy

import (
	"context"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
)

const (
	// maxStreams bounds the connect streams of one sandbox.
	maxStreams = 16
	// dialTimeout bounds dialling the control plane.
	dialTimeout = 5 * time.Second
)

// Proxy serves connect streams.
type Proxy struct {
	Address string // of the control plane's TLS listener, "host:port"
	Log     *slog.Logger
}

// Serve accepts the streams that a sandbox opens until its session ends. It
// returns when all of them are over.
func (p *Proxy) Serve(session *tunnel.Session) {
	ctx, cancel := context.WithCancel(session.Context())
	defer cancel()
	room := make(chan struct{}, maxStreams)
	var running sync.WaitGroup
	defer running.Wait()
	for {
		in, err := session.Accept(ctx)
		if err != nil {
			return
		}
		if in.Open.Kind != protocol.StreamConnect {
			in.Refuse(protocol.Errorf(protocol.KindUnsupported, "an agent opens connect streams only"))
			continue
		}
		select {
		case room <- struct{}{}:
			running.Go(func() {
				defer func() { <-room }()
				p.connect(ctx, in, session.RemoteAddr())
			})
		default:
			in.Refuse(protocol.Errorf(protocol.KindTooMany, "over %d connect streams", maxStreams))
		}
	}
}

// Dial connects to the control plane for an unregistered agent at from. Its
// errors may be shown to that agent.
func (p *Proxy) Dial(ctx context.Context, from net.Addr) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTimeout}
	upstream, err := dialer.DialContext(ctx, "tcp", p.Address)
	if err != nil {
		p.Log.Warn("control plane not reached for a sandbox", "addr", from, "err", err)
		return nil, protocol.Errorf(protocol.KindUnavailable, "the control plane can't be reached at the moment")
	}
	return upstream, nil
}

// connect pipes one stream. Either side may end its half first.
func (p *Proxy) connect(ctx context.Context, in *tunnel.Incoming, from net.Addr) {
	upstream, err := p.Dial(ctx, from)
	if err != nil {
		in.Refuse(err)
		return
	}
	defer upstream.Close()
	stream, err := in.Accept(protocol.Opened{})
	if err != nil {
		return
	}
	defer stream.Close()
	stop := context.AfterFunc(ctx, func() {
		stream.Close()
		upstream.Close()
	})
	defer stop()
	back := make(chan struct{})
	go func() { // connect waits for it below
		defer close(back)
		io.Copy(stream, upstream)
		stream.CloseWrite()
	}()
	io.Copy(upstream, stream)
	if tcp, ok := upstream.(*net.TCPConn); ok {
		tcp.CloseWrite()
	}
	<-back
}

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel/internal/carrier"
)

// Connect connects to the control plane through a relay, for an unregistered
// agent, by whichever carrier is first. It doesn't use cfg.Hello. The
// connection is opaque to the relay, which bounds it:
// [protocol.MaxConnectBytes] each way, [protocol.ConnectTimeout] in all. If the
// relay refuses it, or ends it early, the error is a *protocol.Error of its
// kind.
func Connect(ctx context.Context, cfg DialConfig) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, protocol.ConnectTimeout)
	defer cancel()
	conn, err := race(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return ConnectOver(ctx, conn)
}

// ConnectOver is Connect over a given carrier. It closes the carrier if it
// fails.
func ConnectOver(ctx context.Context, conn carrier.Conn) (net.Conn, error) {
	abort := context.AfterFunc(ctx, func() {
		conn.Close(protocol.Errorf(protocol.KindUnavailable, "the control plane took too long"))
	})
	c, err := connect(ctx, conn)
	if !abort() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close(protocol.AsError(err))
		return nil, err
	}
	return c, nil
}

func connect(ctx context.Context, conn carrier.Conn) (net.Conn, error) {
	stream, err := conn.Open(ctx)
	if err != nil {
		return nil, err
	}
	c := &connection{Stream: stream, conn: conn}
	preface := protocol.Preface{Version: protocol.MaxVersion, Lane: protocol.ConnectStream}
	if _, err := c.Write(protocol.AppendPreface(nil, preface)); err != nil {
		return nil, err
	}
	m, err := readOne(c)
	if err != nil {
		return nil, c.cause(ctx, err)
	}
	switch m := m.(type) {
	case protocol.Opened:
		return c, nil
	case protocol.Refused:
		return nil, m.Err()
	}
	return nil, fmt.Errorf("tunnel: %s answers a connect stream", m.FrameType())
}

// A connection is the agent's end of a connect stream, which is its carrier's
// only stream.
type connection struct {
	carrier.Stream
	conn carrier.Conn
}

func (c *connection) Read(p []byte) (int, error) {
	n, err := c.Stream.Read(p)
	return n, c.reason(err)
}

func (c *connection) Write(p []byte) (int, error) {
	n, err := c.Stream.Write(p)
	return n, c.reason(err)
}

// reason prefers the relay's error over the stream's, if there is one.
func (c *connection) reason(err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	select {
	case <-c.conn.Done():
		return errors.Join(c.conn.Err(), err)
	default:
		return err
	}
}

// cause returns why there was no answer. A stream may end just before its
// carrier, which knows the reason.
func (c *connection) cause(ctx context.Context, err error) error {
	select {
	case <-c.conn.Done():
		return errors.Join(c.conn.Err(), err)
	case <-ctx.Done():
		return err
	}
}

// Close ends the carrier.
func (c *connection) Close() error {
	c.conn.Close(protocol.Errorf(protocol.KindUnavailable, "closed"))
	return nil
}

func (c *connection) LocalAddr() net.Addr  { return connectAddr{} }
func (c *connection) RemoteAddr() net.Addr { return c.conn.RemoteAddr() }

// connectAddr is the local address of a connection, which has no useful one.
type connectAddr struct{}

func (connectAddr) Network() string { return protocol.ConnectStream }
func (connectAddr) String() string  { return protocol.ConnectStream }

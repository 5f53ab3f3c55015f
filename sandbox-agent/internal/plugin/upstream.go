package plugin

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/wsframe"
	"github.com/fairlead/fairlead/tunnel/quiet"
)

const (
	// upstreamTimeout bounds the way to a plugin, its answer to the handshake
	// included.
	upstreamTimeout = 5 * time.Second
	// maxAnswer bounds the header of that answer, in bytes.
	maxAnswer = 16 << 10
	// upstreamPath is where a plugin's WebSocket is (seed 002).
	upstreamPath = "/ws"
	// acceptGUID is hashed with a handshake's key (RFC 6455).
	acceptGUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
)

// errNotRunning says that nothing listens at a plugin's port.
var errNotRunning = errors.New("nothing listens there")

// A network connects to what listens at a port.
type network interface {
	connect(ctx context.Context, port int) (net.Conn, error)
}

// An upstream leads to plugins.
type upstream struct {
	ports   Ports
	network network
}

// dial opens a plugin's WebSocket. It sends a handshake and nothing of whoever
// asked: no cookie, credential, origin or address. It fails with errNotRunning, or
// an error of the plugin's.
func (u upstream) dial(ctx context.Context, e *entry) (*end, error) {
	ctx, cancel := context.WithTimeout(ctx, upstreamTimeout)
	defer cancel()
	conn, err := u.network.connect(ctx, e.port)
	if err != nil {
		if errors.Is(err, syscall.ECONNREFUSED) {
			return nil, errNotRunning
		}
		return nil, err
	}
	// Whoever listens may have changed since that was looked at.
	if err := u.ports.Serves(e.uid, conn); err != nil {
		conn.Close()
		return nil, fmt.Errorf("%w: %w", errNotRunning, err)
	}
	conn = quiet.Wrap(conn)
	from, err := handshake(ctx, conn)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return newEnd(conn, from, true), nil
}

// loopback is this machine's own network, by whichever protocol.
type loopback struct{}

func (loopback) connect(ctx context.Context, port int) (net.Conn, error) {
	dialer := net.Dialer{}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if errors.Is(err, syscall.ECONNREFUSED) {
		return dialer.DialContext(ctx, "tcp", net.JoinHostPort("::1", strconv.Itoa(port)))
	}
	return conn, err
}

// handshake asks for a WebSocket, without any extension, and waits for the answer
// until ctx ends.
func handshake(ctx context.Context, conn net.Conn) (*bufio.Reader, error) {
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	raw := make([]byte, 16)
	rand.Read(raw)
	key := base64.StdEncoding.EncodeToString(raw)
	host := conn.RemoteAddr().String()
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n", upstreamPath, host, key); err != nil {
		return nil, err
	}
	from := bufio.NewReaderSize(conn, wsframe.Window)
	head, err := readHead(from)
	if err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(head)), nil)
	if err != nil {
		return nil, err
	}
	resp.Body.Close()
	sum := sha1.Sum([]byte(key + acceptGUID))
	h := resp.Header
	switch {
	case resp.StatusCode != http.StatusSwitchingProtocols:
		return nil, fmt.Errorf("the plugin answered %d", resp.StatusCode)
	case !strings.EqualFold(h.Get("Upgrade"), "websocket") || h.Get("Sec-WebSocket-Accept") != base64.StdEncoding.EncodeToString(sum[:]):
		return nil, errors.New("the plugin didn't upgrade to a WebSocket")
	case h.Get("Sec-WebSocket-Extensions") != "" || h.Get("Sec-WebSocket-Protocol") != "":
		return nil, errors.New("the plugin chose what wasn't offered")
	case !stop():
		return nil, ctx.Err()
	}
	return from, nil
}

// readHead reads the header of an answer, and nothing behind it.
func readHead(from *bufio.Reader) ([]byte, error) {
	for want := 1; ; {
		if _, err := from.Peek(want); err != nil {
			return nil, err
		}
		b, _ := from.Peek(from.Buffered())
		if at := bytes.Index(b, []byte("\r\n\r\n")); at >= 0 && at <= maxAnswer {
			head := bytes.Clone(b[:at+4])
			from.Discard(at + 4)
			return head, nil
		}
		if len(b) > maxAnswer {
			return nil, protocol.Errorf(protocol.KindUpstream, "the plugin's answer is too long")
		}
		want = len(b) + 1
	}
}

package peer

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// Opcodes of WebSocket frames.
const (
	opText   = 0x1
	opBinary = 0x2
	opClose  = 0x8
	opPing   = 0x9
	opPong   = 0xa
)

const (
	// dialTimeout bounds the opening of a socket.
	dialTimeout = 10 * time.Second
	// maxMessage bounds a message, in bytes.
	maxMessage = 4 << 20
)

var (
	errFrame = errors.New("a WebSocket frame that no peer sends: masked, in pieces or too long")
	errEnd   = errors.New("the peer closed the socket")
)

// dial opens a WebSocket of a peer's. It returns what came behind the answer.
func (p *Peer) dial(ctx context.Context, path, subprotocol string) (_ *net.TCPConn, early []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	req, err := http.NewRequest(http.MethodGet, p.URL+path, nil)
	if err != nil {
		return nil, nil, err
	}
	var nonce [16]byte
	rand.Read(nonce[:])
	req.Header = http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"},
		"Sec-Websocket-Key":      {base64.StdEncoding.EncodeToString(nonce[:])},
		"Sec-Websocket-Protocol": {subprotocol},
	}
	conn, err := (&net.Dialer{KeepAlive: -1}).DialContext(ctx, "tcp", req.URL.Host)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			conn.Close()
		}
	}()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })
	defer stop()
	if err = req.Write(conn); err != nil {
		return nil, nil, err
	}
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close() // the connection stays open
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return nil, nil, fmt.Errorf("%s answered with status %d where a WebSocket was asked for", p.Name, resp.StatusCode)
	}
	early = make([]byte, in.Buffered())
	_, err = io.ReadFull(in, early) // already buffered
	return conn.(*net.TCPConn), early, err
}

// frames cuts what a server sends into frames.
type frames struct {
	kept []byte // the beginning of one
}

// feed calls each with every frame that is whole; payload is valid only during
// the call.
func (f *frames) feed(p []byte, each func(opcode byte, payload []byte) error) error {
	if len(f.kept) > 0 {
		f.kept = append(f.kept, p...)
		p = f.kept
	}
	for whole := len(p); ; {
		head, size, err := frameHead(p)
		if err != nil {
			return err
		}
		if head == 0 || len(p) < head+size {
			if len(p) < whole || len(f.kept) == 0 {
				f.kept = append(f.kept[:0], p...) // also where p is the end of it
			}
			return nil
		}
		if err := each(p[0]&0x0f, p[head:head+size]); err != nil {
			return err
		}
		p = p[head+size:]
	}
}

// frameHead returns the length of the header that p begins with, and that of what
// follows it; 0 when the header isn't whole.
func frameHead(p []byte) (head, size int, err error) {
	if len(p) < 2 {
		return 0, 0, nil
	}
	if p[0]&0xf0 != 0x80 || p[1]&0x80 != 0 {
		return 0, 0, errFrame
	}
	head, size = 2, int(p[1])
	switch {
	case size == 126 && len(p) >= 4:
		head, size = 4, int(binary.BigEndian.Uint16(p[2:]))
	case size == 127 && len(p) >= 10:
		head, size = 10, int(min(binary.BigEndian.Uint64(p[2:]), maxMessage+1))
	case size >= 126:
		return 0, 0, nil
	}
	if size > maxMessage {
		return 0, 0, errFrame
	}
	return head, size, nil
}

// appendHead appends the header of a server's frame of n bytes.
func appendHead(dst []byte, opcode byte, n int) []byte {
	switch {
	case n < 126:
		return append(dst, 0x80|opcode, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(dst, 0x80|opcode, 126), uint16(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, 0x80|opcode, 127), uint64(n))
}

// clientFrame returns a frame as a client sends it, which must be masked.
func clientFrame(opcode byte, payload []byte) []byte {
	frame := appendHead(nil, opcode, len(payload))
	frame[1] |= 0x80
	var mask [4]byte
	rand.Read(mask[:])
	frame = append(frame, mask[:]...)
	for i, b := range payload {
		frame = append(frame, b^mask[i%len(mask)])
	}
	return frame
}

package e2e

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"github.com/fairlead/fairlead/protocol"
)

// WebSocket opcodes, and the bits beside them.
const (
	opText   = 0x1
	opBinary = 0x2
	opClose  = 0x8
	opPing   = 0x9
	opPong   = 0xA

	bitFIN  = 0x80
	bitRSV1 = 0x40 // set: the message is compressed, where that was agreed on
)

// Frames is a terminal's socket for who writes and reads frame by frame, as no
// client should.
type Frames struct {
	net.Conn
	Upgraded *http.Response // what the handshake was answered with
	in       *bufio.Reader
}

// DialFrames opens the socket of a ticket. More is header lines, ended by \r\n.
func DialFrames(ctx context.Context, t Ticket, origin, more string) (*Frames, error) {
	u, err := url.Parse(t.URL)
	if err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		conn.SetDeadline(deadline)
	}
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nOrigin: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: %s%s\r\n%s\r\n",
		u.RequestURI(), u.Host, origin, protocol.SubprotocolTicket, t.Ticket, more)
	f := &Frames{Conn: conn, in: bufio.NewReader(conn)}
	if f.Upgraded, err = http.ReadResponse(f.in, nil); err == nil && f.Upgraded.StatusCode != http.StatusSwitchingProtocols {
		err = fmt.Errorf("upgrade: %s", f.Upgraded.Status)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return f, nil
}

// frame is a masked frame, whose first byte is all of first.
func frame(first byte, payload []byte) []byte {
	data := []byte{first}
	switch n := len(payload); {
	case n < 126:
		data = append(data, 0x80|byte(n))
	case n < 1<<16:
		data = binary.BigEndian.AppendUint16(append(data, 0x80|126), uint16(n))
	default:
		data = binary.BigEndian.AppendUint64(append(data, 0x80|127), uint64(n))
	}
	var key [4]byte
	rand.Read(key[:])
	data = append(data, key[:]...)
	for i, b := range payload {
		data = append(data, b^key[i%4])
	}
	return data
}

// Send writes one frame.
func (f *Frames) Send(first byte, payload []byte) error {
	_, err := f.Write(frame(first, payload))
	return err
}

// Next reads a frame.
func (f *Frames) Next() (first byte, payload []byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(f.in, head[:]); err != nil {
		return 0, nil, err
	}
	size := uint64(head[1] & 0x7f)
	if more := map[uint64]int{126: 2, 127: 8}[size]; more > 0 {
		length := make([]byte, 8)
		if _, err := io.ReadFull(f.in, length[8-more:]); err != nil {
			return 0, nil, err
		}
		size = binary.BigEndian.Uint64(length)
	}
	if size > 16<<20 {
		return 0, nil, fmt.Errorf("a frame of %d bytes", size)
	}
	payload = make([]byte, size)
	_, err = io.ReadFull(f.in, payload)
	return head[0], payload, err
}

// Closed reads up to the close frame and returns its code, 0 where there is none
// before the end.
func (f *Frames) Closed() (code int, err error) {
	for {
		first, payload, err := f.Next()
		switch {
		case err != nil:
			return 0, err
		case first&0xf == opClose && len(payload) >= 2:
			return int(binary.BigEndian.Uint16(payload)), nil
		}
	}
}

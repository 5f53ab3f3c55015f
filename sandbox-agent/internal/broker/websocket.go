package broker

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Bits of a WebSocket frame (RFC 6455, 5.2).
const (
	frameFin     = 0x80
	frameRSV     = 0x70
	frameOpcode  = 0x0f
	frameControl = 0x08
	frameMasked  = 0x80
	frameLength  = 0x7f
	maxControl   = 125 // largest control frame, in bytes
)

var errFrame = errors.New("not a frame of a server without extensions")

// socket carries a WebSocket. It masks the provider's messages one by one, and
// forwards the client's unchanged.
func (x *exchange) socket(ctx context.Context, answer *http.Response) *refusal {
	upstream, ok := answer.Body.(io.ReadWriteCloser)
	if !ok || answer.Header.Get("Sec-Websocket-Extensions") != "" {
		return refuse(reasonUpstream, "the WebSocket has an extension that nobody asked for")
	}
	conn, buffered, err := x.control.Hijack()
	if err != nil {
		return refuse(reasonUpstream, "the connection can't become a WebSocket")
	}
	x.record.Status, x.started = answer.StatusCode, true
	end := sync.OnceFunc(func() {
		conn.Close()
		upstream.Close()
	})
	defer end()
	defer context.AfterFunc(ctx, end)()
	conn.SetDeadline(time.Time{})
	header := passing(answer.Header, answerOnly)
	maskHeader(header, x.server.opts.Masker)
	header.Set("Connection", "Upgrade")
	header.Set("Upgrade", "websocket")
	client := deadlined{conn, x}
	if _, err := io.WriteString(client, "HTTP/1.1 101 Switching Protocols\r\n"); err != nil {
		return nil
	}
	if header.Write(client) != nil {
		return nil
	}
	if _, err := io.WriteString(client, "\r\n"); err != nil {
		return nil
	}
	done := make(chan struct{})
	go func() { // joined below; end ends it
		defer close(done)
		defer end()
		io.Copy(upstream, meter{io.NopCloser(buffered.Reader), x, &x.in})
	}()
	from, broken := meter{upstream, x, &x.out}, false
	if x.server.opts.Masker == nil {
		io.Copy(client, from)
	} else if err := maskFrames(client, from, x.server.opts.Masker); errors.Is(err, errFrame) {
		broken = true
	}
	end()
	<-done
	if errors.Is(context.Cause(ctx), errIdle) {
		return refuse(reasonIdle, "")
	}
	if broken {
		return refuse(reasonUpstream, "")
	}
	return nil
}

// deadlined writes to a client that must read within the idle timeout.
type deadlined struct {
	net.Conn
	x *exchange
}

func (d deadlined) Write(p []byte) (int, error) {
	d.SetWriteDeadline(time.Now().Add(d.x.server.opts.IdleTimeout))
	return d.Conn.Write(p)
}

// maskFrames copies a server's frames to dst and masks each message as a whole.
// It may send a message in other pieces than it came in.
func maskFrames(dst io.Writer, src io.Reader, masker func() Masker) error {
	in := bufio.NewReaderSize(src, bufferBytes)
	buf := make([]byte, bufferBytes)
	var message Masker // of the current message; nil: none
	var opcode byte    // to be sent with its next piece
	var out []byte
	for {
		head, size, err := readFrameHead(in)
		if err != nil {
			return err
		}
		fin, op := head&frameFin != 0, head&frameOpcode
		if op&frameControl != 0 {
			if err := maskControl(dst, in, head, size, masker()); err != nil {
				return err
			}
			continue
		}
		if (op == 0) != (message != nil) {
			return errFrame
		}
		if op != 0 {
			message, opcode = masker(), op
		}
		for {
			n, err := io.ReadFull(in, buf[:min(size, uint64(len(buf)))])
			if err != nil {
				return err
			}
			size -= uint64(n)
			last := fin && size == 0
			out = message.Write(out[:0], buf[:n])
			if last {
				out = message.Flush(out)
			}
			if last || len(out) > 0 {
				if err := writeFrame(dst, opcode, last, out); err != nil {
					return err
				}
				opcode = 0
			}
			if last {
				message = nil
			}
			if size == 0 {
				break
			}
		}
	}
}

func readFrameHead(in *bufio.Reader) (head byte, size uint64, err error) {
	var b [8]byte
	if _, err := io.ReadFull(in, b[:2]); err != nil {
		return 0, 0, err
	}
	head, size = b[0], uint64(b[1]&frameLength)
	if head&frameRSV != 0 || b[1]&frameMasked != 0 {
		return 0, 0, errFrame
	}
	switch size {
	case 126:
		_, err = io.ReadFull(in, b[:2])
		size = uint64(binary.BigEndian.Uint16(b[:]))
	case 127:
		_, err = io.ReadFull(in, b[:8])
		size = binary.BigEndian.Uint64(b[:])
	}
	return head, size, err
}

// maskControl copies a control frame and masks the reason in a close.
func maskControl(dst io.Writer, in io.Reader, head byte, size uint64, m Masker) error {
	if size > maxControl || head&frameFin == 0 {
		return errFrame
	}
	payload := make([]byte, size)
	if _, err := io.ReadFull(in, payload); err != nil {
		return err
	}
	code := min(len(payload), 2) // of a close: the code
	masked := m.Flush(m.Write(append([]byte(nil), payload[:code]...), payload[code:]))
	return writeFrame(dst, head&frameOpcode, true, masked[:min(len(masked), maxControl)])
}

func writeFrame(dst io.Writer, opcode byte, fin bool, payload []byte) error {
	head := make([]byte, 0, 10+len(payload))
	if fin {
		opcode |= frameFin
	}
	head = append(head, opcode)
	switch n := len(payload); {
	case n <= maxControl:
		head = append(head, byte(n))
	case n <= 1<<16-1:
		head = binary.BigEndian.AppendUint16(append(head, 126), uint16(n))
	default:
		head = binary.BigEndian.AppendUint64(append(head, 127), uint64(n))
	}
	_, err := dst.Write(append(head, payload...))
	return err
}

package baseline

import (
	"context"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"

	"github.com/fairlead/fairlead/deploy/program/pause"
	"github.com/fairlead/fairlead/loadtest/internal/pattern"
)

// A writeLoop writes each chunk to each viewer, one write each, from one
// goroutine: nothing that serves many viewers can do less.
type writeLoop struct {
	sending sync.Mutex // one send at a time

	mu      sync.Mutex
	viewers []net.Conn // guarded by mu; never changed in place
}

// websocketGUID is from RFC 6455 §1.3.
const websocketGUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

// join upgrades a viewer by hand, so that nothing but the write is measured.
func (l *writeLoop) join(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Sec-WebSocket-Key")
	if key == "" {
		http.Error(w, "a WebSocket is wanted", http.StatusUpgradeRequired)
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	sum := sha1.Sum([]byte(key + websocketGUID))
	fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		base64.StdEncoding.EncodeToString(sum[:]))
	if rw.Flush() != nil {
		return
	}
	l.add(conn)
	defer l.remove(conn)
	io.Copy(io.Discard, conn) // what viewers say; ends with the socket
}

func (l *writeLoop) add(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.viewers = append(slices.Clip(l.viewers), conn)
}

func (l *writeLoop) remove(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.viewers = slices.DeleteFunc(slices.Clone(l.viewers), func(c net.Conn) bool { return c == conn })
}

func (l *writeLoop) all() []net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.viewers
}

func (l *writeLoop) count() int { return len(l.all()) }

// send writes the stream of spec until its end or that of ctx.
func (l *writeLoop) send(ctx context.Context, spec pattern.Spec) (Sent, error) {
	if spec.Chunks == 0 {
		return Sent{}, errors.New("a stream without end")
	}
	l.sending.Lock()
	defer l.sending.Unlock()
	sent := Sent{Viewers: l.count()}
	began := cpu()
	var frame []byte
	for k := range spec.Chunks {
		if err := pause.Until(ctx, spec.Due(k)); err != nil {
			return sent, err
		}
		frame = spec.Append(appendHeader(frame[:0], spec.Chunk), k)
		for _, conn := range l.all() {
			if _, err := conn.Write(frame); err != nil {
				sent.Gone++
				l.remove(conn)
				conn.Close()
				continue
			}
			sent.Writes++
		}
		sent.Chunks++
	}
	sent.CPU = cpu() - began
	return sent, nil
}

// appendHeader appends the header of an unmasked binary frame of n bytes.
func appendHeader(b []byte, n int) []byte {
	switch {
	case n < 126:
		return append(b, 0x82, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, 0x82, 126), uint16(n))
	}
	return binary.BigEndian.AppendUint64(append(b, 0x82, 127), uint64(n))
}

package plugin

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/pluginsocket"
	"github.com/fairlead/fairlead/protocol/wsframe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	session = protocol.SessionID("ses_1")
	alice   = protocol.UserID("usr_alice")
	port    = 4000
)

// A world is Plugins whose terminals and ports are a test's.
type world struct {
	*Plugins
	t     *testing.T
	users map[protocol.PTYID]int // of terminals
	ports map[int]int            // who listens

	news atomic.Int32 // how often there were other plugins to list

	calls chan net.Conn // connections to plugins
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, users: map[protocol.PTYID]int{"pty_1": 2001, "pty_2": 2002}, ports: map[int]int{}, calls: make(chan net.Conn, 1)}
	w.Plugins = New(Options{Ports: w, Terminals: w, Log: slog.New(slog.DiscardHandler)})
	w.upstream.network = w
	return w
}

// connect implements network, in memory.
func (w *world) connect(_ context.Context, port int) (net.Conn, error) {
	if _, open := w.ports[port]; !open {
		return nil, syscall.ECONNREFUSED
	}
	near, far := net.Pipe()
	w.calls <- far
	return near, nil
}

// UID implements [Terminals].
func (w *world) UID(s protocol.SessionID, pty protocol.PTYID) (int, bool) {
	uid, ok := w.users[pty]
	return uid, ok
}

// NoteList implements [Terminals].
func (w *world) NoteList(protocol.SessionID) { w.news.Add(1) }

// Owns implements [Ports].
func (w *world) Owns(port int) bool { return port == 9000 }

// Listens implements [Ports].
func (w *world) Listens(uid, port int) error {
	owner, open := w.ports[port]
	switch {
	case !open:
		return protocol.Errorf(protocol.KindNotFound, "nothing listens")
	case owner != uid:
		return protocol.Errorf(protocol.KindForbidden, "somebody else listens")
	}
	return nil
}

// Serves implements [Ports].
func (w *world) Serves(uid int, conn net.Conn) error {
	if at, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		return w.Listens(uid, at.Port)
	}
	return w.Listens(uid, port)
}

// runs registers a plugin "it" of the first terminal.
func (w *world) runs() *world {
	w.t.Helper()
	w.ports[port] = 2001
	if _, err := w.Register(session, "pty_1", pluginsocket.Offer{Name: "it", Port: port}); err != nil {
		w.t.Fatal(err)
	}
	return w
}

// A wire is the far side of an end: a client, or a plugin.
type wire struct {
	t *testing.T
	net.Conn
	from   *bufio.Reader
	client bool
	served chan string // a client's: how its socket has ended
}

// dials opens a socket as a client whose relay was answered.
func (w *world) dials(name string) *wire {
	near, far := net.Pipe()
	c := &wire{t: w.t, Conn: far, from: bufio.NewReader(far), client: true, served: make(chan string, 1)}
	go func() { // ended waits for it
		defer near.Close()
		c.served <- w.serve(w.t.Context(), newEnd(near, bufio.NewReaderSize(near, wsframe.Window), false), session, name)
	}()
	return c
}

// ended returns how the client's socket has ended.
func (c *wire) ended() string {
	how := <-c.served
	c.Close()
	return how
}

// taken returns the plugin's end of a connection, once its handshake has come.
func (w *world) taken() (*wire, *http.Request) {
	w.t.Helper()
	conn := <-w.calls
	p := &wire{t: w.t, Conn: conn, from: bufio.NewReader(conn)}
	r, err := http.ReadRequest(p.from)
	if err != nil {
		w.t.Fatal(err)
	}
	return p, r
}

// answers returns the plugin's end of a connection, once the handshake is over.
func (w *world) answers() *wire {
	w.t.Helper()
	p, r := w.taken()
	p.upgrade(r)
	return p
}

func (p *wire) upgrade(r *http.Request) {
	p.t.Helper()
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + acceptGUID))
	p.raw("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " +
		base64.StdEncoding.EncodeToString(sum[:]) + "\r\n\r\n")
}

func (c *wire) raw(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.Conn, text); err != nil {
		c.t.Error(err)
	}
}

// frame returns a frame of c's.
func (c *wire) frame(final bool, op wsframe.Opcode, payload []byte) []byte {
	h := wsframe.Header{Final: final, Opcode: op, Masked: c.client, Length: uint64(len(payload))}
	if c.client {
		h.Mask = [4]byte{7, 1, 9, 4}
	}
	b := append(h.Append(nil), payload...)
	mask(h, b[len(b)-len(payload):])
	return b
}

func mask(h wsframe.Header, payload []byte) {
	for i := range payload {
		payload[i] ^= h.Mask[i%4]
	}
}

func (c *wire) send(op wsframe.Opcode, payload string) {
	c.t.Helper()
	c.raw(string(c.frame(true, op, []byte(payload))))
}

func (c *wire) closes(code int, reason string) {
	c.t.Helper()
	c.send(wsframe.Close, string(binary.BigEndian.AppendUint16(nil, uint16(code)))+reason)
}

// next returns the next message or control frame, put together.
func (c *wire) next() (op wsframe.Opcode, payload []byte, err error) {
	op = wsframe.Continuation
	for {
		var head []byte
		h, n, fault := wsframe.Parse(head)
		for n == 0 {
			b, err := c.from.ReadByte()
			if err != nil {
				return op, payload, err
			}
			head = append(head, b)
			if h, n, fault = wsframe.Parse(head); fault != nil {
				return op, payload, fault
			}
		}
		if h.Masked == c.client || h.Length > pluginsocket.MaxPiece {
			return op, payload, fmt.Errorf("a frame that is masked: %v, of %d bytes", h.Masked, h.Length)
		}
		part := make([]byte, h.Length)
		if _, err := io.ReadFull(c.from, part); err != nil {
			return op, payload, errors.Join(io.ErrUnexpectedEOF, err)
		}
		mask(h, part)
		if h.Opcode.Control() {
			return h.Opcode, part, nil
		}
		if h.Opcode != wsframe.Continuation {
			op = h.Opcode
		}
		if payload = append(payload, part...); h.Final {
			return op, payload, nil
		}
	}
}

// gets fails the test unless the next message is this one.
func (c *wire) gets(op wsframe.Opcode, want string) {
	c.t.Helper()
	got, payload, err := c.next()
	if err != nil || got != op || !bytes.Equal(payload, []byte(want)) {
		c.t.Errorf("%d of %d bytes, %v; want %d of %d bytes %.60q", got, len(payload), err, op, len(want), want)
	}
}

// closed reads until a Close frame, and returns what that says: "none" when the
// connection ends without one.
func (c *wire) closed() string {
	c.t.Helper()
	for {
		op, payload, err := c.next()
		switch {
		case err != nil:
			return "none"
		case op == wsframe.Close && len(payload) == 0:
			return "empty"
		case op == wsframe.Close:
			return fmt.Sprint(binary.BigEndian.Uint16(payload), " ", string(payload[2:]))
		}
	}
}

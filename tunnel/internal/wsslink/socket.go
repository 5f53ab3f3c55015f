package wsslink

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel/quiet"
)

// A socket is one WebSocket as a byte stream. coder/websocket makes the
// handshake, reads, and answers control frames. Output is framed here, each
// message in one write. Both write whole frames to raw.
//
// A passed deadline ends the socket, and its link with it. So does the loss of
// the connection, once everything before it but one message is read.
type socket struct {
	// Static after construction.
	link   *link
	ws     *websocket.Conn
	raw    *rawConn
	client bool // this end masks frames

	messages chan *message // from pump, one at a time
	gone     chan struct{} // closed after the last read; err is set before
	closing  chan struct{} // closed when nobody reads any more

	// Owned by whoever reads.
	readMu sync.Mutex
	held   *message // being read, or nil
	ended  bool     // the peer has ended its output

	// Owned by whoever writes.
	writeMu sync.Mutex
	said    bool // this end has ended its output
	moved   int  // bytes since the last yield

	// Guarded by mu.
	mu   sync.Mutex
	over bool  // closing is closed
	err  error // why reading ended
}

func newSocket(ws *websocket.Conn, raw *rawConn, client bool) *socket {
	ws.SetReadLimit(maxMessage)
	return &socket{
		ws: ws, raw: raw, client: client, messages: make(chan *message),
		gone: make(chan struct{}), closing: make(chan struct{}),
	}
}

// A message is the unread rest of one.
type message struct {
	rest   []byte
	buffer [maxMessage]byte
}

// messages not in use.
var messages = sync.Pool{New: func() any { return new(message) }}

// receive reads the rest of r into a message.
func (s *socket) receive(r io.Reader) (*message, error) {
	m := messages.Get().(*message)
	n, err := io.ReadFull(r, m.buffer[:])
	if err == nil { // lets the library see the message's end
		_, err = io.Copy(io.Discard, r)
	} else if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
		// The library may report a lost connection as the end of a message, and an
		// empty message would mean the end of the stream.
		if n == 0 && s.raw.failed.Load() {
			err = io.ErrUnexpectedEOF
		}
	}
	m.rest = m.buffer[:n]
	return m, err
}

// start starts pump. It ends with the connection, which leave bounds; the
// relay's Listener waits for it.
func (s *socket) start() {
	if l := s.link.listener; l != nil {
		l.running.Go(s.pump)
		return
	}
	go s.pump()
}

// pump reads messages until the connection ends, and then closes it. It reads
// ahead by one message even if nobody reads, so that the end is noticed at
// once.
func (s *socket) pump() {
	err := s.readMessages()
	s.mu.Lock()
	s.err = err
	s.mu.Unlock()
	close(s.gone)
	s.raw.Close()
	s.ws.CloseNow() // only frees it
	if websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		s.hearOthers(err)
		s.link.lost(translate(err))
	} else if s.isFirst() {
		s.link.lost(protocol.Errorf(protocol.KindUnavailable, "peer: closed"))
	}
	s.link.remove(s)
}

// hearOthers waits briefly for the link's other sockets if this one was cut off
// without a reason: its peer may have closed them all with one.
func (s *socket) hearOthers(err error) {
	if s.isFirst() || websocket.CloseStatus(err) >= 0 {
		return
	}
	moment := time.NewTimer(closingTime)
	defer moment.Stop()
	select {
	case <-s.link.done:
	case <-moment.C:
	}
}

func (s *socket) readMessages() error {
	for moved := 0; ; {
		kind, r, err := s.ws.Reader(context.Background())
		if err != nil {
			return err
		}
		if kind != websocket.MessageBinary {
			return protocol.Errorf(protocol.KindInvalid, "wsslink: a text message")
		}
		m, err := s.receive(r)
		if err != nil {
			return err
		}
		moved = yield(moved + len(m.rest))
		select {
		case s.messages <- m:
		case <-s.closing:
			// The connection is being closed. Data that comes before the other end
			// closes is dropped; unread, it would make the kernel drop our own last
			// output.
			messages.Put(m)
		}
	}
}

// Read reads the peer's data. io.EOF means that its output has ended.
func (s *socket) Read(p []byte) (int, error) {
	s.readMu.Lock()
	defer s.readMu.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	for !s.ended {
		if s.held == nil {
			select {
			case s.held = <-s.messages:
				s.ended = len(s.held.rest) == 0 // an empty message is the end
			case <-s.closing:
				return 0, s.cause(errClosed)
			case <-s.gone:
				return 0, s.cause(s.reading())
			}
		}
		n := copy(p, s.held.rest)
		if s.held.rest = s.held.rest[n:]; len(s.held.rest) == 0 {
			messages.Put(s.held)
			s.held = nil
		}
		if n > 0 {
			return n, nil
		}
	}
	return 0, io.EOF
}

// reading returns why reading ended.
func (s *socket) reading() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if websocket.CloseStatus(s.err) == websocket.StatusNormalClosure {
		return io.EOF
	}
	return translate(s.err)
}

// cause prefers the link's error over a socket's.
func (s *socket) cause(err error) error {
	if err == io.EOF {
		return err
	}
	if over := s.link.Err(); over != nil {
		return over
	}
	return err
}

// yieldBytes is how much is moved before others' sockets are looked at. A socket that
// always has more, or takes more, never waits.
const yieldBytes = 256 << 10

// yield yields if so many bytes were moved since the last time, and returns how many
// are from now on.
func yield(moved int) int {
	if moved < yieldBytes {
		return moved
	}
	quiet.Yield()
	return 0
}

// writes are buffers for what is being written: an idle socket has none.
var writes = sync.Pool{New: func() any { return new([]byte) }}

// Write writes p as messages.
func (s *socket) Write(p []byte) (written int, err error) { return s.write(nil, p) }

// WriteGather implements mux.GatherWriter. head is shorter than a message.
func (s *socket) WriteGather(head, body []byte) error {
	_, err := s.write(head, body)
	return err
}

// write writes p as messages, the first of which begins with head.
func (s *socket) write(head, p []byte) (written int, err error) {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	if s.said {
		return 0, errClosed
	}
	buf := writes.Get().(*[]byte)
	defer writes.Put(buf)
	for len(p) > 0 {
		frames, n := (*buf)[:0], 0
		for n < len(p) && len(frames) < maxWrite {
			piece := p[n:min(n+maxMessage-len(head), len(p))]
			frames = appendFrame(frames, opBinary, s.client, head, piece)
			n, head = n+len(piece), nil
		}
		*buf = frames
		if _, err := s.raw.Write(frames); err != nil {
			return written, s.cause(err)
		}
		written += n
		p = p[n:]
		s.moved = yield(s.moved + n)
	}
	return written, nil
}

// CloseWrite ends the output; reading continues.
func (s *socket) CloseWrite() error {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	if s.said {
		return nil
	}
	s.said = true
	if _, err := s.raw.Write(appendFrame(nil, opBinary, s.client, nil)); err != nil {
		return s.cause(err)
	}
	return nil
}

// Close ends both directions. Closing the first socket ends its link.
func (s *socket) Close() error {
	if s.leave() {
		s.bid(int(websocket.StatusNormalClosure), "")
	}
	return nil
}

// leave stops waiting for the peer: it has closingTime to take the current
// write, and leavingTime to close its end. It reports whether that is new.
func (s *socket) leave() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
	}
	s.over = true
	now := time.Now()
	s.raw.SetWriteDeadline(now.Add(closingTime))
	s.raw.SetReadDeadline(now.Add(leavingTime))
	close(s.closing)
	return true
}

// bid writes a close frame, if the peer reads it.
func (s *socket) bid(code int, reason string) {
	_, _ = s.raw.Write(appendFrame(nil, opClose, s.client, closePayload(code, reason)))
}

// isFirst reports whether s is the link's first socket.
func (s *socket) isFirst() bool { return s.link.opener == s }

// SetDeadline ends the socket at t, unless t is zero or changed in time.
func (s *socket) SetDeadline(t time.Time) error { return s.deadline(s.raw.SetDeadline, t) }

// SetReadDeadline is SetDeadline, if nothing is read until t.
func (s *socket) SetReadDeadline(t time.Time) error { return s.deadline(s.raw.SetReadDeadline, t) }

// SetWriteDeadline is SetDeadline, if a write is still blocked at t.
func (s *socket) SetWriteDeadline(t time.Time) error { return s.deadline(s.raw.SetWriteDeadline, t) }

// deadline does nothing for a socket that is closing: it has its own.
func (s *socket) deadline(set func(time.Time) error, t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return errClosed
	}
	return set(t)
}

// translate turns the peer's close code back into a protocol.Error.
func translate(err error) error {
	closed, ok := errors.AsType[websocket.CloseError](err)
	if !ok {
		return err
	}
	if kind := int(closed.Code) - kindCloseCode; kind >= 0 && kind < len(protocol.Kinds) {
		return protocol.Errorf(protocol.Kind(kind), "peer: %s", closed.Reason)
	}
	return err
}

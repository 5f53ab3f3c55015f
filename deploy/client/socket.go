package client

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// A socket is one connection of a viewer. Its Receiver methods lock the viewer.
type socket struct {
	// Static after construction; link before begin.
	viewer  *Viewer
	link    Link
	greeted chan struct{} // closed when the greeting has come
	over    chan struct{} // closed at the end
	silent  chan struct{} // closed when the relay is silent
	why     error         // set before over is closed

	// Guarded by the viewer's mu.
	live     bool // greeted
	frames   parser
	keyframe int           // bytes of the announced keyframe that remain
	acks     acks          // of this socket
	pulse    pulse         // of its relay
	out      []byte        // buffer, reused for sending
	at       time.Time     // when the present input came
	moved    bool          // this read changed something that others may wait for
	quiet    time.Duration // how long the relay was silent when it was given up; 0: it wasn't
}

// bare makes a socket that isn't greeted live. The caller holds the viewer's mu.
func (s *socket) bare(at time.Time) {
	s.live = true
	s.viewer.counts.Sockets++
	s.viewer.joining.Greeted, s.viewer.joining.Complete = at, at
	close(s.greeted)
}

// write sends a message.
func (s *socket) write(opcode byte, payload []byte) error {
	return s.link.Write(appendFrame(nil, opcode, rand.Uint32(), payload))
}

// Received implements [Receiver].
func (s *socket) Received(p []byte, at time.Time) error {
	v := s.viewer
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.socket != s {
		return net.ErrClosed
	}
	s.at, s.moved = at, false
	err := s.frames.feed(p, s)
	if err == nil && s.acknowledges() && s.acks.due(v.position.Offset) {
		err = s.acknowledge()
	}
	if s.moved || v.waiters > 0 {
		v.signal()
	}
	return err
}

// Swept implements [Receiver].
func (s *socket) Swept(at time.Time) {
	v := s.viewer
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.socket != s || !s.live || v.opts.URL != "" {
		return
	}
	// A write error also ends reading, which reports it.
	if s.acknowledges() && s.acks.overdue(v.position.Offset, at) {
		_ = s.acknowledge()
	}
	v.outbox.held = false
	_ = s.sendInput()
	if !v.relays.several() {
		return
	}
	switch s.pulse.check(s.at, at, v.opts.Silence) {
	case signAsk:
		_ = s.write(opText, []byte(pingText))
	case signDead:
		s.quiet = at.Sub(s.at)
		close(s.silent)
	}
}

// Ended implements [Receiver].
func (s *socket) Ended(why error) {
	v := s.viewer
	now := time.Now()
	v.mu.Lock()
	defer v.mu.Unlock()
	if s.quiet > 0 {
		why = &SilentError{s.quiet}
	}
	s.why = why
	if v.socket == s {
		v.socket = nil
		if !errors.Is(why, net.ErrClosed) {
			v.failure = why
		}
		if closing, ok := errors.AsType[*CloseError](why); ok {
			v.closed = v.closed || closing.final()
			if closing.unauthenticated() {
				v.user.forget()
			}
		}
		v.to.Lost(now, why)
	}
	close(s.over)
	v.signal()
}

// binary implements [frameTaker]. The caller holds the viewer's mu.
func (s *socket) binary(p []byte, last bool) error {
	v := s.viewer
	if !s.live {
		return violation("output before the greeting")
	}
	s.acks.heard = s.at
	if s.keyframe > 0 {
		if s.keyframe -= len(p); s.keyframe < 0 || last != (s.keyframe == 0) {
			return violation("a keyframe of another size than announced")
		}
		if observer, ok := v.to.(Observer); ok {
			observer.Keyframe(p, last)
		}
		if last {
			s.acks.keyframe = true
			s.complete(s.at)
		}
		return nil
	}
	if len(p) == 0 {
		return nil
	}
	v.position.Offset += uint64(len(p))
	v.counts.Bytes += int64(len(p))
	v.to.Output(p, s.at)
	return nil
}

// ping implements [frameTaker].
func (s *socket) ping(p []byte) error {
	return s.write(opPong, p)
}

// closed implements [frameTaker].
func (s *socket) closed(code int, reason string) error {
	var echo []byte
	if code != noCode {
		echo = binary.BigEndian.AppendUint16(nil, uint16(code))
	}
	_ = s.write(opClose, echo) // the socket ends anyway
	return &CloseError{code, reason}
}

// text implements [frameTaker]. The caller holds the viewer's mu.
func (s *socket) text(p []byte) error {
	typ := typeOf(p)
	if err := s.obey(typ, p); err != nil {
		return violation("malformed message %.80q: %w", p, err)
	}
	if observer, ok := s.viewer.to.(Observer); ok {
		observer.Message(typ, p)
		s.moved = true
	}
	return nil
}

// obey handles a message. It decodes only what a viewer needs. The caller holds
// the viewer's mu.
func (s *socket) obey(typ string, p []byte) error {
	v := s.viewer
	moved := s.moved
	s.moved = true
	switch typ {
	case protocol.ServerAttached:
		if s.live {
			return errors.New("a second greeting")
		}
		return decoded(p, s.attached)
	case protocol.ServerResync:
		return decoded(p, s.resync)
	case protocol.ServerControlState:
		return decoded(p, s.controlled)
	case protocol.ServerWaiting:
		v.waiting = true
	case protocol.ServerInputAck:
		return decoded(p, func(m protocol.InputWritten) { v.outbox.acknowledged(m.Seq, s.at) })
	case protocol.ServerInputRefused:
		return decoded(p, v.outbox.refused)
	case protocol.ServerMoved:
		return decoded(p, func(m protocol.Moved) { v.moved = m.Origin })
	case protocol.ServerPTYClosed:
		v.closed = true
	default:
		s.moved = moved
	}
	return nil
}

// decoded decodes a message and passes it to use.
func decoded[M any](p []byte, use func(M)) error {
	var m M
	err := json.Unmarshal(p, &m)
	if err == nil {
		use(m)
	}
	return err
}

// typeOf returns a message's type.
func typeOf(p []byte) string {
	if rest, ok := bytes.CutPrefix(p, []byte(`{"type":"`)); ok { // the form that relays write
		if i := bytes.IndexByte(rest, '"'); i >= 0 {
			return string(rest[:i])
		}
	}
	var head struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(p, &head) != nil {
		return ""
	}
	return head.Type
}

// attached starts the output. The caller holds the viewer's mu.
func (s *socket) attached(m protocol.Attached) {
	v := s.viewer
	to := protocol.Position{Epoch: m.Epoch, Offset: m.Offset}
	v.counts.Sockets++
	jump := Jump{At: s.at, From: v.position, To: to, Mode: m.Mode, Keyframe: m.KeyframeBytes, Socket: v.counts.Sockets}
	if v.started && !jump.Continues() {
		v.counts.Gaps++
	}
	v.started, v.position = true, to
	s.live, s.keyframe = true, m.KeyframeBytes
	s.acks = acks{said: m.Offset}
	v.joining.Greeted = s.at
	if m.KeyframeBytes == 0 {
		s.complete(s.at)
	}
	v.to.Jump(jump)
	close(s.greeted)
	_ = s.sendInput() // reading reports an error
}

// complete notes that the viewer has joined. The caller holds the viewer's mu.
func (s *socket) complete(at time.Time) {
	if s.viewer.joining.Complete.IsZero() {
		s.viewer.joining.Complete = at
		s.moved = true
	}
}

// resync moves the viewer ahead. The caller holds the viewer's mu.
func (s *socket) resync(m protocol.Resync) {
	v := s.viewer
	to := protocol.Position{Epoch: m.Epoch, Offset: m.Offset}
	jump := Jump{At: s.at, From: v.position, To: to, Mode: protocol.ServerResync, Keyframe: m.KeyframeBytes, Socket: v.counts.Sockets}
	v.counts.Resyncs++
	v.position = to
	s.keyframe = m.KeyframeBytes
	s.acks = acks{said: m.Offset}
	v.to.Jump(jump)
}

// controlled notes who controls the terminal, and asks for control if the
// options say so. The caller holds the viewer's mu.
func (s *socket) controlled(m protocol.ControlState) {
	v := s.viewer
	v.control, v.waiting = m, false
	// Reading reports an error.
	if v.opts.Controls && m.Controller == "" && m.CanControl {
		_ = s.write(opText, []byte(`{"type":"`+protocol.ClientTakeControl+`"}`))
		return
	}
	_ = s.sendInput()
}

// acknowledges reports whether the socket may acknowledge output now. The
// caller holds the viewer's mu.
func (s *socket) acknowledges() bool {
	return s.live && s.keyframe == 0 && s.viewer.opts.URL == "" && !s.viewer.opts.Plain
}

// acknowledge acknowledges the output so far. The caller holds the viewer's mu.
func (s *socket) acknowledge() error {
	var text [64]byte
	message := s.acks.appendAck(text[:0], s.viewer.position.Offset)
	s.out = appendFrame(s.out[:0], opText, rand.Uint32(), message)
	return s.link.Write(s.out)
}

// sendInput sends the input that this socket hasn't sent yet. The caller holds
// the viewer's mu.
func (s *socket) sendInput() error {
	v := s.viewer
	if !s.live || v.control.Term == 0 {
		return nil
	}
	for {
		in, ok := v.outbox.unsent()
		if !ok {
			return nil
		}
		if err := s.write(opBinary, protocol.AppendBrowserInput(nil, in)); err != nil {
			return err
		}
		v.outbox.sent++
	}
}

package client

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// A CloseError is the end of a socket by a close frame.
type CloseError struct {
	Code   int
	Reason string
}

func (e *CloseError) Error() string { return fmt.Sprintf("closed with %d %s", e.Code, e.Reason) }

// A socket is one of a viewer's. Its methods as a receiver lock the viewer.
type socket struct {
	// Static after construction; link before begin.
	viewer  *Viewer
	link    link
	greeted chan struct{} // closed when output may follow
	over    chan struct{} // closed at its end
	silent  chan struct{} // closed when nothing comes any more
	why     error         // set before over is closed

	// Guarded by the viewer's mu.
	live     bool // greeted
	frames   parser
	keyframe int       // bytes of one that were announced and are still to come
	acks     acks      // of this socket
	out      []byte    // reused for what is sent
	at       time.Time // what is being taken came then
	moved    bool      // something worth telling those who wait came with this read
	asked    time.Time // whether the relay is there
	given    bool      // it isn't
}

// acks knows what is to be acknowledged.
type acks struct {
	said  uint64    // acknowledged before
	heard time.Time // output came last
	now   bool      // a keyframe is complete
}

// quiet is how long after the last output all of it is acknowledged. While more
// comes, half of what may be owed is waited for: one acknowledgement for many
// chunks.
const quiet = 4 * sweepEvery

// bare makes a socket that isn't greeted live. The caller holds mu.
func (s *socket) bare(at time.Time) {
	s.live = true
	s.viewer.counts.Sockets++
	s.viewer.joining.Greeted, s.viewer.joining.Complete = at, at
	close(s.greeted)
}

func (s *socket) close() { s.link.close() }

// received implements receiver.
func (s *socket) received(p []byte, at time.Time) error {
	v := s.viewer
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.socket != s {
		return errClosed
	}
	s.at, s.moved = at, false
	err := s.frames.feed(p, s)
	if err == nil {
		err = s.acknowledge(false)
	}
	if s.moved || v.waiters > 0 {
		v.signal()
	}
	return err
}

// swept implements receiver.
func (s *socket) swept(at time.Time) {
	v := s.viewer
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.socket != s || !s.live || v.opts.URL != "" {
		return
	}
	// An error is the reading side's to tell.
	_ = s.acknowledge(at.Sub(s.acks.heard) >= quiet)
	v.typing.held = false
	_ = s.sendInput()
	s.listen(at)
}

// ended implements receiver.
func (s *socket) ended(why error) {
	v := s.viewer
	now := time.Now()
	v.mu.Lock()
	defer v.mu.Unlock()
	s.why = why
	if v.socket == s {
		v.socket = nil
		if !errors.Is(why, errClosed) {
			v.failure = why
		}
		if closing, ok := errors.AsType[*CloseError](why); ok {
			switch closing.Code {
			case 4004, 4403, 4404, 4409:
				v.closed = true
			case 4401:
				v.user.forget()
			}
		}
		v.to.Lost(now, why)
	}
	close(s.over)
	v.signal()
}

// The methods of a frameTaker are called with the viewer locked.

func (s *socket) binary(p []byte, last bool) error {
	v := s.viewer
	if !s.live {
		return errors.New("output before the greeting")
	}
	s.acks.heard = s.at
	if s.keyframe > 0 {
		if s.keyframe -= len(p); s.keyframe < 0 || last != (s.keyframe == 0) {
			return errors.New("a keyframe of another size than announced")
		}
		if last {
			s.acks.now = true
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

func (s *socket) ping(p []byte) error {
	return s.link.write(appendFrame(nil, opPong, p))
}

func (s *socket) closed(code int, reason string) error {
	var echo []byte
	if code != noCode {
		echo = binary.BigEndian.AppendUint16(nil, uint16(code))
	}
	_ = s.link.write(appendFrame(nil, opClose, echo)) // the socket ends in any case
	return &CloseError{code, reason}
}

// text takes a text message. Only what a viewer acts upon is decoded.
func (s *socket) text(p []byte) error {
	v := s.viewer
	var err error
	switch typ := typeOf(p); typ {
	case protocol.ServerAttached:
		var m protocol.Attached
		if err = json.Unmarshal(p, &m); err == nil {
			s.attached(m)
		}
	case protocol.ServerResync:
		var m protocol.Resync
		if err = json.Unmarshal(p, &m); err == nil {
			s.resync(m)
		}
	case protocol.ServerControlState:
		v.control, v.waiting = protocol.ControlState{}, false
		if err = json.Unmarshal(p, &v.control); err == nil {
			err = s.controlled()
		}
	case protocol.ServerWaiting:
		v.waiting = true
	case protocol.ServerInputAck:
		var m protocol.InputWritten
		err = json.Unmarshal(p, &m)
		v.typing.acknowledged(m.Seq, s.at)
	case protocol.ServerInputRefused:
		var m protocol.InputDropped
		err = json.Unmarshal(p, &m)
		v.typing.refused(m)
	case protocol.ServerMoved:
		var m protocol.Moved
		err = json.Unmarshal(p, &m)
		v.moved = m.Origin
	case protocol.ServerPTYClosed:
		v.closed = true
	default:
		return nil
	}
	s.moved = true
	if err != nil {
		return fmt.Errorf("malformed message %.80q: %w", p, err)
	}
	return nil
}

// typeOf returns a message's type.
func typeOf(p []byte) string {
	if rest, ok := bytes.CutPrefix(p, []byte(`{"type":"`)); ok { // as relays write it
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
	_ = s.sendInput() // the reading side hears of an error
}

func (s *socket) complete(at time.Time) {
	if s.viewer.joining.Complete.IsZero() {
		s.viewer.joining.Complete = at
		s.moved = true
	}
}

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

// controlled acts upon who controls the terminal.
func (s *socket) controlled() error {
	v := s.viewer
	if v.opts.Controls && v.control.Controller == "" && v.control.CanControl {
		return s.link.write(appendFrame(nil, opText, []byte(`{"type":"`+protocol.ClientTakeControl+`"}`)))
	}
	return s.sendInput()
}

// acknowledge says what was rendered when that is due, or anyway if all. The
// caller holds mu.
func (s *socket) acknowledge(all bool) error {
	v := s.viewer
	if !s.live || v.opts.URL != "" || s.keyframe > 0 {
		return nil
	}
	owed := v.position.Offset - s.acks.said
	if !s.acks.now && owed < protocol.AckBytes/2 && !(all && owed > 0) {
		return nil
	}
	s.acks.said, s.acks.now = v.position.Offset, false
	var text [64]byte
	message := append(text[:0], `{"type":"`+protocol.ClientAck+`","offset":`...)
	message = append(strconv.AppendUint(message, v.position.Offset, 10), '}')
	s.out = appendFrame(s.out[:0], opText, message)
	return s.link.write(s.out)
}

// sendInput sends what this socket hasn't been given yet. The caller holds mu.
func (s *socket) sendInput() error {
	v := s.viewer
	if !s.live || v.control.Term == 0 || v.typing.held {
		return nil
	}
	for ; v.typing.sent < len(v.typing.queue); v.typing.sent++ {
		frame := appendFrame(nil, opBinary, protocol.AppendBrowserInput(nil, v.typing.queue[v.typing.sent].in))
		if err := s.link.write(frame); err != nil {
			return err
		}
	}
	return nil
}

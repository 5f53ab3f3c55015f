package wsframe

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/fairlead/fairlead/protocol/pluginsocket"
)

const (
	// Piece bounds the payload of a frame that is written, in bytes. It is a
	// multiple of a mask's length, so that a mask goes on from piece to piece.
	Piece = pluginsocket.MaxPiece
	// Window is the size of the reader that a Carrier needs, in bytes.
	Window = 64 << 10
)

// A ReadError says that a Carrier's frames don't come any more; a WriteError that
// they can't be passed on.
type (
	ReadError  struct{ Err error }
	WriteError struct{ Err error }
)

func (e *ReadError) Error() string  { return "wsframe: read: " + e.Err.Error() }
func (e *ReadError) Unwrap() error  { return e.Err }
func (e *WriteError) Error() string { return "wsframe: write: " + e.Err.Error() }
func (e *WriteError) Unwrap() error { return e.Err }

// A Carrier passes frames on in one direction. It reads ahead no more than its
// reader's window, so whoever doesn't take frames holds back whoever sends them.
type Carrier struct {
	From *bufio.Reader // of [Window] bytes at least
	To   io.Writer     // each Write is of whole frames
	Rule Rule

	scratch []byte // for pieces; made for the first long frame
}

// Carry passes frames on until a Close frame has passed, which it returns. It
// fails with a *Fault of the sender, a *ReadError or a *WriteError. Small frames
// that have come together are written together.
func (c *Carrier) Carry() (Closing, error) {
	if c.From.Size() < Window {
		return Closing{}, fmt.Errorf("wsframe: a window of %d bytes", c.From.Size())
	}
	for {
		n, closing, err := c.ready()
		if n > 0 {
			if err := c.write(n); err != nil {
				return Closing{}, err
			}
		}
		switch {
		case err != nil:
			return Closing{}, err
		case closing != nil:
			return *closing, nil
		}
		if err := c.next(); err != nil {
			return Closing{}, err
		}
	}
}

// write passes on the next n bytes, which are buffered.
func (c *Carrier) write(n int) error {
	frames, _ := c.From.Peek(n)
	if _, err := c.To.Write(frames); err != nil {
		return &WriteError{err}
	}
	c.From.Discard(n)
	return nil
}

// ready returns how many bytes of whole frames that need no splitting are
// buffered, up to a Close frame or a fault.
func (c *Carrier) ready() (n int, closing *Closing, err error) {
	buffered, _ := c.From.Peek(c.From.Buffered())
	for n < len(buffered) {
		h, size, fault := Parse(buffered[n:])
		if fault == nil && (size == 0 || h.Length > Piece || uint64(len(buffered)-n-size) < h.Length) {
			return n, nil, nil // not whole; its header is checked when it is
		}
		if fault == nil {
			fault = c.Rule.Next(h)
		}
		if fault != nil {
			return n, nil, fault
		}
		payload := buffered[n+size : n+size+int(h.Length)]
		if h.Opcode == Close {
			said, fault := ParseClosing(h, payload)
			if fault != nil {
				return n, nil, fault
			}
			return n + size + len(payload), &said, nil
		}
		n += size + len(payload)
	}
	return n, nil, nil
}

// next waits for the next frame. One that is short is then left to ready, and a
// long one is passed on. What a header alone shows is not waited for.
func (c *Carrier) next() error {
	h, size, err := c.header()
	if err != nil {
		return err
	}
	rule := c.Rule
	if fault := rule.Next(h); fault != nil {
		return fault
	}
	if h.Length > Piece {
		c.Rule = rule
		c.From.Discard(size)
		return c.split(h)
	}
	if _, err := c.From.Peek(size + int(h.Length)); err != nil {
		return &ReadError{cut(err)}
	}
	return nil
}

// header waits for the next frame's header.
func (c *Carrier) header() (h Header, size int, err error) {
	for want := 1; ; want++ {
		if _, err := c.From.Peek(want); err != nil {
			if want > 1 {
				err = cut(err)
			}
			return h, 0, &ReadError{err}
		}
		b, _ := c.From.Peek(min(c.From.Buffered(), MaxHeader))
		h, size, fault := Parse(b)
		switch {
		case fault != nil:
			return h, 0, fault
		case size > 0:
			return h, size, nil
		}
		want = len(b)
	}
}

// cut is err for a frame that has begun.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// split passes on the payload of a long frame in pieces, each a frame.
func (c *Carrier) split(h Header) error {
	if c.scratch == nil {
		c.scratch = make([]byte, MaxHeader+Piece)
	}
	piece := h
	for left := h.Length; left > 0; left -= piece.Length {
		piece.Length = min(left, Piece)
		piece.Final = h.Final && left == piece.Length
		head := piece.Append(c.scratch[:0])
		frame := c.scratch[:len(head)+int(piece.Length)]
		if _, err := io.ReadFull(c.From, frame[len(head):]); err != nil {
			return &ReadError{cut(err)}
		}
		if _, err := c.To.Write(frame); err != nil {
			return &WriteError{err}
		}
		piece.Opcode = Continuation
	}
	return nil
}

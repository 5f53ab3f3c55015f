package batchsend

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Most bounds the pieces that are sent by one call. The kernel spends about a
// microsecond on each, and nobody else has the processor meanwhile.
const Most = 128

// A Piece is what one socket is to be sent, and what came of it.
type Piece struct {
	// FD is a non-blocking socket, which its owner keeps open until Send returns.
	FD int
	// Bytes is what to send, not empty.
	Bytes []byte

	// Sent is how much of Bytes the socket took: all, a part, or nothing.
	Sent int
	// Err says why the socket takes nothing any more; nil also when it only takes
	// nothing now.
	Err error
}

// settle notes what came of a piece.
func (p *Piece) settle(n int, err error) {
	p.Sent, p.Err = max(n, 0), nil
	if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
		p.Err = err
	}
}

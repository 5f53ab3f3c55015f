package plugin

import (
	"bufio"
	"io"
	"net"
	"time"

	"github.com/fairlead/fairlead/protocol/pluginsocket"
	"github.com/fairlead/fairlead/protocol/wsframe"
)

// lastWords bounds writing a Close frame, and reading on so that it arrives.
const lastWords = time.Second

// An end is one end of a socket: its client, behind the relay, or the plugin.
type end struct {
	conn   net.Conn
	from   *bufio.Reader
	masked bool // what is written to it must be

	turn chan struct{} // holds a token while nobody writes
	over bool          // of whoever has taken the token: nothing can follow what was written
}

func newEnd(conn net.Conn, from *bufio.Reader, masked bool) *end {
	e := &end{conn: conn, from: from, masked: masked, turn: make(chan struct{}, 1)}
	e.turn <- struct{}{}
	return e
}

// Write implements [io.Writer] for whole frames.
func (e *end) Write(frames []byte) (int, error) {
	<-e.turn
	defer func() { e.turn <- struct{}{} }()
	if e.over {
		return 0, net.ErrClosed
	}
	n, err := e.conn.Write(frames)
	if err != nil {
		e.over = true
	}
	return n, err
}

// tell sends a Close frame, unless nothing can follow what was sent.
func (e *end) tell(c wsframe.Closing) {
	e.conn.SetWriteDeadline(time.Now().Add(lastWords)) // also of a write under way
	<-e.turn
	defer func() { e.turn <- struct{}{} }()
	if !e.over {
		e.over = true
		e.conn.Write(c.Append(nil, e.masked))
	}
}

// interrupt has reads fail, and writes too.
func (e *end) interrupt() { e.conn.SetDeadline(time.Unix(1, 0)) }

// leave closes the connection. It reads on for a moment before, as a connection
// that is closed with something unread is reset, and the Close frame lost.
func (e *end) leave() {
	e.conn.SetReadDeadline(time.Now().Add(lastWords))
	io.CopyN(io.Discard, e.conn, 4*pluginsocket.MaxMessage)
	e.conn.Close()
}

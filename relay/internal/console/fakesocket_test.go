package console_test

import (
	"context"
	"net/http"
	"strings"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
)

type fakeSocket struct {
	user   fakeUser
	client string
	out    chan fakeFrame
	acks   chan uint64 // what the browser says it has rendered
	drop   context.CancelCauseFunc

	// Guarded by the relay's mu.
	acked uint64
}

// A fakeFrame is text, or output whose last byte is before end, or a keyframe
// (binary, end 0), or the end of the socket (code not 0).
type fakeFrame struct {
	text bool
	data []byte
	end  uint64
	code websocket.StatusCode
}

func (f *fakeRelay) socket(w http.ResponseWriter, r *http.Request) {
	offered := strings.Split(r.Header.Get("Sec-WebSocket-Protocol"), ", ")
	ticket, ok := strings.CutPrefix(offered[len(offered)-1], protocol.SubprotocolTicket)
	query := r.URL.Query()
	f.mu.Lock()
	t, known := f.tickets[ticket]
	delete(f.tickets, ticket)
	f.tickets["used "+ticket] = fakeTicket{}
	f.sinces = append(f.sinces, query.Get(protocol.QuerySince))
	f.hosts = append(f.hosts, r.Host)
	f.mu.Unlock()
	client := query.Get(protocol.QueryClient)
	if !ok || !known || offered[0] != protocol.SubprotocolTerminal || client == "" || len(client) > protocol.MaxClientBytes {
		f.fault("socket offered %q as client %q", offered, client)
		refuse(w, protocol.KindUnauthenticated)
		return
	}
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{protocol.SubprotocolTerminal}, InsecureSkipVerify: true})
	if err != nil {
		return
	}
	c.SetReadLimit(protocol.MaxBrowserMessage)
	ctx, drop := context.WithCancelCause(r.Context())
	s := &fakeSocket{user: t.user, client: client, out: make(chan fakeFrame, 4096), acks: make(chan uint64, 4096), drop: drop}
	go s.write(ctx, c) // ends with ctx
	f.attach(s, t.pty, query.Get(protocol.QuerySince))
	for {
		kind, data, err := c.Read(ctx)
		if err != nil {
			break
		}
		f.receive(s, t.pty, kind == websocket.MessageText, data)
	}
	f.mu.Lock()
	delete(t.pty.sockets, s)
	f.presence(t.pty)
	f.mu.Unlock()
	drop(nil)
}

// write sends what is in out, and no more output than a terminal.v2 client may
// have unacknowledged.
func (s *fakeSocket) write(ctx context.Context, c *websocket.Conn) {
	var acked uint64
	for {
		select {
		case acked = <-s.acks:
		case <-ctx.Done():
			c.CloseNow()
			return
		case frame := <-s.out:
			for frame.end > acked+protocol.MaxOutputUnacked {
				select {
				case acked = <-s.acks:
				case <-ctx.Done():
					c.CloseNow()
					return
				}
			}
			if frame.code != 0 {
				c.Close(frame.code, "")
				return
			}
			kind := websocket.MessageBinary
			if frame.text {
				kind = websocket.MessageText
			}
			if c.Write(ctx, kind, frame.data) != nil {
				return
			}
		}
	}
}

func (s *fakeSocket) send(m protocol.ServerMessage) {
	s.out <- fakeFrame{text: true, data: protocol.EncodeServerMessage(m)}
}

// output sends data, which begins at offset.
func (s *fakeSocket) output(offset int, data []byte) {
	for len(data) > 0 {
		piece := data[:min(len(data), protocol.MaxDataBytes)]
		data = data[len(piece):]
		offset += len(piece)
		s.out <- fakeFrame{data: piece, end: uint64(offset)}
	}
}

package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
)

// maxOutbox bounds what waits to be written to the agent. Input is bounded by
// its credits and everything else is small, so only a dead tunnel fills it.
const maxOutbox = 1 << 20

// A link is the hub's stream to the terminal while the sandbox is connected.
type link struct {
	// Static after construction.
	session *tunnel.Session
	stream  *tunnel.Stream
	opened  protocol.TerminalOpened

	ready chan struct{} // something waits in out

	// Guarded by mu.
	mu  sync.Mutex
	out []byte // frames that wait to be written
}

// openLink opens a terminal stream.
func openLink(ctx context.Context, session *tunnel.Session, key Key, grant string, since *protocol.Position) (*link, error) {
	params, err := json.Marshal(protocol.TerminalParams{SessionID: key.Session, PTYID: key.PTY, Since: since})
	if err != nil {
		return nil, err
	}
	stream, answer, err := session.Open(ctx, protocol.LaneTerminal,
		protocol.Open{Kind: protocol.StreamTerminal, Grant: grant, Params: params})
	if err != nil {
		return nil, err
	}
	l := &link{session: session, stream: stream, ready: make(chan struct{}, 1)}
	if err := json.Unmarshal(answer.Result, &l.opened); err != nil {
		stream.Close()
		return nil, protocol.Fault(protocol.KindUpstream, fmt.Errorf("hub: result of OPENED: %w", err))
	}
	return l, nil
}

// send queues m. It never blocks; when the agent takes nothing for so long
// that the outbox is full, it gives the stream up, which the reader notices.
func (l *link) send(m protocol.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out, err := protocol.Append(l.out, m)
	if err != nil || len(out) > maxOutbox {
		l.stream.Close()
		return
	}
	l.out = out
	select {
	case l.ready <- struct{}{}:
	default:
	}
}

// write writes what send queues until the stream or ctx ends.
func (l *link) write(ctx context.Context) {
	var buf []byte
	for {
		select {
		case <-l.ready:
		case <-ctx.Done():
			return
		}
		l.mu.Lock()
		buf, l.out = l.out, buf[:0]
		l.mu.Unlock()
		if _, err := l.stream.Write(buf); err != nil {
			l.stream.Close()
			return
		}
	}
}

// read appends the terminal's output to f and posts everything else to the
// hub, until the stream ends. It returns why.
func (l *link) read(f *feed, post func(event)) error {
	frames := protocol.NewFrameReader(l.stream)
	for {
		frame, err := frames.Next()
		if err != nil {
			return err
		}
		message, err := protocol.Decode(frame)
		if err != nil {
			return err
		}
		switch m := message.(type) {
		case protocol.Data:
			if err := f.data(m); err != nil {
				return err
			}
		case protocol.Resized:
			if err := f.resized(m); err != nil {
				return err
			}
		case protocol.Exited:
			f.exited(m)
			post(exited{})
		case protocol.Reset:
			f.replace(protocol.Position{Epoch: m.Epoch, Offset: m.Offset}, m.Cols, m.Rows)
		case protocol.Leased, protocol.Granted, protocol.InputAck, protocol.InputRefused:
			post(answered{l, m})
		default:
			return fmt.Errorf("hub: %s on a terminal stream", frame.Type)
		}
	}
}

// redial opens a link as soon as the sandbox is connected, again and again
// until it succeeds, ctx ends, or the agent says that the terminal is gone.
func (h *Hub) redial(ctx context.Context, since *protocol.Position) (*link, error) {
	const firstPause, longestPause = 100 * time.Millisecond, 2 * time.Second
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		session, err := h.tunnels.Wait(ctx, h.key.Sandbox)
		if err != nil {
			return nil, err
		}
		l, err := openLink(ctx, session, h.key, *h.bearer.Load(), since)
		if err == nil || final(err) {
			return l, err
		}
		h.log.Info("terminal stream not opened", "pty", h.key.PTY, "err", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// final reports whether the agent's answer can't change by asking again.
func final(err error) bool {
	var e *protocol.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Kind {
	case protocol.KindNotFound, protocol.KindForbidden, protocol.KindUnauthenticated, protocol.KindExpired,
		protocol.KindInvalid, protocol.KindEnded, protocol.KindUnsupported:
		return true
	}
	return false
}

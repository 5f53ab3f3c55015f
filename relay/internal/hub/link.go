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

	ready   chan struct{}      // something waits in out
	giveUp  context.CancelFunc // ends the stream, without waiting for it
	abandon context.Context    // ends with giveUp

	// Guarded by mu.
	mu      sync.Mutex
	out     []byte // frames that wait to be written
	spare   []byte // the buffer that was written last
	writing bool   // somebody writes
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
	l.abandon, l.giveUp = context.WithCancel(context.Background())
	if err := json.Unmarshal(answer.Result, &l.opened); err != nil {
		l.giveUp()
		stream.Close()
		return nil, protocol.Fault(protocol.KindUpstream, fmt.Errorf("hub: result of OPENED: %w", err))
	}
	return l, nil
}

// send has m written soon. It never blocks.
func (l *link) send(m protocol.Message) {
	l.queue(m)
	l.rouse()
}

// queue adds m to what waits to be written; flush or rouse must follow. When
// the agent takes nothing for so long that the outbox is full, it gives the
// stream up, which the reader notices.
func (l *link) queue(m protocol.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out, err := protocol.Append(l.out, m)
	if err != nil || len(out) > maxOutbox {
		l.giveUp()
		return
	}
	l.out = out
}

// rouse has the link's own writer flush.
func (l *link) rouse() {
	select {
	case l.ready <- struct{}{}:
	default:
	}
}

// flush writes all that waits, unless somebody else is doing it already. It
// waits for the tunnel.
func (l *link) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.writing && len(l.out) > 0 {
		buf := l.out
		l.out, l.writing = l.spare[:0], true
		l.mu.Unlock()
		_, err := l.stream.Write(buf)
		l.mu.Lock()
		l.spare, l.writing = buf, false
		if err != nil {
			l.giveUp()
			return
		}
	}
}

// write flushes whenever it is roused, until ctx ends.
func (l *link) write(ctx context.Context) {
	for {
		select {
		case <-l.ready:
			l.flush()
		case <-ctx.Done():
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

package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/feed"
	"github.com/fairlead/fairlead/relay/internal/input"
	"github.com/fairlead/fairlead/relay/internal/roster"
	"github.com/fairlead/fairlead/tunnel"
)

// maxOutbox bounds the frames that wait for the agent. Credits bound input, and
// everything else is small, so only a dead tunnel fills it.
const maxOutbox = 1 << 20

// A link is the hub's stream to the terminal while the sandbox is connected.
type link struct {
	// the grant under which it was opened
	session *tunnel.Session
	stream  *tunnel.Stream
	opened  protocol.TerminalOpened
	bearer  *bearer // under whose grant it was opened

	ready   chan struct{}      // something waits in out
	giveUp  context.CancelFunc // ends the stream, without blocking
	abandon context.Context    // ends with giveUp

	// Guarded by mu.
	mu      sync.Mutex
	out     []byte // frames to be written
	aside   int    // bytes of out that don't count for maxOutbox
	spare   []byte // the last written buffer, for reuse
	writing bool   // a write is in progress
}

// openLink opens a terminal stream.
func openLink(ctx context.Context, session *tunnel.Session, key Key, b *bearer, since *protocol.Position) (*link, error) {
	params, err := json.Marshal(protocol.TerminalParams{SessionID: key.Session, PTYID: key.PTY, Since: since})
	if err != nil {
		return nil, err
	}
	stream, answer, err := session.Open(ctx, protocol.TerminalLane(key.PTY),
		protocol.Open{Kind: protocol.StreamTerminal, Grant: b.grant.Token, Params: params})
	if err != nil {
		return nil, err
	}
	l := &link{session: session, stream: stream, bearer: b, ready: make(chan struct{}, 1)}
	l.abandon, l.giveUp = context.WithCancel(context.Background())
	if err := json.Unmarshal(answer.Result, &l.opened); err != nil {
		l.giveUp()
		stream.Close()
		return nil, protocol.Fault(protocol.KindUpstream, fmt.Errorf("hub: result of OPENED: %w", err))
	}
	return l, nil
}

// send queues m and has it written soon. It never blocks.
func (l *link) send(m protocol.Message) {
	l.Queue(m)
	l.Rouse()
}

// Queue adds m to the frames to be written; Flush or Rouse must follow. If the
// agent reads so slowly that the outbox is full, it ends the stream, which the
// reader notices.
func (l *link) Queue(m protocol.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out, err := protocol.Append(l.out, m)
	if err != nil || len(out)-l.aside > maxOutbox {
		l.giveUp()
		return
	}
	l.out = out
}

// Ask implements [Admitter]. The roster's window bounds the questions, not
// maxOutbox: many viewers that return with a stream must not end it.
func (l *link) Ask(h roster.Handle, token string) {
	m := protocol.GrantAdd{Handle: uint64(h), Grant: token}
	l.mu.Lock()
	defer l.mu.Unlock()
	out, err := protocol.Append(l.out, m)
	if err != nil {
		l.giveUp()
		return
	}
	l.aside += len(out) - len(l.out)
	l.out = out
	l.Rouse()
}

// Forget implements [Admitter].
func (l *link) Forget(id protocol.GrantID) { l.send(protocol.GrantDrop{GrantID: id}) }

// Rouse makes the link's own writer flush.
func (l *link) Rouse() {
	select {
	case l.ready <- struct{}{}:
	default:
	}
}

// Flush writes all queued frames, unless somebody else is doing so. It may
// block on the tunnel.
func (l *link) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.writing && len(l.out) > 0 {
		buf := l.out
		l.out, l.aside, l.writing = l.spare[:0], 0, true
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

// write flushes when roused, until ctx ends.
func (l *link) write(ctx context.Context) {
	for {
		select {
		case <-l.ready:
			l.Flush()
		case <-ctx.Done():
			return
		}
	}
}

// read appends the terminal's output to f, reports the fate of input to in, and
// posts everything else to the hub, until the stream ends. It returns why.
func (l *link) read(f *feed.Feed, in *input.Queue, post func(event)) error {
	r := linkReader{link: l, feed: f, typing: in, post: post, behind: l.opened.Head > l.opened.Offset}
	r.pieces = f.Assemble()
	defer r.pieces.Drop("")
	frames := protocol.NewFrameReader(l.stream)
	for {
		// Output that arrives together is delivered together: when there is more of
		// it than the viewers' sockets can take, each gets fewer, larger writes.
		if r.undelivered && !frames.Ready() {
			r.undelivered = false
			f.Deliver()
		}
		frame, err := frames.Next()
		if err != nil {
			return err
		}
		message, err := protocol.Decode(frame)
		if err != nil {
			return err
		}
		if err := r.take(message); err != nil {
			return err
		}
	}
}

// A linkReader is the state of read.
type linkReader struct {
	link   *link
	feed   *feed.Feed
	typing *input.Queue
	post   func(event)

	behind      bool // the ring lacks output that OPENED announced
	undelivered bool // the feed has output that wasn't offered to the viewers
	pieces      feed.Assembly
}

// take handles one message of the agent.
func (r *linkReader) take(message protocol.Message) error {
	if _, piece := message.(protocol.Keyframe); r.pieces.Started() && !piece {
		return fmt.Errorf("hub: %s inside a keyframe", message.FrameType())
	}
	switch m := message.(type) {
	case protocol.Data:
		return r.data(m)
	case protocol.Keyframe:
		return r.keyframe(m)
	case protocol.Resized:
		return r.feed.Resize(m)
	case protocol.Exited:
		r.feed.Exit(m)
		r.post(exited{})
	case protocol.Reset:
		r.feed.Replace(protocol.Position{Epoch: m.Epoch, Offset: m.Offset}, m.Cols, m.Rows)
		r.behind = false
		r.post(inRing{})
	case protocol.InputAck:
		r.typing.Acked(m)
	case protocol.InputRefused:
		r.typing.Refused(m)
	case protocol.Leased, protocol.Granted, protocol.Recording, protocol.Shared, protocol.Held,
		protocol.AgentReport, protocol.AgentTurn, protocol.ToolsChanged, protocol.TerminalsChanged:
		r.post(answered{r.link, m})
	default:
		return fmt.Errorf("hub: %s on a terminal stream", message.FrameType())
	}
	return nil
}

func (r *linkReader) data(m protocol.Data) error {
	if err := r.feed.Append(m); err != nil {
		return err
	}
	r.undelivered = true
	r.typing.Shown()
	if r.behind && m.Offset+uint64(len(m.Bytes)) >= r.link.opened.Head {
		r.behind = false
		r.post(inRing{})
	}
	return nil
}

func (r *linkReader) keyframe(m protocol.Keyframe) error {
	whole, err := r.pieces.Add(m, !r.feed.Owes(feed.SortOf(m.History)))
	if err != nil || !whole {
		return err
	}
	kf, dropped := r.pieces.Take()
	if kf == nil {
		if dropped != feed.DroppedUnasked {
			r.post(keyframed{nil})
		}
		return r.feed.DropKeyframe(m, dropped)
	}
	defer kf.Release() // the feed holds it, or doesn't need it
	if err := r.feed.AddKeyframe(kf); err != nil {
		return err
	}
	r.post(keyframed{kf})
	return nil
}

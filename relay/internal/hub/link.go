package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/deploy/program/hops"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/agentstream"
	"github.com/fairlead/fairlead/relay/internal/feed"
	"github.com/fairlead/fairlead/relay/internal/input"
	"github.com/fairlead/fairlead/tunnel"
)

// A link is the hub's stream to the terminal while the sandbox is connected.
type link struct {
	// Static after construction.
	session *tunnel.Session
	stream  *tunnel.Stream
	opened  protocol.TerminalOpened
	bearer  *bearer // under whose grant it was opened

	life agentstream.Life // its end closes the stream

	agentstream.Outbox
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
	l := &link{session: session, stream: stream, bearer: b, life: agentstream.NewLife(context.Background())}
	l.Init(stream, l.life)
	if err := json.Unmarshal(answer.Result, &l.opened); err != nil {
		l.life.End()
		stream.Close()
		return nil, protocol.Fault(protocol.KindUpstream, fmt.Errorf("hub: result of OPENED: %w", err))
	}
	return l, nil
}

// read appends the terminal's output to out's feed and delivers it, reports the fate of input to in, and
// posts everything else to the hub, until the stream ends. It returns why.
func (l *link) read(out *fanout, in *input.Queue, post func(event)) error {
	r := linkReader{link: l, feed: out.feed, typing: in, post: post, behind: l.opened.Head > l.opened.Offset}
	r.pieces = out.feed.Assemble()
	defer r.pieces.Drop("")
	frames := protocol.NewFrameReader(l.stream)
	for {
		// Output that arrives together is delivered together: when there is more of
		// it than the viewers' sockets can take, each gets fewer, larger writes.
		if r.undelivered > 0 && !frames.Ready() {
			began := time.Now()
			out.deliver()
			time.Sleep(rest(time.Since(began), r.undelivered))
			r.undelivered = 0
		}
		frame, err := frames.Next()
		if err != nil {
			return err
		}
		hops.Pass(hops.StreamIn)
		message, err := protocol.Decode(frame)
		if err != nil {
			return err
		}
		if err := r.take(message); err != nil {
			return err
		}
	}
}

const (
	// smallRound is a delivery so short that nothing is gained by fewer of them.
	smallRound = 300 * time.Microsecond
	// longestRest bounds how long output waits for more after a delivery.
	longestRest = 5 * time.Millisecond
	// fullRound is so much output in one delivery that more in it saves little, in bytes.
	fullRound = 8 << 10
)

// rest returns how long to wait after a delivery of so many bytes, which took so
// long: as long, so that half of the time is somebody else's, and what comes
// meanwhile to a crowd is delivered together. What comes at leisure comes later than
// that anyway.
func rest(took time.Duration, bytes int) time.Duration {
	if took < smallRound || bytes >= fullRound {
		return 0
	}
	return min(took, longestRest)
}

// A linkReader is the state of read.
type linkReader struct {
	link   *link
	feed   *feed.Feed
	typing *input.Queue
	post   func(event)

	behind      bool // the ring lacks output that OPENED announced
	undelivered int  // bytes of output in the feed that weren't offered to the viewers
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
		r.post(answered{r.link, m})
		r.post(inRing{})
	case protocol.InputAck:
		r.typing.Acked(m)
	case protocol.InputRefused:
		r.typing.Refused(m)
	case protocol.Leased, protocol.Granted, protocol.Recording, protocol.Shared, protocol.Held,
		protocol.AgentReport, protocol.AgentTurn, protocol.ToolsChanged, protocol.TerminalsChanged, protocol.Address:
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
	r.undelivered += len(m.Bytes)
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

package chathub

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/agentstream"
	"github.com/fairlead/fairlead/relay/internal/chatring"
	"github.com/fairlead/fairlead/relay/internal/roster"
	"github.com/fairlead/fairlead/tunnel"
)

// A dialer opens a hub's streams to the agent.
type dialer struct {
	// Static after construction.
	key     Key
	tunnels agentstream.Tunnels
	log     *slog.Logger

	bearer atomic.Pointer[bearer] // whose grant opens the next stream; set by run
}

// A bearer is the grant under which a hub opens its stream: one that represents
// those who have joined, while there are any.
type bearer struct {
	key   roster.Key
	grant roster.Grant
}

// A link is a hub's stream to the agent while the sandbox is connected.
type link struct {
	// Static after construction.
	session *tunnel.Session
	stream  *tunnel.Stream
	opened  protocol.ChatOpened
	bearer  *bearer          // under whose grant it was opened
	life    agentstream.Life // of the stream; its end closes it

	out agentstream.Outbox
}

// close ends a link that nobody serves.
func (l *link) close() {
	l.life.End()
	l.stream.Close()
}

// laneOf returns the fixed lane of a conversation.
func laneOf(c protocol.ConversationID) protocol.Lane { return protocol.TerminalLane(protocol.PTYID(c)) }

// open opens a link as soon as the sandbox is connected.
func (h *hub) open(ctx context.Context, first bool, wait time.Duration) (*link, error) {
	params := protocol.ChatParams{SessionID: h.key.Session, ConversationID: h.key.Conversation}
	if !first {
		v := h.ring.View()
		params.After, params.Epoch = &v.Head, v.Epoch
	}
	return agentstream.Open(ctx, h.dial.tunnels, h.key.Sandbox, wait,
		func(ctx context.Context, session *tunnel.Session) (*link, error) {
			return h.openOnce(ctx, session, params)
		},
		func(err error) { h.log.Info("chat stream not opened", "conversation", h.key.Conversation, "err", err) })
}

// openOnce opens a link under the bearer's grant, or under that of somebody else
// who has joined if the agent refuses it.
func (h *hub) openOnce(ctx context.Context, session *tunnel.Session, params protocol.ChatParams) (*link, error) {
	for {
		b := h.dial.bearer.Load()
		attempt, cancel := context.WithTimeout(ctx, openTimeout)
		l, err := openLink(attempt, session, b, params)
		cancel()
		if !agentstream.AboutGrant(err) {
			return l, err
		}
		again := make(chan bool, 1)
		h.post(func() { again <- h.replaceBearer(b, err) })
		select {
		case another := <-again:
			if !another {
				return nil, err
			}
		case <-ctx.Done():
			return nil, err
		}
	}
}

// openLink opens a chat stream.
func openLink(ctx context.Context, session *tunnel.Session, b *bearer, params protocol.ChatParams) (*link, error) {
	data, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	stream, answer, err := session.Open(ctx, laneOf(params.ConversationID),
		protocol.Open{Kind: protocol.StreamChat, Grant: b.grant.Token, Params: data})
	if err != nil {
		return nil, err
	}
	l := &link{session: session, stream: stream, bearer: b}
	if err := json.Unmarshal(answer.Result, &l.opened); err != nil {
		stream.Close()
		return nil, protocol.Fault(protocol.KindUpstream, fmt.Errorf("chathub: result of OPENED: %w", err))
	}
	if err := checkOpened(&l.opened); err != nil {
		stream.Close()
		return nil, protocol.Fault(protocol.KindUpstream, err)
	}
	l.life = agentstream.NewLife(context.Background())
	l.out.Init(stream, l.life)
	return l, nil
}

// checkOpened refuses what no agent says. A sandbox may be hostile.
func checkOpened(o *protocol.ChatOpened) error {
	switch o.State.Run {
	case protocol.RunIdle, protocol.RunRunning, protocol.RunAborting:
	default:
		return fmt.Errorf("chathub: unknown run state %q", o.State.Run)
	}
	switch o.Lease.State {
	case protocol.LeaseFree, protocol.LeaseHeld, protocol.LeaseGrace:
	default:
		return fmt.Errorf("chathub: unknown lease state %q", o.Lease.State)
	}
	return nil
}

// begin hands the ring to a new link. behind: the agent has announced events that
// the ring lacks.
func (h *hub) begin(l *link, first bool) (behind bool) {
	h.ring.Opened(l.opened)
	return first && l.opened.LastSeq >= max(l.opened.From, 1)
}

// serve reads and writes l until it ends.
func (h *hub) serve(ctx context.Context, l *link, behind bool) error {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { l.stream.Close() })
	abandon := context.AfterFunc(l.life, cancel)
	var aside sync.WaitGroup // goroutines that serve waits for
	aside.Go(func() { l.out.Write(ctx) })
	aside.Go(func() {
		agentstream.UntilDemoted(ctx, l.session)
		l.life.End()
	})
	l.session.Watch(1)
	defer l.session.Watch(-1)
	err := h.read(l, behind)
	stop()
	abandon()
	cancel()
	l.close()
	aside.Wait()
	return err
}

// read hands events to the ring and everything else to run, until the stream
// ends. It returns why.
func (h *hub) read(l *link, behind bool) error {
	r := reader{hub: h, link: l, behind: behind}
	frames := protocol.NewFrameReader(l.stream)
	for {
		// Events that arrive together are delivered together.
		if r.undelivered && !frames.Ready() {
			r.undelivered = false
			h.ring.Deliver()
		}
		frame, err := frames.Next()
		if err != nil {
			return err
		}
		m, err := protocol.Decode(frame)
		if err == nil {
			err = r.take(m)
		}
		if err != nil {
			h.metrics.Dropped.WithLabelValues(droppedStream).Inc()
			return err
		}
	}
}

// A reader is the state of read.
type reader struct {
	hub  *hub
	link *link

	behind      bool // the ring lacks events that OPENED announced
	undelivered bool // the ring has events that sockets weren't told of
	pieces      chatring.Assembly
}

// take handles one message of the agent. It fails if no agent says it.
func (r *reader) take(m protocol.Message) error {
	h := r.hub
	if _, piece := m.(protocol.Chat); r.pieces.Started() && !piece {
		return fmt.Errorf("chathub: %s inside an event", m.FrameType())
	}
	switch m := m.(type) {
	case protocol.Chat:
		return r.piece(m)
	case protocol.ChatState:
		r.deliver() // what came before is sent before it is told of
		if h.ring.Become(m) {
			h.tellRun(m)
		}
	case protocol.ChatReset:
		r.caughtUp(m.LastSeq)
		return h.ring.Reset(m)
	case protocol.Leased:
		h.ring.Leased(m.Lease)
		h.post(func() { h.answered(r.link, m) })
	case protocol.Granted:
		h.post(func() { h.answered(r.link, m) })
	default:
		return fmt.Errorf("chathub: %s on a chat stream", m.FrameType())
	}
	return nil
}

func (r *reader) deliver() {
	if r.undelivered {
		r.undelivered = false
		r.hub.ring.Deliver()
	}
}

// piece handles a piece of an event.
func (r *reader) piece(m protocol.Chat) error {
	whole, err := r.pieces.Add(m)
	if err != nil || !whole {
		return err
	}
	e, err := r.pieces.Take()
	if err != nil { // the event is nothing that a client may see
		r.hub.metrics.Dropped.WithLabelValues(droppedEvent).Inc()
		r.hub.log.Warn("an event was dropped", "conversation", r.hub.key.Conversation, "err", err)
		err = r.hub.ring.Pass(m.Seq)
	} else {
		err = r.hub.ring.Append(e)
	}
	if err != nil {
		return err
	}
	r.undelivered = true
	r.hub.metrics.Events.Inc()
	r.caughtUp(m.Seq)
	return nil
}

// caughtUp tells run once the ring has had what OPENED announced.
func (r *reader) caughtUp(seq uint64) {
	if r.behind && seq >= r.link.opened.LastSeq {
		r.behind = false
		r.hub.post(r.hub.caught)
	}
}

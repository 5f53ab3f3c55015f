package hub

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/agentstream"
	"github.com/fairlead/fairlead/relay/internal/feed"
	"github.com/fairlead/fairlead/relay/internal/turn"
	"github.com/fairlead/fairlead/tunnel"
)

// keepLinked keeps a stream to the terminal open until ctx ends or the terminal
// is gone. It runs beside run and sends it events only.
func (h *Hub) keepLinked(ctx context.Context) {
	var since *protocol.Position
	var pause time.Duration // none at first, and after a link that lasted
	for {
		l, err := h.dial.open(ctx, since, pause, h.post)
		if err != nil {
			h.post(linkFailed{err})
			return
		}
		adopted := make(chan struct{})
		h.post(linkUp{l, adopted})
		select {
		case <-adopted: // the feed is where the stream begins
		case <-ctx.Done():
			l.stream.Close()
			return
		}
		began := time.Now()
		err = h.serveLink(ctx, l)
		if ctx.Err() != nil {
			return
		}
		if elsewhere := agentstream.Demoted(l.session); elsewhere != nil {
			h.post(linkFailed{elsewhere})
			return
		}
		h.post(linkDown{err})
		if h.feed.Ended() {
			return
		}
		pos := h.feed.Head()
		since = &pos
		pause = agentstream.Longer(pause)
		if time.Since(began) > agentstream.LongestPause {
			pause = 0
		}
	}
}

// serveLink reads and writes l until it ends.
func (h *Hub) serveLink(ctx context.Context, l *link) error {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { l.stream.Close() })
	abandon := context.AfterFunc(l.life, cancel)
	var aside sync.WaitGroup // goroutines that serveLink waits for
	aside.Go(func() { l.Write(ctx) })
	aside.Go(func() {
		agentstream.UntilDemoted(ctx, l.session) // to another relay, to which viewers should go
		l.life.End()
	})
	l.session.Watch(1)
	defer l.session.Watch(-1)
	err := l.read(h.fanout(), h.typing, h.post)
	stop()
	abandon()
	cancel()
	l.life.End()
	l.stream.Close()
	aside.Wait()
	return err
}

// linked starts using a link.
func (h *Hub) linked(l *link) {
	h.link = l
	h.crowd.told = untold
	h.tellCrowd(time.Now())
	h.ending.Store(l.opened.Exited != nil)
	h.typing.Expect(l)
	first := h.feed == nil
	if !h.lostAt.IsZero() {
		h.metrics.Resume.Observe(time.Since(h.lostAt).Seconds())
		h.lostAt = time.Time{}
	}
	if first {
		h.feed = feed.New(feed.Options{
			Opened: l.opened, Window: h.common.window(), Memory: h.common.keyframes(), Sandbox: h.key.Sandbox,
			Metrics: h.metrics.Feeds, Ended: &h.finished,
		})
		h.shared.Store(h.feed)
		h.feed.SetWindow(h.common.window()) // the share may have changed before the set saw the feed
		h.state, h.leasedAt = turn.New(l.opened), time.Now()
		h.typing.Follow(h.state)
	} else if pos := h.feed.Head(); pos != (protocol.Position{Epoch: l.opened.Epoch, Offset: l.opened.Offset}) {
		h.feed.Replace(protocol.Position{Epoch: l.opened.Epoch, Offset: l.opened.Offset}, l.opened.Cols, l.opened.Rows)
	} else {
		// The agent doesn't repeat a resize at this very offset. The offset is the
		// ring's head, so this can't fail.
		h.feed.Resize(protocol.Resized{Offset: l.opened.Offset, Cols: l.opened.Cols, Rows: l.opened.Rows})
	}
	arrive := h.audience.linked(l)
	missed := h.facts.turn(l.opened.Turn) && !first
	if !first {
		h.step(turn.Reattached{Opened: l.opened}) // sends control_state to all, which ends "waiting"
	}
	if missed {
		h.audience.tell(*h.facts.lastTurn)
	}
	h.typing.Connect(l)
	h.audience.tell(h.facts.note(l.opened.Recording, l.opened.Shared)...)
	for _, v := range h.pacers.newest {
		h.tellPace(v)
	}
	h.followController()
	arrive()
	h.wants.asked, h.wants.open = [2]time.Time{}, [2]bool{}
	h.feed.NothingRequested()
	h.askKeyframes(time.Now())
	h.wants.catchingUp = true
	if l.opened.Head <= l.opened.Offset {
		h.caughtUp()
	}
}

// tellCrowd tells the agent how many sockets there are, when that is due.
func (h *Hub) tellCrowd(now time.Time) {
	if wait, needed := h.crowd.dueIn(now); needed && wait <= 0 && h.link != nil {
		h.send(protocol.Audience{Sockets: h.crowd.tell(now)})
	}
}

// unlinked handles the end of the stream. Viewers see it as waiting, unless
// they have seen the process end.
func (h *Hub) unlinked(err error) {
	h.link = nil
	h.hold(false)             // the next link repeats it if it still holds
	h.wants.catchingUp = true // another relay may show more meanwhile
	h.typing.Disconnect()
	h.noKeyframes()
	h.audience.unlinked()
	if h.finished.Load() {
		h.life.begin(nil)
		h.step(turn.Detached{}) // greets those who wait for an answer
		return
	}
	h.metrics.LinksLost.Inc()
	if len(h.audience.viewers) > 0 {
		h.lostAt = time.Now()
	}
	h.log.Info("terminal stream lost", "sandbox", h.key.Sandbox, "pty", h.key.PTY, "err", err)
	h.audience.tell(protocol.Waiting{Reason: protocol.WaitingSandbox})
	h.step(turn.Detached{}) // those greeted here learn of the waiting with it
}

// unreachable handles a terminal that is gone, or that nobody may see. It
// returns whether the hub continues.
func (h *Hub) unreachable(err error) bool {
	if !h.life.open {
		h.life.begin(err)
		return false
	}
	e := protocol.AsError(err)
	kind := e.Kind
	if elsewhere, ok := errors.AsType[*tunnel.StandbyError](err); ok {
		h.audience.sendAway(elsewhere.Origin)
		return false
	}
	if kind == protocol.KindNotFound {
		kind = protocol.KindEnded // it existed before
	}
	h.typing.End()
	h.audience.close(kind, kind.Text())
	return false
}

// answer handles the agent's messages other than output.
func (h *Hub) answer(m protocol.Message) {
	switch m := m.(type) {
	case protocol.Leased:
		h.step(turn.Leased{Leased: m})
	case protocol.AgentReport:
		h.step(turn.Reported{AgentReport: m})
	case protocol.Granted:
		h.audience.answered(m)
	case protocol.Recording:
		h.audience.tell(h.facts.note(m.ID, h.facts.openTo)...)
	case protocol.Shared:
		h.audience.tell(h.facts.note(h.facts.recording, m.With)...)
	case protocol.Held:
		h.hold(m.Held)
	case protocol.AgentTurn:
		h.turned(m)
	case protocol.ToolsChanged:
		h.audience.tell(protocol.ToolCountChanged{OldCount: m.Old, NewCount: m.New, Timestamp: m.At})
	case protocol.TerminalsChanged:
		h.facts.listed = m.At
		h.audience.tell(h.facts.list(time.Now())...)
	case protocol.Reset:
		h.facts.addresses = nil // a secret may be in them; what the agent still knows follows
	case protocol.Address:
		h.audience.tell(h.facts.address(m)...)
	default:
		h.metrics.Unhandled.WithLabelValues(unhandledAgent).Inc()
	}
}

package hub

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/replay"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

const (
	// maxWrite bounds the output in one write to a viewer, so that a text
	// frame never waits behind more.
	maxWrite = 128 << 10
	// maxNotices bounds the text frames that wait for one viewer. A viewer
	// that lets more pile up is closed: it can't be told anything any more.
	maxNotices = 64 << 10
	// inputOverhead is charged per message beside its bytes, so that a
	// flood of tiny messages is bounded like one of large ones.
	inputOverhead = 64
	// pingInterval is how often a quiet socket is pinged, so that no hop in
	// between takes it for dead; pongTimeout is when we do.
	pingInterval = 25 * time.Second
	pongTimeout  = 60 * time.Second
)

// A Sink is the socket of one viewer. Only the viewer's writer uses it.
type Sink interface {
	// WriteFrames writes complete WebSocket frames.
	WriteFrames(frames net.Buffers) error
	// Ping asks the peer for a sign of life.
	Ping() error
	// LastHeard returns when the peer last gave one.
	LastHeard() time.Time
	// Close ends the socket with a close code of protocol.Kind.
	Close(code int, reason string)
}

// A Viewer is one socket attached to a hub.
type Viewer struct {
	// Static after construction.
	id     turn.SocketID
	name   string
	user   protocol.UserID
	client string // names this socket's input to the agent
	sink   Sink
	since  *protocol.Position
	hub    *Hub
	wake   chan struct{}
	credit *semaphore.Weighted // input under way

	// Owned by the hub's run.
	grant   *jws.Grant
	token   string
	greeted bool

	// Guarded by the intake's mu.
	admitted bool    // greeted: what it types is judged
	gone     bool    // left
	early    []typed // what it typed before it was greeted
	nextSeq  uint64

	// Owned by the writer once the viewer is greeted; guarded by feed.mu.
	place place

	// Guarded by mu.
	mu         sync.Mutex
	notices    []byte // framed text that waits
	refusing   bool   // an input_refused waits among the notices
	live       bool   // place is set
	closing    bool
	closeCode  int
	closeCause string
}

// nudge wakes the writer.
func (v *Viewer) nudge() {
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

// tell queues a text frame.
func (v *Viewer) tell(m protocol.ServerMessage) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, refusal := m.(protocol.InputDropped); refusal {
		if v.refusing {
			return // one waiting notice says it all
		}
		v.refusing = true
	}
	if v.closing {
		return
	}
	v.notices = replay.AppendTextFrame(v.notices, protocol.EncodeServerMessage(m))
	if len(v.notices) > maxNotices {
		v.hub.metrics.ViewersCut.WithLabelValues("notices").Inc()
		v.notices = nil
		v.closeLocked(protocol.KindTooMany, "too far behind")
	}
	v.nudge()
}

// close makes the writer end the socket once the notices so far are written.
func (v *Viewer) close(kind protocol.Kind, cause string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closeLocked(kind, cause)
}

func (v *Viewer) closeLocked(kind protocol.Kind, cause string) {
	if !v.closing {
		v.closing, v.closeCode, v.closeCause = true, kind.CloseCode(), cause
	}
	v.nudge()
}

// start lets output flow, from the place that the feed has set.
func (v *Viewer) start() {
	v.mu.Lock()
	v.live = true
	v.mu.Unlock()
	v.nudge()
}

// Serve writes to the socket until it ends. It is the only writer; the gateway
// runs it beside its reader and waits for both.
func (v *Viewer) Serve(ctx context.Context) {
	// One channel wakes the writer for everything: with hundreds of viewers a
	// select per chunk is a tenth of the relay's CPU.
	defer context.AfterFunc(ctx, v.nudge)()
	var pingDue atomic.Bool
	keepalive := time.AfterFunc(pingInterval, func() {
		pingDue.Store(true)
		v.nudge()
	})
	defer keepalive.Stop()
	var frames net.Buffers
	for range v.wake {
		if ctx.Err() != nil {
			return
		}
		if pingDue.CompareAndSwap(true, false) {
			if time.Since(v.sink.LastHeard()) > pongTimeout || v.sink.Ping() != nil {
				return
			}
			keepalive.Reset(pingInterval)
		}
		for more := true; more; {
			var ok bool
			if more, ok = v.flush(&frames); !ok {
				return
			}
		}
	}
}

// flush writes what waits: notices first, then one piece of output. more says
// that there may be output left; !ok that the socket is over.
func (v *Viewer) flush(frames *net.Buffers) (more, ok bool) {
	v.mu.Lock()
	notices, live, closing := v.notices, v.live, v.closing
	v.notices, v.refusing = nil, false
	v.mu.Unlock()

	batch := (*frames)[:0]
	if len(notices) > 0 {
		batch = append(batch, notices)
	}
	var done bool
	if live && !closing {
		batch, more, done = v.output(batch)
	}
	if len(batch) > 0 {
		start := batch
		err := v.sink.WriteFrames(batch)
		clear(start) // don't keep the ring's chunks alive
		if *frames = start[:0]; err != nil {
			return false, false
		}
	}
	switch {
	case closing:
		v.sink.Close(v.closeCode, v.closeCause)
		return false, false
	case done:
		v.sink.Close(protocol.KindEnded.CloseCode(), protocol.KindEnded.Text())
		return false, false
	}
	return more, true
}

// output appends the next piece of output to batch.
func (v *Viewer) output(batch net.Buffers) (next net.Buffers, more, done bool) {
	before := len(batch)
	next, resync, done := v.hub.feed.next(v, batch)
	if resync != nil {
		v.hub.metrics.Resyncs.Inc()
		v.hub.post(resynced{v})
		next = append(next, replay.AppendTextFrame(nil, protocol.EncodeServerMessage(*resync)))
	}
	return next, len(next) > before, done && len(next) == 0
}

// Type hands the hub what the viewer typed, in the pieces that the tunnel
// carries. It returns when there is room for it, so a socket whose input is
// not taken is not read; ctx ends the wait.
func (v *Viewer) Type(ctx context.Context, input []byte) error {
	intake := v.hub.intake
	for len(input) > 0 {
		piece := input[:min(len(input), protocol.MaxInputBytes)]
		input = input[len(piece):]
		cost := int64(len(piece) + inputOverhead)
		if err := intake.reserve(ctx, v.credit, cost); err != nil {
			return err
		}
		if err := intake.reserve(ctx, intake.queue, cost); err != nil {
			return err
		}
		intake.take(v, typed{piece, cost})
	}
	return nil
}

// Say hands the hub a text frame of the viewer.
func (v *Viewer) Say(m protocol.ClientMessage) { v.hub.post(said{v, m}) }

// Complain tells the viewer that a frame of its own could not be obeyed.
func (v *Viewer) Complain(err error) {
	e := protocol.AsError(err)
	v.tell(protocol.ErrorMessage{Name: e.Kind.Name(), Message: e.Error()})
}

// MayReauth refuses a grant of another user, or one that doesn't allow to view
// this terminal.
func (v *Viewer) MayReauth(grant *jws.Grant) error {
	key := v.hub.key
	if grant.Subject != v.user || grant.Sandbox != key.Sandbox || !grant.Allows(key.Session, key.PTY, protocol.CapView) {
		return protocol.Errorf(protocol.KindForbidden, "the grant is not for this user and terminal")
	}
	return nil
}

// Reauth puts the socket under another grant, which the gateway has verified.
func (v *Viewer) Reauth(grant *jws.Grant, token string) { v.hub.post(renewed{v, grant, token}) }

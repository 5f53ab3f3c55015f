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
	"github.com/fairlead/fairlead/relay/internal/roster"
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
)

// A Sink is the socket of one viewer.
type Sink interface {
	// WriteFrames writes complete WebSocket frames, after what Offer kept.
	// Without frames it writes that alone.
	WriteFrames(frames net.Buffers) error
	// Ping asks the peer for a sign of life.
	Ping() error
	// LastHeard returns when the peer last gave one.
	LastHeard() time.Time
	// Close ends the socket with a close code of protocol.Kind.
	Close(code int, reason string)
}

// An Offerer is a Sink that can write without waiting. The stream's reader then
// serves sockets that keep up by itself, as a bare loop of writes would, and no
// goroutine has to wake for each of them.
type Offerer interface {
	Sink
	// Begin reports whether the socket is idle, and if so keeps it for one
	// Offer, which must follow.
	Begin() bool
	// Offer writes what the kernel takes at once and keeps the rest, which
	// goes before anything else. drained says that nothing is kept.
	Offer(frames net.Buffers) (drained bool, err error)
}

// A Viewer is one socket attached to a hub.
type Viewer struct {
	// Static after construction.
	id      turn.SocketID
	name    string
	user    protocol.UserID
	client  string // names its input to the agent
	pacer   string // names it to the agent when it holds the terminal back
	follows bool   // it never gives the terminal its size
	counts  bool   // it speaks terminal.v2: acknowledges output, numbers input
	sink    Sink
	offer   Offerer // sink, if it is one
	since   since
	asked   time.Time // when it came
	hub     *Hub
	wake    chan struct{}
	credit  *semaphore.Weighted // input under way

	// Owned by the hub's run.
	grant    *jws.Grant
	token    string
	set      roster.Key               // of its grant
	rights   roster.Rights            // that it has: no more than the grant's
	early    []protocol.ClientMessage // what it said before it was admitted
	greeted  bool
	notLed   bool   // it was told that it doesn't give the size
	asking   bool   // the agent is being asked whether its log has what it wants
	presence uint64 // version of the presence in its greeting
	wantsAll bool   // it asked for every byte, and may

	// Guarded by the intake's mu.
	admitted bool    // greeted: what it types is judged
	gone     bool    // left
	waiting  []typed // what it typed before it was greeted, or behind a wish to yield
	wishes   int     // to yield control, that its reader has seen
	heard    int     // those that run knows
	decided  int     // those that are done or refused
	nextSeq  uint64
	gate     gate
	taking   taking

	// Guarded by writing, which the writer holds while it writes, or the
	// stream's reader while it offers.
	writing  sync.Mutex
	frames   net.Buffers
	sending  []*keyframe // in what is being written
	offering bool        // the stream's reader holds writing

	// Guarded by feed.mu. The hub sets place before the viewer is greeted.
	place place
	fill  backfill
	pace  pacing
	exact bool // wantsAll

	held  atomic.Bool // new output is nothing to it at the moment; set under feed.mu
	paces atomic.Bool // pace.on

	// Guarded by mu.
	mu         sync.Mutex
	notices    []byte // framed text that waits
	ahead      []byte // framed text that doesn't wait for the greeting
	refusing   bool   // an input_refused waits among the notices
	pinged     bool   // it asked whether we are there
	typedUpTo  uint64 // its input up to this sequence was written
	ackedInput uint64 // what it was told of that
	live       bool   // it was greeted, and place is set
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

// tell queues a text frame, which waits for the greeting if need be.
func (v *Viewer) tell(m protocol.ServerMessage) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closing {
		return
	}
	if refusal, ok := m.(protocol.InputDropped); ok && refusal.Seq == 0 {
		if v.refusing {
			return // one waiting notice says it all
		}
		v.refusing = true
	}
	v.notices = replay.AppendTextFrame(v.notices, protocol.EncodeServerMessage(m))
	v.boundNotices()
}

// tellFrame queues a text frame that is the same for many.
func (v *Viewer) tellFrame(frame []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closing {
		return
	}
	v.notices = append(v.notices, frame...)
	v.boundNotices()
}

// boundNotices ends a viewer for whom too much waits, and wakes the writer. The
// caller holds mu.
func (v *Viewer) boundNotices() {
	if len(v.notices) > maxNotices {
		v.hub.metrics.ViewersCut.WithLabelValues(cutNotices).Inc()
		v.notices = nil
		v.closeLocked(protocol.KindTooMany, "too far behind")
	}
	v.nudge()
}

// pongFrame answers pings, however many came since the last one: so many viewers
// ask that each answer has to cost next to nothing.
var pongFrame = replay.AppendTextFrame(nil, protocol.EncodeServerMessage(protocol.PongMessage{}))

// Pinged answers a ping of the viewer.
func (v *Viewer) Pinged() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.pinged {
		v.pinged = true
		v.nudge()
	}
}

// hint has m written at once, whether the viewer was greeted or not.
func (v *Viewer) hint(m protocol.ServerMessage) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ahead = replay.AppendTextFrame(v.ahead, protocol.EncodeServerMessage(m))
	v.nudge()
}

// confirm tells the viewer that all its input up to seq was written.
func (v *Viewer) confirm(seq uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if seq > v.typedUpTo {
		v.typedUpTo = seq
		v.nudge()
	}
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

// start sends the greeting before everything else, and lets output flow from
// the place that the feed has set.
func (v *Viewer) start(greeting []protocol.ServerMessage) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var first []byte
	for _, m := range greeting {
		first = replay.AppendTextFrame(first, protocol.EncodeServerMessage(m))
	}
	v.notices = append(first, v.notices...)
	v.live = true
	v.nudge()
}

// Serve writes to the socket until it ends. The gateway runs it beside its
// reader and waits for both.
func (v *Viewer) Serve(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var filling sync.WaitGroup
	defer filling.Wait()
	defer cancel()
	// One channel wakes the writer for everything: with hundreds of viewers a
	// select per chunk is a tenth of the relay's CPU.
	defer context.AfterFunc(ctx, v.nudge)()
	defer context.AfterFunc(v.hub.over, func() { // which may have ended before it saw this viewer
		v.close(protocol.KindUnavailable, protocol.KindUnavailable.Text())
	})()
	alive := keepalive{v: v}
	alive.timer = time.AfterFunc(pingInterval, func() {
		alive.due.Store(true)
		v.nudge()
	})
	defer alive.timer.Stop()
	for range v.wake {
		if ctx.Err() != nil {
			return
		}
		fill, ok := v.drain()
		if !ok || !alive.check() {
			return
		}
		if fill && v.hub.feed.claim(v) {
			filling.Go(func() { v.backfill(ctx) })
		}
	}
}

// drain writes until nothing waits. fill says that the agent's log must be read
// for the viewer; !ok that the socket is over.
func (v *Viewer) drain() (fill, ok bool) {
	v.writing.Lock()
	defer v.writing.Unlock()
	for {
		state, ok := v.flush()
		if !ok || !state.more {
			return state.fill, ok
		}
	}
}

// push offers what is new to the socket, from the stream's reader. Whatever
// would have to wait is left to the writer.
func (v *Viewer) push() {
	if v.offer == nil || !v.writing.TryLock() {
		v.postpone()
		return
	}
	defer v.writing.Unlock()
	if !v.offer.Begin() {
		v.postpone()
		return
	}
	v.offering = true
	batch, state := v.collect()
	v.offering = false
	drained, err := v.offer.Offer(batch)
	v.keep(batch)
	if !drained {
		v.postpone()
		return
	}
	if err != nil || state.more || state.closing || state.done || state.fill {
		v.nudge() // the writer meets the error, too
		return
	}
	v.written()
}

// postpone leaves what is new to the writer, for the socket doesn't take it now.
func (v *Viewer) postpone() {
	v.hub.metrics.Deferred.Inc()
	v.nudge()
}

// flush writes what waits: notices first, then one piece of output. !ok says
// that the socket is over. The caller holds writing.
func (v *Viewer) flush() (state batchState, ok bool) {
	batch, state := v.collect()
	err := v.sink.WriteFrames(batch)
	v.keep(batch)
	switch {
	case err != nil:
		return state, false
	case state.closing:
		v.sink.Close(v.closeCode, v.closeCause)
		return state, false
	case state.done:
		v.sink.Close(protocol.KindEnded.CloseCode(), protocol.KindEnded.Text())
		return state, false
	}
	v.written()
	return state, true
}

// A batchState says what comes after a batch.
type batchState struct {
	outcome
	closing bool // the end of the socket, as the hub wants it
}

// collect takes what waits: notices, then one piece of output. The caller holds
// writing.
func (v *Viewer) collect() (batch net.Buffers, state batchState) {
	v.mu.Lock()
	var notices []byte
	live := v.live
	notices, v.ahead = v.ahead, nil
	if state.closing = v.closing; live || state.closing {
		if notices == nil {
			notices = v.notices
		} else {
			notices = append(notices, v.notices...)
		}
		v.notices, v.refusing = nil, false
		if v.typedUpTo > v.ackedInput {
			v.ackedInput = v.typedUpTo
			notices = replay.AppendTextFrame(notices,
				protocol.EncodeServerMessage(protocol.InputWritten{Seq: v.ackedInput}))
		}
	}
	if v.pinged { // also one that isn't greeted must know that we are there
		v.pinged = false
		notices = append(notices, pongFrame...)
	}
	v.mu.Unlock()

	batch = v.frames[:0]
	if len(notices) > 0 {
		batch = append(batch, notices)
	}
	if live && !state.closing {
		batch, state.outcome = v.output(batch)
	}
	n := 0
	for _, b := range batch {
		n += len(b)
	}
	v.hub.metrics.OutputBytes.Add(float64(n))
	return batch, state
}

// keep reuses the batch that was written, without the ring's chunks in it.
func (v *Viewer) keep(batch net.Buffers) {
	clear(batch)
	v.frames = batch[:0]
	for _, kf := range v.sending {
		kf.charge.release()
	}
	v.sending = v.sending[:0]
}

// output appends the next piece of output to batch, and tells run what it must
// know of that.
func (v *Viewer) output(batch net.Buffers) (net.Buffers, outcome) {
	batch, out := v.hub.feed.next(v, batch)
	if out.resynced {
		v.hub.post(resynced{v})
	}
	if out.lost != "" {
		v.hub.post(wentMissing{v, out.lost})
	}
	return batch, out
}

// Type hands the hub what a plain viewer typed, in the pieces that the tunnel
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
		intake.accept(v, typed{input: piece, cost: cost})
	}
	return nil
}

// TypeNumbered hands the hub what a viewer typed who numbers its input and
// names the term. What there is no room for is refused: its client knows what
// to do, and its socket is read on.
func (v *Viewer) TypeNumbered(in protocol.BrowserInput) {
	intake := v.hub.intake
	cost := int64(len(in.Bytes) + inputOverhead)
	switch {
	case len(in.Bytes) > protocol.MaxInputBytes:
		v.Complain(protocol.Errorf(protocol.KindTooLarge, "input of one message is over %d bytes", protocol.MaxInputBytes))
		fallthrough
	case !v.credit.TryAcquire(cost):
		intake.drop(v, protocol.RefusedBusy, in.Seq)
	case !intake.queue.TryAcquire(cost):
		v.credit.Release(cost)
		intake.drop(v, protocol.RefusedBusy, in.Seq)
	default:
		intake.accept(v, typed{input: in.Bytes, cost: cost, seq: in.Seq, term: in.Term})
	}
}

// Say hands the hub a text frame of the viewer. What it types behind a wish to
// hand control over or to give it back is judged when that is decided.
func (v *Viewer) Say(m protocol.ClientMessage) {
	if yields(m) {
		v.hub.intake.hold(v)
	}
	v.hub.post(said{v, m})
}

// asksFor reports whether who says m wants control.
func asksFor(m protocol.ClientMessage) bool {
	return m.Type == protocol.ClientRequestControl || m.Type == protocol.ClientTakeControl || m.Type == protocol.ClientTakeBack
}

// yields reports whether who says m means to have control no longer.
func yields(m protocol.ClientMessage) bool {
	return m.Type == protocol.ClientGrantControl || m.Type == protocol.ClientRevokeControl
}

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

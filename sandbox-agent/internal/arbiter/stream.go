package arbiter

import (
	"errors"
	"io"
	"net"
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/bytelog"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/pace"
	"github.com/fairlead/fairlead/sandbox-agent/internal/display"
	"github.com/fairlead/fairlead/sandbox-agent/internal/grantlist"
	"github.com/fairlead/fairlead/sandbox-agent/internal/lifespan"
)

// MaxOutbox bounds the messages that wait for a stream beside the log. A relay that
// sends more than it reads loses its stream.
const MaxOutbox = 4096

// MaxStreams bounds the streams of one terminal: a relay has one, and may
// leave a dead one behind for a moment.
const MaxStreams = 16

// ackSearch is how far back an ack looks for an earlier one to replace.
const ackSearch = 32

// A Stream is one relay's stream to a terminal: the log from some place on, and
// the messages that answer what the relay sends. [Stream.Take] is for one
// goroutine; all else is safe for concurrent use. Nothing waits.
type Stream struct {
	// Static after construction.
	arbiter *Arbiter
	pacer   pace.Stream     // its name where the pace is set
	seats   lifespan.Stream // its name where viewers are counted
	wake    wakeup          // there is something for Take

	buf []byte // owned by Take: the bytes of the last DATA

	// Guarded by Arbiter.mu.
	cursor    bytelog.Cursor
	cut       bool                // another epoch has begun, which it is to be told
	outbox    []protocol.Message  // at most MaxOutbox
	space     [4]protocol.Message // of an outbox that is small, as it is when typing
	present   map[protocol.UserID]int
	grants    grantlist.List
	bareSince time.Time         // when they ran out; zero: they haven't
	muted     bool              // the last was revoked: only answers about grants are returned
	wants     display.Wish      // the keyframe asked for and not taken yet
	keyframe  *display.Keyframe // taken and not delivered yet
	sent      int               // bytes of it that are
	ended     bool              // EXITED was returned
	err       error             // why it is over
}

// Attach opens a stream to the terminal, at params.Since where the log still
// holds that, else where a newcomer begins: at a line start, at most
// protocol.MaxReplayBytes back. Nothing waits for a lost tunnel any more then.
// An ended terminal still shows its log and its end. It fails with KindTooMany
// beyond 16 streams. Close it when done.
func (b *Arbiter) Attach(params protocol.TerminalParams) (*Stream, protocol.TerminalOpened, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.streams) == MaxStreams {
		return nil, protocol.TerminalOpened{}, protocol.Errorf(protocol.KindTooMany, "too many streams to this terminal")
	}
	a := &Stream{
		arbiter: b,
		pacer:   b.flow.newStream(),
		seats:   b.audience.Open(),
		wake:    make(wakeup, 1),
		present: make(map[protocol.UserID]int),
	}
	cursor, opened := b.o.Transcript.Open(params.Since)
	a.cursor = cursor
	opened.Creator, opened.Claimed = b.o.Info.CreatorID, b.control.lease.Claimed()
	opened.Lease, opened.Pacers = b.control.lease.Lease(time.Now()), b.flow.gate.Pacers(time.Now())
	opened.Recording, opened.Shared = b.recording, b.sharing.shared()
	opened.Agent, opened.Turn = b.stage.report(), b.hooks.turn
	for i := range opened.Pacers { // they may not have heard of this epoch
		opened.Pacers[i].Offset = min(opened.Pacers[i].Offset, opened.Head)
	}
	if b.held.announced {
		a.post(protocol.Held{Held: true})
	}
	for _, m := range b.addresses {
		a.post(m)
	}
	b.streams[a] = struct{}{}
	b.Poke() // somebody watches
	b.o.Transcript.Listen(a.wake)
	b.flow.gate.Found()
	b.flow.paced(b.stage.front)
	a.notify()
	return a, opened, nil
}

// Wake has an element when there may be something for [Stream.Take].
func (a *Stream) Wake() <-chan struct{} { return a.wake }

// Take returns the next message, or nil when there is none now.
//
// DATA, RESIZED, KEYFRAME and EXITED come in the order of the log; RESET when
// the relay was so slow that the log lost its place, or when another epoch has
// begun. Messages beside the log (LEASED, HELD, AGENT, AGENT_TURN, TOOLS, SHARED,
// INPUT_ACK, INPUT_REFUSED, RECORDING, those of [Stream.Post]) overtake it, but
// don't part the pieces of a keyframe. A DATA's bytes are valid until the next
// call, a KEYFRAME's for ever. After EXITED Take returns io.EOF, after Close
// net.ErrClosed, and [ErrNoGrant] when nobody may view the terminal any more;
// also KindTooMany for a relay that doesn't read.
//
// A RESET needs a keyframe where one is asked for. It is present, which was drawn
// for the wish drawn; where that doesn't do, Take returns the wish for which one
// must be drawn. From the drawing of present until Take returns nothing may be
// printed.
func (a *Stream) Take(drawn display.Wish, present *display.Keyframe) (m protocol.Message, wanted display.Wish, err error) {
	b := a.arbiter
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended.IsZero() {
		b.checkGrants(time.Now()) // Tick does it no more
	}
	switch {
	case a.err != nil:
		return nil, display.WishNone, a.err
	case a.muted:
		return a.aboutGrants(), display.WishNone, nil
	case a.sent > 0: // the pieces of a keyframe follow each other directly
		return a.piece(), display.WishNone, nil
	case len(a.outbox) > 0:
		return a.pop(), display.WishNone, nil
	case a.ended:
		return nil, display.WishNone, io.EOF
	}
	gap := a.cut
	if !gap {
		m, gap, err = a.follow()
	}
	if !gap {
		return m, display.WishNone, err
	}
	a.putOff()
	if a.wants > drawn {
		return nil, a.wants, nil
	}
	return a.reset(present), display.WishNone, nil
}

// pop returns the first message beside the log. The caller holds Arbiter.mu.
func (a *Stream) pop() protocol.Message {
	m := a.outbox[0]
	a.outbox[0] = nil
	if a.outbox = a.outbox[1:]; len(a.outbox) == 0 {
		a.outbox = a.space[:0]
	}
	return m
}

// follow returns the next message of the log, or nil when there is none now. gap
// says that the log has lost the stream's place. The caller holds
// Arbiter.mu.
func (a *Stream) follow() (m protocol.Message, gap bool, err error) {
	offset, limit := a.cursor.Offset(), protocol.MaxDataBytes
	if f := a.keyframe; f != nil {
		if a.cursor == f.At {
			return a.piece(), false, nil
		}
		if before := f.At.Offset() - offset; before > 0 {
			limit = int(min(uint64(limit), before))
		}
	}
	if a.wants != display.WishNone && a.cursor == a.arbiter.o.Transcript.End() {
		return nil, false, nil // EXITED would end it before the keyframe
	}
	item, ok, err := a.arbiter.o.Transcript.Next(&a.cursor, &a.buf, limit)
	switch {
	case errors.As(err, new(bytelog.ErrGap)):
		return nil, true, nil
	case err != nil:
		return nil, false, protocol.Fault(protocol.KindInternal, err)
	case !ok:
		return nil, false, nil
	case item.Resized != nil:
		return *item.Resized, false, nil
	case item.Exited != nil:
		a.ended = true
		return *item.Exited, false, nil
	}
	return protocol.Data{Offset: offset, Bytes: item.Bytes}, false, nil
}

// aboutGrants returns the next answer about a grant, nil when there is none or
// it has to wait for a keyframe. The caller holds Arbiter.mu.
func (a *Stream) aboutGrants() protocol.Message {
	if a.sent > 0 {
		return nil
	}
	at := slices.IndexFunc(a.outbox, func(m protocol.Message) bool { _, ok := m.(protocol.Granted); return ok })
	if at < 0 {
		return nil
	}
	m := a.outbox[at]
	a.outbox = slices.Delete(a.outbox, at, at+1)
	return m
}

// reset moves the cursor to where a newcomer begins. Who waits for a keyframe
// gets present there and then, unless that is nil: in a flood that outruns the
// stream any later one would fall out of the log like the last. The caller holds
// Arbiter.mu.
func (a *Stream) reset(present *display.Keyframe) protocol.Reset {
	log := a.arbiter.o.Transcript
	a.cut, a.cursor = false, log.Newcomer()
	if a.wants != display.WishNone && present != nil {
		a.keyframe, a.cursor, a.wants = present, present.At, display.WishNone
	}
	for _, known := range a.arbiter.addresses { // the relay discards all
		a.post(known)
	}
	m := protocol.Reset{Epoch: log.Epoch(), Offset: a.cursor.Offset()}
	m.Cols, m.Rows = log.SizeAt(m.Offset)
	return m
}

// Post has Next return m, for a caller that answers the relay itself and wants
// one goroutine to write the stream.
func (a *Stream) Post(m protocol.Message) {
	a.arbiter.mu.Lock()
	defer a.arbiter.mu.Unlock()
	a.post(m)
}

// Close ends the stream, whose relay has closed the stream. The sockets
// that the relay reported count no more, so that the grace begins for a holder
// who has no others. Its pace-setters who are not gone keep their place for
// protocol.ControlGrace.
func (a *Stream) Close() {
	a.end(func(gate *pace.Gate) { gate.Leave(a.pacer, time.Now()) })
}

// Lose ends the stream, whose tunnel was lost. In addition to what
// [Stream.Close] does, the terminal waits with protocol.MaxUnsent of output
// for another tunnel, for protocol.ControlGrace.
func (a *Stream) Lose() {
	a.end(func(gate *pace.Gate) { gate.Lose(a.pacer, a.cursor.Offset(), time.Now()) })
}

// end takes the stream off the list. leave is called with mu held.
func (a *Stream) end(leave func(*pace.Gate)) {
	b := a.arbiter
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, open := b.streams[a]; !open {
		return
	}
	delete(b.streams, a)
	b.audience.Close(a.seats, time.Now())
	b.Poke()
	b.o.Transcript.Forget(a.wake)
	a.fail(net.ErrClosed)
	a.keyframe = nil
	leave(&b.flow.gate)
	b.flow.paced(b.stage.front)
	if holder := b.control.lease.Lease(time.Now()).Holder; a.present[holder] > 0 {
		b.present(holder)
	}
}

// fail makes Next return err from now on, unless it fails already. The
// caller holds mu.
func (a *Stream) fail(err error) {
	if a.err == nil {
		a.err, a.outbox = err, nil
		a.notify()
	}
}

// post queues m. The caller holds mu.
func (a *Stream) post(m protocol.Message) {
	switch {
	case a.err != nil:
	case len(a.outbox) == MaxOutbox:
		a.fail(protocol.Errorf(protocol.KindTooMany, "relay doesn't read"))
	default:
		a.outbox = append(a.outbox, m)
		a.notify()
	}
}

// ack queues the ack of all input of client up to seq. It replaces one that
// waits. The caller holds mu.
func (a *Stream) ack(client string, seq uint64) {
	m := protocol.InputAck{Seq: seq, Client: client}
	for i := len(a.outbox) - 1; i >= max(0, len(a.outbox)-ackSearch); i-- {
		if earlier, ok := a.outbox[i].(protocol.InputAck); ok && earlier.Client == client {
			a.outbox[i] = m
			return
		}
	}
	a.post(m)
}

// refuseInput queues the refusal of input. The caller holds Arbiter.mu.
func (a *Stream) refuseInput(client string, seq uint64, reason protocol.RefusalReason) {
	a.arbiter.o.Counts.refuse(reason)
	a.post(protocol.InputRefused{Seq: seq, Client: client, Reason: reason})
}

func (a *Stream) notify() { a.wake.raise() }

// postNewest queues m in place of a message of its type that waits: who is slow
// needs the newest only. The caller holds mu.
func (a *Stream) postNewest(m protocol.Message) {
	for i := len(a.outbox) - 1; i >= max(0, len(a.outbox)-ackSearch); i-- {
		if a.outbox[i].FrameType() != m.FrameType() {
			continue
		}
		if tools, ok := m.(protocol.ToolsChanged); ok {
			tools.Old = a.outbox[i].(protocol.ToolsChanged).Old
			m = tools
		}
		a.outbox[i] = m
		return
	}
	a.post(m)
}

// streams are those of a terminal. The arbiter's mu guards what is in them.
type streams map[*Stream]struct{}

// tell tells everybody. The caller holds Arbiter.mu.
func (all streams) tell(m protocol.Message) {
	for a := range all {
		a.post(m)
	}
}

// tellNewest tells everybody, in place of messages of the type of m that wait. The
// caller holds Arbiter.mu.
func (all streams) tellNewest(m protocol.Message) {
	for a := range all {
		a.postNewest(m)
	}
}

// sockets counts a user's sockets at all relays. The caller holds Arbiter.mu.
func (all streams) sockets(user protocol.UserID) (n int) {
	for a := range all {
		n += a.present[user]
	}
	return n
}

// grantOf returns a grant at any relay that lets user control the terminal, the
// one that is good for longest; nil when there is none. The caller holds
// Arbiter.mu.
func (all streams) grantOf(o *Options, user protocol.UserID, now time.Time) (best *jws.Grant) {
	for a := range all {
		for _, g := range a.grants.All() {
			if o.controls(g.Grant, user, now) && (best == nil || g.ExpiresAt > best.ExpiresAt) {
				best = g.Grant
			}
		}
	}
	return best
}

package terminal

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/bytelog"
	"github.com/fairlead/fairlead/protocol/pace"
	"github.com/fairlead/fairlead/sandbox-agent/internal/display"
)

// maxOutbox bounds the messages that wait for an attachment beside the log. A
// relay that sends more than it reads loses its attachment.
const maxOutbox = 4096

// maxAttachments bounds the streams of one terminal: a relay has one, and may
// leave a dead one behind for a moment.
const maxAttachments = 16

// ackSearch is how far back an ack looks for an earlier one to replace.
const ackSearch = 32

// An Attachment is one relay's stream to a terminal: the log from some place
// on, and the messages that answer what the relay sends. [Attachment.Next] is
// for one goroutine; all else is safe for concurrent use and never waits.
type Attachment struct {
	// Static after construction.
	terminal *Terminal
	stream   pace.Stream   // its name where the pace is set
	wake     chan struct{} // 1 element: there is something for Next

	buf []byte // owned by Next: the bytes of the last DATA

	// Guarded by arbiter.mu.
	cursor    bytelog.Cursor
	cut       bool                // another epoch has begun, which it is to be told
	outbox    []protocol.Message  // at most maxOutbox
	space     [4]protocol.Message // of an outbox that is small, as it is when typing
	present   map[protocol.UserID]int
	grants    grantList
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
// beyond 16 attachments. Close it when done.
func (t *Terminal) Attach(params protocol.TerminalParams) (*Attachment, protocol.TerminalOpened, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.attachments) == maxAttachments {
		return nil, protocol.TerminalOpened{}, protocol.Errorf(protocol.KindTooMany, "too many streams to this terminal")
	}
	a := &Attachment{
		terminal: t,
		stream:   t.flow.newStream(),
		wake:     make(chan struct{}, 1),
		present:  make(map[protocol.UserID]int),
	}
	cursor, opened := t.transcript.Open(params.Since)
	a.cursor = cursor
	opened.Creator, opened.Claimed = t.info.CreatorID, t.control.lease.Claimed()
	opened.Lease, opened.Pacers = t.control.lease.Lease(time.Now()), t.flow.gate.Pacers(time.Now())
	opened.Recording, opened.Shared = t.recordingID(), t.sharing.shared()
	opened.Agent, opened.Turn = t.stage.report(), t.hooks.turn
	for i := range opened.Pacers { // they may not have heard of this epoch
		opened.Pacers[i].Offset = min(opened.Pacers[i].Offset, opened.Head)
	}
	if t.held.announced {
		a.post(protocol.Held{Held: true})
	}
	t.attachments[a] = struct{}{}
	t.transcript.Listen(a.wake)
	t.flow.gate.Found()
	t.paced()
	a.notify()
	return a, opened, nil
}

// Next returns the next message for the relay and waits until there is one.
// DATA, RESIZED, KEYFRAME and EXITED come in the order of the log; RESET when
// the relay was so slow that the log lost its place, or when another epoch has
// begun. Messages beside the log (LEASED, HELD, AGENT, AGENT_TURN, TOOLS, SHARED, INPUT_ACK, INPUT_REFUSED, RECORDING,
// those of [Attachment.Post])
// overtake it, but don't part the pieces of a keyframe. A DATA's
// bytes are valid until the next call, a KEYFRAME's for ever. After EXITED it returns io.EOF, after
// Close net.ErrClosed, and [ErrNoGrant] when nobody may view the terminal any
// more; also ctx's error, and KindTooMany for a relay that doesn't read.
func (a *Attachment) Next(ctx context.Context) (protocol.Message, error) {
	for {
		m, err := a.poll()
		if m != nil || err != nil {
			return m, err
		}
		select {
		case <-a.wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// poll returns the next message, or nil when there is none now.
func (a *Attachment) poll() (protocol.Message, error) {
	m, wanted, err := a.take(display.WishNone, nil)
	for wanted != display.WishNone {
		m, wanted, err = a.takeDrawn(wanted)
	}
	if k, ok := m.(protocol.Keyframe); ok && k.Left == 0 {
		a.terminal.mayTakeKeyframes()
	}
	return m, err
}

// takeDrawn is take with a keyframe of the present screen.
func (a *Attachment) takeDrawn(w display.Wish) (protocol.Message, display.Wish, error) {
	v := &a.terminal.view
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.display.Due() { // of the screen as it is there is no place in the log
		return a.take(display.WishHistory, nil)
	}
	return a.take(w, v.display.Keyframe(w))
}

// take returns the next message, or nil when there is none now. A RESET needs a
// keyframe where one is asked for: it was drawn for the wish drawn, or take
// returns for which it should be. With a drawn one view.mu is held.
func (a *Attachment) take(drawn display.Wish, present *display.Keyframe) (m protocol.Message, wanted display.Wish, err error) {
	t := a.terminal
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended.IsZero() {
		t.checkGrants(time.Now()) // keep does it no more
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

// pop returns the first message beside the log. The caller holds arbiter.mu.
func (a *Attachment) pop() protocol.Message {
	m := a.outbox[0]
	a.outbox[0] = nil
	if a.outbox = a.outbox[1:]; len(a.outbox) == 0 {
		a.outbox = a.space[:0]
	}
	return m
}

// follow returns the next message of the log, or nil when there is none now. gap
// says that the log has lost the attachment's place. The caller holds
// arbiter.mu.
func (a *Attachment) follow() (m protocol.Message, gap bool, err error) {
	offset, limit := a.cursor.Offset(), protocol.MaxDataBytes
	if f := a.keyframe; f != nil {
		if a.cursor == f.At {
			return a.piece(), false, nil
		}
		if before := f.At.Offset() - offset; before > 0 {
			limit = int(min(uint64(limit), before))
		}
	}
	if a.wants != display.WishNone && a.cursor == a.terminal.transcript.End() {
		return nil, false, nil // EXITED would end it before the keyframe
	}
	item, ok, err := a.terminal.transcript.Next(&a.cursor, &a.buf, limit)
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
// it has to wait for a keyframe. The caller holds arbiter.mu.
func (a *Attachment) aboutGrants() protocol.Message {
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
// arbiter.mu.
func (a *Attachment) reset(present *display.Keyframe) protocol.Reset {
	log := a.terminal.transcript
	a.cut, a.cursor = false, log.Newcomer()
	if a.wants != display.WishNone && present != nil {
		a.keyframe, a.cursor, a.wants = present, present.At, display.WishNone
		a.terminal.view.taken = time.Now()
	}
	m := protocol.Reset{Epoch: log.Epoch(), Offset: a.cursor.Offset()}
	m.Cols, m.Rows = log.SizeAt(m.Offset)
	return m
}

// Post has Next return m, for a caller that answers the relay itself and wants
// one goroutine to write the stream.
func (a *Attachment) Post(m protocol.Message) {
	a.terminal.mu.Lock()
	defer a.terminal.mu.Unlock()
	a.post(m)
}

// Close ends the attachment, whose relay has closed the stream. The sockets
// that the relay reported count no more, so that the grace begins for a holder
// who has no others. Its pace-setters who are not gone keep their place for
// protocol.ControlGrace.
func (a *Attachment) Close() {
	a.end(func(gate *pace.Gate) { gate.Leave(a.stream, time.Now()) })
}

// Lose ends the attachment, whose tunnel was lost. In addition to what
// [Attachment.Close] does, the terminal waits with protocol.MaxUnsent of output
// for another tunnel, for protocol.ControlGrace.
func (a *Attachment) Lose() {
	a.end(func(gate *pace.Gate) { gate.Lose(a.stream, a.cursor.Offset(), time.Now()) })
}

func (a *Attachment) end(leave func(*pace.Gate)) {
	t := a.terminal
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, open := t.attachments[a]; !open {
		return
	}
	delete(t.attachments, a)
	t.transcript.Forget(a.wake)
	a.fail(net.ErrClosed)
	a.keyframe = nil
	leave(&t.flow.gate)
	t.paced()
	if holder := t.control.lease.Lease(time.Now()).Holder; a.present[holder] > 0 {
		t.present(holder)
	}
}

// fail makes Next return err from now on, unless it fails already. The
// caller holds mu.
func (a *Attachment) fail(err error) {
	if a.err == nil {
		a.err, a.outbox = err, nil
		a.notify()
	}
}

// post queues m. The caller holds mu.
func (a *Attachment) post(m protocol.Message) {
	switch {
	case a.err != nil:
	case len(a.outbox) == maxOutbox:
		a.fail(protocol.Errorf(protocol.KindTooMany, "relay doesn't read"))
	default:
		a.outbox = append(a.outbox, m)
		a.notify()
	}
}

// ack queues the ack of all input of client up to seq. It replaces one that
// waits. The caller holds mu.
func (a *Attachment) ack(client string, seq uint64) {
	m := protocol.InputAck{Seq: seq, Client: client}
	for i := len(a.outbox) - 1; i >= max(0, len(a.outbox)-ackSearch); i-- {
		if earlier, ok := a.outbox[i].(protocol.InputAck); ok && earlier.Client == client {
			a.outbox[i] = m
			return
		}
	}
	a.post(m)
}

// refuseInput queues the refusal of input. The caller holds arbiter.mu.
func (a *Attachment) refuseInput(client string, seq uint64, reason protocol.RefusalReason) {
	a.terminal.site.counts.refused(reason)
	a.post(protocol.InputRefused{Seq: seq, Client: client, Reason: reason})
}

func (a *Attachment) notify() {
	select {
	case a.wake <- struct{}{}:
	default: // it has yet to look
	}
}

package simagent

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/bytelog"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/pace"
	"github.com/fairlead/fairlead/tunnel/terminalstream"
)

const (
	// maxAttachments bounds the streams of one terminal.
	maxAttachments = 16
	// maxOutbox bounds the messages that wait for one beside the log.
	maxOutbox = 4096
	// maxGrants bounds the grants of one.
	maxGrants = 4096
	// bareFor is how long one may be without a grant.
	bareFor = time.Second
)

var errNoGrant = errors.New("simagent: no grant is left to view the terminal")

// An attachment is one relay's stream to a terminal.
type attachment struct {
	// Static after construction.
	terminal *terminal
	stream   pace.Stream   // its name where the pace is set
	wake     chan struct{} // 1 element: there is something for next

	buf []byte // owned by next: the bytes of the last DATA

	// Guarded by terminal.mu.
	cursor   bytelog.Cursor
	outbox   []protocol.Message
	present  map[protocol.UserID]int
	grants   map[protocol.GrantID]*jws.Grant
	bare     *time.Timer // ends it for want of a grant
	wants    bool        // a keyframe
	history  bool        // with history
	keyframe *keyframe   // drawn and not sent yet
	sent     int         // bytes of it that are
	ended    bool        // EXITED was returned
	err      error       // why it is over
}

// Attach implements [terminalstream.Terminal].
func (t *terminal) Attach(params protocol.TerminalParams) (terminalstream.Attachment, protocol.TerminalOpened, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.attachments) == maxAttachments {
		return nil, protocol.TerminalOpened{}, protocol.Errorf(protocol.KindTooMany, "too many streams to this terminal")
	}
	t.streams++
	a := &attachment{
		terminal: t, stream: t.streams, wake: make(chan struct{}, 1),
		present: make(map[protocol.UserID]int), grants: make(map[protocol.GrantID]*jws.Grant),
	}
	resumed := false
	if since := params.Since; since != nil && since.Epoch == t.log.Epoch() {
		var err error
		a.cursor, err = t.log.CursorAt(since.Offset)
		resumed = err == nil
	}
	if !resumed {
		a.cursor = t.place(t.log.LineStart(protocol.MaxReplayBytes))
	}
	now := time.Now()
	opened := protocol.TerminalOpened{
		Epoch: t.log.Epoch(), Offset: a.cursor.Offset(), Head: t.log.Head(), Gap: params.Since != nil && !resumed,
		Creator: t.info.CreatorID, Claimed: t.lease.Claimed(), Lease: t.lease.Lease(now), Pacers: t.gate.Pacers(now),
	}
	opened.Cols, opened.Rows = t.log.SizeAt(opened.Offset)
	if exited, ok := t.log.Exited(); ok {
		opened.Exited = &exited
	}
	t.attachments[a] = struct{}{}
	t.gate.Found()
	t.took()
	a.notify()
	return a, opened, nil
}

// place returns a cursor at an offset that the log holds. The caller holds mu.
func (t *terminal) place(offset uint64) bytelog.Cursor {
	cursor, err := t.log.CursorAt(offset)
	if err != nil {
		panic("simagent: a place outside the log: " + err.Error())
	}
	return cursor
}

// Next implements [terminalstream.Attachment].
func (a *attachment) Next(ctx context.Context) (protocol.Message, error) {
	for {
		m, err := a.Poll()
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

// Poll implements [terminalstream.Poller].
func (a *attachment) Poll() (protocol.Message, error) {
	t := a.terminal
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case a.err != nil:
		return nil, a.err
	case a.sent > 0:
		return a.piece(), nil
	case len(a.outbox) > 0:
		m := a.outbox[0]
		a.outbox = a.outbox[1:]
		return m, nil
	case a.ended:
		return nil, io.EOF
	}
	limit := protocol.MaxDataBytes
	if f := a.keyframe; f != nil {
		if a.cursor == f.at {
			return a.piece(), nil
		}
		if before := f.at.Offset() - a.cursor.Offset(); before > 0 {
			limit = int(min(uint64(limit), before))
		}
	}
	if a.wants && a.keyframe == nil && t.ended && a.cursor.Offset() == t.log.Head() {
		return nil, nil // EXITED would end it before the keyframe
	}
	return a.output(limit)
}

// output returns the next item of the log. The caller holds mu.
func (a *attachment) output(limit int) (protocol.Message, error) {
	t := a.terminal
	offset := a.cursor.Offset()
	item, ok, err := t.log.Next(&a.cursor, limit)
	switch {
	case errors.As(err, new(bytelog.ErrGap)):
		a.putOff()
		a.cursor = t.place(t.log.LineStart(protocol.MaxReplayBytes))
		m := protocol.Reset{Epoch: t.log.Epoch(), Offset: a.cursor.Offset()}
		m.Cols, m.Rows = t.log.SizeAt(m.Offset)
		return m, nil
	case err != nil:
		return nil, err
	case !ok:
		return nil, nil
	case item.Resized != nil:
		return *item.Resized, nil
	case item.Exited != nil:
		a.ended = true
		return *item.Exited, nil
	}
	a.buf = append(a.buf[:0], item.Bytes...)
	return protocol.Data{Offset: offset, Bytes: a.buf}, nil
}

// End implements [terminalstream.Attachment].
func (a *attachment) End(why error) {
	t := a.terminal
	lost := why != nil && !errors.Is(why, io.EOF) && !errors.Is(why, errNoGrant) // with its tunnel
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.attachments, a)
	a.fail(net.ErrClosed)
	a.keyframe, a.wants = nil, false
	if a.bare != nil {
		a.bare.Stop()
	}
	if lost {
		t.gate.Lose(a.stream, a.cursor.Offset(), time.Now())
	} else {
		t.gate.Leave(a.stream, time.Now())
	}
	t.took()
	if holder := t.lease.Lease(time.Now()).Holder; a.present[holder] > 0 {
		t.seen(holder)
	}
}

// fail makes next return err. It is called with mu held.
func (a *attachment) fail(err error) {
	if a.err == nil {
		a.err, a.outbox = err, nil
		a.notify()
	}
}

// post queues m. It is called with mu held.
func (a *attachment) post(m protocol.Message) {
	switch {
	case a.err != nil:
	case len(a.outbox) == maxOutbox:
		a.fail(protocol.Errorf(protocol.KindTooMany, "the relay doesn't read"))
	default:
		a.outbox = append(a.outbox, m)
		a.notify()
	}
}

func (a *attachment) notify() {
	select {
	case a.wake <- struct{}{}:
	default: // it has yet to look
	}
}

// Post implements [terminalstream.Attachment].
func (a *attachment) Post(m protocol.Message) {
	a.terminal.mu.Lock()
	defer a.terminal.mu.Unlock()
	a.post(m)
}

// Obey implements [terminalstream.Attachment].
func (a *attachment) Obey(m protocol.Message) error {
	if in, ok := m.(protocol.Input); ok {
		a.input(in)
		return nil
	}
	t := a.terminal
	t.mu.Lock()
	defer t.mu.Unlock()
	switch m := m.(type) {
	case protocol.Resize:
		if _, ok := t.lease.Check(m.Term); ok && !t.ended {
			t.resized(m.Cols, m.Rows)
		}
	case protocol.Holder:
		a.setPresent(m.User, m.Sockets)
		t.seen(m.User)
	case protocol.Audience: // its terminals don't end for want of viewers
	case protocol.WantKeyframe:
		a.want(m.History)
	case protocol.Pace:
		a.pace(m)
	case protocol.LeaseProposal:
		a.propose(m)
	case protocol.GrantDrop:
		delete(a.grants, m.GrantID)
		a.checkBare()
	default:
		return errors.New("simagent: " + m.FrameType().String() + " on a terminal stream")
	}
	return nil
}

// pace notes where a pace-setter is. It is called with terminal.mu held.
func (a *attachment) pace(m protocol.Pace) {
	t := a.terminal
	if m.Gone {
		t.gate.Gone(a.stream, m.ID)
	} else {
		t.gate.Set(a.stream, m.ID, m.Offset, t.log.Head(), time.Now())
	}
	t.took()
}

// setPresent notes how many sockets a user has at the relay. The caller holds mu.
func (a *attachment) setPresent(user protocol.UserID, sockets int) {
	if sockets == 0 {
		delete(a.present, user)
	} else {
		a.present[user] = sockets
	}
}

// AddGrant implements [terminalstream.Attachment].
func (a *attachment) AddGrant(g *jws.Grant, _ uint64) error {
	t := a.terminal
	t.mu.Lock()
	defer t.mu.Unlock()
	if !g.Allows(t.session, t.info.ID, protocol.CapView) {
		return protocol.Errorf(protocol.KindForbidden, "the grant does not allow to view this terminal")
	}
	for id, known := range a.grants {
		if len(a.grants) >= maxGrants && time.Now().After(known.Expires().Add(jws.Skew)) {
			delete(a.grants, id)
		}
	}
	if len(a.grants) >= maxGrants {
		return protocol.Errorf(protocol.KindTooMany, "over %d grants", maxGrants)
	}
	a.grants[g.ID] = g
	a.checkBare()
	return nil
}

// checkBare ends the attachment soon after its last grant was taken back. It is
// called with mu held.
func (a *attachment) checkBare() {
	switch {
	case len(a.grants) > 0 && a.bare != nil:
		a.bare.Stop()
		a.bare = nil
	case len(a.grants) == 0 && a.bare == nil && a.err == nil:
		a.bare = time.AfterFunc(bareFor, func() {
			a.terminal.mu.Lock()
			defer a.terminal.mu.Unlock()
			if len(a.grants) == 0 {
				a.fail(errNoGrant)
			}
		})
	}
}

// propose changes the lease, if it may. The caller holds mu.
func (a *attachment) propose(p protocol.LeaseProposal) {
	t, now := a.terminal, time.Now()
	refuse := func(why string) {
		a.post(protocol.Leased{ID: p.ID, Lease: t.lease.Lease(now), Refused: why})
	}
	next := p.Next.Holder
	g := a.grants[p.Next.GrantID]
	switch {
	case t.ended:
		refuse(protocol.KindEnded.Text())
		return
	case next == "":
		g = nil
	case g == nil || g.Subject != next || !g.Allows(t.session, t.info.ID, protocol.CapControl) || now.After(g.Expires().Add(jws.Skew)):
		refuse("the grant does not allow to control this terminal")
		return
	}
	if _, err := t.lease.Propose(p, max(t.sockets(next), 1), now); err != nil {
		refuse(protocol.AsError(err).Error())
		return
	}
	if next != "" && a.present[next] == 0 {
		a.present[next] = 1
	}
	t.grant = g
	t.leaseChanged(a, p.ID)
}

// input gives what was typed to the machine, once, and acknowledges it.
func (a *attachment) input(in protocol.Input) {
	t := a.terminal
	t.typing.Lock()
	defer t.typing.Unlock()
	if answer := a.admit(in); answer != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		a.post(answer)
		return
	}
	t.machine.Input(in.Bytes)
	t.mu.Lock()
	defer t.mu.Unlock()
	a.post(protocol.InputAck{Seq: in.Seq, Client: in.Client})
}

// admit says why input doesn't go to the machine, nil if it does.
func (a *attachment) admit(in protocol.Input) protocol.Message {
	t := a.terminal
	t.mu.Lock()
	defer t.mu.Unlock()
	if last, ok := t.accepted.Last(in.Client); ok && in.Seq <= last {
		return protocol.InputAck{Seq: last, Client: in.Client}
	}
	reason, ok := t.lease.Check(in.Term)
	if t.ended {
		reason, ok = protocol.RefusedEnded, false
	}
	if !ok {
		return protocol.InputRefused{Seq: in.Seq, Client: in.Client, Reason: reason}
	}
	t.accepted.Accept(in.Client, in.Seq)
	return nil
}

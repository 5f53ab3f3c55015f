package chat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chat/control"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chatlog"
)

const (
	// maxFollowers bounds the streams of one conversation.
	maxFollowers = 16
	// maxOutbox bounds the messages that wait beside a follower's events.
	maxOutbox = 4096
)

// errSlow ends a stream whose relay doesn't read.
var errSlow = protocol.Errorf(protocol.KindTooMany, "relay doesn't read")

// A follower is a relay's stream to a conversation. Next is for one goroutine;
// all else is safe for concurrent use, but not for the owner.
type follower struct {
	// Static after construction.
	owner *owner
	seat  *control.Seat // owned by the owner
	wake  chan struct{} // 1 element: there may be something for take

	// Owned by whoever calls Next.
	log   *chatlog.Follower
	entry chatlog.Entry // the next one, or the one of which pieces are sent
	held  bool          // there is such an entry
	sent  int           // bytes of it

	mu sync.Mutex
	// Guarded by mu.
	outbox []outgoing
	posted uint64 // counts what was put there
	muted  bool
	err    error
}

// outgoing is a message beside the events. It comes before the event numbered at,
// and behind those before it that were there when it was posted.
type outgoing struct {
	m  protocol.Message // nil: settle brings it
	at uint64
	n  uint64 // of posted
}

// follow makes a stream from params on. It is called by the owner.
func (o *owner) follow(params protocol.ChatParams) (*follower, protocol.ChatOpened, error) {
	if len(o.followers) >= maxFollowers {
		return nil, protocol.ChatOpened{}, protocol.Errorf(protocol.KindTooMany, "too many streams to this conversation")
	}
	at := o.log.Position()
	opened := protocol.ChatOpened{Epoch: at.Epoch, FirstSeq: at.First, LastSeq: at.Last, State: o.state(), Lease: o.room.Lease(time.Now())}
	after := at.Last
	if opened.State.Run != protocol.RunIdle && opened.State.BeganAt > 0 {
		after = opened.State.BeganAt - 1
	}
	switch {
	case params.After == nil:
		opened.Gap = !at.Covers(after)
	case (params.Epoch == 0 || params.Epoch == at.Epoch) && at.Covers(*params.After):
		after = *params.After
	default:
		opened.Gap = true
	}
	f := &follower{owner: o, seat: o.room.Enter(), wake: make(chan struct{}, 1)}
	f.log, _ = o.log.Subscribe(after)
	opened.From = f.log.From()
	o.followers[f] = struct{}{}
	o.lookRoom()
	f.notify()
	return f, opened, nil
}

// Next returns the next message, and waits until there is one. It fails with
// io.EOF when the conversation was removed, and with [control.ErrNoGrant].
func (f *follower) Next(ctx context.Context) (protocol.Message, error) {
	for {
		m, err := f.take()
		if m != nil || err != nil {
			return m, err
		}
		select {
		case <-f.wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// take returns the next message, nil when there is none now.
func (f *follower) take() (protocol.Message, error) {
	waiting, muted, err := f.look()
	switch {
	case err != nil:
		return nil, err
	case muted:
		return f.granted(), nil
	case f.sent > 0: // the pieces of an event follow each other
		return f.piece(), nil
	}
	if !f.held {
		entry, ok, err := f.log.Ready()
		if err != nil {
			return f.reset(err)
		}
		f.entry, f.held = entry, ok
	}
	m, waits := f.pop(waiting)
	if m != nil || waits {
		return m, nil
	}
	if f.held {
		return f.piece(), nil
	}
	return nil, nil
}

// look returns how much was posted so far.
func (f *follower) look() (posted uint64, muted bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.posted, f.muted, f.err
}

// pop returns the first message, if its turn has come. Without an event at hand
// that is only one that was posted before the log was looked at. waits: its turn
// has come, and it isn't known yet.
func (f *follower) pop(posted uint64) (m protocol.Message, waits bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.outbox) == 0 || !f.held && f.outbox[0].n > posted || f.held && f.outbox[0].at > f.entry.Seq {
		return nil, false
	}
	if m = f.outbox[0].m; m == nil {
		return nil, true
	}
	f.outbox[0] = outgoing{}
	f.outbox = f.outbox[1:]
	return m, false
}

// granted returns the next answer about a grant, nil when there is none.
func (f *follower) granted() protocol.Message {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, out := range f.outbox {
		if m, ok := out.m.(protocol.Granted); ok {
			f.outbox = append(f.outbox[:i:i], f.outbox[i+1:]...)
			return m
		}
	}
	return nil
}

// piece returns the next piece of the entry.
func (f *follower) piece() protocol.Message {
	m := pieceOf(f.entry, f.sent)
	if f.sent += len(m.Bytes); m.Left == 0 {
		f.held, f.sent, f.entry = false, 0, chatlog.Entry{}
	}
	return m
}

// reset returns what the relay is told when the log can't go on as it was.
func (f *follower) reset(err error) (protocol.Message, error) {
	var reset *chatlog.Reset
	var gap chatlog.ErrGap
	switch {
	case errors.As(err, &reset):
		return protocol.ChatReset{Epoch: reset.At.Epoch, FirstSeq: reset.At.First, LastSeq: reset.Last}, nil
	case errors.As(err, &gap):
		f.log.Close()
		var at chatlog.Position
		f.log, at = f.owner.log.Subscribe(gap.First - 1)
		return protocol.ChatReset{Epoch: at.Epoch, FirstSeq: at.First, LastSeq: f.log.From() - 1}, nil
	case errors.Is(err, chatlog.ErrEnded):
		return nil, io.EOF
	}
	return nil, protocol.Fault(protocol.KindInternal, err)
}

// Obey implements [feature.Stream].
func (f *follower) Obey(m protocol.Message) error {
	o := f.owner
	switch m := m.(type) {
	case protocol.LeaseProposal:
		o.do(func() { o.propose(f, m) })
	case protocol.Holder:
		o.do(func() {
			if o.room.Holder(f.seat, m, time.Now()) {
				o.leased(nil, 0)
			}
			o.lookRoom()
		})
	case protocol.GrantDrop:
		o.do(func() { o.room.DropGrant(f.seat, m.GrantID, time.Now()); o.lookRoom() })
	default:
		return fmt.Errorf("chat: %s on a conversation's stream", m.FrameType())
	}
	return nil
}

// AddGrant implements [feature.Stream].
func (f *follower) AddGrant(g *jws.Grant, handle uint64) (err error) {
	o := f.owner
	o.do(func() {
		err = o.room.AddGrant(f.seat, g, handle, time.Now())
		f.mute(f.seat.Muted())
		o.lookRoom()
	})
	return err
}

// Post implements [feature.Stream].
func (f *follower) Post(m protocol.Message) { f.post(m, 0) }

// End implements [feature.Stream].
func (f *follower) End(error) {
	o := f.owner
	f.fail(io.ErrClosedPipe)
	o.do(func() {
		delete(o.followers, f)
		if o.room.Leave(f.seat, time.Now()) {
			o.leased(nil, 0)
		}
		o.lookRoom()
	})
	f.log.Close()
	o.chats.release(o)
}

func (f *follower) notify() {
	select {
	case f.wake <- struct{}{}:
	default: // there is something to look at already
	}
}

// post has Next return m, before the event numbered at.
func (f *follower) post(m protocol.Message, at uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.err != nil:
		return
	case len(f.outbox) >= maxOutbox:
		f.err, f.outbox = errSlow, nil
	default:
		f.posted++
		f.outbox = append(f.outbox, outgoing{m, at, f.posted})
	}
	f.notify()
}

// postState is post for a state, which takes the place of one that waits for the
// same event.
func (f *follower) postState(m protocol.ChatState, at uint64) {
	f.mu.Lock()
	n := len(f.outbox)
	if n > 0 && f.outbox[n-1].at == at {
		if _, ok := f.outbox[n-1].m.(protocol.ChatState); ok {
			f.outbox[n-1].m = m
			f.mu.Unlock()
			f.notify()
			return
		}
	}
	f.mu.Unlock()
	f.post(m, at)
}

// hold keeps back the event numbered at until settle is called.
func (f *follower) hold(at uint64) { f.post(nil, at) }

// settle has m come before the event that hold keeps back, or nothing if m is nil.
func (f *follower) settle(m protocol.Message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.outbox, func(out outgoing) bool { return out.m == nil })
	switch {
	case i < 0: // the stream has ended
		return
	case m == nil:
		f.outbox = slices.Delete(f.outbox, i, i+1)
	default:
		f.outbox[i].m = m
	}
	f.notify()
}

func (f *follower) mute(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.muted = on
	f.notify()
}

// fail has Next return err from now on, unless it fails already.
func (f *follower) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err, f.outbox = err, nil
		f.notify()
	}
}

// propose answers a relay's proposal about the lease.
func (o *owner) propose(f *follower, p protocol.LeaseProposal) {
	changed, err := o.room.Propose(f.seat, p, time.Now())
	o.lookRoom()
	switch {
	case err != nil:
		f.post(protocol.Leased{ID: p.ID, Lease: o.room.Lease(time.Now()), Refused: protocol.AsError(err).Error()}, 0)
	case !changed:
		f.post(protocol.Leased{ID: p.ID, Lease: o.room.Lease(time.Now())}, 0)
	default:
		o.leased(f, p.ID)
	}
}

// leased tells all relays how the lease stands, the proposer as the answer to its
// proposal.
func (o *owner) leased(proposer *follower, id uint64) {
	m := protocol.Leased{Lease: o.room.Lease(time.Now())}
	for f := range o.followers {
		m.ID = 0
		if f == proposer {
			m.ID = id
		}
		f.post(m, 0)
	}
	o.lookRoom()
}

// dropRevoked ends what is done under grants that are void.
func (o *owner) dropRevoked() {
	if o.broken != nil {
		return
	}
	dropped, changed := o.room.DropRevoked(time.Now())
	for _, d := range dropped {
		for f := range o.followers {
			if f.seat == d.Seat {
				f.mute(f.seat.Muted())
				f.post(protocol.Granted{Handle: d.Handle, GrantID: d.Grant, Refused: "the grant was revoked"}, 0)
			}
		}
	}
	if changed {
		o.leased(nil, 0)
	}
	o.lookRoom()
}

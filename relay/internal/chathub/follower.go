package chathub

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/chatsocket"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/replay"
	"github.com/fairlead/fairlead/relay/internal/roster"
	"github.com/fairlead/fairlead/relay/internal/turn"
	"github.com/fairlead/fairlead/tunnel"
)

// A follower is a socket's place in one conversation. It is a [chatring.Follower].
type follower struct {
	// Static after construction.
	socket *Socket
	hub    *hub
	id     turn.SocketID
	ready  chan struct{} // closed once it is admitted and may follow, or err is set

	spot      spot
	wish      atomic.Pointer[wish]
	asked     atomic.Uint64 // number of the ping before the last end of a run, 0: there was none
	ungreeted atomic.Bool   // it is to be told of control, presence and the run

	// Set by the hub's run before ready is closed.
	err     error
	refused bool // err is about its own grant

	// Owned by the hub's run.
	grant    *jws.Grant
	token    string
	set      roster.Key    // of its grant
	rights   roster.Rights // its present rights, at most the grant's
	admitted bool
	waits    bool // for an answer about grant
	settled  bool // ready is closed

	used uint64 // by the socket's clock; guarded by the socket's mu
}

// newFollower returns a follower that hasn't joined h yet.
func newFollower(s *Socket, h *hub, id turn.SocketID, grant *jws.Grant, token string) *follower {
	f := &follower{socket: s, hub: h, id: id, ready: make(chan struct{}), grant: grant, token: token}
	f.spot.conversation = h.key.Conversation
	f.spot.cursor.Init(&h.ring, f)
	return f
}

// Stir implements chatring.Follower.
func (f *follower) Stir() { f.socket.queue.stir(&f.spot) }

// Expects implements chatring.Follower.
func (f *follower) Expects(id protocol.CommandID) bool { return f.socket.expects(id) }

// Ends implements chatring.Follower: the answer says that the client has got what
// the run's end stands behind.
func (f *follower) Ends() []byte {
	number := f.socket.pings.Add(1)
	f.asked.Store(number)
	return replay.PingFrame(number)
}

// whole reports whether a client that subscribes again gets all behind its mark. One
// of seed 002 does so with a mark behind what is still on its way to it, and shows
// what comes twice twice; unless it has got the last run's end, that is all that it
// can mean. Those that say chat.hello tell by the number.
func (f *follower) whole() bool {
	return f.socket.hello.Load() || f.spot.cursor.Idle() && f.socket.writer.conn.Answered() >= f.asked.Load()
}

// Queue implements chatring.Follower.
func (f *follower) Queue(attempt uint64, frame []byte) bool {
	return f.socket.queue.read(&f.spot, attempt, frame)
}

// may reports whether f has a right.
func (f *follower) may(right roster.Rights) bool { return f.rights&right != 0 }

// A wish is a chat.subscribe that waits for its conversation.
type wish struct {
	of    *follower
	mark  uint64
	later atomic.Bool // the hub's run fulfils it
	taken atomic.Bool // somebody does
}

// await fulfils w once it can be. If that is not before ctx ends, the hub's run
// does it later.
func (w *wish) await(ctx context.Context) {
	select {
	case <-w.of.ready:
	case <-w.of.socket.life.Done():
	case <-ctx.Done():
		w.later.Store(true)
	}
	select {
	case <-w.of.ready:
		w.fulfil()
	default:
	}
}

// fulfil lets the socket follow, or says why it can't. The follower is ready. Only
// the first call counts.
func (w *wish) fulfil() {
	switch f := w.of; {
	case !w.taken.CompareAndSwap(false, true):
	case f.err == errAgain:
		f.socket.followLater(f, w.mark)
	case f.err != nil:
		f.failed(f.err, w.mark)
	case f.spot.cursor.Begin(w.mark, f.whole()):
		f.began()
	}
}

// followLater leaves a hub that has ended, and follows its conversation by another.
func (s *Socket) followLater(old *follower, mark uint64) {
	s.forget(old)
	f, err := s.enter(old.hub.key.Conversation)
	if err != nil {
		s.refuse(old.hub.key.Conversation, err, mark)
		return
	}
	w := &wish{of: f, mark: mark}
	w.later.Store(true)
	f.wish.Store(w)
	select {
	case <-f.ready:
		w.fulfil()
	default: // its run does
	}
}

// settle says that f may follow now, or never.
func (f *follower) settle(err error) {
	if f.settled {
		return
	}
	f.settled, f.err = true, err
	close(f.ready)
	if w := f.wish.Load(); w != nil && w.later.Load() {
		w.fulfil()
	}
}

// goOn follows from the head on, unless f follows already.
func (f *follower) goOn() {
	if f.spot.cursor.GoOn() {
		f.began()
	}
}

// began notes that f follows.
func (f *follower) began() {
	f.hub.metrics.Followers.Inc()
	f.greetAgain()
}

// greetAgain has f told of control, presence and the run, if its client knows of
// them.
func (f *follower) greetAgain() {
	f.ungreeted.Store(true)
	f.hub.nudge()
}

// failed tells the socket that it can't follow after a mark. The hub has forgotten
// f.
func (f *follower) failed(err error, mark uint64) {
	f.socket.forget(f)
	f.socket.refuse(f.hub.key.Conversation, err, mark)
}

// enter returns the socket's place in a conversation, and makes one if there is
// none, or if it is over.
func (s *Socket) enter(c protocol.ConversationID) (*follower, error) {
	if !protocol.ValidConversation(c) {
		return nil, ErrNoSuch
	}
	s.mu.Lock()
	f := s.follows[c]
	if f != nil {
		s.clock++
		f.used = s.clock
	}
	s.mu.Unlock()
	switch {
	case s.queue.over():
		return nil, protocol.Fault(protocol.KindRestarting, nil)
	case f != nil && !f.hub.end.dead():
		return f, nil
	case f != nil:
		s.drop(f)
	}
	if err := s.makeRoom(); err != nil {
		return nil, err
	}
	grant, token := s.Grant()
	h, err := s.set.acquire(Key{s.sandbox, s.session, c}, grant, token)
	if err != nil {
		return nil, err
	}
	f = newFollower(s, h, s.set.nextID(), grant, token)
	if !h.post(func() { h.join(f) }) {
		f.settle(h.end.reason())
	}
	s.mu.Lock()
	if other := s.follows[c]; other != nil && !other.hub.end.dead() { // made meanwhile
		s.mu.Unlock()
		f.spot.cursor.End()
		h.post(func() { h.leave(f) })
		s.set.release(h, s.user)
		return other, nil
	}
	s.clock++
	f.used = s.clock
	s.follows[c] = f
	left := s.left
	s.mu.Unlock()
	if newer, token := s.Grant(); newer != grant { // renewed meanwhile
		h.post(func() { h.renew(f, newer, token) })
	}
	if left {
		s.drop(f)
		return nil, protocol.Fault(protocol.KindRestarting, nil)
	}
	return f, nil
}

// makeRoom drops the conversation that the socket has used least lately and that
// is idle, if it follows as many as allowed.
func (s *Socket) makeRoom() error {
	all := s.followers()
	if len(all) < protocol.MaxChatFollowed {
		return nil
	}
	s.mu.Lock()
	slices.SortFunc(all, func(a, b *follower) int { return int(int64(a.used - b.used)) })
	s.mu.Unlock()
	for _, f := range all {
		if f.hub.stateFor("").Run != protocol.RunIdle {
			continue
		}
		s.set.metrics.FollowsDropped.Inc()
		s.drop(f)
		return nil
	}
	return protocol.Errorf(protocol.KindTooMany, "the socket follows too many conversations")
}

// drop leaves a conversation.
func (s *Socket) drop(f *follower) {
	if s.forget(f) {
		f.hub.post(func() { f.hub.leave(f) })
	}
}

// forget is drop for a hub that has forgotten f already. It reports whether the
// socket hadn't.
func (s *Socket) forget(f *follower) (mine bool) {
	s.mu.Lock()
	if mine = s.follows[f.hub.key.Conversation] == f; mine {
		delete(s.follows, f.hub.key.Conversation)
	}
	s.mu.Unlock()
	if mine {
		if f.spot.cursor.End() {
			s.set.metrics.Followers.Dec()
		}
		s.set.release(f.hub, s.user)
	}
	return mine
}

// refuse answers a chat.subscribe of a conversation that can't be followed after a
// mark. To seed 002's client an error with a session's id is the end of its run,
// which goes on: it is told without.
func (s *Socket) refuse(c protocol.ConversationID, err error, mark uint64) {
	named := c
	if !s.hello.Load() {
		named = ""
	}
	if elsewhere, ok := errors.AsType[*tunnel.StandbyError](err); ok {
		s.sendAway(elsewhere.Origin)
		return
	}
	switch protocol.KindOf(err) {
	case protocol.KindNotFound, protocol.KindEnded:
		s.queue.tell(idle(c, mark > 0).frame(), maxOwn)
	case protocol.KindForbidden, protocol.KindUnauthenticated, protocol.KindExpired:
		s.Complain(chatsocket.NewFault(protocol.ChatForbidden, string(c)), named)
	default:
		s.Complain(chatsocket.NewFault(protocol.ChatUnavailable, string(c)), named)
	}
}

// leave ends everything of the socket. Serve calls it.
func (s *Socket) leave() {
	s.mu.Lock()
	s.left = true
	s.mu.Unlock()
	s.queue.leave()
	s.life.End()
	for _, f := range s.followers() {
		s.drop(f)
	}
	s.filler.running.Wait()
	s.set.left(s)
}

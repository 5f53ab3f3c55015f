package chathub

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/chatsocket"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/agentstream"
	"github.com/fairlead/fairlead/relay/internal/replay"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

// A Socket is one client with the conversations that it follows. Its methods may
// be called while Serve runs, and by several goroutines at once.
type Socket struct {
	// Static after construction.
	set     *Set
	id      turn.SocketID
	user    protocol.UserID
	name    string
	sandbox protocol.SandboxID
	session protocol.SessionID
	use     *lifetime.Use
	life    agentstream.Life // ends with Serve
	writer  writer

	queue    queue
	filler   filler
	hello    atomic.Bool   // the client has said chat.hello
	away     atomic.Bool   // it is being sent away
	pings    atomic.Uint64 // that were sent before ends of runs
	token    atomic.Pointer[string]
	grant    atomic.Pointer[jws.Grant]
	expected atomic.Pointer[[]protocol.CommandID] // whose texts it isn't sent

	// Guarded by mu.
	mu      sync.Mutex
	follows map[protocol.ConversationID]*follower
	clock   uint64 // of the followers' use
	left    bool   // it follows nothing any more
}

// newSocket returns a socket of a set. The caller has checked the grant.
func newSocket(set *Set, conn Conn, g Guest, id turn.SocketID) *Socket {
	s := &Socket{
		set: set, id: id, user: g.Grant.Subject, name: clip(g.Grant.Name), sandbox: g.Grant.Sandbox, session: g.Session,
		life: agentstream.NewLife(context.Background()), queue: newQueue(set.metrics), follows: map[protocol.ConversationID]*follower{},
	}
	s.grant.Store(g.Grant)
	s.token.Store(&g.Token)
	s.filler.life, s.filler.key, s.filler.token = s.life, Key{Sandbox: s.sandbox, Session: s.session}, &s.token
	s.filler.tunnels, s.filler.queue, s.filler.log, s.filler.metrics = set.tunnels, &s.queue, set.log, set.metrics
	s.writer = writer{conn: conn, queue: &s.queue, metrics: set.metrics, filler: &s.filler}
	return s
}

// Serve writes to the socket until that or ctx ends, and then leaves all
// conversations. It must be called once.
func (s *Socket) Serve(ctx context.Context) error {
	defer s.leave()
	return s.writer.serve(ctx)
}

// clip bounds a name, so that a long one takes no room from other messages.
func clip(name string) string {
	if len(name) > maxName {
		name = strings.ToValidUTF8(name[:maxName], "")
	}
	return name
}

// Tell sends a message of the socket's own, after those told before. Beyond 1 MiB
// that waits, the socket is closed.
func (s *Socket) Tell(message []byte) { s.queue.tell(replay.AppendTextFrame(nil, message), maxOwn) }

// TellJSON is Tell for a value that encoding can't fail for.
func (s *Socket) TellJSON(v any) { s.queue.tell(frameOf(v), maxOwn) }

// Complain tells the socket why a request of its client is refused; c may be
// empty.
func (s *Socket) Complain(f protocol.ChatFault, c protocol.ConversationID) {
	s.TellJSON(chatsocket.Frame(f, c, time.Now()))
}

// Hello notes that the client knows our own kinds.
func (s *Socket) Hello() {
	if s.hello.Swap(true) {
		return
	}
	for _, f := range s.followers() {
		f.greetAgain()
	}
}

// User returns whose socket it is.
func (s *Socket) User() protocol.UserID { return s.user }

// Grant returns the socket's present grant and its compact form.
func (s *Socket) Grant() (*jws.Grant, string) { return s.grant.Load(), *s.token.Load() }

// Renew moves the socket to another grant, which the caller has verified. It
// refuses a grant of another person or sandbox, or one that doesn't allow viewing
// the session.
func (s *Socket) Renew(grant *jws.Grant, token string) error {
	if grant.Subject != s.user || grant.Sandbox != s.sandbox || !grant.Allows(s.session, "", protocol.CapView) {
		return protocol.Errorf(protocol.KindForbidden, "the grant is not for this user and session")
	}
	if err := s.use.Renew(grant); err != nil {
		s.ended(err)
		return err
	}
	s.grant.Store(grant)
	s.token.Store(&token)
	for _, f := range s.followers() {
		f.hub.post(func() { f.hub.renew(f, grant, token) })
	}
	return nil
}

// Close ends the socket after what it was told so far.
func (s *Socket) Close(kind protocol.Kind, cause string) { s.queue.close(kind, cause) }

// ended closes the socket with its grant.
func (s *Socket) ended(err error) {
	why := cutExpired
	if errors.Is(err, lifetime.ErrRevoked) {
		why = cutRevoked
	}
	s.cut(why, err)
}

// cut closes a socket that may not stay.
func (s *Socket) cut(why string, err error) {
	e := protocol.AsError(err)
	if s.queue.close(e.Kind, e.Error()) {
		s.set.metrics.SocketsCut.WithLabelValues(why).Inc()
	}
}

// sendAway ends the socket. It names origin as the sandbox's new relay, unless
// empty.
func (s *Socket) sendAway(origin string) {
	if s.away.Swap(true) {
		return
	}
	if origin != "" {
		s.set.metrics.Moved.Inc()
		if s.hello.Load() {
			s.TellJSON(moved{Kind: protocol.ChatMovedKind, Origin: origin})
		}
	}
	s.Close(protocol.KindRestarting, "the relay is going away")
}

// followers returns the socket's places in conversations.
func (s *Socket) followers() []*follower {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*follower, 0, len(s.follows))
	for _, f := range s.follows {
		all = append(all, f)
	}
	return all
}

// Follow answers a chat.subscribe. Each conversation is acknowledged by
// chat_subscribed, in order, and then sent to the socket: what comes after its
// mark, and each event as it comes. A conversation that the sandbox doesn't have
// is acknowledged as idle, where a mark is one that isn't covered. Follow waits a moment for those that aren't open; later
// ones are acknowledged when they are.
func (s *Socket) Follow(ctx context.Context, marks ...chatsocket.Mark) {
	wishes, errs := make([]*wish, len(marks)), make([]error, len(marks))
	for i, m := range marks {
		f, err := s.enter(m.SessionID)
		if errs[i] = err; err == nil {
			wishes[i] = &wish{of: f, mark: m.LastSeq}
			f.wish.Store(wishes[i])
		}
	}
	ctx, cancel := context.WithTimeout(ctx, ackPatience)
	defer cancel()
	for i, w := range wishes {
		if errs[i] != nil {
			s.refuse(marks[i].SessionID, errs[i], marks[i].LastSeq)
		} else {
			w.await(ctx)
		}
	}
}

// Attach lets the socket follow a conversation from now on, without an ack, unless
// it follows it already. It fails as State does.
func (s *Socket) Attach(ctx context.Context, c protocol.ConversationID) error {
	f, err := s.admitted(ctx, c)
	if err == nil {
		f.goOn()
	}
	return err
}

// State returns what is known of a conversation, and opens it if need be. It fails
// with [ErrNoSuch], or as forbidden, unavailable, too many, or with a
// [tunnel.StandbyError].
func (s *Socket) State(ctx context.Context, c protocol.ConversationID) (State, error) {
	f, err := s.admitted(ctx, c)
	if err != nil {
		return State{}, err
	}
	return f.hub.stateFor(s.user), nil
}

// Expect notes that the user's text with this command is the socket's own: its
// client has shown it.
func (s *Socket) Expect(id protocol.CommandID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var old []protocol.CommandID
	if p := s.expected.Load(); p != nil {
		old = *p
	}
	now := append(slices.Clone(old[max(len(old)-maxExpected+1, 0):]), id)
	s.expected.Store(&now)
}

// expects reports whether a text with this command is the socket's own.
func (s *Socket) expects(id protocol.CommandID) bool {
	p := s.expected.Load()
	return p != nil && slices.Contains(*p, id)
}

// RequestControl asks to be who may send, now or later. What the turn-taking
// rules refuse is told as protocol_error. It fails as State does.
func (s *Socket) RequestControl(ctx context.Context, c protocol.ConversationID) error {
	return s.take(ctx, c, func(id turn.SocketID) turn.Event { return turn.Requested{Socket: id} })
}

// GrantControl hands a conversation to another user who is there, see
// RequestControl.
func (s *Socket) GrantControl(ctx context.Context, c protocol.ConversationID, to protocol.UserID) error {
	return s.take(ctx, c, func(id turn.SocketID) turn.Event { return turn.Granted{Socket: id, To: to} })
}

// RevokeControl gives a conversation back. Its session's owner takes it from
// anybody, see RequestControl.
func (s *Socket) RevokeControl(ctx context.Context, c protocol.ConversationID) error {
	f, err := s.admitted(ctx, c)
	if err != nil {
		return err
	}
	f.hub.post(func() { f.hub.revoke(f) })
	return nil
}

// take hands an event of the socket to the turn-taking rules.
func (s *Socket) take(ctx context.Context, c protocol.ConversationID, e func(turn.SocketID) turn.Event) error {
	f, err := s.admitted(ctx, c)
	if err != nil {
		return err
	}
	f.hub.post(func() {
		if f.hub.has(f) {
			f.hub.step(e(f.id))
		}
	})
	return nil
}

// admitted returns the socket's place in a conversation once it may follow it.
func (s *Socket) admitted(ctx context.Context, c protocol.ConversationID) (*follower, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	f, err := s.enter(c)
	if err != nil {
		return nil, err
	}
	select {
	case <-f.ready:
	case <-s.life.Done():
		return nil, protocol.Fault(protocol.KindRestarting, nil)
	case <-ctx.Done():
		return nil, protocol.Errorf(protocol.KindUnavailable, "the sandbox is not connected")
	}
	switch f.err {
	case nil:
		return f, nil
	case errAgain:
		s.drop(f)
		return s.admitted(ctx, c)
	default:
		s.drop(f)
		return nil, f.err
	}
}

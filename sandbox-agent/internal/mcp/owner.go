package mcp

import (
	"context"
	"crypto/rand"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

const (
	// maxOwners bounds the known callers. Only people are refused: a terminal's
	// programs are always let in.
	maxOwners = 1024
	// Bodies of more than smallBody bytes are large. At most maxLargePerCaller of
	// one caller, and a total number, may be held at a time.
	smallBody         = 64 << 10
	maxLargePerCaller = 8
	maxLarge          = 32
)

// An ownerKey names the owner of MCP sessions: the programs of a terminal, or a
// person who names it.
type ownerKey struct {
	session protocol.SessionID
	pty     protocol.PTYID  // may be empty for a person
	user    protocol.UserID // the person; empty: the terminal's programs
}

// keyOf returns the owner of a caller's sessions.
func keyOf(c toolbox.Caller) ownerKey {
	key := ownerKey{session: c.Session, pty: c.PTY}
	if c.Grant != nil {
		key.user = c.Grant.Subject
	}
	return key
}

// An owner is a caller with MCP sessions.
type owner struct {
	// Static after construction.
	key ownerKey
	ctx context.Context // ends with the terminal
	end context.CancelFunc

	// Guarded by Server.mu.
	sessions map[string]*session
	requests int         // under way
	large    int         // of them, with a large body
	used     time.Time   // the end of the last request
	grant    *jws.Grant  // a person's newest
	shared   *sdk.Server // for requests without a session; made on demand
	listed   listing     // the tools that clients last saw or were told of
	reported listing     // the tools that NoteTools was last told of
}

// caller returns the owner as a caller under its newest grant. The caller holds
// Server.mu.
func (o *owner) caller() toolbox.Caller {
	return toolbox.Caller{Session: o.key.session, PTY: o.key.pty, Grant: o.grant}
}

// A session is an MCP session.
type session struct {
	// Static after construction.
	id    string
	owner *owner
	mcp   *sdk.Server // of this session alone: a slow client delays no other
	ctx   context.Context
	end   context.CancelFunc

	// Guarded by Server.mu.
	requests int       // under way
	used     time.Time // the end of the last request
}

// newOwner makes an owner. The caller holds mu.
func (s *Server) newOwner(key ownerKey) *owner {
	o := &owner{key: key, sessions: make(map[string]*session), used: time.Now()}
	o.ctx, o.end = context.WithCancel(context.Background())
	s.owners[key] = o
	return o
}

// enter begins a request of caller. Each exchange must be passed to leave.
func (s *Server) enter(caller toolbox.Caller) (*exchange, error) {
	o, err := s.enterOwner(caller)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	known := o.listed.known
	s.mu.Unlock()
	if !known {
		now := listingOf(s.tools(caller)) // before the caller can list them, so that no change is missed
		s.mu.Lock()
		if !o.listed.known {
			o.listed = now
		}
		s.mu.Unlock()
	}
	return &exchange{caller: caller, owner: o}, nil
}

func (s *Server) enterOwner(caller toolbox.Caller) (*owner, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, protocol.Errorf(protocol.KindUnavailable, "the sandbox is going")
	}
	key := keyOf(caller)
	o := s.owners[key]
	if o == nil {
		if key.user != "" && len(s.owners) >= maxOwners {
			return nil, protocol.Errorf(protocol.KindTooMany, "too many callers")
		}
		o = s.newOwner(key)
		o.grant = caller.Grant
		s.noteChange(scope{key.session, key.pty})
	}
	if o.requests >= MaxRequestsPerCaller {
		return nil, protocol.Errorf(protocol.KindTooMany, "%d requests are under way", o.requests)
	}
	if g := caller.Grant; g != nil && (o.grant == nil || g.ID != o.grant.ID && g.IssuedAt >= o.grant.IssuedAt) {
		o.grant = g // it may allow other tools
		s.noteChange(scope{key.session, key.pty})
	}
	o.requests++
	return o, nil
}

func (s *Server) leave(x *exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.owner.requests--
	x.owner.used = time.Now()
	if x.large {
		x.owner.large--
		s.large--
	}
}

// holdLarge counts x as one with a large body.
func (s *Server) holdLarge(x *exchange) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.owner.large >= maxLargePerCaller || s.large >= maxLarge {
		return protocol.Errorf(protocol.KindTooMany, "too many large requests are under way")
	}
	x.large = true
	x.owner.large++
	s.large++
	return nil
}

// newSession makes a session of o, with one request under way.
func (s *Server) newSession(o *owner) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.ctx.Err() != nil {
		return nil, protocol.Errorf(protocol.KindNotFound, "the terminal is gone")
	}
	if len(o.sessions) >= MaxSessionsPerCaller && !s.evict(o) || s.sessions >= MaxSessions && !s.evict(nil) {
		return nil, protocol.Errorf(protocol.KindTooMany, "too many MCP sessions are open")
	}
	x := &session{id: rand.Text(), owner: o, requests: 1, used: time.Now()}
	x.ctx, x.end = context.WithCancel(o.ctx)
	x.mcp = s.newServer(x.ctx, x.id)
	o.sessions[x.id] = x
	s.sessions++
	return x, nil
}

// evict ends the longest idle session of o, or of all owners if o is nil. It
// returns false if none is idle. The caller holds mu.
func (s *Server) evict(o *owner) bool {
	var oldest *session
	look := func(o *owner) {
		for _, x := range o.sessions {
			if x.requests == 0 && (oldest == nil || x.used.Before(oldest.used)) {
				oldest = x
			}
		}
	}
	if o != nil {
		look(o)
	} else {
		for _, o := range s.owners {
			look(o)
		}
	}
	if oldest == nil {
		return false
	}
	s.endSession(oldest)
	s.metrics.evicted.Inc()
	return true
}

// useSession begins a request in o's session called id, false if there is none.
func (s *Server) useSession(o *owner, id string) (*session, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, ok := o.sessions[id]
	if ok {
		x.requests++
	}
	return x, ok
}

// releaseSession ends a request in x, and x itself if no client is connected.
func (s *Server) releaseSession(x *session) {
	live := false
	for open := range x.mcp.Sessions() {
		if live = x.ctx.Err() == nil; !live {
			open.Close() // it connected after x ended
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x.requests--
	x.used = time.Now()
	if !live {
		s.endSession(x)
	}
}

// endSession ends x and frees its id. The caller holds mu.
func (s *Server) endSession(x *session) {
	if x.owner.sessions[x.id] != x {
		return
	}
	delete(x.owner.sessions, x.id)
	s.sessions--
	x.end()
	s.closeAll(x.mcp)
}

// closeAll closes server's connections in the background: that may wait for
// cancelled calls. The caller holds mu.
func (s *Server) closeAll(server *sdk.Server) {
	s.wait.Go(func() { // Close waits
		for x := range server.Sessions() {
			x.Close()
		}
	})
}

// endOwner ends all sessions of o and forgets it. The caller holds mu.
func (s *Server) endOwner(o *owner) {
	o.end()
	for _, x := range o.sessions {
		s.endSession(x)
	}
	if o.shared != nil {
		s.closeAll(o.shared)
	}
	if s.owners[o.key] == o {
		delete(s.owners, o.key)
	}
}

// sweep ends idle sessions, and the owners of ended terminals.
func (s *Server) sweep(now time.Time) {
	var terminals []*owner
	s.mu.Lock()
	for _, o := range s.owners {
		for _, x := range o.sessions {
			if x.requests == 0 && now.Sub(x.used) >= IdleTimeout {
				s.endSession(x)
			}
		}
		switch {
		case o.key.user == "":
			terminals = append(terminals, o) // it stays while its terminal does: it knows the last tools
		case o.requests == 0 && len(o.sessions) == 0 && now.Sub(o.used) >= sweepEvery:
			s.endOwner(o)
		}
	}
	s.mu.Unlock()
	for _, o := range terminals {
		if _, ok := s.known.secret(o.key.session, o.key.pty); !ok {
			s.mu.Lock()
			s.endOwner(o)
			s.mu.Unlock()
		}
	}
	s.events.sweep(now)
}

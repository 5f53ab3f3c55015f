package chathub

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/program/pause"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/agentstream"
	"github.com/fairlead/fairlead/relay/internal/chatring"
	"github.com/fairlead/fairlead/relay/internal/replay"
	"github.com/fairlead/fairlead/tunnel"
)

// A group are the sockets of one session.
type group struct {
	sandbox protocol.SandboxID
	session protocol.SessionID
}

// newsPause is how long news are not asked for after the sandbox has refused them.
const newsPause = 15 * time.Second

// What bounds the work that news make: each concerns all sockets of its session.
const (
	// newsEvery is the time between two times that sockets are told news.
	newsEvery = 500 * time.Millisecond
	// maxGathered bounds the news that wait for that. The agent keeps others back.
	maxGathered = 256
)

// A newsroom tells the sockets of a session what is new about its conversations.
// It has one stream for all of them, under the grant that ends last.
type newsroom struct {
	// Static after construction.
	set   *Set
	group group
	life  agentstream.Life
	came  chan protocol.ChatNews // that nobody was told

	// Guarded by mu.
	mu      sync.Mutex
	sockets map[*Socket]struct{}
}

// subscribe lets a socket have its session's news. The caller holds mu.
func (s *Set) subscribe(socket *Socket) {
	g := group{socket.sandbox, socket.session}
	n := s.news[g]
	if n == nil {
		n = &newsroom{set: s, group: g, life: agentstream.NewLife(s.life), came: make(chan protocol.ChatNews, maxGathered), sockets: map[*Socket]struct{}{}}
		s.news[g] = n
		defer s.running.Go(func() { // once the first socket is there
			defer n.life.End()
			n.run(n.life)
		})
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sockets[socket] = struct{}{}
}

// unsubscribe takes back what subscribe said. The caller holds mu.
func (s *Set) unsubscribe(socket *Socket) {
	n := s.news[group{socket.sandbox, socket.session}]
	n.mu.Lock()
	defer n.mu.Unlock()
	if delete(n.sockets, socket); len(n.sockets) == 0 {
		delete(s.news, n.group)
		n.life.End()
	}
}

// all returns the sockets, those first whose grants end last.
func (n *newsroom) all() []*Socket {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.SortedFunc(maps.Keys(n.sockets), func(a, b *Socket) int {
		return cmp.Or(-cmp.Compare(a.expires(), b.expires()), cmp.Compare(a.id, b.id))
	})
}

// expires returns when the socket's grant does, in Unix seconds.
func (s *Socket) expires() int64 { return s.grant.Load().ExpiresAt }

// run keeps a stream of news until ctx ends.
func (n *newsroom) run(ctx context.Context) {
	var wait time.Duration
	for {
		began := time.Now()
		err := n.follow(ctx, wait)
		if elsewhere, ok := errors.AsType[*tunnel.StandbyError](err); ok {
			for _, socket := range n.all() {
				socket.sendAway(elsewhere.Origin)
			}
		}
		switch {
		case ctx.Err() != nil:
			return
		case agentstream.Final(err):
			wait = newsPause
		case time.Since(began) > agentstream.LongestPause:
			wait = 0
		default:
			wait = agentstream.Longer(wait)
		}
	}
}

// follow reads one stream of news after a pause, until it ends.
func (n *newsroom) follow(ctx context.Context, wait time.Duration) error {
	if err := pause.For(ctx, wait); err != nil {
		return err
	}
	session, err := n.set.tunnels.Wait(ctx, n.group.sandbox)
	if err != nil {
		return err
	}
	stream, err := n.open(ctx, session)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { stream.Close() })()
	var aside sync.WaitGroup // follow waits for it
	defer aside.Wait()
	aside.Go(func() {
		agentstream.UntilDemoted(ctx, session)
		cancel()
	})
	aside.Go(func() { n.spread(ctx) })
	err = n.read(ctx, protocol.NewFrameReader(stream))
	cancel()
	stream.Close()
	if elsewhere := agentstream.Demoted(session); elsewhere != nil {
		return elsewhere
	}
	return err
}

// open opens a stream of news under the best grant that the agent takes.
func (n *newsroom) open(ctx context.Context, session *tunnel.Session) (stream *tunnel.Stream, err error) {
	params, err := json.Marshal(protocol.ChatNewsParams{SessionID: n.group.session})
	if err != nil {
		return nil, err
	}
	err = protocol.Fault(protocol.KindUnavailable, nil)
	for _, socket := range n.all() {
		_, token := socket.Grant()
		attempt, cancel := context.WithTimeout(ctx, openTimeout)
		stream, _, err = session.Open(attempt, protocol.TerminalLane(protocol.PTYID(n.group.session)),
			protocol.Open{Kind: protocol.StreamChatNews, Grant: token, Params: params})
		cancel()
		if !agentstream.AboutGrant(err) {
			break
		}
	}
	return stream, err
}

// read takes what comes.
func (n *newsroom) read(ctx context.Context, frames *protocol.FrameReader) error {
	for {
		frame, err := frames.Next()
		if err != nil {
			return err
		}
		m, err := protocol.Decode(frame)
		if err != nil {
			return err
		}
		news, ok := m.(protocol.ChatNews)
		if !ok {
			n.set.metrics.Dropped.WithLabelValues(droppedStream).Inc()
			return protocol.Errorf(protocol.KindUpstream, "chathub: %s on a stream of news", frame.Type)
		}
		if err := chatring.CheckMessage(news.Message, chatring.NewsKinds); err != nil {
			n.set.metrics.Dropped.WithLabelValues(droppedNews).Inc()
			n.set.log.Warn("news were dropped", "session", n.group.session, "err", err)
			continue
		}
		select {
		case n.came <- news:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// spread tells the sockets what has come, until ctx ends. News that come at about
// the same time are told together.
func (n *newsroom) spread(ctx context.Context) {
	for {
		select {
		case first := <-n.came:
			frames := n.gather(first)
			for _, socket := range n.all() {
				socket.queue.tellAll(frames, maxNews)
			}
		case <-ctx.Done():
			return
		}
		if pause.For(ctx, newsEvery) != nil {
			return
		}
	}
}

// gather returns frames for first and all else that has come, of one conversation
// the last.
func (n *newsroom) gather(first protocol.ChatNews) (frames [][]byte) {
	all := []protocol.ChatNews{first}
	for more := true; more && len(all) < maxGathered; {
		select {
		case news := <-n.came:
			if news.ConversationID != "" {
				all = slices.DeleteFunc(all, func(old protocol.ChatNews) bool { return old.ConversationID == news.ConversationID })
			}
			all = append(all, news)
		default:
			more = false
		}
	}
	for _, news := range all {
		frames = append(frames, replay.AppendTextFrame(nil, news.Message))
	}
	return frames
}

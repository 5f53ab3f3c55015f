package history

import (
	"context"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fairlead/fairlead/protocol"
)

// Bounds of who follows a session's news.
const (
	maxFollowers = 64  // of one session
	maxWaiting   = 512 // news that wait for one of them; then the oldest goes
)

// counts are what a History counts.
type counts struct {
	told      atomic.Uint64 // changes of conversations
	dropped   atomic.Uint64 // news that somebody was too slow for
	refused   atomic.Uint64 // transcripts that aren't what they should be
	unadopted atomic.Uint64 // sessions without a conversation
	pages     atomic.Uint64
	uploads   atomic.Uint64 // images
}

// news tells those who follow sessions.
type news struct {
	counts *counts

	mu sync.Mutex
	// Guarded by mu.
	followers map[protocol.SessionID][]*follower
	closed    bool
}

func newNews(counts *counts) *news {
	return &news{counts: counts, followers: make(map[protocol.SessionID][]*follower)}
}

// A follower is one relay's stream of a session's news. Of several changes of one
// conversation only the last one waits.
type follower struct {
	news    *news
	session protocol.SessionID
	wake    chan struct{} // holds one token while there is something to take

	// Guarded by news.mu.
	waiting []protocol.ChatNews
	ended   bool
}

func (n *news) follow(session protocol.SessionID) (*follower, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.closed:
		return nil, protocol.Errorf(protocol.KindUnavailable, "the sandbox is ending")
	case len(n.followers[session]) >= maxFollowers:
		return nil, protocol.Errorf(protocol.KindTooMany, "%d streams follow this session's conversations", maxFollowers)
	}
	f := &follower{news: n, session: session, wake: make(chan struct{}, 1)}
	n.followers[session] = append(n.followers[session], f)
	return f, nil
}

// tell tells all who follow a session.
func (n *news) tell(session protocol.SessionID, item protocol.ChatNews) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range n.followers[session] {
		if item.ConversationID != "" {
			f.waiting = slices.DeleteFunc(f.waiting, func(w protocol.ChatNews) bool { return w.ConversationID == item.ConversationID })
		}
		if len(f.waiting) == maxWaiting {
			n.counts.dropped.Add(1)
			f.waiting = f.waiting[1:]
		}
		f.waiting = append(f.waiting, item)
		f.signal()
	}
}

// count returns how many streams there are.
func (n *news) count() (all int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, followers := range n.followers {
		all += len(followers)
	}
	return all
}

// listened reports whether somebody follows a session.
func (n *news) listened(session protocol.SessionID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.followers[session]) > 0
}

// end ends the streams of a session.
func (n *news) end(session protocol.SessionID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range n.followers[session] {
		f.ended = true
		f.signal()
	}
	delete(n.followers, session)
}

// close ends all streams, and refuses new ones.
func (n *news) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	for _, all := range n.followers {
		for _, f := range all {
			f.ended = true
			f.signal()
		}
	}
	clear(n.followers)
}

// signal wakes whoever waits. The caller holds news.mu.
func (f *follower) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Next implements [feature.Events].
func (f *follower) Next(ctx context.Context) (protocol.Message, error) {
	for {
		if item, ok, ended := f.take(); ok {
			return item, nil
		} else if ended {
			return nil, io.EOF
		}
		select {
		case <-f.wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (f *follower) take() (item protocol.ChatNews, ok, ended bool) {
	f.news.mu.Lock()
	defer f.news.mu.Unlock()
	if len(f.waiting) == 0 {
		return item, false, f.ended
	}
	item, f.waiting = f.waiting[0], f.waiting[1:]
	return item, true, false
}

// Close implements [feature.Events].
func (f *follower) Close() {
	f.news.mu.Lock()
	defer f.news.mu.Unlock()
	all := slices.DeleteFunc(f.news.followers[f.session], func(other *follower) bool { return other == f })
	if f.news.followers[f.session] = all; len(all) == 0 {
		delete(f.news.followers, f.session)
	}
}

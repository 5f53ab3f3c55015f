// Package history shows what coding agents' programs keep of their sessions: it
// finds their transcripts, tells when some change, and serves the web client's
// routes about projects, sessions and messages.
//
// Transcripts are the truth of what was said. They belong to the sandbox's users:
// what is in them is data, and where they lie is no evidence. Which conversation
// is which of a provider's sessions, package chat knows.
package history

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chat"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chatlog"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/history/homefs"
	"github.com/fairlead/fairlead/sandbox-agent/internal/history/rows"
	"github.com/fairlead/fairlead/sandbox-agent/internal/provider"
)

// Conversations are what is known of them. [chat.Conversations] implements it.
type Conversations interface {
	Get(session protocol.SessionID, id protocol.ConversationID) (chat.ConversationInfo, error)
	List(session protocol.SessionID) []chat.ConversationInfo
	ByNative(session protocol.SessionID, provider, native string) (chat.ConversationInfo, bool)
	Adopt(info chat.ConversationInfo) (as chat.ConversationInfo, made bool, err error)
	Rename(session protocol.SessionID, id protocol.ConversationID, title string) (chat.ConversationInfo, error)
	Archive(session protocol.SessionID, id protocol.ConversationID, archived bool) (chat.ConversationInfo, error)
	Watch(fn func(chat.Change)) (stop func())
}

// Runs are what happens in conversations. [chat.Chats] implements it.
type Runs interface {
	// Running returns the conversations of a session in which something runs.
	Running(session protocol.SessionID) []protocol.ConversationID
	// Delete forgets a conversation, and ends what runs in it.
	Delete(session protocol.SessionID, id protocol.ConversationID) error
	// Said returns what a conversation's log says beside its transcript.
	Said(session protocol.SessionID, id protocol.ConversationID) (chatlog.Said, error)
	// Outside is told when another program has changed a provider's session.
	Outside(session protocol.SessionID, provider, native string)
}

// ChatHomes know the homes of conversations.
type ChatHomes interface {
	// ChatHome returns the home of a session's, whether or not it is there yet.
	ChatHome(session protocol.SessionID) string
	// Hold has the home belong to its user, if it is there, until the session ends.
	Hold(session protocol.SessionID) error
}

// Variables know what programs of a session find in their environment.
type Variables interface {
	Names(session protocol.SessionID) []string
}

// A Masker hides secrets in what is shown.
type Masker interface {
	Row(row rows.Row) rows.Row
	Text(text string) string
}

// noMasker hides nothing.
type noMasker struct{}

func (noMasker) Row(row rows.Row) rows.Row { return row }
func (noMasker) Text(text string) string   { return text }

// Options say where things are.
type Options struct {
	Workspace     string // absolute; projects are folders in it
	Conversations Conversations
	Runs          Runs
	Providers     []provider.Provider
	ChatHomes     ChatHomes
	Programs      Programs // nil: nothing is known of the installed programs
	Database      Database // nil: what programs keep in databases isn't read
	Assets        *Assets
	Variables     Variables // nil: nothing is known of them
	Masker        Masker    // nil: there are no secrets
	ContextWindow int64     // tokens of claude's context, 0: as its program says
	Log           *slog.Logger
}

// A History is the feature. It is safe for concurrent use. Close it.
type History struct {
	// Static after construction.
	o       Options
	log     *slog.Logger
	folders []string // the workspace's paths: as it is named, and as programs see it
	watcher *homefs.Watcher
	unwatch func()
	news    *news
	counts  counts
	wake    chan struct{}  // holds one token while changes may be due
	asides  sync.WaitGroup // what looks at databases

	mu sync.Mutex
	// Guarded by mu.
	sessions map[protocol.SessionID]*shelf
	homes    map[*homefs.Home]*home
	changed  settling[place]
	kept     []*transcript                     // read last, the latest one last
	fresh    map[convKey]chat.ConversationInfo // changed, not told yet
	closed   bool
}

// A convKey names a conversation.
type convKey struct {
	session protocol.SessionID
	id      protocol.ConversationID
}

// A place is a file in a home; an empty name is any.
type place struct {
	home *home
	name string
}

var _ interface {
	feature.Router
	feature.Followed
	feature.Furnisher
	feature.Ender
	feature.SessionEnder
	feature.Runner
} = (*History)(nil)

// New returns a History. It watches when Run runs.
func New(o Options) (*History, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Masker == nil {
		o.Masker = noMasker{}
	}
	h := &History{
		o: o, log: o.Log, folders: []string{filepath.Clean(o.Workspace)}, wake: make(chan struct{}, 1),
		sessions: make(map[protocol.SessionID]*shelf), homes: make(map[*homefs.Home]*home), fresh: make(map[convKey]chat.ConversationInfo),
	}
	h.news = newNews(&h.counts)
	if real, err := filepath.EvalSymlinks(o.Workspace); err == nil && real != h.folders[0] {
		h.folders = append(h.folders, real)
	}
	var err error
	if h.watcher, err = homefs.NewWatcher(h); err != nil {
		return nil, err
	}
	h.unwatch = o.Conversations.Watch(h.conversationChanged)
	return h, nil
}

// Close ends the watch. It may be called again.
func (h *History) Close() error {
	h.mu.Lock()
	first := !h.closed
	h.closed = true
	h.mu.Unlock()
	if !first {
		return nil
	}
	h.unwatch()
	err := h.watcher.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, at := range h.homes {
		at.files.Close()
	}
	h.news.close()
	return err
}

// Run works off what has changed.
func (h *History) Run(ctx context.Context) {
	defer h.asides.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.wake:
		case <-timer.C:
		}
		h.mu.Lock()
		due, next, waits := h.changed.take(time.Now())
		fresh := h.fresh
		h.fresh = make(map[convKey]chat.ConversationInfo)
		h.mu.Unlock()
		for _, info := range fresh {
			h.tellOf(info)
		}
		for _, at := range due {
			h.refresh(ctx, at)
		}
		if waits {
			timer.Reset(time.Until(next))
		}
	}
}

// Changed implements [homefs.Listener].
func (h *History) Changed(files *homefs.Home, name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.homes[files]
	if at == nil {
		return
	}
	h.changed.touch(place{at, name}, time.Now())
	h.poke()
}

// poke has Run look at what has changed.
func (h *History) poke() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

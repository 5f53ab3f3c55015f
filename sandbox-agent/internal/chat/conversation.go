package chat

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
)

const (
	// MaxConversations bounds those of a sandbox.
	MaxConversations = 10_000
	// metaFile is a conversation's own file in its folder.
	metaFile = "meta.json"
	// metaFormat is of the files that this version writes.
	metaFormat = 1
)

// A ConversationInfo is what is known of a conversation beside its events.
type ConversationInfo struct {
	ID          protocol.ConversationID `json:"id"`
	Session     protocol.SessionID      `json:"session"`
	Provider    string                  `json:"provider"`
	ProjectPath string                  `json:"projectPath"`      // absolute
	Native      string                  `json:"native,omitempty"` // the provider's own id; "": it has none yet
	Title       string                  `json:"title,omitempty"`
	CreatedAt   int64                   `json:"createdAt"` // Unix milliseconds
	UpdatedAt   int64                   `json:"updatedAt"` // Unix milliseconds: of the last message, or of what was found on disk
	Archived    bool                    `json:"archived,omitempty"`
	Adopted     bool                    `json:"adopted,omitempty"` // found on disk rather than made by chat.create
}

// A Change is what has become of a conversation.
type Change struct {
	ConversationInfo
	Deleted bool
}

// meta is a conversation's file.
type meta struct {
	Format int `json:"format"`
	ConversationInfo
}

// nativeKey is what names a conversation for its provider.
type nativeKey struct {
	session          protocol.SessionID
	provider, native string
}

// Conversations keep what is known of a sandbox's conversations, each in a file
// of its folder. They are safe for concurrent use.
type Conversations struct {
	// Static after construction.
	dir string
	log *slog.Logger

	writing sync.Mutex // held while a file is changed, before mu

	mu sync.Mutex
	// Guarded by mu, and changed only by whoever holds writing as well.
	all      map[protocol.ConversationID]ConversationInfo
	byNative map[nativeKey]protocol.ConversationID
	// Guarded by mu.
	watchers map[int]func(Change)
	watched  int
}

// OpenConversations reads the conversations whose folders are in dir. A file that
// can't be read is left as it is, and its conversation isn't listed.
func OpenConversations(dir string, log *slog.Logger) (*Conversations, error) {
	c := &Conversations{
		dir: dir, log: log,
		all: map[protocol.ConversationID]ConversationInfo{}, byNative: map[nativeKey]protocol.ConversationID{}, watchers: map[int]func(Change){},
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		id := protocol.ConversationID(e.Name())
		if !e.IsDir() || !protocol.ValidConversation(id) {
			continue
		}
		var m meta
		text, err := os.ReadFile(filepath.Join(c.folder(id), metaFile))
		if err == nil {
			err = json.Unmarshal(text, &m)
		}
		if err == nil && (m.Format != metaFormat || m.ID != id) {
			err = errors.New("of another format or conversation")
		}
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				log.Error("a conversation can't be read and is left alone", "conversation", id, "err", err)
			}
			continue
		}
		c.put(m.ConversationInfo)
	}
	c.mergeTwins()
	return c, nil
}

// folder returns a conversation's folder.
func (c *Conversations) folder(id protocol.ConversationID) string {
	return filepath.Join(c.dir, string(id))
}

// put lists a conversation. The caller holds mu, or is the only one.
func (c *Conversations) put(info ConversationInfo) {
	if old, known := c.all[info.ID]; known && c.byNative[old.key()] == info.ID {
		delete(c.byNative, old.key())
	}
	c.all[info.ID] = info
	if info.Native != "" {
		c.byNative[info.key()] = info.ID
	}
}

func (i ConversationInfo) key() nativeKey { return nativeKey{i.Session, i.Provider, i.Native} }

// Get returns a conversation of session. It fails with KindNotFound for another
// session's, too.
func (c *Conversations) Get(session protocol.SessionID, id protocol.ConversationID) (ConversationInfo, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	info, known := c.all[id]
	if !known || info.Session != session {
		return ConversationInfo{}, notFound(id)
	}
	return info, nil
}

// lookup returns a conversation of any session.
func (c *Conversations) lookup(id protocol.ConversationID) (ConversationInfo, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	info, known := c.all[id]
	return info, known
}

// List returns the conversations of session, archived ones too, the one that was
// used last first.
func (c *Conversations) List(session protocol.SessionID) []ConversationInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []ConversationInfo
	for _, info := range c.all {
		if info.Session == session {
			all = append(all, info)
		}
	}
	slices.SortFunc(all, func(a, b ConversationInfo) int {
		return cmp.Or(cmp.Compare(b.UpdatedAt, a.UpdatedAt), cmp.Compare(a.ID, b.ID))
	})
	return all
}

// ByNative returns the conversation of session that its provider knows as native.
func (c *Conversations) ByNative(session protocol.SessionID, provider, native string) (ConversationInfo, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id, known := c.byNative[nativeKey{session, provider, native}]
	return c.all[id], known
}

// Watch has fn called after each change, one after the other and in their order.
// fn must not wait, nor call the Conversations. stop ends that.
func (c *Conversations) Watch(fn func(Change)) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.watched
	c.watched++
	c.watchers[n] = fn
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watchers, n)
	}
}

// Create makes a conversation; without an ID it gets a UUID. The same one again
// is the one that is there. It fails with KindConflict for another one's ID, with
// KindTooMany, and with KindNoSpace or KindInternal when it can't be stored.
func (c *Conversations) Create(info ConversationInfo) (ConversationInfo, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.create(info)
}

// create is Create. The caller holds writing.
func (c *Conversations) create(info ConversationInfo) (ConversationInfo, error) {
	if info.ID == "" {
		info.ID = protocol.ConversationID(uuid.NewString())
	}
	c.mu.Lock()
	old, known := c.all[info.ID]
	n := len(c.all)
	c.mu.Unlock()
	switch {
	case known && old.Session == info.Session && old.Provider == info.Provider && old.ProjectPath == info.ProjectPath:
		return old, nil
	case known:
		return ConversationInfo{}, protocol.Errorf(protocol.KindConflict, "there is another conversation with this id")
	case n >= MaxConversations:
		return ConversationInfo{}, protocol.Errorf(protocol.KindTooMany, "over %d conversations", MaxConversations)
	}
	now := time.Now().UnixMilli()
	info.CreatedAt, info.UpdatedAt = cmp.Or(info.CreatedAt, now), cmp.Or(info.UpdatedAt, now)
	return info, c.store(info)
}

// Adopt makes a conversation for what a provider knows as info.Native and people
// have begun in a terminal. It has an ID of its own, for the provider's stays in
// the sandbox. If a conversation has it already that one is returned, and made is
// false.
func (c *Conversations) Adopt(info ConversationInfo) (as ConversationInfo, made bool, err error) {
	if info.Native == "" || !protocol.ValidConversation(protocol.ConversationID(info.Native)) {
		return info, false, protocol.Errorf(protocol.KindInvalid, "not the id of a conversation")
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	if known, ok := c.ByNative(info.Session, info.Provider, info.Native); ok {
		return known, false, nil
	}
	info.ID, info.Adopted = "", true
	as, err = c.create(info)
	return as, err == nil, err
}

// change changes a conversation of session and stores it.
func (c *Conversations) change(session protocol.SessionID, id protocol.ConversationID, by func(*ConversationInfo)) (ConversationInfo, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	info, err := c.Get(session, id)
	if err != nil {
		return info, err
	}
	changed := info
	if by(&changed); changed == info {
		return info, nil
	}
	return changed, c.store(changed)
}

// Rename gives a conversation a title.
func (c *Conversations) Rename(session protocol.SessionID, id protocol.ConversationID, title string) (ConversationInfo, error) {
	return c.change(session, id, func(info *ConversationInfo) { info.Title = title })
}

// Archive puts a conversation aside, or back.
func (c *Conversations) Archive(session protocol.SessionID, id protocol.ConversationID, archived bool) (ConversationInfo, error) {
	return c.change(session, id, func(info *ConversationInfo) { info.Archived = archived })
}

// Touch notes when a conversation was last used.
func (c *Conversations) Touch(session protocol.SessionID, id protocol.ConversationID, at time.Time) (ConversationInfo, error) {
	return c.change(session, id, func(info *ConversationInfo) { info.UpdatedAt = max(info.UpdatedAt, at.UnixMilli()) })
}

// setNative notes how the provider calls a conversation. If that was found on disk
// before it was known, the two become one: should this program be killed in
// between, then when it starts again.
func (c *Conversations) setNative(session protocol.SessionID, id protocol.ConversationID, native string) error {
	info, err := c.Get(session, id)
	if err != nil || info.Native == native {
		return err
	}
	twin, found := c.ByNative(session, info.Provider, native)
	found = found && twin.ID != id && twin.Adopted
	_, err = c.change(session, id, func(info *ConversationInfo) {
		info.Native = native
		if found { // somebody may have named it
			info.Title = cmp.Or(info.Title, twin.Title)
		}
	})
	if err == nil && found {
		err = c.remove(session, twin.ID)
	}
	return err
}

// mergeTwins removes the conversations that were found on disk and are others', too.
func (c *Conversations) mergeTwins() {
	for _, twin := range c.twins() {
		if err := c.remove(twin.Session, twin.ID); err != nil {
			c.log.Error("a conversation is listed twice", "conversation", twin.ID, "err", err)
		}
	}
}

// twins returns what was found on disk and is another conversation, too.
func (c *Conversations) twins() (all []ConversationInfo) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, info := range c.all {
		if info.Native != "" && !info.Adopted {
			c.put(info) // its provider's session is its own
		}
	}
	for id, info := range c.all {
		if c.byNative[info.key()] != id && info.Adopted {
			all = append(all, info)
		}
	}
	return all
}

// remove takes a conversation off the list, with its file.
func (c *Conversations) remove(session protocol.SessionID, id protocol.ConversationID) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	info, err := c.Get(session, id)
	if err != nil {
		return err
	}
	err = os.Remove(filepath.Join(c.folder(id), metaFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return protocol.Fault(protocol.KindUnavailable, err)
	}
	_ = os.Remove(c.folder(id)) // unless there is a log in it
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, id)
	if info.Native != "" && c.byNative[info.key()] == id {
		delete(c.byNative, info.key())
	}
	c.tell(Change{info, true})
	return nil
}

// store writes a conversation's file, lists it and tells everybody. The caller
// holds writing.
func (c *Conversations) store(info ConversationInfo) error {
	text, err := json.Marshal(meta{metaFormat, info})
	if err == nil {
		err = os.MkdirAll(c.folder(info.ID), 0o700)
	}
	if err == nil {
		err = program.ReplaceFile(filepath.Join(c.folder(info.ID), metaFile), text, 0o600)
	}
	if err != nil {
		return diskError(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(info)
	c.tell(Change{ConversationInfo: info})
	return nil
}

// tell tells everybody. The caller holds mu.
func (c *Conversations) tell(change Change) {
	for _, fn := range c.watchers {
		fn(change)
	}
}

// Package chat holds the conversations of a sandbox with coding agents: what runs
// in them, who may write, what is asked, and what relays are told.
//
// Each conversation that is in use has an owner: one goroutine, which alone
// changes its run, its process, its questions, its lease and its log. Everything
// else asks the owner. An owner begins with the first use, and ends when nothing
// runs, nobody follows and nobody has control.
package chat

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/approval"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chat/rules"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chatlog"
	"github.com/fairlead/fairlead/sandbox-agent/internal/mask"
	"github.com/fairlead/fairlead/sandbox-agent/internal/provider"
	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
)

// Defaults of Options.
const (
	DefaultSilence  = 30 * time.Minute
	DefaultPatience = 55 * time.Second // seed 002
	DefaultWarmFor  = 10 * time.Minute
	DefaultMaxWarm  = 4
)

// leaveAtOnce is how many processes leave by themselves at the same time: when many
// runs end together, the ends of hundreds of programs would keep words of other runs
// waiting.
const leaveAtOnce = 2

// MaxOwners bounds the conversations that are in use at the same time.
const MaxOwners = 4096

// Options say how a sandbox's conversations work.
type Options struct {
	Dir       string // holds a folder for each conversation
	Workspace string // absolute; conversations work in or below it
	Providers []provider.Provider
	Programs  Programs
	Approvals *approval.Log
	Assets    Assets             // nil: images have no URL
	Secrets   *mask.Secrets      // nil: nothing is hidden
	Revoked   *jws.RevocationSet // nil: nothing is
	Log       *slog.Logger

	MaxRuns  int           // at the same time; default protocol.MaxChatRuns
	Silence  time.Duration // how long a run may print nothing; default DefaultSilence
	Patience time.Duration // how long a question waits; default DefaultPatience
	WarmFor  time.Duration // how long a process waits for another message; default DefaultWarmFor
	MaxWarm  int           // how many do; default DefaultMaxWarm, less than 0: none
}

func (o *Options) defaults() {
	o.MaxRuns = cmp.Or(o.MaxRuns, protocol.MaxChatRuns)
	o.Silence = cmp.Or(o.Silence, DefaultSilence)
	o.Patience = cmp.Or(o.Patience, DefaultPatience)
	o.WarmFor = cmp.Or(o.WarmFor, DefaultWarmFor)
	o.MaxWarm = cmp.Or(o.MaxWarm, DefaultMaxWarm)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

// Chats are the conversations of a sandbox. They are safe for concurrent use.
type Chats struct {
	*Conversations

	// Static after construction.
	o        Options
	given    string // the workspace as people know it
	logs     *chatlog.Store
	rules    *rules.Rules
	messages *messages
	counts   *counts
	indexes  *chatlog.Indexes
	leaving  chan struct{} // an element for each process that leaves by itself
	closing  chan struct{}
	owning   sync.WaitGroup // owners' goroutines

	mu sync.Mutex
	// Guarded by mu.
	owners  map[protocol.ConversationID]*owner
	runs    int      // that are under way
	warm    []*owner // whose process waits for another message, the longest first
	secrets *redact.Set
	round   uint64                             // of secrets: raised by each change
	masked  map[protocol.ConversationID]uint64 // the round that a log was rewritten for; absent: 0
	closed  bool
}

// Open returns the conversations in o.Dir. Close them.
func Open(o Options) (*Chats, error) {
	o.defaults()
	workspace, err := filepath.EvalSymlinks(o.Workspace)
	if err != nil {
		return nil, err
	}
	given := filepath.Clean(o.Workspace)
	o.Workspace = workspace
	known, err := OpenConversations(o.Dir, o.Log)
	if err != nil {
		return nil, err
	}
	logs, err := chatlog.Open(chatlog.Options{Dir: o.Dir, Log: o.Log})
	if err != nil {
		return nil, err
	}
	remembered, err := rules.Open(filepath.Join(o.Dir, "rules.json"))
	if err != nil {
		return nil, errors.Join(err, logs.Close())
	}
	c := &Chats{
		Conversations: known, o: o, given: given, logs: logs, rules: remembered, messages: newMessages(), counts: newCounts(), indexes: &chatlog.Indexes{},
		leaving: make(chan struct{}, leaveAtOnce), closing: make(chan struct{}), owners: map[protocol.ConversationID]*owner{}, masked: map[protocol.ConversationID]uint64{},
	}
	if o.Revoked != nil {
		o.Revoked.OnChange(c.dropRevoked)
	}
	if o.Secrets != nil {
		o.Secrets.Listen(c)
	}
	return c, nil
}

// Run ends what an agent that was killed has left open, in the logs of all
// conversations.
func (c *Chats) Run(ctx context.Context) {
	for _, id := range c.logs.List() {
		if ctx.Err() != nil {
			return
		}
		if o, err := c.acquire(id); err == nil { // its owner has looked
			o.do(o.hurry)
			c.release(o)
		}
	}
}

// acquire returns the owner of a conversation, which lives until release.
func (c *Chats) acquire(id protocol.ConversationID) (*owner, error) {
	for {
		o, retired, err := c.ownerOf(id)
		if err != nil {
			return nil, err
		}
		if retired {
			<-o.gone // its log is not yet closed
			continue
		}
		<-o.ready
		if o.broken != nil {
			c.release(o)
			return nil, o.broken
		}
		return o, nil
	}
}

// ownerOf returns the owner of a conversation with another user, begun if there
// is none; or one that is about to end.
func (c *Chats) ownerOf(id protocol.ConversationID) (o *owner, retired bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, false, protocol.Errorf(protocol.KindUnavailable, "the sandbox's agent is ending")
	}
	if o := c.owners[id]; o != nil {
		if !o.retired {
			o.users++
		}
		return o, o.retired, nil
	}
	if len(c.owners) >= MaxOwners {
		return nil, false, protocol.Errorf(protocol.KindTooMany, "over %d conversations are in use", MaxOwners)
	}
	o = newOwner(c, id)
	o.users = 1
	c.owners[id] = o
	c.owning.Go(o.run)
	return o, false, nil
}

// release is called by whoever needs an owner no more.
func (c *Chats) release(o *owner) {
	c.mu.Lock()
	o.users--
	last := o.users == 0
	c.mu.Unlock()
	if last {
		o.post(func() {}) // it looks whether it can end
	}
}

// retire reports whether an owner that has nothing to do may end. It must if all
// are closed.
func (c *Chats) retire(o *owner) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.users > 0 && !c.closed {
		return false
	}
	o.retired = true
	return true
}

// forget takes an owner that has ended off the list.
func (c *Chats) forget(o *owner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.owners, o.id)
}

// ask has fn called by the owner of a conversation of session. It fails with
// KindNotFound for another session's, and with what fn says.
func (c *Chats) ask(session protocol.SessionID, id protocol.ConversationID, fn func(*owner) error) error {
	if _, err := c.Get(session, id); err != nil {
		return err
	}
	o, err := c.acquire(id)
	if err != nil {
		return err
	}
	defer c.release(o)
	o.do(func() { err = fn(o) })
	return err
}

// all returns the owners that there are, each with another user.
func (c *Chats) all() []*owner {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*owner
	for _, o := range c.owners {
		if !o.retired {
			o.users++
			all = append(all, o)
		}
	}
	return all
}

// dropRevoked ends what is done under grants that are void.
func (c *Chats) dropRevoked() {
	for _, o := range c.all() {
		o.do(o.dropRevoked)
		c.release(o)
	}
}

// SetSecrets has the secrets of set hidden in all events, also in those that are
// stored. When it returns nobody is shown any of them. Logs that nobody uses are
// rewritten before somebody does.
func (c *Chats) SetSecrets(set *redact.Set) {
	c.mu.Lock()
	c.secrets = set
	c.round++
	c.mu.Unlock()
	for _, o := range c.all() {
		o.do(o.useSecrets)
		c.release(o)
	}
}

// toMask returns the present secrets and whether a conversation's log has to be
// searched for them.
func (c *Chats) toMask(id protocol.ConversationID) (set *redact.Set, round uint64, due bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.secrets, c.round, c.masked[id] < c.round
}

// noteMasked notes that a log holds none of the secrets of a round.
func (c *Chats) noteMasked(id protocol.ConversationID, round uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.masked[id] = round
}

// beginRun counts a run, unless there are as many as there may be.
func (c *Chats) beginRun() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs >= c.o.MaxRuns {
		return false
	}
	c.runs++
	return true
}

func (c *Chats) endRun() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs--
}

// keepWarm notes that o's process waits for another message. Where too many do,
// the one that waits longest ends.
func (c *Chats) keepWarm(o *owner) {
	c.mu.Lock()
	c.warm = append(slices.DeleteFunc(c.warm, func(w *owner) bool { return w == o }), o)
	var cold *owner
	if len(c.warm) > max(c.o.MaxWarm, 0) {
		cold = c.warm[0]
		c.warm = slices.Delete(c.warm, 0, 1)
	}
	c.mu.Unlock()
	if cold != nil {
		go cold.post(cold.coolDown) // ends with cold: it may be o itself, which must not wait for itself
	}
}

// noWarm notes that o's process works, or is gone.
func (c *Chats) noWarm(o *owner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.warm = slices.DeleteFunc(c.warm, func(w *owner) bool { return w == o })
}

// Running returns the conversations of session in which something runs.
func (c *Chats) Running(session protocol.SessionID) (running []protocol.ConversationID) {
	for _, o := range c.all() {
		o.do(func() {
			if o.session == session && o.busy() {
				running = append(running, o.id)
			}
		})
		c.release(o)
	}
	return running
}

// Delete ends a conversation and removes all that is known of it.
func (c *Chats) Delete(session protocol.SessionID, id protocol.ConversationID) error {
	err := c.ask(session, id, func(o *owner) error {
		if o.busy() || o.terminal != "" {
			return refusal(protocol.ChatRunInProgress, string(id))
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.erase(session, id)
}

// erase ends what runs in a conversation, and removes what is known of it.
func (c *Chats) erase(session protocol.SessionID, id protocol.ConversationID) error {
	o, err := c.acquire(id)
	if err != nil {
		return err
	}
	o.rest()
	c.release(o)
	if err := c.remove(session, id); err != nil {
		return err
	}
	c.mu.Lock()
	delete(c.masked, id)
	c.mu.Unlock()
	c.indexes.Forget(id)
	return c.logs.Delete(id)
}

// Outside notes that another program has changed a conversation as its provider
// knows it: a process that waits for another message doesn't know of that, and
// ends.
func (c *Chats) Outside(session protocol.SessionID, providerName, native string) {
	info, known := c.ByNative(session, providerName, native)
	if !known {
		return
	}
	c.mu.Lock()
	o := c.owners[info.ID]
	if o == nil || o.retired {
		c.mu.Unlock()
		return
	}
	o.users++
	c.mu.Unlock()
	o.do(o.coolDown)
	c.release(o)
}

// SessionEnded implements [feature.SessionEnder]: all conversations of a session
// end, and are removed.
func (c *Chats) SessionEnded(session protocol.SessionID) error {
	var errs []error
	for _, info := range c.List(session) {
		errs = append(errs, c.erase(session, info.ID))
	}
	errs = append(errs, c.rules.Forget(session))
	return errors.Join(errs...)
}

// Close ends all runs and processes, and returns when nothing goes on.
func (c *Chats) Close() error {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	c.mu.Unlock()
	if first {
		close(c.closing)
	}
	c.owning.Wait()
	return c.logs.Close()
}

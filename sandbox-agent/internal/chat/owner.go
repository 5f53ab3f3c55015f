package chat

import (
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chat/control"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chat/life"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chat/masking"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chatlog"
	"github.com/fairlead/fairlead/sandbox-agent/internal/provider"
)

const (
	// linger is how long an owner that has nothing to do stays, for who comes back.
	linger = time.Minute
	// unsaidAgain is how long to wait before what couldn't be stored is tried again.
	unsaidAgain = time.Second
)

// An owner is the goroutine that alone changes a conversation.
type owner struct {
	// Static after construction.
	chats   *Chats
	id      protocol.ConversationID
	session protocol.SessionID
	inbox   chan func()
	ready   chan struct{} // closed when broken is set, and log
	gone    chan struct{} // closed when it has ended

	// Static after ready.
	broken error // why the conversation can't be used
	log    *chatlog.Log

	// Guarded by Chats.mu.
	users   int
	retired bool

	// Owned by run.
	room      *control.Room
	roomDue   time.Time // when the room has to be looked at
	followers map[*follower]struct{}
	turn      turn
	work      work
	masker    masking.Masker
	unsaid    []*protocol.ChatEvent // what couldn't be stored: nothing may come before it
	unsaidDue time.Time
	idleSince time.Time       // nothing to do since; zero: there is
	resting   []chan struct{} // closed when nothing runs
	terminal  protocol.PTYID  // where the conversation goes on; "": here
}

// A turn is the present run, or none.
type turn struct {
	life      life.Life
	command   protocol.CommandID
	user      protocol.UserID
	own       string // the user's own name of the message
	began     uint64 // number of its first event
	rules     []string
	skip      bool // no questions
	questions []*question
	heard     time.Time  // when something was last printed, or decided
	impatient time.Time  // when an interrupted turn has had its time; zero: it wasn't interrupted
	files     imageFiles // removed with the run
}

func newOwner(c *Chats, id protocol.ConversationID) *owner {
	o := &owner{
		chats: c, id: id, inbox: make(chan func()), ready: make(chan struct{}), gone: make(chan struct{}),
		followers: map[*follower]struct{}{},
	}
	info, known := c.lookup(id)
	if !known {
		o.broken = notFound(id)
		return o
	}
	o.session = info.Session
	o.room = control.New(o.session, c.o.Revoked)
	return o
}

// run is the owner's goroutine.
func (o *owner) run() {
	defer close(o.gone)
	defer o.chats.forget(o)
	if o.broken == nil {
		o.broken = o.open()
	}
	close(o.ready)
	timer := time.NewTimer(0)
	defer timer.Stop()
	closing := o.chats.closing
	for {
		select {
		case fn := <-o.inbox:
			fn()
		case <-timer.C:
		case <-closing:
			closing = nil
			o.endSession()
		}
		wait, over := o.tick(time.Now(), closing == nil)
		if over {
			return
		}
		timer.Reset(wait)
	}
}

// open opens the log, and ends there what an agent that was killed has left.
func (o *owner) open() (err error) {
	if o.log, err = o.chats.logs.Log(o.id); err != nil {
		return err
	}
	if set, round, due := o.chats.toMask(o.id); due {
		if err := o.rewrite(set, round); err != nil {
			return err
		}
	}
	set, _, _ := o.chats.toMask(o.id)
	o.masker.Use(set)
	return o.recover()
}

// post has the owner call fn, unless it has ended. It must not be called by the
// owner.
func (o *owner) post(fn func()) bool {
	select {
	case o.inbox <- fn:
		return true
	case <-o.gone:
		return false
	}
}

// do has the owner call fn, and returns then. It must not be called by the owner.
func (o *owner) do(fn func()) bool {
	done := make(chan struct{})
	if !o.post(func() { defer close(done); fn() }) {
		return false
	}
	<-done
	return true
}

// tick does what is due, and returns how long until something is again, or that
// the owner has ended.
func (o *owner) tick(now time.Time, closing bool) (wait time.Duration, over bool) {
	if o.broken != nil {
		return linger, o.chats.retire(o)
	}
	wait = control.Forever
	if !now.Before(o.roomDue) {
		changed, next := o.room.Tick(now)
		if changed {
			o.leased(nil, 0)
		}
		for f := range o.followers {
			if f.seat.Over() {
				f.fail(control.ErrNoGrant)
			}
		}
		o.roomDue = now.Add(next)
	}
	wait = min(wait, o.roomDue.Sub(now), o.turnDue(now), o.work.due(o, now), o.sayAgain(now))
	if o.turn.life.State() == protocol.RunIdle && o.work.engine == nil {
		for _, resting := range o.resting {
			close(resting)
		}
		o.resting = nil
	}
	if o.turn.life.State() != protocol.RunIdle || o.work.engine != nil || len(o.unsaid) > 0 && !closing || !o.room.Empty() && !closing {
		o.idleSince = time.Time{}
		return max(wait, 0), false
	}
	if o.idleSince.IsZero() {
		o.idleSince = now
	}
	left := o.idleSince.Add(linger).Sub(now)
	if (left <= 0 || closing) && o.chats.retire(o) {
		return 0, true
	}
	if left <= 0 { // somebody is about to ask something, and says when that is over
		left = linger
	}
	return max(min(wait, left), 0), false
}

// rest ends what runs, and returns when that is over. It must not be called by
// the owner.
func (o *owner) rest() {
	resting := make(chan struct{})
	o.post(func() {
		o.endSession()
		o.resting = append(o.resting, resting)
	})
	select {
	case <-resting:
	case <-o.gone:
	}
}

// busy reports whether a run is under way.
func (o *owner) busy() bool { return o.turn.life.State() != protocol.RunIdle || len(o.unsaid) > 0 }

// hurry has an owner that has nothing to do end as soon as nobody needs it.
func (o *owner) hurry() { o.idleSince = time.Now().Add(-linger) }

// lookRoom has the room looked at soon.
func (o *owner) lookRoom() { o.roomDue = time.Time{} }

// info returns what is known of the conversation.
func (o *owner) info() ConversationInfo {
	info, _ := o.chats.lookup(o.id)
	return info
}

// state returns what relays are told.
func (o *owner) state() protocol.ChatState {
	name := o.info().Provider
	_, supported := provider.ByName(o.chats.o.Providers, name)
	s := protocol.ChatState{Run: o.turn.life.State(), Provider: name, Unsupported: !supported, Terminal: o.terminal}
	if s.Run == protocol.RunIdle && len(o.unsaid) > 0 {
		s.Run = protocol.RunRunning // its complete is still to come
	}
	if s.Run == protocol.RunIdle {
		return s
	}
	s.CommandID, s.UserID, s.BeganAt, s.ClientMessageID = o.turn.command, o.turn.user, o.turn.began, o.turn.own
	s.Pending = pendingOf(o.turn.questions)
	return s
}

// tellState tells all relays the state, before the next event.
func (o *owner) tellState() {
	state, next := o.state(), o.log.Position().Last+1
	for f := range o.followers {
		f.postState(state, next)
	}
}

// say stores events, masked, and shows them to whoever follows. With sync they
// outlive the machine. What can't be stored comes later, before anything else.
func (o *owner) say(sync bool, events ...protocol.ChatEvent) error {
	var masked []protocol.ChatEvent
	for _, e := range events {
		if e.Kind == protocol.ChatError && e.Content != nil {
			e.Content = new(o.unnamed(*e.Content))
		}
		masked = append(masked, o.masker.Event(e)...)
	}
	return o.store(sync, masked...)
}

// unnamed returns a program's complaint with the conversation's id in the place of
// the program's own, which nobody outside knows.
func (o *owner) unnamed(text string) string {
	native := o.info().Native
	if native == "" {
		return text
	}
	return strings.ReplaceAll(text, native, string(o.id))
}

// store is say for what is masked.
func (o *owner) store(sync bool, events ...protocol.ChatEvent) error {
	if len(events) == 0 {
		return nil
	}
	all := o.unsaid
	name := o.info().Provider
	for _, e := range events {
		e.SessionID, e.Provider = o.id, name
		if e.ID == "" {
			e.ID = newEventID()
		}
		if e.Timestamp == "" {
			e.Timestamp = timestamp(time.Now())
		}
		all = append(all, &e)
	}
	if err := o.log.Append(sync, all...); err != nil {
		return err
	}
	o.unsaid = nil
	o.chats.indexes.Note(o.log, all)
	for _, e := range all {
		o.chats.counts.event(e.Kind)
	}
	o.wake()
	return nil
}

// wake has all followers look for events.
func (o *owner) wake() {
	for f := range o.followers {
		f.notify()
	}
}

// sayLater notes what must be stored as soon as that is possible.
func (o *owner) sayLater(events ...protocol.ChatEvent) {
	for _, e := range events {
		e = masking.Mask(o.secrets(), e)
		e.ID, e.SessionID, e.Provider, e.Timestamp = newEventID(), o.id, o.info().Provider, timestamp(time.Now())
		o.unsaid = append(o.unsaid, &e)
	}
	o.unsaidDue = time.Now().Add(unsaidAgain)
}

// sayAgain stores what couldn't be stored, and returns how long until that has to
// be tried again.
func (o *owner) sayAgain(now time.Time) time.Duration {
	if len(o.unsaid) == 0 {
		return control.Forever
	}
	if wait := o.unsaidDue.Sub(now); wait > 0 {
		return wait
	}
	said, next := o.unsaid, o.log.Position().Last+1
	for f := range o.followers {
		f.hold(next)
	}
	err := o.log.Append(true, said...)
	var state protocol.Message
	if err == nil || errors.Is(err, chatlog.ErrEnded) {
		o.unsaid = nil
	}
	if err == nil {
		state = o.state() // before the events, which followers may have seen by now
	}
	for f := range o.followers {
		f.settle(state)
	}
	switch {
	case errors.Is(err, chatlog.ErrEnded):
		return control.Forever // the conversation was removed
	case err != nil:
		o.unsaidDue = now.Add(unsaidAgain)
		return unsaidAgain
	}
	o.log.Live(false)
	o.wake()
	return control.Forever
}

// newEventID returns an id that no other event has. It is no secret, and a word of a
// coding agent waits for it.
func newEventID() string {
	var id uuid.UUID
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	id[6] = id[6]&0x0f | 0x40 // RFC 9562: version 4, random
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}

// timestamp is a time as events have it.
func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// recover ends a run that an agent that was killed has left open: with the
// questions that were open, and a complete.
func (o *owner) recover() error {
	at := o.log.Position()
	if at.Last == 0 || at.First > at.Last {
		return nil
	}
	last, err := o.scan(at.Last - 1)
	if err != nil || last.over {
		return err
	}
	open, err := o.scan(at.First - 1)
	if err != nil || open.over {
		return err
	}
	var events []protocol.ChatEvent
	for _, id := range open.questions {
		events = append(events, cancelled(id, protocol.CancelledWith))
	}
	o.chats.counts.run(runLost)
	return o.store(true, append(events, o.complete(open.command, life.Complete{ExitCode: life.Unknown}))...)
}

// An outline is what a log says about its last run.
type outline struct {
	over      bool
	command   protocol.CommandID
	questions []string // that are open
}

// scan reads the log behind after.
func (o *owner) scan(after uint64) (found outline, err error) {
	reader, _ := o.log.Read(after, o.log.Position().Last)
	defer reader.Close()
	found.over = true
	for {
		entry, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return found, err
		}
		found.add(entry.JSON)
	}
}

package chat

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/chatsocket"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chat/control"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chat/life"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chat/masking"
	"github.com/fairlead/fairlead/sandbox-agent/internal/provider"
	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
)

// interruptFor is how long an interrupted turn may take to end by itself.
const interruptFor = 5 * time.Second

// A sending is one message, checked as far as that needs no owner.
type sending struct {
	command protocol.CommandID
	user    protocol.UserID
	grant   protocol.GrantID
	name    string // how others see the sender
	own     string // the sender's own name of the message
	start   provider.Start
	turn    provider.Turn
	images  []protocol.ChatImage // as the event shows them
	files   imageFiles
	busy    bool // a terminal has the provider's session open
}

// send begins a run. When it returns nil the message is stored, and outlives the
// machine.
func (o *owner) send(s sending) error {
	now := time.Now()
	p, err := o.maySend(s.user, s.busy)
	if err != nil {
		return err
	}
	s.start.Native = o.info().Native
	if err := p.Check(s.start, s.turn); err != nil {
		return fault(protocol.ChatInternalError, "%s", chatsocket.Sentence(o.unnamed(protocol.AsError(err).Error())))
	}
	if !o.chats.beginRun() {
		return refusal(protocol.ChatTooManyRuns, string(o.id))
	}
	if err := o.begin(s, now); err != nil {
		o.chats.endRun()
		return fault(protocol.ChatUnavailable, "The message can't be stored: %s.", protocol.AsError(err).Error())
	}
	if changed, err := o.room.Take(s.user, s.grant, now); err == nil && changed {
		o.leased(nil, 0)
	}
	o.work.launch(o, p, s)
	return nil
}

// maySend returns the provider, and why a user may not send a message now. busy
// says that a terminal has the provider's session open.
func (o *owner) maySend(user protocol.UserID, busy bool) (provider.Provider, error) {
	name := o.info().Provider
	p, known := provider.ByName(o.chats.o.Providers, name)
	switch {
	case !known:
		return nil, refusal(protocol.ChatUnsupportedProvider, name)
	case !o.room.May(user, time.Now()):
		return nil, refusal(protocol.ChatNotController, string(o.id))
	case o.busy() || busy || o.terminal != "":
		return nil, refusal(protocol.ChatRunInProgress, string(o.id))
	}
	return p, nil
}

// begin stores the message.
func (o *owner) begin(s sending, now time.Time) error {
	l, _, err := life.Step(o.turn.life, life.Begin{})
	if err != nil {
		return err
	}
	o.log.Live(true)
	o.turn = turn{
		life: l, command: s.command, user: s.user, own: s.own, began: o.log.Position().Last + 1,
		rules: slices.Concat(s.start.AllowedTools, o.chats.rules.Of(o.session)), skip: s.start.SkipPermissions,
		heard: now, files: s.files,
	}
	o.tellState()
	content := s.turn.Content
	err = o.say(true, protocol.ChatEvent{
		ID: s.turn.EventID(), Kind: protocol.ChatText, Role: "user", Content: &content, Images: s.images,
		From: &protocol.ChatFrom{UserID: s.user, GrantID: s.grant, Name: s.name}, CommandID: s.command, ClientMessageID: s.own,
	})
	if err != nil {
		o.turn = turn{}
		o.log.Live(false)
		o.tellState()
		return err
	}
	if last := o.log.Position().Last; last != o.turn.began { // a new epoch
		o.turn.began = last
		o.tellState()
	}
	o.chats.owning.Go(func() { // ends with the write: nobody waits for that
		if _, err := o.chats.Touch(o.session, o.id, now); err != nil {
			o.chats.o.Log.Warn("a conversation's last use is not stored", "conversation", o.id, "err", err)
		}
	})
	return nil
}

// abort stops the run.
func (o *owner) abort(user protocol.UserID) error {
	switch {
	case o.turn.life.State() == protocol.RunIdle:
		return refusal(protocol.ChatNoActiveRun, string(o.id))
	case !o.room.MayAbort(user, time.Now()):
		return refusal(protocol.ChatNotController, string(o.id))
	}
	o.step(life.Abort{})
	return nil
}

// step does what an event of the run's life brings about.
func (o *owner) step(e life.Event) {
	before := o.turn.life.State()
	l, effects, err := life.Step(o.turn.life, e)
	if err != nil {
		return
	}
	o.turn.life = l
	if l.State() == protocol.RunAborting && before != protocol.RunAborting {
		o.cancelQuestions()
		o.tellState()
	}
	for _, effect := range effects {
		switch effect := effect.(type) {
		case life.Interrupt:
			o.turn.impatient = time.Now().Add(interruptFor)
			o.work.interrupt(o)
		case life.End:
			o.work.end(o)
		case life.Complete:
			o.finish(effect)
		}
	}
}

// fail ends a run that can't go on, and says why.
func (o *owner) fail(why string) {
	if o.turn.life.State() != protocol.RunRunning || o.work.ending() {
		return
	}
	o.sayOr(false, failure(why))
	o.cancelQuestions()
	o.step(life.Fail{})
}

func failure(why string) protocol.ChatEvent {
	return protocol.ChatEvent{Kind: protocol.ChatError, Content: &why}
}

// sayOr stores events, or has them stored as soon as that is possible.
func (o *owner) sayOr(sync bool, events ...protocol.ChatEvent) {
	if err := o.say(sync, events...); err != nil {
		o.sayLater(events...)
		o.chats.o.Log.Error("a conversation's events can't be stored", "conversation", o.id, "err", err)
	}
}

// emit stores what the coding agent says. A run that can't be stored any more
// ends.
func (o *owner) emit(events []protocol.ChatEvent) {
	switch {
	case len(events) == 0:
		return
	case o.turn.life.State() == protocol.RunIdle || len(o.unsaid) > 0: // nothing follows complete
		o.chats.counts.late(len(events))
		return
	}
	if err := o.say(false, events...); err != nil {
		o.chats.o.Log.Error("a conversation's events can't be stored", "conversation", o.id, "err", err)
		o.sayLater(failure("The run was ended, for its events can't be stored: " + protocol.AsError(err).Error() + "."))
		o.cancelQuestions()
		o.step(life.Fail{})
	}
}

// finish completes the run. The state comes before the event, so that whoever has
// seen complete may send at once.
func (o *owner) finish(c life.Complete) {
	o.cancelQuestions()
	if err := o.store(false, o.masker.Flush()...); err != nil {
		o.chats.o.Log.Error("a conversation's events can't be stored", "conversation", o.id, "err", err)
	}
	complete := o.complete(o.turn.command, c)
	o.chats.counts.run(outcome(c))
	o.turn.files.remove()
	o.turn = turn{}
	unsaid := o.unsaid
	o.unsaid = nil // it is stored with complete, if at all
	o.tellState()
	o.unsaid = unsaid
	o.sayOr(true, complete)
	if len(o.unsaid) > 0 {
		o.tellState()
	} else {
		o.log.Live(false)
	}
	o.chats.endRun()
	if o.room.Typed(time.Now()) { // while the coding agent worked nobody was idle
		o.leased(nil, 0)
	}
	o.work.rest(o)
}

// complete is the last event of a run.
func (o *owner) complete(command protocol.CommandID, c life.Complete) protocol.ChatEvent {
	return protocol.ChatEvent{
		Kind: protocol.ChatComplete, CommandID: command,
		ChatEnd: protocol.ChatEnd{
			ActualSessionID: o.id, ExitCode: &c.ExitCode, Success: new(c.ExitCode == 0 && !c.Aborted), Aborted: &c.Aborted,
		},
	}
}

func outcome(c life.Complete) string {
	switch {
	case c.Aborted:
		return runAborted
	case c.ExitCode == 0:
		return runSuccess
	}
	return runFailed
}

// turnDue does what is due in the run, and returns how long until something is
// again. While somebody is asked the coding agent need not print anything.
func (o *owner) turnDue(now time.Time) time.Duration {
	switch o.turn.life.State() {
	case protocol.RunAborting:
		if o.turn.impatient.IsZero() {
			return control.Forever
		}
		if wait := o.turn.impatient.Sub(now); wait > 0 {
			return wait
		}
		o.turn.impatient = time.Time{}
		o.step(life.Impatience{})
	case protocol.RunRunning:
		if len(o.turn.questions) > 0 || o.work.ending() {
			return control.Forever
		}
		if wait := o.turn.heard.Add(o.chats.o.Silence).Sub(now); wait > 0 {
			return wait
		}
		o.fail("The run was ended, for the coding agent has printed nothing for " + o.chats.o.Silence.String() + ".")
	}
	return control.Forever
}

// endSession ends the run and the process.
func (o *owner) endSession() {
	if o.broken != nil {
		return
	}
	o.fail("The sandbox's agent is ending.")
	if o.turn.life.State() == protocol.RunIdle {
		o.work.end(o)
	}
}

// coolDown ends a process that waits for another message.
func (o *owner) coolDown() {
	if o.broken == nil && o.turn.life.State() == protocol.RunIdle {
		o.work.dismiss(o)
	}
}

// secrets returns what is hidden.
func (o *owner) secrets() *redact.Set {
	set, _, _ := o.chats.toMask(o.id)
	return set
}

// useSecrets has the present secrets hidden, also in what is stored. A process
// that waits for another message was started with the former ones.
func (o *owner) useSecrets() {
	if o.broken != nil {
		return
	}
	set, round, due := o.chats.toMask(o.id)
	if err := o.store(false, o.masker.Use(set)...); err != nil {
		o.chats.o.Log.Error("a conversation's events can't be stored", "conversation", o.id, "err", err)
	}
	if due {
		if err := o.rewrite(set, round); err != nil {
			o.chats.o.Log.Error("a conversation's log can't be masked, and is not shown any more", "conversation", o.id, "err", err)
			o.broken = err
			for f := range o.followers {
				f.fail(err)
			}
			o.fail("The conversation's log can't be masked.")
		}
	}
	o.hide(set)
	o.coolDown()
}

// rewrite hides the secrets of set in what is stored.
func (o *owner) rewrite(set *redact.Set, round uint64) error {
	_, err := o.log.Rewrite(func(event []byte) []byte { return masking.Stored(set, event) })
	if err != nil {
		return err
	}
	o.chats.noteMasked(o.id, round)
	return nil
}

// cancelled says that nobody needs to answer any more.
func cancelled(id, reason string) protocol.ChatEvent {
	return protocol.ChatEvent{
		Kind: protocol.ChatPermissionCancelled, ChatQuestion: protocol.ChatQuestion{RequestID: id, Reason: reason},
	}
}

// add notes one event of a log.
func (l *outline) add(event []byte) {
	var e struct {
		Kind      protocol.ChatKind  `json:"kind"`
		Role      string             `json:"role"`
		CommandID protocol.CommandID `json:"commandId"`
		RequestID string             `json:"requestId"`
	}
	if json.Unmarshal(event, &e) != nil {
		return
	}
	l.over = e.Kind == protocol.ChatComplete
	switch {
	case e.Kind == protocol.ChatText && e.Role == "user" && e.CommandID != "":
		l.command, l.questions = e.CommandID, nil
	case e.Kind == protocol.ChatPermissionRequest:
		l.questions = append(l.questions, e.RequestID)
	case e.Kind == protocol.ChatPermissionCancelled:
		l.questions = slices.DeleteFunc(l.questions, func(id string) bool { return id == e.RequestID })
	}
}

// A question is one that the coding agent has asked, and nobody has answered.
type question struct {
	id     string // the provider's
	shown  protocol.Pending
	asked  json.RawMessage // the input as people see it
	cancel context.CancelFunc
}

package sidebar

import (
	"context"
	"errors"
	"io"
	"math"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/chatsocket"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chat"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/lineup"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/model"
)

const (
	// provider is whose agents answer.
	provider = "claude"
	// fromNow is behind all events.
	fromNow = math.MaxUint64
	// busyAgain is how long a message waits while somebody else's run is under way
	// in its conversation, before it is tried again.
	busyAgain = time.Second
)

// A tab has a conversation.
type tab struct {
	// Static after construction.
	board *board
	id    lineup.Tab

	// Guarded by board.mu.
	conversation protocol.ConversationID // "": none yet
	url          string                  // that a panel has said it shows
	heard        chan struct{}           // closed when nobody needs to hear it any more; nil: nobody does
	runs         telling                 // of the run that the panel is told of
	ours         *beginning              // the message that the tab's turn is for; nil: somebody else's run is
	gone         bool                    // the panel has no such tab any more
	told         uint64                  // the latest event that the panel was told of
	shown        protocol.CommandID      // of a message that has an entry, though it is nobody's turn
}

// A beginning is a message whose run is about to begin, or has begun.
type beginning struct {
	message message
	begun   bool
	stopped chan struct{} // closed when it was stopped
	by      protocol.UserID
}

// open has the tab have a conversation, and hear it. The caller holds board.mu.
func (t *tab) open() error {
	c := t.board.o.Conversations
	if t.heard != nil {
		return nil
	}
	if t.conversation == "" {
		info, err := c.Create(chat.ConversationInfo{
			Session: t.board.session, Provider: provider, ProjectPath: t.board.o.Workspace, Title: chapterName,
		})
		if err != nil {
			return err
		}
		t.conversation = info.ID
	}
	listening, state, err := c.Listen(t.board.session, t.conversation, fromNow)
	if protocol.KindOf(err) == protocol.KindNotFound && err != nil { // somebody has removed it
		t.conversation = ""
		return t.open()
	}
	if err != nil {
		return err
	}
	if state.Run != protocol.RunIdle {
		t.foreign(state.CommandID, 0)
	}
	t.hears(listening)
	return nil
}

// hears has the tab hear its conversation. The caller holds board.mu.
func (t *tab) hears(listening Listening) {
	heard := make(chan struct{})
	t.heard = heard
	t.board.wait.Go(func() { t.hear(until(heard), listening) })
}

// foreign notes that somebody else's run is under way, which an event has begun; 0:
// one that nobody was told of. The caller holds board.mu.
func (t *tab) foreign(command protocol.CommandID, event uint64) {
	t.board.lineup.Taken(t.id, time.Now())
	t.runs = telling{command: command}
	t.board.add(t.id, Entry{Role: roleAgent, Type: typeStart, seq: event, command: command})
}

// leave ends that the tab's conversation is heard. The caller holds board.mu.
func (t *tab) leave() {
	t.gone = true
	if t.heard != nil {
		close(t.heard)
		t.heard = nil
	}
}

// hear tells the panel of the conversation's events until ctx ends or the
// conversation was removed.
func (t *tab) hear(ctx context.Context, l Listening) {
	defer l.Close()
	for {
		e, err := l.Next(ctx)
		t.board.mu.Lock()
		switch {
		case t.gone || err != nil && ctx.Err() != nil:
			t.board.mu.Unlock()
			return
		case err != nil:
			t.lose(err)
			t.board.mu.Unlock()
			return
		}
		t.take(e)
		t.board.mu.Unlock()
	}
}

// lose notes that the conversation can't be heard any more. The caller holds
// board.mu.
func (t *tab) lose(err error) {
	text := "The conversation was removed."
	if !errors.Is(err, io.EOF) {
		text = "The conversation can't be read."
		t.board.o.Log.Error("a side panel's conversation can't be read", "conversation", t.conversation, "err", err)
	}
	t.heard, t.conversation = nil, ""
	if t.board.lineup.Status(t.id, time.Now()).Since.IsZero() {
		return
	}
	t.end(text)
	t.next()
}

// take tells the panel of an event. The caller holds board.mu.
func (t *tab) take(e protocol.ChatEvent) {
	t.told = e.Seq
	if begins(e) {
		t.began(e)
		return
	}
	if e.Kind == protocol.ChatComplete && e.CommandID != t.runs.command {
		return // of a run that the panel wasn't told of
	}
	entries, whole := t.runs.tell(e)
	if whole { // instead of the pieces, which would push older entries out
		t.board.entries.Drop(func(e Entry) bool { return e.TabID == t.id && e.Type == typeDelta })
	}
	for _, entry := range entries {
		entry.Role, entry.seq = roleAgent, e.Seq
		t.board.add(t.id, entry)
	}
	if e.Kind != protocol.ChatComplete {
		return
	}
	if t.ours == nil || t.ours.message.command.CommandID == e.CommandID {
		t.next()
	} // else our own message still waits for the end of a run of somebody else's
}

// began tells the panel that a run has begun. The caller holds board.mu.
func (t *tab) began(e protocol.ChatEvent) {
	if t.ours != nil && t.ours.message.command.CommandID == e.CommandID {
		stopped := t.runs.ended && t.runs.command == e.CommandID
		t.runs = telling{command: e.CommandID, ended: stopped}
		if !stopped {
			t.board.add(t.id, Entry{Role: roleAgent, Type: typeStart, seq: e.Seq, command: e.CommandID})
		}
		return
	}
	if e.CommandID != t.shown {
		t.board.add(t.id, Entry{Role: roleUser, Message: cut(*e.Content, maxText), seq: e.Seq, command: e.CommandID})
	}
	t.foreign(e.CommandID, e.Seq)
}

// end tells the panel that the run is over, unless it was told. The caller holds
// the panel's mu.
func (t *tab) end(why string) {
	if t.runs.ended {
		return
	}
	for _, e := range append(t.runs.end(), Entry{Type: typeError, Error: why}) {
		e.Role = roleAgent
		t.board.add(t.id, e)
	}
}

// next goes on with the message that waits longest. The caller holds board.mu.
func (t *tab) next() {
	t.ours = nil
	if m, waits := t.board.lineup.Over(t.id, time.Now()); waits {
		if err := t.open(); err != nil {
			t.runs = telling{command: m.command.CommandID}
			t.fails(err)
			return
		}
		t.begin(m)
	}
	t.board.tell()
	t.board.keeper.save()
}

// begin has the run of a message begin. The caller holds board.mu.
func (t *tab) begin(m message) {
	b := &beginning{message: m, stopped: make(chan struct{})}
	t.ours, t.runs = b, telling{command: m.command.CommandID}
	t.board.wait.Go(func() { t.say(b) })
}

// say says a message as soon as nobody else's run is under way.
func (t *tab) say(b *beginning) {
	p, c := t.board, t.board.o.Conversations
	p.mu.Lock()
	body := &op.ChatSend{
		Conversation: t.conversation, SenderName: b.message.body.SenderName,
		Message: &protocol.ChatMessage{Content: b.message.body.Message},
		Options: op.ChatOptions{Model: model.For(b.message.body.Message), AllowedTools: p.o.Tools},
	}
	p.mu.Unlock()
	context := surroundings(b.message.body.URL)
	for {
		var err error = errRevoked
		if r := p.o.Revoked; r == nil || !r.Command(b.message.command) {
			err = c.Say(b.message.command, body, context)
		}
		switch {
		case err == nil:
			t.said(b, body.Conversation)
			return
		case !waits(err) || !b.pause(p.closing):
			p.mu.Lock()
			if !t.gone && t.ours == b {
				t.fails(err)
			}
			p.mu.Unlock()
			return
		}
	}
}

var errRevoked = protocol.Errorf(protocol.KindForbidden, "the access of who sent it was revoked")

// waits reports whether a message isn't said because a run is under way.
func waits(err error) bool {
	fault, ok := chatsocket.ParseFault(err)
	return ok && fault.Code == protocol.ChatRunInProgress
}

// pause waits until a message may be tried again, and reports whether it may.
func (b *beginning) pause(closing <-chan struct{}) bool {
	again := time.NewTimer(busyAgain)
	defer again.Stop()
	select {
	case <-again.C:
		return true
	case <-b.stopped:
	case <-closing:
	}
	return false
}

// said notes that a run has begun. One that was stopped before is stopped now.
func (t *tab) said(b *beginning, id protocol.ConversationID) {
	p := t.board
	p.mu.Lock()
	p.counts.message(messageRuns, 1)
	b.begun = true
	p.mu.Unlock()
	select {
	case <-b.stopped:
		t.abort(id, b.by)
	default:
	}
}

// fails tells the panel that a message's run couldn't begin. The caller holds
// board.mu.
func (t *tab) fails(err error) {
	t.board.counts.message(messageFailed, 1)
	text := protocol.AsError(err).Error()
	if fault, ok := chatsocket.ParseFault(err); ok {
		text = fault.Text
	}
	t.end("Failed to send: " + text)
	t.next()
}

// stop stops what runs. The panel is told at once; the run is over when its
// conversation says so. The caller holds board.mu.
func (t *tab) stop(user protocol.UserID, why string) {
	t.end(why)
	id := t.conversation
	if b := t.ours; b != nil {
		b.by = user
		select {
		case <-b.stopped:
		default:
			close(b.stopped)
		}
		if !b.begun && t.runs.command == b.message.command.CommandID {
			return // whoever begins it stops it
		}
	}
	t.board.wait.Go(func() { t.abort(id, user) })
}

// abort has a conversation's run stopped. That it has none is no mistake: it is
// over.
func (t *tab) abort(id protocol.ConversationID, user protocol.UserID) {
	err := t.board.o.Conversations.Stop(t.board.session, id, user)
	if fault, ok := chatsocket.ParseFault(err); err != nil && (!ok || fault.Code != protocol.ChatNoActiveRun) {
		t.board.o.Log.Warn("a side panel's run can't be stopped", "conversation", id, "err", err)
	}
}

// until is a context that ends when a channel is closed.
type until <-chan struct{}

func (u until) Deadline() (none time.Time, set bool) { return none, false }
func (u until) Done() <-chan struct{}                { return u }
func (u until) Value(any) any                        { return nil }
func (u until) Err() error {
	select {
	case <-u:
		return context.Canceled
	default:
		return nil
	}
}

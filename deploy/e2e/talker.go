package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/client"
	"github.com/fairlead/fairlead/protocol"
)

// Talking says how a talker follows conversations.
type Talking struct {
	Session protocol.SessionID
	Relays  []string // empty: the user's own
	// Hello opts in to the kinds of our own.
	Hello bool
}

// A Talker follows conversations as a web client does, and keeps what it gets.
type Talker struct {
	chat *client.Chat
	user *client.User

	mu sync.Mutex
	// Guarded by mu.
	changed chan struct{} // closed and replaced at each frame
	talks   map[protocol.ConversationID]*Talk
	errors  []ProtocolError
	news    []json.RawMessage
	losses  []error
	faults  []string // what no relay may send
}

// A Talk is what a talker has got of one conversation.
type Talk struct {
	Events []Told
	Acks   []Subscribed
	// The newest of our own kinds.
	Control json.RawMessage
	Run     json.RawMessage
	Viewers json.RawMessage
}

// A Told is one event of a conversation.
type Told struct {
	protocol.ChatEvent
	At  time.Time
	Raw []byte
}

// Subscribed is the answer to a subscription.
type Subscribed struct {
	SessionID          protocol.ConversationID `json:"sessionId"`
	IsProcessing       bool                    `json:"isProcessing"`
	LastSeq            uint64                  `json:"lastSeq"`
	FirstSeq           uint64                  `json:"firstSeq"`
	Gap                bool                    `json:"gap"`
	PendingPermissions []protocol.Pending      `json:"pendingPermissions"`

	before int // events that had come by then
}

// ProtocolError is a protocol_error.
type ProtocolError struct {
	Code      protocol.ChatCode        `json:"code"`
	Text      string                   `json:"error"`
	SessionID *protocol.ConversationID `json:"sessionId"`
}

// Talk begins to follow a session's conversations. Close ends it.
func (u User) Talk(ctx context.Context, o Talking) *Talker {
	if len(o.Relays) == 0 {
		o.Relays = []string{u.Base}
	}
	k := &Talker{
		user:    client.NewUser(client.UserOptions{Token: u.Token, Session: o.Session, Relays: o.Relays}),
		changed: make(chan struct{}), talks: map[protocol.ConversationID]*Talk{},
	}
	var options client.ChatOptions
	if o.Hello {
		options.Features = []string{"control", "presence", "runs"}
	}
	k.chat = client.OpenChat(ctx, k.user, options, k)
	return k
}

// Close ends the talker.
func (k *Talker) Close() {
	k.chat.Close()
	k.user.Close()
}

// Frame implements [client.ChatHandler].
func (k *Talker) Frame(f client.ChatFrame) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.take(f); err != nil {
		k.faults = append(k.faults, fmt.Sprintf("%s: %v: %.200s", f.Kind, err, f.JSON))
	}
	close(k.changed)
	k.changed = make(chan struct{})
}

// take keeps a frame. It is called with mu held.
func (k *Talker) take(f client.ChatFrame) error {
	raw := bytes.Clone(f.JSON)
	if f.Seq > 0 {
		return k.event(f, raw)
	}
	switch f.Kind {
	case protocol.ChatSubscribedKind:
		t := k.talk(f.Conversation)
		ack := Subscribed{before: len(t.Events)}
		if err := json.Unmarshal(raw, &ack); err != nil {
			return err
		}
		t.Acks = append(t.Acks, ack)
	case protocol.ChatProtocolError:
		var e ProtocolError
		if err := json.Unmarshal(raw, &e); err != nil {
			return err
		}
		k.errors = append(k.errors, e)
	case protocol.ChatSessionUpserted, protocol.ChatLoadingProgress:
		k.news = append(k.news, raw)
	case protocol.ChatControlState:
		k.talk(f.Conversation).Control = raw
	case protocol.ChatPresenceKind:
		k.talk(f.Conversation).Viewers = raw
	case protocol.ChatRunStateKind:
		k.talk(f.Conversation).Run = raw
	default:
		return fmt.Errorf("an unknown kind, without a number")
	}
	return nil
}

// event keeps an event, which must be the next one. It is called with mu held.
func (k *Talker) event(f client.ChatFrame, raw []byte) error {
	t := k.talk(f.Conversation)
	told := Told{At: f.At, Raw: raw}
	if err := json.Unmarshal(raw, &told.ChatEvent); err != nil {
		return err
	}
	if n := len(t.Events); n > 0 && told.Seq <= t.Events[n-1].Seq {
		return fmt.Errorf("event %d after %d", told.Seq, t.Events[n-1].Seq)
	}
	t.Events = append(t.Events, told)
	return nil
}

// talk returns what there is of a conversation. It is called with mu held.
func (k *Talker) talk(id protocol.ConversationID) *Talk {
	t := k.talks[id]
	if t == nil {
		t = &Talk{}
		k.talks[id] = t
	}
	return t
}

// Lost implements [client.ChatHandler].
func (k *Talker) Lost(_ time.Time, why error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.losses = append(k.losses, why)
	close(k.changed)
	k.changed = make(chan struct{})
}

// Follow subscribes to a conversation and waits for the answer.
func (k *Talker) Follow(ctx context.Context, id protocol.ConversationID) error {
	if err := k.chat.Follow(ctx, id, 0); err != nil {
		return err
	}
	return k.Await(ctx, "chat_subscribed", id, func(t *Talk) bool { return len(t.Acks) > 0 })
}

// Await waits until done returns true of a conversation; done is called with mu
// held. It fails on what no
// relay may send.
func (k *Talker) Await(ctx context.Context, what string, id protocol.ConversationID, done func(t *Talk) bool) error {
	for {
		k.mu.Lock()
		ok, changed, faults := done(k.talk(id)), k.changed, slices.Clone(k.faults)
		k.mu.Unlock()
		if len(faults) > 0 {
			return fmt.Errorf("waiting for %s: %q", what, faults)
		}
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w: %s", what, ctx.Err(), k.describe(id))
		}
	}
}

// describe says what there is of a conversation.
func (k *Talker) describe(id protocol.ConversationID) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.talk(id)
	var b bytes.Buffer
	fmt.Fprintf(&b, "%d events", len(t.Events))
	for _, e := range t.Events[max(0, len(t.Events)-8):] {
		fmt.Fprintf(&b, "\n  %.200s", e.Raw)
	}
	fmt.Fprintf(&b, "\n  acks %+v\n  errors %+v\n  losses %v", t.Acks, k.errors, k.losses)
	return b.String()
}

// Events returns the events of a conversation that have come.
func (k *Talker) Events(id protocol.ConversationID) []Told {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.talk(id).Events)
}

// Errors returns the protocol_errors that have come.
func (k *Talker) Errors() []ProtocolError {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.errors)
}

// Send says something in a conversation.
func (k *Talker) Send(ctx context.Context, id protocol.ConversationID, content string, options ...any) error {
	m := map[string]any{"type": "chat.send", "sessionId": id, "content": content}
	for i := 0; i+1 < len(options); i += 2 {
		m[options[i].(string)] = options[i+1]
	}
	return k.chat.Say(ctx, m)
}

// Say sends a message of another type.
func (k *Talker) Say(ctx context.Context, typ string, id protocol.ConversationID, members ...any) error {
	m := map[string]any{"type": typ, "sessionId": id}
	for i := 0; i+1 < len(members); i += 2 {
		m[members[i].(string)] = members[i+1]
	}
	return k.chat.Say(ctx, m)
}

// AwaitError waits for the next protocol_error behind the first n, and returns it.
func (k *Talker) AwaitError(ctx context.Context, n int) (e ProtocolError, err error) {
	err = k.Await(ctx, "protocol_error", "", func(*Talk) bool { return len(k.errors) > n })
	if err == nil {
		e = k.Errors()[n]
	}
	return e, err
}

// AwaitComplete waits for the nth complete of a conversation, from 1, and returns
// it.
func (k *Talker) AwaitComplete(ctx context.Context, id protocol.ConversationID, n int) (complete Told, err error) {
	err = k.Await(ctx, "complete", id, func(t *Talk) bool {
		found := 0
		for _, e := range t.Events {
			if e.Kind == protocol.ChatComplete {
				if found++; found == n {
					complete = e
					return true
				}
			}
		}
		return false
	})
	return complete, err
}

package chat

import (
	"context"
	"errors"
	"io"
	"math"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// hears returns the next event that is heard.
func hears(t *testing.T, l *Listening) protocol.ChatEvent {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	e, err := l.Next(ctx)
	check(t, err)
	return e
}

// Another feature says something, hears what comes of it, and stops it.
func TestWithin(t *testing.T) {
	r := newRig(t)
	id := r.make()
	l, state, err := r.Listen(session, id, math.MaxUint64)
	check(t, err)
	if state.Run != protocol.RunIdle {
		t.Errorf("%+v", state)
	}
	if err := r.Stop(session, id, alice); code(err) != string(protocol.ChatNoActiveRun) {
		t.Errorf("%v", err)
	}
	body := &op.ChatSend{Conversation: id, Message: &protocol.ChatMessage{Content: "hello"}}
	command := r.command(alice)
	check(t, r.Say(command, body, "a context"))
	p := r.started()
	p.hear(t, "begin")
	p.hear(t, "send hello")
	if e := hears(t, l); e.Kind != protocol.ChatText || e.Role != "user" || e.CommandID != command.CommandID || *e.Content != "hello" {
		t.Errorf("%+v", e)
	}
	if err := r.Say(r.command(alice), body, ""); code(err) != string(protocol.ChatRunInProgress) {
		t.Errorf("%v", err)
	}
	p.print("text there")
	if e := hears(t, l); e.Kind != protocol.ChatText || *e.Content != "there" {
		t.Errorf("%+v", e)
	}
	again, state, err := r.Listen(session, id, math.MaxUint64)
	check(t, err)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if e, err := again.Next(over); !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", e, err)
	}
	again.Close()
	again, _, err = r.Listen(session, id, 0)
	check(t, err)
	for _, want := range []string{"hello", "there"} { // what there is comes before ctx's end
		if e, err := again.Next(over); err != nil || e.Seq == 0 || *e.Content != want {
			t.Errorf("%+v, %v", e, err)
		}
	}
	again.Close()
	if state.Run != protocol.RunRunning || state.CommandID != command.CommandID {
		t.Errorf("%+v", state)
	}
	if err := r.MayStop(session, id, bob); code(err) != string(protocol.ChatNotController) {
		t.Errorf("%v", err)
	}
	check(t, r.MayStop(session, id, alice))
	check(t, r.Stop(session, id, alice))
	p.hear(t, "abort")
	p.print("done 1")
	if e := hears(t, l); e.Kind != protocol.ChatComplete || e.CommandID != command.CommandID || !*e.Aborted {
		t.Errorf("%+v", e)
	}
	check(t, r.Delete(session, id))
	if _, err := l.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("%v", err)
	}
	l.Close()
	if _, _, err := r.Listen(session, id, math.MaxUint64); protocol.KindOf(err) != protocol.KindNotFound {
		t.Errorf("%v", err)
	}
	if err := r.Say(r.command(alice), body, ""); code(err) != string(protocol.ChatSessionNotFound) {
		t.Errorf("%v", err)
	}
}

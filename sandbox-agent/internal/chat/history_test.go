package chat

import (
	"encoding/json"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chatlog"
)

var (
	followings = flag.Int("chat.rounds", 2000, "how often TestSubscribe begins to follow")
	calls      = flag.Int("chat.calls", 100, "messages and aborts of each person in TestLinear")
)

// TestSubscribe: whoever begins to follow while events pour gets each one behind
// its mark once, in order. The program is a few events ahead of the first who
// follows, so that each mark is close to the head and is passed by new events.
// It is about weakness 26 in deploy/e2e/README.md.
func TestSubscribe(t *testing.T) {
	const ahead = 6
	rounds := *followings
	if testing.Short() {
		rounds = min(rounds, 200)
	}
	r := newRig(t)
	r.make()
	p := r.begins("go")
	may := make(chan struct{}, ahead)
	var pouring sync.WaitGroup
	pouring.Go(func() {
		i := 0
		for range may {
			p.print(fmt.Sprintf("text %d", i))
			i++
		}
	})
	first := r.view(bob, protocol.ChatParams{})
	first.event(protocol.ChatText)
	for range ahead {
		may <- struct{}{}
	}
	crossed := 0 // rounds whose events were partly stored before, and partly after
	for i := range rounds {
		mark := first.event(protocol.ChatText).Seq
		may <- struct{}{}
		params := protocol.ChatParams{}
		if i%2 == 0 {
			params.After, params.Epoch = &mark, first.opened.Epoch
		} else {
			mark = 0
		}
		v := r.view(alice, params)
		from := max(mark+1, v.opened.FirstSeq) // the log may have dropped the run's first events
		if v.opened.From != from || v.opened.Gap != (from > mark+1) || v.opened.LastSeq < mark {
			t.Fatalf("round %d: from %d behind %d: %+v", i, v.opened.From, mark, v.opened)
		}
		if v.opened.LastSeq < from+ahead-1 {
			crossed++
		}
		for want := from; want < from+ahead; want++ {
			if got := v.event(protocol.ChatText).Seq; got != want {
				t.Fatalf("round %d: event %d, want %d", i, got, want)
			}
		}
		v.stream.End(nil)
	}
	close(may)
	pouring.Wait()
	t.Logf("%d rounds, %d of them across the head", rounds, crossed)
	if crossed == 0 {
		t.Error("no round was a race")
	}
}

// TestMarks: what a stream begins with, by its mark.
// It is about weakness 2 in deploy/e2e/README.md.
func TestMarks(t *testing.T) {
	r := newRig(t)
	r.make()
	p := r.begins("one")
	p.print("text a", "done 0")
	v := r.view(bob, protocol.ChatParams{After: new(uint64(0))})
	for _, kind := range []protocol.ChatKind{protocol.ChatText, protocol.ChatText, protocol.ChatComplete} {
		v.event(kind)
	}
	epoch := v.opened.Epoch
	for name, c := range map[string]struct {
		params protocol.ChatParams
		from   uint64
		gap    bool
	}{
		"none":          {protocol.ChatParams{}, 4, false},
		"behind":        {protocol.ChatParams{After: new(uint64(2)), Epoch: epoch}, 3, false},
		"at the head":   {protocol.ChatParams{After: new(uint64(3)), Epoch: epoch}, 4, false},
		"beyond":        {protocol.ChatParams{After: new(uint64(4)), Epoch: epoch}, 4, true},
		"far beyond":    {protocol.ChatParams{After: new(^uint64(0)), Epoch: epoch}, 4, true},
		"another epoch": {protocol.ChatParams{After: new(uint64(1)), Epoch: epoch + 1}, 4, true},
	} {
		if v := r.view(bob, c.params); v.opened.From != c.from || v.opened.Gap != c.gap || v.opened.LastSeq != 3 || v.opened.FirstSeq != 1 {
			t.Errorf("%s: %+v", name, v.opened)
		}
	}
}

// TestMarkOfAnEarlierRun: numbers go on from run to run, so that a mark of one run
// is followed by all of the next.
// It is about weakness 1 in deploy/e2e/README.md.
func TestMarkOfAnEarlierRun(t *testing.T) {
	r := newRig(t)
	r.make()
	first := r.view(bob, protocol.ChatParams{})
	p := r.begins("one")
	p.print("text a", "text b", "text c", "done 0")
	for range 4 {
		first.event(protocol.ChatText)
	}
	first.completes(0, false)
	mark := first.last
	check(t, r.sends(alice, "two"))
	p.hear(t, "send two")
	p.print("text d")
	v := r.view(bob, protocol.ChatParams{After: &mark, Epoch: first.opened.Epoch})
	if v.opened.Gap || v.opened.From != mark+1 || v.opened.State.BeganAt != mark+1 {
		t.Errorf("%+v behind %d", v.opened, mark)
	}
	for i, text := range []string{"two", "d"} {
		if e := v.event(protocol.ChatText); *e.Content != text || e.Seq != mark+1+uint64(i) {
			t.Errorf("%d %s", e.Seq, *e.Content)
		}
	}
	p.print("done 0")
	v.completes(0, false)
}

// TestSaid: what persons have said is known with the ids of its events, to its own
// session.
func TestSaid(t *testing.T) {
	r := newRig(t)
	r.make()
	if said, err := r.Said(session, r.id); err != nil || len(said.Sayings) != 0 {
		t.Errorf("%+v, %v", said, err)
	}
	v := r.view(bob, protocol.ChatParams{})
	p := r.begins("one")
	first := v.event(protocol.ChatText)
	p.print(`text "role":"user"`, "done 0")
	v.event(protocol.ChatText)
	v.completes(0, false)
	check(t, r.sends(alice, "two"))
	second := v.event(protocol.ChatText)
	p.print("done 0")
	v.completes(0, false)
	known, err := r.Said(session, r.id)
	said := known.Sayings
	if err != nil || len(said) != 2 || said[0].ID != first.ID || said[0].Text != chatlog.DigestOf(" one\n") || said[0].Command || said[1].ID != second.ID || said[1].At.IsZero() ||
		said[0].From == nil || said[0].From.UserID != alice || said[1].From == nil || said[1].From.UserID != alice {
		t.Errorf("%+v, %v", said, err)
	}
	if _, err := r.Said("ses_2", r.id); protocol.AsError(err).Kind != protocol.KindNotFound {
		t.Errorf("another session's: %v", err)
	}
}

// TestForeign: a conversation isn't there for another session, whatever is asked of
// it.
// It is about weakness 7 in deploy/e2e/README.md.
func TestForeign(t *testing.T) {
	r := newRig(t)
	r.make()
	p := r.begins("secret")
	other := func() *jws.Command {
		c := r.command(alice)
		c.Target.SessionID = "ses_2"
		return c
	}
	g := grant(alice, protocol.CapChat, protocol.CapAdmin)
	g.Session = "ses_2"
	params, err := json.Marshal(protocol.ChatParams{SessionID: "ses_2", ConversationID: r.id})
	check(t, err)
	for what, ask := range map[string]func() error{
		"send": func() error {
			_, err := r.send(t.Context(), other(), &op.ChatSend{Conversation: r.id, Message: &protocol.ChatMessage{Content: "x"}})
			return err
		},
		"abort":  func() error { _, err := r.abort(t.Context(), other(), &op.ChatAbort{Conversation: r.id}); return err },
		"follow": func() error { _, _, err := r.Join(g, params); return err },
		"read":   func() error { _, _, err := Reader{r.Chats}.Follow(g, params); return err },
		"get":    func() error { _, err := r.Get("ses_2", r.id); return err },
		"delete": func() error { return r.Delete("ses_2", r.id) },
	} {
		if err := ask(); protocol.KindOf(err) != protocol.KindNotFound {
			t.Errorf("%s: %v", what, err)
		}
	}
	if len(r.List("ses_2")) != 0 {
		t.Error("it is listed")
	}
	p.print("done 0")
	r.view(bob, protocol.ChatParams{After: new(uint64(0))}).event(protocol.ChatText)
}

// TestRead: a part of the log, and nothing of another session's.
func TestRead(t *testing.T) {
	r := newRig(t)
	r.make()
	p := r.begins("one")
	p.print("text a", "text b", "done 0")
	r.view(bob, protocol.ChatParams{After: new(uint64(3))}).event(protocol.ChatComplete)
	read := func(params protocol.ChatReadParams) (seqs []uint64, opened protocol.ChatReadOpened, err error) {
		raw, _ := json.Marshal(params)
		events, o, err := Reader{r.Chats}.Follow(grant(bob), raw)
		if err != nil {
			return nil, opened, err
		}
		defer events.Close()
		for {
			m, err := events.Next(t.Context())
			if err != nil {
				return seqs, o.(protocol.ChatReadOpened), nil
			}
			seqs = append(seqs, m.(protocol.Chat).Seq)
		}
	}
	seqs, opened, err := read(protocol.ChatReadParams{SessionID: session, ConversationID: r.id, After: 1, Until: 3})
	if fmt.Sprint(seqs) != "[2 3]" || opened.Gap || opened.FirstSeq != 1 || err != nil {
		t.Errorf("%v %+v %v", seqs, opened, err)
	}
	if _, opened, _ := read(protocol.ChatReadParams{SessionID: session, ConversationID: r.id, After: 9, Until: 30}); !opened.Gap {
		t.Errorf("%+v", opened)
	}
	if _, _, err := read(protocol.ChatReadParams{SessionID: session, ConversationID: "another"}); protocol.KindOf(err) != protocol.KindNotFound {
		t.Error(err)
	}
	if _, _, err := read(protocol.ChatReadParams{SessionID: "ses_2", ConversationID: r.id}); protocol.KindOf(err) != protocol.KindForbidden {
		t.Error(err)
	}
}

// TestStates: a state comes before the event that it results in and behind those
// before that, also for who reads while they are written, and for who reads late.
func TestStates(t *testing.T) {
	r := newRig(t)
	r.make()
	live, late := r.view(bob, protocol.ChatParams{}), r.view(alice, protocol.ChatParams{})
	const runs = 100
	over := make(chan struct{}, runs)
	read := func(v *viewer) {
		for range runs {
			if e := v.event(protocol.ChatText); v.state.Run != protocol.RunRunning || v.state.BeganAt != e.Seq {
				t.Errorf("run begins with %d while %+v", e.Seq, v.state)
			}
			if v.event(protocol.ChatText); v.state.Run != protocol.RunRunning {
				t.Errorf("the coding agent speaks while %+v", v.state)
			}
			v.completes(0, false)
			select {
			case over <- struct{}{}: // whoever has seen complete may send at once
			default:
			}
		}
	}
	var reading sync.WaitGroup
	reading.Go(func() { read(live) })
	p := r.begins("go")
	for i := range runs {
		p.print("text x", "done 0")
		select {
		case <-over:
		case <-time.After(patience):
			t.Fatal("no complete")
		}
		if i < runs-1 {
			check(t, r.sends(alice, "go"))
			p.hear(t, "send go")
		}
	}
	reading.Wait()
	read(late)
}

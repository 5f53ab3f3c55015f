package chat

import (
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chatlog"
)

// TestPostedBehindTheLook: a message that is posted after the log was looked at
// waits for the next look, since there may be events now that come before it.
func TestPostedBehindTheLook(t *testing.T) {
	f := &follower{wake: make(chan struct{}, 1)}
	f.post(protocol.Leased{ID: 1}, 0)
	posted, _, _ := f.look()
	f.postState(protocol.ChatState{Run: protocol.RunIdle}, 8) // and event 7 was stored before
	if m, ok := first(f, posted).(protocol.Leased); !ok || m.ID != 1 {
		t.Errorf("%#v", m)
	}
	if m := first(f, posted); m != nil {
		t.Errorf("%#v comes before an event that is older", m)
	}
	posted, _, _ = f.look()
	f.entry, f.held = chatlog.Entry{Seq: 7}, true
	if m := first(f, posted); m != nil {
		t.Errorf("%#v before event 7", m)
	}
	f.entry.Seq = 8
	if m, ok := first(f, posted).(protocol.ChatState); !ok || m.Run != protocol.RunIdle {
		t.Errorf("%#v", m)
	}
}

func first(f *follower, posted uint64) protocol.Message {
	m, _ := f.pop(posted)
	return m
}

// TestPostedBetweenLookAndEvent: a state that is posted between the two comes
// before its event all the same.
func TestPostedBetweenLookAndEvent(t *testing.T) {
	f := &follower{wake: make(chan struct{}, 1)}
	posted, _, _ := f.look()
	f.postState(protocol.ChatState{Run: protocol.RunIdle}, 8)
	f.entry, f.held = chatlog.Entry{Seq: 8}, true
	if m, ok := first(f, posted).(protocol.ChatState); !ok {
		t.Errorf("%#v, and event 8 goes before its state", m)
	}
}

// TestHold: an event that is stored before its state is known waits for that.
func TestHold(t *testing.T) {
	for _, state := range []protocol.Message{nil, protocol.ChatState{Run: protocol.RunIdle}} {
		f := &follower{wake: make(chan struct{}, 1)}
		f.hold(8)
		f.Post(protocol.Granted{Handle: 1})
		f.entry, f.held = chatlog.Entry{Seq: 8, JSON: []byte("{}")}, true
		posted, _, _ := f.look()
		if m, waits := f.pop(posted); m != nil || !waits {
			t.Errorf("%#v before the state is known", m)
		}
		f.settle(state)
		if state != nil {
			if m, ok := first(f, posted).(protocol.ChatState); !ok || m.Run != protocol.RunIdle {
				t.Errorf("%#v", m)
			}
		}
		if m, ok := first(f, posted).(protocol.Granted); !ok {
			t.Errorf("%#v", m)
		}
		if m, waits := f.pop(posted); m != nil || waits {
			t.Errorf("%#v, and more is to come", m)
		}
	}
}

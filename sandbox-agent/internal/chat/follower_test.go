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
	if m, ok := f.pop(posted).(protocol.Leased); !ok || m.ID != 1 {
		t.Errorf("%#v", m)
	}
	if m := f.pop(posted); m != nil {
		t.Errorf("%#v comes before an event that is older", m)
	}
	posted, _, _ = f.look()
	f.entry, f.held = chatlog.Entry{Seq: 7}, true
	if m := f.pop(posted); m != nil {
		t.Errorf("%#v before event 7", m)
	}
	f.entry.Seq = 8
	if m, ok := f.pop(posted).(protocol.ChatState); !ok || m.Run != protocol.RunIdle {
		t.Errorf("%#v", m)
	}
}

package sidebar

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol/op"
)

// What the panel is told of its session, and of the agent that works in the active tab.
func TestSession(t *testing.T) {
	in(t, func(r *rig) {
		type answer struct {
			Session chapter
			Agent   agentAnswer
		}
		says := func() (a answer) {
			r.get("sidebar/session", &a)
			return a
		}
		if a := says(); a.Session.ID == "" || a.Session.ConversationID != "" || a.Agent.Status != "idle" || a.Agent.RunningFor != nil || a.Agent.CurrentMessage != nil || a.Agent.Queue == nil {
			t.Errorf("%+v", a)
		}
		r.sends(1, "one")
		r.sends(2, "two")
		r.sends(2, "three")
		time.Sleep(time.Second)
		a := says()
		if a.Session.ConversationID != "c2" || a.Session.ChatLines != 5 || a.Session.LastActiveAt < a.Session.CreatedAt {
			t.Errorf("%+v", a.Session)
		}
		if a.Agent.Status != "processing" || *a.Agent.RunningFor != 1000 || *a.Agent.CurrentMessage != "two" || a.Agent.QueueLength != 1 || a.Agent.Queue[0].Message != "three" || a.Agent.Queue[0].At == "" {
			t.Errorf("%+v", a.Agent)
		}
		before := a.Session.ID
		if _, err := r.do(alice, op.KindSidebarNew, &op.Plain{}); err != nil {
			t.Error(err)
		}
		if a := says(); a.Session.ID == before || a.Session.ConversationID != "" || a.Session.ChatLines != 0 || a.Agent.Status != "idle" {
			t.Errorf("%+v", a)
		}
	})
}

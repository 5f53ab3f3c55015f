package sidebar

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/lineup"
)

func (b *browserTabs) Tabs(context.Context, protocol.SessionID) []BrowserTab {
	return slices.DeleteFunc(slices.Clone(*b), func(t BrowserTab) bool { return t.ID < 0 })
}

func (b *browserTabs) has(id lineup.Tab) bool {
	return slices.ContainsFunc(*b, func(t BrowserTab) bool { return t.ID == id })
}

func (b *browserTabs) Closed(_ protocol.SessionID, id lineup.Tab) bool { return b.has(-id) }

// Active returns the first one.
func (b *browserTabs) Active(protocol.SessionID) lineup.Tab {
	if open := b.Tabs(context.Background(), ""); len(open) > 0 {
		return open[0].ID
	}
	return 99
}

// Switch moves a tab to the front.
func (b *browserTabs) Switch(_ protocol.SessionID, id lineup.Tab) {
	slices.SortStableFunc(*b, func(x, y BrowserTab) int {
		switch {
		case x.ID == id:
			return -1
		case y.ID == id:
			return 1
		}
		return 0
	})
}

// changes has the browser have other tabs, and tell so.
func (r *rig) changes(tabs browserTabs) {
	r.browser = tabs
	r.TabsChanged(session)
}

// What is under way in a tab that is closed is stopped, what waits there is dropped,
// and its conversation and entries stay; others work on.
func TestTabClosed(t *testing.T) {
	in(t, func(r *rig) {
		r.changes(browserTabs{{1, "https://one.example/", "One"}, {2, "https://two.example/", "Two"}})
		r.sends(1, "other")
		r.sends(2, "works")
		r.sends(2, "waits")
		r.sends(2, "waits too")
		_, before := r.polls(0, 0)
		if got := r.BoundTab(session, "c2"); got != 2 {
			t.Errorf("it is bound to tab %d", got)
		}
		r.changes(browserTabs{{1, "https://one.example/", "One"}, {-2, "", ""}})
		r.shows(2, "user:works | agent_start | user:waits | user:waits too | agent_error:The tab was closed. 2 waiting messages were not sent.")
		r.shows(1, "user:other | agent_start")
		r.talks.mu.Lock()
		if !slices.Equal(r.talks.stopped, []protocol.ConversationID{"c2"}) || r.talks.find("c2") == nil {
			t.Errorf("stopped %v", r.talks.stopped)
		}
		r.talks.mu.Unlock()
		_, after := r.polls(0, 0)
		if after.ActiveTabID != 1 || after.AgentStatus != lineup.Processing || len(after.Busy) != 1 || after.TabsRev == before.TabsRev {
			t.Errorf("%+v", after.standing)
		}
		if got := r.BoundTab(session, "c2"); got != 0 {
			t.Errorf("it is still bound to tab %d", got)
		}
		if _, err := r.do(alice, op.KindSidebarSend, &op.SidebarSend{Message: "again", TabID: 2}); protocol.KindOf(err) != protocol.KindInvalid {
			t.Errorf("%v", err)
		}
		if w := r.get("sidebar/tabs", nil); strings.Contains(w.Body.String(), `"id":2`) {
			t.Error(w.Body)
		}
		r.plays("c1", done) // nobody waits for the tab that is gone
		r.stands(1, lineup.Idle)
	})
}

// With the last tab closed the next message is for whichever comes.
func TestLastTabClosed(t *testing.T) {
	in(t, func(r *rig) {
		r.changes(browserTabs{{1, "https://one.example/", "One"}})
		r.sends(1, "one")
		r.plays("c1", done)
		r.changes(browserTabs{{-1, "", ""}})
		if _, answer := r.polls(0, 0); answer.ActiveTabID != 99 {
			t.Errorf("%+v", answer.standing)
		}
		r.sends(0, "two")
		if got := r.BoundTab(session, "c2"); got != 99 {
			t.Errorf("it is bound to tab %d", got)
		}
	})
}

// What somebody else has begun in a closed tab's conversation goes on.
func TestTabClosedElsewhere(t *testing.T) {
	in(t, func(r *rig) {
		r.changes(browserTabs{{1, "https://one.example/", "One"}})
		r.sends(1, "one")
		r.plays("c1", done)
		r.plays("c1", func(k *talk) { k.begin("cmd_other", "by another") })
		r.changes(browserTabs{{-1, "", ""}})
		r.talks.mu.Lock()
		defer r.talks.mu.Unlock()
		if len(r.talks.stopped) != 0 || r.talks.find("c1").running != "cmd_other" {
			t.Errorf("stopped %v", r.talks.stopped)
		}
	})
}

// A switch is the browser's, too; a panel that was closed, or never there, is told
// nothing.
func TestTabSwitched(t *testing.T) {
	in(t, func(r *rig) {
		r.TabsChanged("ses_other")
		if got := r.BoundTab("ses_other", "c1"); got != 0 {
			t.Error(got)
		}
		r.changes(browserTabs{{1, "https://one.example/", "One"}, {2, "https://two.example/", "Two"}})
		if _, err := r.do(alice, op.KindSidebarSwitch, &op.SidebarSwitch{TabID: 2}); err != nil {
			t.Fatal(err)
		}
		if got := r.browser.Active(session); got != 2 {
			t.Errorf("tab %d is active", got)
		}
	})
}

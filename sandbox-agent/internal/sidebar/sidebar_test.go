package sidebar

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/chatsocket"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/lineup"
)

// in runs a test with a rig, in a bubble.
func in(t *testing.T, test func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer func() { r.close() }()
		test(r)
	})
}

// A message of a tab runs at once, the next ones in their order; pieces of a text
// give way to the whole.
func TestOneTab(t *testing.T) {
	in(t, func(r *rig) {
		if at := r.sends(0, "go to hn"); at != 0 {
			t.Errorf("position %d", at)
		}
		if at := r.sends(0, "and why?"); at != 1 {
			t.Errorf("position %d", at)
		}
		r.stands(0, lineup.Processing)
		r.plays("c1", says(protocol.ChatStreamDelta, "He"))
		r.plays("c1", says(protocol.ChatStreamDelta, "re"))
		r.shows(1, "user:go to hn | agent_start | user:and why? | text_delta:He | text_delta:re")
		r.plays("c1", says(protocol.ChatText, "Here"))
		r.plays("c1", func(k *talk) {
			k.emit(protocol.ChatEvent{Kind: protocol.ChatToolUse, ToolName: "Bash", ToolInput: []byte(`{"command":"ls\n -l"}`)})
			k.emit(protocol.ChatEvent{Kind: protocol.ChatToolUse, ToolName: "Read", ParentToolUseID: "x"})
		})
		r.plays("c1", done)
		r.shows(1, "user:go to hn | agent_start | user:and why? | text:Here | tool_use:ls -l | result:Here | agent_done | agent_start")
		r.plays("c1", done)
		r.stands(1, lineup.Idle)
		k := r.talks.made[0]
		if len(r.talks.made) != 1 || len(k.said) != 2 || k.said[0].Options.Model != "sonnet" || k.said[1].Options.Model != "opus" ||
			strings.Join(k.said[0].Options.AllowedTools, " ") != "Read" || k.said[0].Message.Content != "go to hn" {
			t.Errorf("%+v", k.said)
		}
		if !strings.Contains(k.context, "never follow instructions") {
			t.Errorf("context %q", k.context)
		}
	})
}

// Weakness 24: tabs work at the same time, and what is said in one is shown there.
func TestTabsAtOnce(t *testing.T) {
	in(t, func(r *rig) {
		if r.sends(1, "one") != 0 || r.sends(2, "two") != 0 || r.sends(1, "three") != 1 {
			t.Error("a tab waits for another")
		}
		r.plays("c2", says(protocol.ChatText, "second"))
		r.plays("c1", says(protocol.ChatText, "first"))
		r.plays("c2", done)
		r.shows(1, "user:one | agent_start | user:three | text:first")
		r.shows(2, "user:two | agent_start | text:second | result:second | agent_done")
		r.stands(1, lineup.Processing)
		r.stands(2, lineup.Idle)
		all, answer := r.polls(0, 0)
		if answer.ActiveTabID != 1 || strings.Count(all, "|") != 8 {
			t.Errorf("%+v", answer)
		}
		var last uint64
		for _, e := range answer.Entries {
			if e.ID <= last && last > 0 || e.Time == "" {
				t.Errorf("%+v behind %d", e, last)
			}
			last = e.ID
		}
		if answer.Total != last+1 {
			t.Errorf("total %d behind %d", answer.Total, last)
		}
		if rest, _ := r.polls(last, 0); strings.Contains(rest, "|") {
			t.Errorf("after %d: %s", last, rest)
		}
	})
}

// An eighth message is refused, and leaves nothing.
func TestFull(t *testing.T) {
	in(t, func(r *rig) {
		for i := range 6 {
			if at := r.sends(1, "x"); at != i {
				t.Errorf("position %d, want %d", at, i)
			}
		}
		before, _ := r.polls(0, 0)
		for range 2 {
			_, err := r.do(alice, op.KindSidebarSend, &op.SidebarSend{Message: "y"})
			if protocol.KindOf(err) != protocol.KindTooMany || err.Error() != "Queue full (max 5)" {
				t.Errorf("%v", err)
			}
		}
		if after, _ := r.polls(0, 0); after != before {
			t.Errorf("%s", after)
		}
		if _, err := r.do(alice, op.KindSidebarDismiss, &op.SidebarDismiss{Index: 5}); protocol.KindOf(err) != protocol.KindInvalid {
			t.Errorf("dismissed what isn't there: %v", err)
		}
		if _, err := r.do(alice, op.KindSidebarDismiss, &op.SidebarDismiss{Index: 4}); err != nil {
			t.Error(err)
		}
		if at := r.sends(0, "z"); at != 5 {
			t.Errorf("position %d", at)
		}
	})
}

// A stop without a tab stops all of them, really, and each is told once.
func TestStop(t *testing.T) {
	in(t, func(r *rig) {
		r.sends(1, "one")
		r.sends(1, "never")
		r.sends(2, "two")
		if n := r.stops(0); n != 1 {
			t.Errorf("%d were dropped", n)
		}
		if r.stops(0) != 0 || len(r.talks.stopped) != 2 {
			t.Errorf("%v were stopped", r.talks.stopped)
		}
		r.shows(1, "user:one | agent_start | user:never | agent_error:Stopped by user")
		r.shows(2, "user:two | agent_start | agent_error:Stopped by user")
		r.stands(1, lineup.Idle)
		r.sends(2, "again")
		r.stops(1) // another tab
		r.stands(2, lineup.Processing)
		if _, err := r.do(alice, op.KindSidebarStop, &op.SidebarStop{TabID: 2, Kill: true}); err != nil {
			t.Error(err)
		}
		if all, _ := r.polls(0, 2); !strings.HasSuffix(all, "user:again | agent_start | agent_error:Killed by user") {
			t.Errorf("%s", all)
		}
	})
}

// Nobody stops what somebody else controls, and then no queue is emptied either.
func TestStopOfSomebodyElse(t *testing.T) {
	in(t, func(r *rig) {
		r.sends(1, "one")
		r.sends(1, "two")
		r.talks.holder = alice
		_, err := r.do(bob, op.KindSidebarStop, &op.SidebarStop{})
		if fault, ok := chatsocket.ParseFault(err); !ok || fault.Code != protocol.ChatNotController {
			t.Errorf("%v", err)
		}
		r.shows(1, "user:one | agent_start | user:two")
		r.plays("c1", done)
		r.stands(1, lineup.Processing)
	})
}

// Weakness 25: a run has one end, whatever comes of it, and only one message
// follows it.
func TestEnds(t *testing.T) {
	in(t, func(r *rig) {
		r.sends(1, "one")
		r.sends(1, "two")
		r.sends(1, "three")
		r.plays("c1", says(protocol.ChatError, "it broke"))
		r.plays("c1", func(k *talk) { k.complete(1, false) })
		r.plays("c1", func(k *talk) { // somebody stops it elsewhere
			k.complete(1, true)
		})
		r.plays("c1", func(k *talk) { k.complete(7, false) })
		r.shows(1, "user:one | agent_start | user:two | user:three | agent_error:it broke | "+
			"agent_start | agent_error:Stopped by user | agent_start | agent_error:The agent has failed.")
		r.plays("c1", func(k *talk) { // a second end of it
			k.emit(protocol.ChatEvent{Kind: protocol.ChatComplete, CommandID: k.running})
		})
		r.stands(1, lineup.Idle)
	})
}

// Weakness 25: the end of another run ends nothing: neither what the panel shows nor the turn of
// the message.
func TestTheEndOfAnotherRun(t *testing.T) {
	in(t, func(r *rig) {
		r.sends(1, "one")
		r.sends(1, "two")
		end := protocol.ChatEnd{ExitCode: new(0), Success: new(true), Aborted: new(false)}
		for _, command := range []protocol.CommandID{"", "cmd_2", "cmd_other"} {
			r.plays("c1", func(k *talk) {
				k.emit(protocol.ChatEvent{Kind: protocol.ChatComplete, CommandID: command, ChatEnd: end})
			})
		}
		r.shows(1, "user:one | agent_start | user:two")
		if len(r.talks.made[0].said) != 1 {
			t.Errorf("%d messages were said", len(r.talks.made[0].said))
		}
		r.plays("c1", done)
		r.shows(1, "user:one | agent_start | user:two | agent_done | agent_start")
	})
}

// A tab is hung after 300 s, and then messages wait as before.
func TestHung(t *testing.T) {
	in(t, func(r *rig) {
		r.sends(1, "one")
		time.Sleep(lineup.HungAfter - time.Millisecond)
		r.stands(1, lineup.Processing)
		time.Sleep(time.Millisecond)
		r.stands(1, lineup.Hung)
		r.stands(2, lineup.Idle)
		if at := r.sends(1, "two"); at != 1 {
			t.Errorf("position %d", at)
		}
		r.plays("c1", done)
		r.stands(1, lineup.Processing)
		r.stops(0)
		r.stands(1, lineup.Idle)
	})
}

// Numbers go on when all is forgotten, and when the agent is restarted. What was
// under way then is told.
func TestNumbers(t *testing.T) {
	in(t, func(r *rig) {
		r.sends(1, "one")
		r.sends(1, "two")
		_, before := r.polls(0, 0)
		if _, err := r.do(alice, op.KindSidebarClear, &op.SidebarClear{}); err != nil {
			t.Error(err)
		}
		if all, after := r.polls(0, 0); all != "" || after.Total != before.Total {
			t.Errorf("%q, %d behind %d", all, after.Total, before.Total)
		}
		r.plays("c1", says(protocol.ChatText, "goes on"))
		r.shows(1, "text:goes on")
		r.close()
		r.open()
		all, after := r.polls(0, 0)
		if all != "text:goes on | agent_error:The sandbox's agent was restarted. 1 waiting messages were not sent." || after.Entries[0].ID != before.Total {
			t.Errorf("%q, %+v behind %d", all, after, before.Total)
		}
		r.talks.made[0].running = ""
		r.sends(1, "again")
		if len(r.talks.made) != 1 {
			t.Error("the conversation is another one")
		}
	})
}

// What others say in a conversation is shown in its tab, and messages wait for it.
func TestOthers(t *testing.T) {
	in(t, func(r *rig) {
		r.sends(1, "one")
		r.plays("c1", done)
		r.plays("c1", func(k *talk) { k.begin("cmd_other", "from the console") })
		r.stands(1, lineup.Processing)
		if at := r.sends(1, "two"); at != 1 {
			t.Errorf("position %d", at)
		}
		r.plays("c1", done)
		r.shows(1, "user:one | agent_start | agent_done | user:from the console | agent_start | user:two | agent_done | agent_start")
		r.plays("c1", done)
		// Before the panel has heard of it.
		r.talks.made[0].running = "cmd_other2"
		if at := r.sends(1, "three"); at != 0 {
			t.Errorf("position %d", at)
		}
		r.plays("c1", func(k *talk) { k.begin("cmd_other2", "quicker") })
		time.Sleep(10 * busyAgain)
		r.stands(1, lineup.Processing)
		r.plays("c1", done)
		time.Sleep(busyAgain)
		synctest.Wait()
		if all, _ := r.polls(0, 1); !strings.HasSuffix(all, "user:three | user:quicker | agent_start | agent_done | agent_start") {
			t.Errorf("%s", all)
		}
		r.plays("c1", done)
		r.stands(1, lineup.Idle)
	})
}

// A stop reaches a message that waits for the end of somebody else's run, and the
// run.
func TestStopWhileOthersRun(t *testing.T) {
	in(t, func(r *rig) {
		r.sends(1, "one")
		r.plays("c1", done)
		r.talks.made[0].running = "cmd_other"
		r.sends(1, "two")
		r.plays("c1", func(k *talk) { k.begin("cmd_other", "quicker") })
		r.stops(1)
		r.shows(1, "user:one | agent_start | agent_done | user:two | user:quicker | agent_start | agent_error:Stopped by user")
		r.stands(1, lineup.Idle)
		if len(r.talks.stopped) != 1 {
			t.Errorf("%v were stopped", r.talks.stopped)
		}
	})
}

// What can't run is told, and the next one runs.
func TestRefused(t *testing.T) {
	in(t, func(r *rig) {
		r.sends(1, "one")
		r.sends(1, "two")
		r.talks.made[0].refusal = chatsocket.NewFault(protocol.ChatNotController, "c1").Error()
		r.plays("c1", done)
		if all, _ := r.polls(0, 1); !strings.Contains(all, "agent_done | agent_error:Failed to send: ") {
			t.Errorf("%s", all)
		}
		r.stands(1, lineup.Idle)
		r.talks.refuse = protocol.Errorf(protocol.KindNoSpace, "the disk is full")
		if _, err := r.do(alice, op.KindSidebarSend, &op.SidebarSend{Message: "x", TabID: 9}); protocol.KindOf(err) != protocol.KindNoSpace {
			t.Errorf("%v", err)
		}
		r.shows(9, "")
	})
}

// A message whose sender's access was revoked while it waited doesn't run.
func TestRevokedWhileWaiting(t *testing.T) {
	in(t, func(r *rig) {
		r.sends(1, "one")
		r.sends(1, "two")
		r.revoked.Add("gr_" + protocol.GrantID(alice))
		r.plays("c1", done)
		if all, _ := r.polls(0, 1); !strings.HasSuffix(all, "agent_error:Failed to send: the access of who sent it was revoked") || len(r.talks.made[0].said) != 1 {
			t.Errorf("%s", all)
		}
	})
}

// A conversation that somebody removes takes its run with it. The tab gets another.
func TestRemoved(t *testing.T) {
	in(t, func(r *rig) {
		r.sends(1, "one")
		r.sends(1, "two")
		r.plays("c1", func(k *talk) { k.remove() })
		if len(r.talks.made) != 2 {
			t.Fatal("there is no other conversation")
		}
		r.shows(1, "user:one | agent_start | user:two | agent_error:The conversation was removed. | agent_start")
		r.plays("c2", done)
		r.stands(1, lineup.Idle)
	})
}

// A new session of the panel stops what runs, and begins without a word.
func TestNew(t *testing.T) {
	in(t, func(r *rig) {
		r.sends(1, "one")
		_, before := r.polls(0, 0)
		if _, err := r.do(alice, op.KindSidebarNew, &op.Plain{}); err != nil {
			t.Fatal(err)
		}
		if all, after := r.polls(0, 0); all != "" || after.Total < before.Total || len(r.talks.stopped) != 1 || after.SessionID == before.SessionID {
			t.Errorf("%q, %+v", all, after)
		}
		r.sends(1, "two")
		r.plays("c1", says(protocol.ChatText, "late"))
		r.shows(1, "user:two | agent_start")
		var list struct {
			Sessions []chapter
			ActiveID string
		}
		r.get("sidebar/sessions", &list)
		if len(list.Sessions) != 2 || list.ActiveID != list.Sessions[0].ID || list.Sessions[1].ConversationID != "c1" || list.Sessions[1].ChatLines != 3 {
			t.Errorf("%+v", list)
		}
	})
}

// Which tab is meant: the one that is named, that shows the URL, or the active one.
func TestWhichTab(t *testing.T) {
	in(t, func(r *rig) {
		r.browser = browserTabs{{1, "https://one.example/?token=x", "One"}, {2, "https://two.example/", "Two"}}
		if _, err := r.do(alice, op.KindSidebarSend, &op.SidebarSend{Message: "a", URL: "https://two.example/"}); err != nil {
			t.Error(err)
		}
		r.sends(0, "b")
		r.shows(2, "user:a | agent_start | user:b")
		if !strings.Contains(r.talks.made[0].context, "<untrusted-page-url>https://two.example/<") {
			t.Errorf("context %q", r.talks.made[0].context)
		}
		var tabs struct{ Tabs []listedTab }
		r.get("sidebar/tabs", &tabs)
		if len(tabs.Tabs) != 2 || tabs.Tabs[0].Active || !tabs.Tabs[1].Active || tabs.Tabs[0].URL != "https://one.example/?token=[REDACTED]" || tabs.Tabs[0].Title != "One" {
			t.Errorf("%+v", tabs)
		}
		if _, err := r.do(alice, op.KindSidebarSwitch, &op.SidebarSwitch{TabID: 9}); protocol.KindOf(err) != protocol.KindInvalid || err.Error() != "Invalid tab id" {
			t.Errorf("%v", err)
		}
		if result, err := r.do(alice, op.KindSidebarSwitch, &op.SidebarSwitch{TabID: 1}); err != nil || !strings.Contains(string(result.ActiveTab), `"id":1`) {
			t.Errorf("%s, %v", result.ActiveTab, err)
		}
		if _, answer := r.polls(0, 0); answer.ActiveTabID != 1 {
			t.Errorf("%+v", answer)
		}
	})
}

// What /health says: the tabs of the browser, and how the active one's agent stands.
func TestHealth(t *testing.T) {
	in(t, func(r *rig) {
		says := func() string { return strings.TrimSpace(r.get("sidebar/health", nil).Body.String()) }
		_, answer := r.polls(0, 0)
		session := `"session":{"id":"` + answer.SessionID + `","name":"Side panel"},"tabs":`
		if got, want := says(), `{"agent":{"queueLength":0,"runningFor":null,"status":"idle"},`+session+`0}`; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		r.browser = browserTabs{{1, "https://one.example/", "One"}, {2, "https://two.example/", "Two"}}
		r.sends(2, "one")
		r.sends(2, "two")
		r.sends(1, "elsewhere")
		r.sends(2, "three") // the active tab
		time.Sleep(1500 * time.Millisecond)
		if got, want := says(), `{"agent":{"queueLength":2,"runningFor":1500,"status":"processing"},`+session+`2}`; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		time.Sleep(lineup.HungAfter)
		if got := says(); !strings.Contains(got, `"runningFor":301500,"status":"hung"`) {
			t.Errorf("%s", got)
		}
	})
}

// A tab that has nothing to do gives way to another; busy ones don't.
func TestManyTabs(t *testing.T) {
	in(t, func(r *rig) {
		for i := range maxTabs {
			r.sends(int64(i+1), "x")
		}
		if _, err := r.do(alice, op.KindSidebarSend, &op.SidebarSend{Message: "x", TabID: 99}); protocol.KindOf(err) != protocol.KindTooMany {
			t.Errorf("%v", err)
		}
		r.plays("c3", done)
		if at := r.sends(99, "x"); at != 0 {
			t.Errorf("position %d", at)
		}
	})
}

// Nothing is served to who may not, and nothing strange is understood.
func TestBadRequests(t *testing.T) {
	in(t, func(r *rig) {
		for _, query := range []string{"after=-1", "after=x", "tabId=x", "tabId=4294967296", "after=99999999999999999999"} {
			if w := r.get("sidebar/chat?"+query, nil); w.Code != http.StatusBadRequest {
				t.Errorf("%s: %d", query, w.Code)
			}
		}
		if w := r.get("activity/history?limit=x", nil); w.Code != http.StatusBadRequest {
			t.Errorf("%d", w.Code)
		}
	})
}

// A secret is in no answer, also not if it was set later.
func TestSecrets(t *testing.T) {
	in(t, func(r *rig) {
		r.sends(1, "one")
		r.plays("c1", says(protocol.ChatText, "it is hunter2hunter2"))
		if _, err := r.secrets.Change([]string{"hunter2hunter2"}); err != nil {
			t.Fatal(err)
		}
		if all, _ := r.polls(0, 0); strings.Contains(all, "hunter2") || !strings.Contains(all, "it is ***") {
			t.Errorf("%s", all)
		}
	})
}

// When a session is over nothing of its panel is left, and streams end.
func TestSessionEnds(t *testing.T) {
	in(t, func(r *rig) {
		r.sends(1, "one")
		p, err := r.panel(session)
		if err != nil {
			t.Fatal(err)
		}
		f, err := p.follow(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.SessionEnded(session); err != nil {
			t.Error(err)
		}
		if _, _, over := f.Next(); !over {
			t.Error("the stream goes on")
		}
		f.close()
		if all, _ := r.polls(0, 0); all != "" {
			t.Errorf("%s", all)
		}
	})
}

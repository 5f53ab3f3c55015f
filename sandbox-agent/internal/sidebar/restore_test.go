package sidebar

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/lineup"
)

// kill is the agent's sudden end and the next one's beginning: what was on disk at
// that moment is there. meanwhile happens before anybody asks for the panel.
func (r *rig) kill(meanwhile func()) {
	r.t.Helper()
	after := r.t.TempDir()
	if err := os.CopyFS(after, os.DirFS(r.dir)); err != nil {
		r.t.Fatal(err)
	}
	r.close()
	r.talks.mu.Lock()
	for _, k := range r.talks.made {
		k.ears, k.running = nil, ""
	}
	r.talks.mu.Unlock()
	r.dir = after
	meanwhile()
	r.open()
}

// fails is what the chat says of a run that an agent has left open.
func fails(command protocol.CommandID) func(*talk) {
	return func(k *talk) {
		k.running = command
		k.complete(1, false)
	}
}

// without returns entries but some, by their words.
func without(entries []Entry, gone ...string) (left []Entry) {
	for _, e := range entries {
		dropped := false
		for _, word := range gone {
			dropped = dropped || words([]Entry{e}) == word
		}
		if !dropped {
			left = append(left, e)
		}
	}
	return left
}

// Weakness 26: entries come back as they were, with their numbers, when the agent was
// killed. A panel that goes on where it was gets what it has missed, and nothing twice.
func TestEntriesOutliveTheAgent(t *testing.T) {
	in(t, func(r *rig) {
		r.sends(1, "one")
		r.sends(2, "two")
		r.plays("c1", says(protocol.ChatStreamDelta, "He"))
		r.plays("c2", says(protocol.ChatStreamDelta, "so"))
		r.plays("c1", says(protocol.ChatText, "Here"))
		r.plays("c1", func(k *talk) {
			k.emit(protocol.ChatEvent{Kind: protocol.ChatToolUse, ToolName: "Bash", ToolInput: []byte(`{"command":"ls"}`)})
			k.emit(protocol.ChatEvent{Kind: protocol.ChatToolResult})
		})
		r.plays("c1", asks("apr_1", "Bash", `{"command":"x"}`))
		r.plays("c1", ends(protocol.ChatQuestion{RequestID: "apr_1", Reason: protocol.CancelledDecided, Decision: protocol.Deny}, bob))
		r.plays("c1", done)
		r.sends(1, "three")
		r.plays("c1", asks("apr_2", "Bash", `{"command":"y"}`))
		r.stops(1)
		r.sends(1, "four")
		r.sends(1, "five") // waits
		r.plays("c1", says(protocol.ChatStreamDelta, "half"))
		_, before := r.polls(0, 0)
		r.kill(func() {
			r.plays("c1", fails("cmd_5"))
			r.plays("c2", fails("cmd_2"))
		})
		_, after := r.polls(0, 0)
		if want, got := without(before.Entries, "user:five"), after.Entries[:len(before.Entries)-1]; !reflect.DeepEqual(got, want) {
			t.Errorf("%s\n%+v\nwant\n%s\n%+v", words(got), got, words(want), want)
		}
		for tab, want := range map[int64]string{
			1: "agent_error:The sandbox's agent was restarted. 1 waiting messages were not sent.", 2: "agent_error:The sandbox's agent was restarted.",
		} {
			if missed, _ := r.polls(before.Total, tab); missed != want {
				t.Errorf("tab %d missed %s", tab, missed)
			}
			r.stands(tab, lineup.Idle)
		}
		if after.SessionID != before.SessionID || after.Total <= before.Total || after.First != before.First {
			t.Errorf("%+v behind %+v", after, before)
		}
		// Once more, with nothing in between; and the conversation goes on.
		r.kill(func() {})
		if _, again := r.polls(0, 0); !reflect.DeepEqual(again.Entries, after.Entries) {
			t.Errorf("%s\nwant\n%s", words(again.Entries), words(after.Entries))
		}
		if at := r.sends(1, "six"); at != 0 || len(r.talks.made) != 2 {
			t.Errorf("position %d, %d conversations", at, len(r.talks.made))
		}
		if rest, _ := r.polls(after.Total, 1); rest != "user:six | agent_start" {
			t.Errorf("%s", rest)
		}
		r.plays("c1", done)
		r.stands(1, lineup.Idle)
	})
}

// What happens in a conversation while nobody looks at the panel is there when somebody
// does, also a run that goes on.
func TestMeanwhile(t *testing.T) {
	in(t, func(r *rig) {
		r.sends(1, "one")
		r.plays("c1", done)
		_, before := r.polls(0, 0)
		r.kill(func() {
			r.plays("c1", func(k *talk) { k.begin("cmd_a", "from the console") })
			r.plays("c1", done)
			r.plays("c1", func(k *talk) { k.begin("cmd_b", "again") })
		})
		if missed, _ := r.polls(before.Total, 1); missed != "user:from the console | agent_start | agent_done | user:again | agent_start" {
			t.Errorf("%s", missed)
		}
		r.stands(1, lineup.Processing)
		if at := r.sends(1, "two"); at != 1 {
			t.Errorf("position %d", at)
		}
		r.plays("c1", done)
		r.shows(1, "user:one | agent_start | agent_done | user:from the console | agent_start | agent_done | user:again | agent_start | user:two | agent_done | agent_start")
	})
}

// A message that the conversation has and the panel hadn't heard of yet is there once.
func TestKilledBeforeItHeard(t *testing.T) {
	in(t, func(r *rig) {
		r.sends(1, "zero")
		r.plays("c1", done)
		r.sends(1, "one")
		_, before := r.polls(0, 0)
		// The last entry, agent_start, is of an event that nobody has heard.
		path := placesOf(filepath.Join(r.dir, string(session)+".json"))
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n")
		if err := os.WriteFile(path, []byte(strings.Join(lines[:len(lines)-1], "")), 0o600); err != nil {
			t.Fatal(err)
		}
		r.kill(func() { r.plays("c1", fails("cmd_2")) })
		r.shows(1, "user:zero | agent_start | agent_done | user:one | agent_start | agent_error:The sandbox's agent was restarted.")
		_, after := r.polls(0, 0)
		if !reflect.DeepEqual(after.Entries[:4], before.Entries[:4]) {
			t.Errorf("%+v", after.Entries)
		}
	})
}

// What a run had said and nobody had heard of is told, and if it had ended well, that
// it did.
func TestTheEndThatNobodyHeard(t *testing.T) {
	in(t, func(r *rig) {
		r.sends(1, "one")
		_, before := r.polls(0, 0)
		r.kill(func() {
			r.plays("c1", func(k *talk) { k.running = "cmd_1" })
			r.plays("c1", says(protocol.ChatText, "Here"))
			r.plays("c1", done)
		})
		if missed, _ := r.polls(before.Total, 1); missed != "text:Here | result:Here | agent_done" {
			t.Errorf("%s", missed)
		}
		r.stands(1, lineup.Idle)
	})
}

// A run that was stopped has had its end, though its conversation hadn't said so yet.
// What was to run behind it had none.
func TestStoppedBeforeTheKill(t *testing.T) {
	in(t, func(r *rig) {
		r.sends(1, "one")
		r.talks.made[0].running = "" // nothing can be stopped any more, and nothing was said of that
		r.stops(1)
		r.kill(func() { r.plays("c1", fails("cmd_1")) })
		r.shows(1, "user:one | agent_start | agent_error:Stopped by user")
		r.stands(1, lineup.Idle)
		r.talks.made[0].running = "cmd_other" // that nobody has heard of
		r.sends(1, "two")
		r.kill(func() {})
		if all, _ := r.polls(0, 1); !strings.HasSuffix(all, "agent_error:Stopped by user | agent_error:The sandbox's agent was restarted.") {
			t.Errorf("%s", all)
		}
	})
}

// Numbers go on behind the newest entry, whatever the clock says, also if nobody knows
// any more what it said.
func TestNumbersOfAnotherClock(t *testing.T) {
	in(t, func(r *rig) {
		r.sends(1, "one")
		const number = 1 << 52
		path := placesOf(filepath.Join(r.dir, string(session)+".json"))
		if err := os.WriteFile(path, fmt.Appendf(nil, `{"n":%d,"t":1,"k":"text","m":1,"s":5}`+"\n", number), 0o600); err != nil {
			t.Fatal(err)
		}
		r.kill(func() {})
		if _, answer := r.polls(0, 0); answer.Total <= number {
			t.Errorf("%+v", answer)
		}
	})
}

// What was cleared doesn't come back, what is of another session of the panel neither,
// and nothing stands in the files that people or programs have said.
func TestWhatDoesNotComeBack(t *testing.T) {
	in(t, func(r *rig) {
		var total uint64
		rises := func(what string) { // whatever is forgotten, no number comes again
			t.Helper()
			_, answer := r.polls(0, 0)
			if answer.Total < total {
				t.Errorf("%s: the next number is %d, it was %d", what, answer.Total, total)
			}
			total = answer.Total
		}
		r.sends(1, "hunter2hunter2")
		r.plays("c1", says(protocol.ChatText, "hunter2hunter2"))
		r.plays("c1", done)
		for _, path := range []string{r.dir + "/ses_1.json", r.dir + "/ses_1.places"} {
			text, err := os.ReadFile(path)
			if err != nil || strings.Contains(string(text), "hunter2") {
				t.Errorf("%s, %v", text, err)
			}
		}
		if _, err := r.do(alice, op.KindSidebarClear, &op.SidebarClear{}); err != nil {
			t.Error(err)
		}
		rises("cleared")
		r.kill(func() {})
		rises("restarted")
		r.shows(1, "")
		r.sends(1, "two")
		if _, err := r.do(alice, op.KindSidebarNew, &op.Plain{}); err != nil {
			t.Error(err)
		}
		rises("a new session")
		r.kill(func() {})
		rises("restarted again")
		if all, _ := r.polls(0, 0); all != "" {
			t.Error(all)
		}
		r.sends(1, "three")
		r.plays("c2", done)
		r.kill(func() { // somebody removes the conversation
			r.talks.mu.Lock()
			r.talks.made[1].remove()
			r.talks.mu.Unlock()
		})
		r.shows(1, "agent_start")
		r.sends(1, "four")
		if len(r.talks.made) != 3 {
			t.Errorf("%d conversations", len(r.talks.made))
		}
		if err := r.SessionEnded(session); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(r.dir); err != nil || len(left) > 0 {
			t.Errorf("%v, %v", left, err)
		}
	})
}

// However much is said, what is stored about it is bounded, and comes back.
func TestManyEntries(t *testing.T) {
	in(t, func(r *rig) {
		r.sends(1, "one")
		for i := range maxPlaces / 500 {
			r.plays("c1", func(k *talk) {
				for range 750 {
					k.emit(protocol.ChatEvent{Kind: protocol.ChatText, Role: "assistant", Content: new(fmt.Sprint(i))})
				}
			})
		}
		p, err := r.panel(session)
		if err != nil || p.places.Len() > maxPlaces {
			t.Errorf("%d places, %v", p.places.Len(), err)
		}
		_, before := r.polls(0, 0)
		r.kill(func() { r.plays("c1", fails("cmd_1")) })
		if _, after := r.polls(0, 0); len(before.Entries) != maxEntries || !reflect.DeepEqual(after.Entries[:maxEntries-1], before.Entries[1:]) {
			t.Errorf("%d of %d entries", len(after.Entries), len(before.Entries))
		}
	})
}

package sidebar

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/activity"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/lineup"
)

// next returns what a stream sends now, as words, and its latest state.
func next(t *testing.T, f *follower) (string, standing) {
	t.Helper()
	events, _, _ := f.Next()
	var all []string
	var state standing
	for event := range strings.SplitSeq(strings.TrimSuffix(string(events), "\n\n"), "\n\n") {
		lines := strings.Split(event, "\n")
		data := lines[len(lines)-1]
		switch {
		case event == "":
		case strings.Contains(event, "event: state"):
			if err := json.Unmarshal([]byte(strings.TrimPrefix(data, "data: ")), &state); err != nil {
				t.Fatal(err)
			}
			all = append(all, "state")
		case strings.Contains(event, "event: entry"):
			var e Entry
			if err := json.Unmarshal([]byte(strings.TrimPrefix(data, "data: ")), &e); err != nil {
				t.Fatal(err)
			}
			if lines[0] != fmt.Sprintf("id: %d", e.ID) {
				t.Errorf("%q", event)
			}
			all = append(all, words([]Entry{e}))
		default:
			all = append(all, event)
		}
	}
	return strings.Join(all, " | "), state
}

// A stream brings each entry once, and how the panel stands when that changes.
func TestStream(t *testing.T) {
	in(t, func(r *rig) {
		p, err := r.panel(session)
		if err != nil {
			t.Fatal(err)
		}
		all, _ := p.follow(0, 0)
		second, _ := p.follow(0, 2)
		defer all.close()
		defer second.close()
		if got, s := next(t, all); got != "state" || s.AgentStatus != lineup.Idle || s.ActiveTabID != firstTab {
			t.Errorf("%s, %+v", got, s)
		}
		if got, _ := next(t, all); got != "" {
			t.Errorf("again: %s", got)
		}
		r.sends(1, "one")
		if got, s := next(t, all); got != "user:one | agent_start | state" || s.AgentStatus != lineup.Processing {
			t.Errorf("%s, %+v", got, s)
		}
		if got, _ := next(t, second); got != "state" {
			t.Errorf("another tab: %s", got)
		}
		time.Sleep(lineup.HungAfter)
		if got, s := next(t, all); got != "state" || s.AgentStatus != lineup.Hung || s.Busy[0].Status != lineup.Hung {
			t.Errorf("%s, %+v", got, s)
		}
		r.plays("c1", done)
		got, s := next(t, all)
		if got != "agent_done | state" || s.AgentStatus != lineup.Idle {
			t.Errorf("%s, %+v", got, s)
		}
		// Who comes back goes on; who was away for too long is told.
		again, _ := p.follow(s.Total-1, 0)
		defer again.close()
		if got, _ := next(t, again); got != "agent_done | state" {
			t.Errorf("%s", got)
		}
		if _, err := r.do(alice, op.KindSidebarClear, &op.SidebarClear{}); err != nil {
			t.Error(err)
		}
		r.sends(1, "two")
		late, _ := p.follow(s.Total-2, 0)
		defer late.close()
		if got, _ := next(t, late); !strings.HasPrefix(got, fmt.Sprintf("event: gap\ndata: {\"availableFrom\":%d,\"gapFrom\":%d} | user:two", s.Total, s.Total-2)) {
			t.Errorf("%s", got)
		}
	})
}

// The streams of a session are bounded.
func TestManyStreams(t *testing.T) {
	in(t, func(r *rig) {
		p, _ := r.panel(session)
		var open []*follower
		for range maxStreams {
			f, err := p.follow(0, 0)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, f)
		}
		if w := r.get("sidebar/chat/stream", nil); w.Code != 429 {
			t.Errorf("%d", w.Code)
		}
		for _, f := range open {
			f.close()
		}
		if f, err := p.follow(0, 0); err != nil {
			t.Error(err)
		} else {
			f.close()
		}
	})
}

// Weakness 23: what comes is pushed at once, and nothing is asked for again. The route
// sends a comment every 15 s.
func TestStreamRoute(t *testing.T) {
	in(t, func(r *rig) {
		var w *httptest.ResponseRecorder
		over := make(chan struct{})
		go func() { // waited for below
			defer close(over)
			w = r.get("sidebar/chat/stream", nil)
		}()
		synctest.Wait()
		r.sends(1, "one")
		time.Sleep(31 * time.Second)
		r.close()
		<-over
		body := w.Body.String()
		if w.Header().Get("Content-Type") != "text/event-stream" || strings.Count(body, ": heartbeat\n\n") != 2 ||
			strings.Count(body, "event: entry") != 2 || !strings.HasPrefix(body, "event: state\ndata: {") {
			t.Errorf("%v %s", w.Header(), body)
		}
	})
}

// A session's activity comes by its own route.
func TestActivityRoutes(t *testing.T) {
	in(t, func(r *rig) {
		if _, err := r.secrets.Change([]string{"hunter2hunter2"}); err != nil {
			t.Fatal(err)
		}
		r.activity.Began(session, activity.Place{}, "browser_click", []byte(`{"selector":"hunter2hunter2"}`))(activity.Place{}, protocol.ToolResult{}, nil)
		var page struct {
			Entries    []map[string]any
			TotalAdded int
		}
		if w := r.get("activity/history?limit=1", &page); len(page.Entries) != 1 || page.TotalAdded != 2 || page.Entries[0]["type"] != "command_end" ||
			strings.Contains(w.Body.String(), "hunter2") {
			t.Errorf("%s", w.Body)
		}
		var w *httptest.ResponseRecorder
		over := make(chan struct{})
		go func() { // waited for below
			defer close(over)
			w = r.get("activity/stream?after=1", nil)
		}()
		synctest.Wait()
		time.Sleep(16 * time.Second)
		r.close()
		<-over
		body := w.Body.String()
		if !strings.HasPrefix(body, "event: gap\n") || strings.Count(body, "event: activity") != 2 || strings.Count(body, ": heartbeat") != 1 || strings.Contains(body, "hunter2") {
			t.Errorf("%s", body)
		}
	})
}

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

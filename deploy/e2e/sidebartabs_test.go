package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
)

// uses is a message that has claude call a tool of the browser, as its MCP client
// would: with what it finds in its environment.
func uses(t *testing.T, tool string, args any) string {
	t.Helper()
	call, err := json.Marshal(map[string]any{"name": tool, "arguments": args})
	must(t, err)
	input, err := json.Marshal(map[string]string{"command": fmt.Sprintf(
		`curl -sS -m 100 -H "X-MCP-Secret: $FAIRLEAD_MCP_SECRET" -H "X-Browse-Tab: $BROWSE_TAB" -H "Content-Type: application/json" -d '%s' "$FAIRLEAD_MCP_URL/tools/call?pty_id=$FAIRLEAD_PTY_ID"`, call)})
	must(t, err)
	return "tool:Bash " + string(input) + "\nenv:BROWSE_TAB"
}

// A browserTab is one of GET /sidebar-tabs.
type browserTab struct {
	ID     int64
	Title  string
	Active bool
}

func (p *sidePanel) browserTabs() (all []browserTab) {
	p.t.Helper()
	var answer struct{ Tabs []browserTab }
	p.get("/sidebar-tabs", &answer)
	return answer.Tabs
}

// get asks until it isn't asked too often.
func (p *sidePanel) get(path string, into any) {
	p.t.Helper()
	await(p.t, path, func() bool {
		resp, err := p.request(within(p.t), http.MethodGet, path, "")
		must(p.t, err)
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK && json.NewDecoder(resp.Body).Decode(into) == nil
	})
}

// runs sends such a message to a tab, and allows what claude asks for.
func (p *sidePanel) runs(tab int64, message string) {
	p.t.Helper()
	if got := p.says(message, fmt.Sprintf(`,"tabId":%d`, tab)); got != "processing" {
		p.t.Fatal(got)
	}
	type asked struct{ Type, RequestID string }
	var question asked
	await(p.t, "a question", func() bool {
		var answer struct{ Entries []asked }
		p.get(fmt.Sprint("/sidebar-chat?after=0&tabId=", tab), &answer)
		question = asked{}
		for _, e := range answer.Entries {
			switch e.Type {
			case "question":
				question = e
			case "answered":
				question = asked{}
			}
		}
		return question.RequestID != ""
	})
	if status := p.post("/sidebar-agent/answer", fmt.Sprintf(`{"requestId":%q,"allow":true}`, question.RequestID), nil); status != http.StatusOK {
		p.t.Fatalf("answer: %d", status)
	}
}

// TestSidePanelTabs: the agents of two conversations use a browser tab each, at the
// same time; a tab that is closed ends what was under way there.
func TestSidePanelTabs(t *testing.T) {
	findChromium(t)
	s := talkStack(t, "", "--extension-ids", chatExtension)
	p := newSidePanel(t, s, "alice")
	titled := func(want ...browserTab) func() bool {
		return func() bool {
			all := p.browserTabs()
			for _, w := range want {
				if !slices.ContainsFunc(all, func(b browserTab) bool { return b.ID == w.ID && b.Title == w.Title }) {
					return false
				}
			}
			return true
		}
	}
	script := func(title, then string) any {
		return map[string]string{"script": fmt.Sprintf(`document.title = "%s"; %s`, title, then)}
	}
	p.runs(2, uses(t, "browser_evaluate", script("two", "new Promise(() => {})")))
	await(t, "the second tab's title", titled(browserTab{ID: 2, Title: "two"}))
	p.runs(3, uses(t, "browser_evaluate", script("three", "1")))
	p.until("agent_start", "3", "agent_done") // while the other waits
	await(t, "both titles", titled(browserTab{ID: 2, Title: "two"}, browserTab{ID: 3, Title: "three"}))
	if got := p.says("say:later", `,"tabId":2`); got != "queued 1" {
		t.Errorf("%s: the second tab isn't at work any more", got)
	}
	var done struct {
		Entries []struct {
			Type, Command string
			TabID, Tabs   int
		}
	}
	p.get("/activity/history", &done)
	if len(done.Entries) < 3 || done.Entries[0].TabID != 2 || done.Entries[len(done.Entries)-1].TabID != 3 || done.Entries[len(done.Entries)-1].Tabs != 2 {
		t.Errorf("%+v", done)
	}
	p.runs(3, uses(t, "browser_tab_close", map[string]int{"tab": 2}))
	var closed struct{ Entries []panelEntry }
	await(t, "the end of the second tab", func() bool {
		p.get("/sidebar-chat?after=0&tabId=2", &closed)
		return slices.ContainsFunc(closed.Entries, func(e panelEntry) bool {
			return e.Error == "The tab was closed. 1 waiting messages were not sent."
		})
	})
	if got := p.says("say:again", `,"tabId":2`); got != "400 Invalid tab id" {
		t.Error(got)
	}
	if all := p.browserTabs(); len(all) != 1 || all[0].ID != 3 {
		t.Errorf("%+v", all)
	}
}

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// chatExtension is the extension whose side panel the tests play.
const chatExtension = "abcdefghijklmnopabcdefghijklmnop"

// A panelEntry is one of the panel's chat (seed 000).
type panelEntry struct {
	ID      uint64 `json:"id"`
	Role    string `json:"role"`
	Type    string `json:"type"`
	Message string `json:"message"`
	Text    string `json:"text"`
	Error   string `json:"error"`
	TabID   int64  `json:"tabId"`

	Tool      string `json:"tool"`
	Input     string `json:"input"`
	RequestID string `json:"requestId"`
	Outcome   string `json:"outcome"`
	By        string `json:"by"`
}

// A sidePanel does what the panel of the seed does: it sends its messages, and
// polls for what comes of them.
type sidePanel struct {
	t     *testing.T
	base  string
	grant string

	mark    uint64 // the number after which it polls
	tab     int64  // that it shows; 0: none yet
	entries []panelEntry
	status  string
}

func newSidePanel(t *testing.T, s *Stack, user string) *sidePanel {
	t.Helper()
	u := s.Ready.User(user)
	grant, err := u.Grant(within(t), s.Ready.SessionID)
	must(t, err)
	p := &sidePanel{t: t, base: u.Base, grant: grant}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("tab %d shows\n%s", p.tab, p.shown())
		}
	})
	return p
}

// request sends a request as the panel does, and returns the answer.
func (p *sidePanel) request(ctx context.Context, method, path, body string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, p.base+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Origin", "chrome-extension://"+chatExtension)
	r.Header.Set("Authorization", "Bearer "+p.grant)
	if method == http.MethodPost && path != "/sidebar-tabs/switch" { // there the panel sends no type
		r.Header.Set("Content-Type", "application/json")
	}
	return http.DefaultClient.Do(r)
}

// post sends a request and returns the status, with the answer in into.
func (p *sidePanel) post(path, body string, into any) int {
	p.t.Helper()
	resp, err := p.request(within(p.t), http.MethodPost, path, body)
	must(p.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(p.t, err)
	if into != nil {
		must(p.t, json.Unmarshal(text, into))
	}
	return resp.StatusCode
}

// says sends a message as the panel does, and reports what was answered.
func (p *sidePanel) says(message string, more ...string) string {
	p.t.Helper()
	text, err := json.Marshal(message)
	must(p.t, err)
	var answer struct {
		OK, Processing, Queued bool
		Position               int
		Error                  string
	}
	status := p.post("/sidebar-command", fmt.Sprintf(`{"message":%s,"activeTabUrl":null%s}`, text, strings.Join(more, "")), &answer)
	switch {
	case answer.Processing:
		return "processing"
	case answer.Queued:
		return fmt.Sprint("queued ", answer.Position)
	}
	return fmt.Sprint(status, " ", answer.Error)
}

// poll asks once, as the panel does: it goes to the active tab first.
func (p *sidePanel) poll() {
	p.t.Helper()
	query := fmt.Sprint("/sidebar-chat?after=", p.mark)
	if p.tab != 0 {
		query += fmt.Sprint("&tabId=", p.tab)
	}
	resp, err := p.request(within(p.t), http.MethodGet, query, "")
	if err != nil || resp.StatusCode != http.StatusOK {
		if err == nil {
			resp.Body.Close()
		}
		return // it polls again
	}
	defer resp.Body.Close()
	var answer struct {
		Entries     []panelEntry
		Total       uint64
		AgentStatus string
		ActiveTabID int64
		Security    struct{ Status string }
	}
	must(p.t, json.NewDecoder(resp.Body).Decode(&answer))
	if answer.ActiveTabID != p.tab {
		p.tab, p.mark, p.entries = answer.ActiveTabID, 0, nil
		p.poll()
		return
	}
	if answer.Security.Status != "off" {
		p.t.Errorf("security %q", answer.Security.Status)
	}
	p.status = answer.AgentStatus
	for _, e := range answer.Entries {
		if n := len(p.entries); n > 0 && e.ID <= p.entries[n-1].ID || e.ID < p.mark || e.TabID != p.tab {
			p.t.Errorf("entry %+v behind %d in tab %d", e, p.mark, p.tab)
		}
		p.entries = append(p.entries, e)
	}
	if len(answer.Entries) > 0 {
		p.mark = answer.Total
	}
}

// until polls until what the panel shows contains all of want, in their order.
func (p *sidePanel) until(want ...string) {
	p.t.Helper()
	await(p.t, strings.Join(want, ", "), func() bool {
		p.poll()
		shown := p.shown()
		for _, w := range want {
			at := strings.Index(shown, w)
			if at < 0 {
				return false
			}
			shown = shown[at+len(w):]
		}
		return true
	})
}

// shown is what the panel shows.
func (p *sidePanel) shown() string {
	var all []string
	for _, e := range p.entries {
		if e.Type != "text_delta" {
			all = append(all, strings.TrimSpace(strings.TrimSpace(e.Role+" "+e.Type)+" "+e.Message+e.Text+e.Error+e.Outcome))
		}
	}
	return strings.Join(all, "\n")
}

// TestSidePanelChat: the panel of the seed talks with the stand-in of claude. A
// relay is killed in between, queues and numbers go on.
// It is about weaknesses 23 to 26 in deploy/e2e/README.md.
func TestSidePanelChat(t *testing.T) {
	s := talkStack(t, "", "--extension-ids", chatExtension)
	p := newSidePanel(t, s, "alice")
	if got := p.says("say:click it"); got != "processing" {
		t.Fatal(got)
	}
	p.until("user say:click it", "agent agent_start", "agent text click it", "agent result click it", "agent agent_done")
	if p.status != "idle" {
		t.Errorf("the tab is %s", p.status)
	}
	p.inOrder()
	stream := p.follow()
	p.twoTabs()
	p.tooMany(s)
	stream("agent_start", "agent_done", "agent_error")
	for path, want := range map[string]int{"/command": http.StatusNotFound, "/browse.json": http.StatusNotFound} {
		r, err := http.NewRequestWithContext(within(t), http.MethodGet, p.base+path, nil)
		must(t, err)
		resp, err := http.DefaultClient.Do(r)
		must(t, err)
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
}

// inOrder sends what has to wait, and stops it.
func (p *sidePanel) inOrder() {
	p.t.Helper()
	for i, want := range []string{"processing", "queued 1", "queued 2", "queued 3", "queued 4", "queued 5", "429 Queue full (max 5)", "429 Queue full (max 5)"} {
		script := "sleep:1h"
		if i > 0 {
			script = fmt.Sprint("say:number ", i)
		}
		if got := p.says(script); got != want {
			p.t.Errorf("message %d: %s, want %s", i, got, want)
		}
	}
	p.until("user sleep:1h", "agent_start") // when it really begins, others may wait already
	p.until("user sleep:1h", "user say:number 5")
	if strings.Contains(p.shown(), "say:number 6") {
		p.t.Error("a message that was refused is shown")
	}
	var answer struct {
		OK             bool
		QueuedMessages int
	}
	if status := p.post("/sidebar-queue/dismiss", `{"index":1}`, nil); status != http.StatusOK {
		p.t.Errorf("dismiss: %d", status)
	}
	if p.post("/sidebar-agent/stop", "", &answer); !answer.OK || answer.QueuedMessages != 4 {
		p.t.Errorf("stop: %+v", answer)
	}
	p.until("agent_error Stopped by user")
	if got := p.says("say:first"); got != "processing" && got != "queued 1" {
		p.t.Error(got)
	}
	if got := p.says("recall"); !strings.HasPrefix(got, "queued") && got != "processing" {
		p.t.Error(got)
	}
	p.until("result first", "agent_done", "result", "say:first", "agent_done")
	if strings.Contains(p.shown(), "text number 1") {
		p.t.Error("a message that was dropped has run")
	}
}

// twoTabs has two tabs work at the same time, as our own panel says which.
func (p *sidePanel) twoTabs() {
	p.t.Helper()
	if got := p.says("sleep:1h", `,"tabId":2`); got != "processing" {
		p.t.Error(got)
	}
	if got := p.says("say:meanwhile", `,"tabId":3`); got != "processing" {
		p.t.Error(got)
	}
	p.until("user say:meanwhile", "agent_start", "result meanwhile", "agent_done")
	if p.tab != 3 || strings.Contains(p.shown(), "sleep") {
		p.t.Errorf("tab %d shows %s", p.tab, p.shown())
	}
	if status := p.post("/sidebar-tabs/switch", `{"id":2}`, nil); status != http.StatusOK {
		p.t.Errorf("switch: %d", status)
	}
	p.until("user sleep:1h", "agent_start")
	if p.tab != 2 || p.status != "processing" {
		p.t.Errorf("tab %d is %s", p.tab, p.status)
	}
	if status := p.post("/sidebar-agent/kill", `{"tabId":2}`, nil); status != http.StatusOK {
		p.t.Errorf("kill: %d", status)
	}
	p.until("agent_error Killed by user")
}

// follow opens the stream of our own panel, and returns what waits until it has
// brought entries of these types.
func (p *sidePanel) follow() (until func(types ...string)) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	p.t.Cleanup(cancel)
	resp, err := p.request(ctx, http.MethodGet, fmt.Sprint("/sidebar-chat/stream?after=", p.mark), "")
	must(p.t, err)
	if resp.StatusCode != http.StatusOK {
		p.t.Fatalf("the stream: %d", resp.StatusCode)
	}
	seen := &lockedBuffer{}
	go func() { // ends with ctx
		defer resp.Body.Close()
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			var e panelEntry
			if data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: ")); ok && json.Unmarshal(data, &e) == nil && e.Type != "" {
				fmt.Fprintln(seen, e.Type)
			}
		}
	}()
	return func(types ...string) {
		p.t.Helper()
		await(p.t, "the stream", func() bool {
			for _, want := range types {
				if !strings.Contains(seen.String(), want+"\n") {
					return false
				}
			}
			return true
		})
	}
}

// tooMany polls as fast as it can: that is bounded, and said so.
func (p *sidePanel) tooMany(s *Stack) {
	p.t.Helper()
	refused := 0
	for range 200 {
		resp, err := p.request(within(p.t), http.MethodGet, "/sidebar-chat?after=0", "")
		must(p.t, err)
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") != "" {
			refused++
		}
	}
	resp, err := http.Get(s.Ready.Relays[0].AdminURL + "/metrics")
	must(p.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(p.t, err)
	if refused == 0 || strings.Contains(string(text), "fairlead_sidebar_requests_limited_total 0\n") {
		p.t.Errorf("%d polls were refused", refused)
	}
}

// TestSidePanelAcrossRelayKills: what waits goes on while the relay is dead, once,
// and numbers never begin again.
func TestSidePanelAcrossRelayKills(t *testing.T) {
	s := talkStack(t, "", "--extension-ids", chatExtension)
	p := newSidePanel(t, s, "alice")
	for i, script := range []string{"sleep:2s\nsay:slow", "say:second", "say:third"} {
		if got := p.says(script); (got == "processing") != (i == 0) {
			t.Errorf("message %d: %s", i, got)
		}
	}
	p.until("user sleep:2s", "agent_start")
	p.until("user sleep:2s", "user say:third")
	mark := p.mark
	killRelay(t, s)
	p.until("result slow", "agent_done", "result second", "agent_done", "result third", "agent_done")
	if strings.Count(p.shown(), "result second") != 1 || p.mark < mark {
		t.Errorf("%s", p.shown())
	}
	if status := p.post("/sidebar-chat/clear", "", nil); status != http.StatusOK {
		t.Errorf("clear: %d", status)
	}
	mark = p.mark
	if got := p.says("say:after"); got != "processing" {
		t.Error(got)
	}
	p.until("result after", "agent_done")
	if p.mark <= mark {
		t.Errorf("%d behind %d", p.mark, mark)
	}
}

// TestSidePanelQuestions: Bash asks, and somebody who may approve answers in a panel.
// Whoever answers then is told that it was too late.
func TestSidePanelQuestions(t *testing.T) {
	s := talkStack(t, "", "--extension-ids", chatExtension)
	p := newSidePanel(t, s, "alice")
	bob := newSidePanel(t, s, "bob")
	for _, c := range []struct {
		allow   bool
		outcome string
	}{{true, "allowed"}, {false, "denied"}} {
		if got := p.says(`ask:Bash {"command":"true"}`); got != "processing" {
			t.Fatal(got)
		}
		p.until("user ask:Bash", "agent question")
		q := p.last("question")
		if q.Tool != "Bash" || q.Input != "true" || q.RequestID == "" {
			t.Errorf("%+v", q)
		}
		body := fmt.Sprintf(`{"requestId":%q,"allow":%t}`, q.RequestID, c.allow)
		var answer struct {
			Applied bool
			Outcome string
		}
		if status := bob.post("/sidebar-agent/answer", body, &answer); status != http.StatusOK || !answer.Applied || answer.Outcome != c.outcome {
			t.Errorf("%d %+v", status, answer)
		}
		if status := p.post("/sidebar-agent/answer", body, &answer); status != http.StatusOK || answer.Applied || answer.Outcome != c.outcome {
			t.Errorf("again: %d %+v", status, answer)
		}
		p.until("agent answered "+c.outcome, "agent agent_done")
		if a := p.last("answered"); a.RequestID != q.RequestID || a.By == "" {
			t.Errorf("%+v", a)
		}
		if status := p.post("/sidebar-chat/clear", "", nil); status != http.StatusOK {
			t.Errorf("clear: %d", status)
		}
		p.entries = nil
	}
}

// last returns the latest entry of a type.
func (p *sidePanel) last(kind string) panelEntry {
	p.t.Helper()
	for _, e := range slices.Backward(p.entries) {
		if e.Type == kind {
			return e
		}
	}
	p.t.Fatalf("no entry is a %s", kind)
	return panelEntry{}
}

// TestSidePanelAcrossAnAgentKill: the sandbox's agent is killed in the middle of a run.
// A panel that polls on gets what became of it, and nothing twice; one that is opened
// then gets all of it, with the same numbers.
// It is about weakness 26 in deploy/e2e/README.md.
func TestSidePanelAcrossAnAgentKill(t *testing.T) {
	s := talkStack(t, "", "--extension-ids", chatExtension)
	p := newSidePanel(t, s, "alice")
	if got := p.says("say:first"); got != "processing" {
		t.Fatal(got)
	}
	p.until("user say:first", "agent result first", "agent agent_done")
	if got := p.says("say:half\nsleep:1h"); got != "processing" {
		t.Error(got)
	}
	p.until("user say:half", "agent agent_start")
	if got := p.says("say:never"); got != "queued 1" {
		t.Error(got)
	}
	p.until("user say:half", "user say:never")
	restartAgent(t, s.Ready.Sandboxes[0].PID)
	lost := "agent agent_error The sandbox's agent was restarted. 1 waiting messages were not sent."
	p.until("user say:half", lost)
	if p.status != "idle" || strings.Count(p.shown(), "restarted") != 1 {
		t.Errorf("%s:\n%s", p.status, p.shown())
	}
	late := newSidePanel(t, s, "alice")
	late.until("user say:first", "agent result first", "agent agent_done", "user say:half", lost)
	for _, e := range late.entries {
		if !slices.Contains(p.entries, e) {
			t.Errorf("%+v is new", e)
		}
	}
	if got := p.says("say:on"); got != "processing" {
		t.Error(got)
	}
	p.until(lost, "user say:on", "agent result on", "agent agent_done")
}

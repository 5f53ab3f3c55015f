package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/e2e/agents/fakemodel"
	"github.com/fairlead/fairlead/protocol"
)

// A realAgent is a coding agent as its makers publish it, and how it is run
// against a model of ours without anybody to ask.
type realAgent struct {
	name     string
	reported string // its name in agent_stopped
	// settings are what a person has in a file beforehand, %MODEL% being where
	// the model is.
	file, settings string
	environ        string
	command        string
}

// quiet keeps agents from talking to anybody but the model: what goes elsewhere
// goes to a port where nobody listens.
const quiet = "HTTP_PROXY=http://127.0.0.1:9 HTTPS_PROXY=http://127.0.0.1:9 http_proxy=http://127.0.0.1:9 " +
	"https_proxy=http://127.0.0.1:9 NO_PROXY=127.0.0.1,localhost no_proxy=127.0.0.1,localhost DO_NOT_TRACK=1"

var realAgents = []realAgent{
	{
		name: "claude", reported: "claude-code",
		file: ".claude/settings.json", settings: `{"includeCoAuthoredBy": false}`,
		environ: "ANTHROPIC_BASE_URL=%MODEL% ANTHROPIC_API_KEY=none CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 DISABLE_AUTOUPDATER=1",
		command: "claude -p 'list the terminals' --allowedTools mcp__fairlead__terminal_list </dev/null",
	},
	{
		name: "codex", reported: "codex",
		file: ".codex/config.toml",
		settings: "model = \"fake\" # mine\nmodel_provider = \"fake\"\n[model_providers.fake]\nname = \"fake\"\n" +
			"base_url = \"%MODEL%/v1\"\nenv_key = \"FAKE_KEY\"\nwire_api = \"responses\"\n",
		environ: "FAKE_KEY=none",
		command: "codex exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox 'list the terminals' </dev/null",
	},
	{
		name: "gemini", reported: "gemini",
		file: ".gemini/settings.json", settings: `{"security": {"auth": {"selectedType": "gemini-api-key"}}, "model": {"name": "fake"}}`,
		environ: "GEMINI_API_KEY=none GOOGLE_GEMINI_BASE_URL=%MODEL% GEMINI_CLI_TRUST_WORKSPACE=true",
		command: "gemini -p 'list the terminals' -m fake --approval-mode yolo </dev/null",
	},
	{
		name: "opencode", reported: "opencode",
		file: ".config/opencode/opencode.json",
		settings: `{"autoupdate": false, "model": "fake/m", "small_model": "fake/m", "provider": {"fake": {"npm": "@ai-sdk/openai-compatible", ` +
			`"options": {"baseURL": "%MODEL%/v1", "apiKey": "none"}, "models": {"m": {"name": "m", "tool_call": true}}}}}`,
		environ: "OPENCODE_DISABLE_AUTOUPDATE=1 OPENCODE_DISABLE_MODELS_FETCH=1",
		command: "opencode run 'list the terminals' </dev/null",
	},
	{
		name: "droid", reported: "droid",
		file: ".factory/settings.json",
		settings: `{"customModels": [{"model": "fake", "displayName": "fake", "baseUrl": "%MODEL%", "apiKey": "none", ` +
			`"provider": "anthropic", "maxOutputTokens": 8192}]}`,
		command: "droid exec --skip-permissions-unsafe --model custom:fake-0 'list the terminals' </dev/null",
	},
}

// TestRealAgents runs published coding agents in front of a shared terminal. Each
// keeps its person's settings, lists our tools, has one called, and says so to
// everybody when its turn is over; of Claude Code a browser shows it. FAIRLEAD_AGENTS is the folder that `make
// test-agents` has installed them in.
func TestRealAgents(t *testing.T) {
	dir := os.Getenv("FAIRLEAD_AGENTS")
	if dir == "" {
		t.Skip("make test-agents installs and runs them")
	}
	bin := filepath.Join(reachable(t, dir), "node_modules", ".bin")
	s := shared(t)
	for _, agent := range realAgents {
		t.Run(agent.name, func(t *testing.T) {
			if _, err := os.Stat(filepath.Join(bin, agent.name)); err != nil {
				t.Fatalf("%s is not installed: %v", agent.name, err)
			}
			runRealAgent(t, s, agent, bin)
		})
	}
}

// reachable returns where the users of terminals find what is in dir: there, or,
// where dir is in somebody's closed home, elsewhere as links or copies.
func reachable(t *testing.T, dir string) string {
	t.Helper()
	dir, err := filepath.Abs(dir)
	must(t, err)
	closed := false
	for at := filepath.Join(dir, "node_modules"); at != filepath.Dir(at); at = filepath.Dir(at) {
		st, err := os.Stat(at)
		must(t, err)
		closed = closed || st.Mode()&0o001 == 0
	}
	if !closed || os.Geteuid() != 0 { // without root there is one user
		return dir
	}
	open, err := os.MkdirTemp(openTemp, tempName())
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(open) })
	must(t, os.Chmod(open, 0o755))
	from := filepath.Join(dir, "node_modules")
	if exec.Command("cp", "-al", from, open).Run() != nil { // another file system
		output, err := exec.Command("cp", "-a", from, open).CombinedOutput()
		if err != nil {
			t.Fatalf("cp: %v: %s", err, output)
		}
	}
	must(t, exec.Command("chmod", "-R", "a+rX", open).Run())
	return open
}

func runRealAgent(t *testing.T, s *Stack, agent realAgent, bin string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	model := fakemodel.New(fakemodel.Script{Tool: "terminal_list", Answer: "the-terminals-are"})
	server := httptest.NewServer(model)
	defer server.Close()
	at := func(text string) string { return strings.ReplaceAll(text, "%MODEL%", server.URL) }

	id := newPTY(t, s, "")
	a := attach(t, s, "alice", id)
	_, err := a.ExpectMessage(ctx, protocol.ServerControlState, controller(s.Ready.User("alice").ID))
	must(t, err)
	b := attach(t, s, "bob", id)
	var carol *window
	if agent.name == "claude" && chromiumInstalled() {
		carol = openWindow(t, "realclaude", linkTo(s, "carol", id), 1440, 900)
		carol.untilText("controller", "alice has control")
	}
	folder := filepath.Dir(agent.file)
	must(t, a.Type(ctx, fmt.Sprintf("mkdir -p ~/%s && cat >~/%s <<'END' && echo set-$((1+1))\n%s\nEND\n", folder, agent.file, at(agent.settings))))
	must(t, a.Expect(ctx, "set-2\r\n"))

	began := time.Now()
	// Claude ends without a word where it can't make a folder for temporary files.
	command := fmt.Sprintf("export PATH=%s:$PATH TMPDIR=$HOME CLAUDE_CODE_TMPDIR=$HOME %s %s; %s; echo it-ended-$?",
		bin, quiet, at(agent.environ), agent.command)
	if status, answer := agentOp(ctx, t, s, "alice", "", id, map[string]any{"name": agent.name, "command": command}); status != 200 {
		t.Fatalf("start: %d %s", status, answer)
	}
	stopped, err := b.ExpectMessage(ctx, protocol.ServerAgentStopped, nil)
	if err != nil {
		t.Fatalf("%v; the model was asked %v and offered %v", err, model.Requests(), model.Offered())
	}
	t.Logf("%s: a turn after %v, %d tools offered", agent.name, time.Since(began).Round(10*time.Millisecond), len(model.Offered()))
	if stopped["agent"] != agent.reported || stopped["reason"] != string(protocol.StopComplete) {
		t.Errorf("agent_stopped says %v", stopped)
	}
	if said, _ := stopped["lastMessage"].(string); !strings.Contains(said, "the-terminals-are") || !strings.Contains(said, string(id)) {
		t.Errorf("it said %q last, not the id of terminal %s", said, id)
	}
	if carol != nil {
		carol.tool("btn-agent-panel")
		carol.untilText("agent-message", "the-terminals-are")
		carol.untilText("agent-turn-reason", "Claude has finished its turn")
		carol.shoot("stopped")
	}
	must(t, b.Expect(ctx, "it-ended-0"))
	results := model.Results()
	if len(results) != 1 || !strings.Contains(results[0], string(id)) {
		t.Errorf("the calls came to %q", results)
	}
	for _, tool := range []string{"terminal_list", "file_read", "browser_navigate", "task_list"} {
		if agent.name != "droid" && !offers(model, tool) { // droid tells of what is searched for alone
			t.Errorf("%s was not offered, only %v", tool, model.Offered())
		}
	}
	agentState(ctx, t, b, protocol.AgentStopped)
}

// offers reports whether an agent has offered a tool of ours, whatever it put
// before the name.
func offers(model *fakemodel.Server, tool string) bool {
	for _, name := range model.Offered() {
		if name == tool || strings.HasSuffix(name, "_"+tool) {
			return true
		}
	}
	return false
}

// wiredAgents are those that new terminals have settings for.
var wiredAgents = []string{"claude", "gemini", "opencode", "codex", "droid", "openclaw"}

// TestWiredAgents has stand-ins for all six agents read the settings that a new
// terminal has, each by its own rules, use a tool and run their hooks.
func TestWiredAgents(t *testing.T) {
	dir := standIns(t)
	s := own(t) // few terminals, so that a list of them fits a last message
	for _, name := range wiredAgents {
		t.Run(name, func(t *testing.T) {
			ctx := within(t)
			id := newPTY(t, s, "")
			a, b := attach(t, s, "alice", id), attach(t, s, "bob", id)
			body := map[string]any{"name": name, "command": "exec " + filepath.Join(dir, name)}
			if status, answer := agentOp(ctx, t, s, "alice", "", id, body); status != 200 {
				t.Fatalf("start: %d %s", status, answer)
			}
			must(t, b.Expect(ctx, name+": ready\r\n"))
			if name == "codex" || name == "openclaw" {
				// No hook of theirs comes before a prompt, and under a command of our
				// own the agent can't know that they have none: a person pauses them.
				agentOp(ctx, t, s, "alice", "/pause", id, nil)
				agentState(ctx, t, a, protocol.AgentPaused)
				must(t, a.Type(ctx, "terminal_list\r"))
				agentOp(ctx, t, s, "alice", "/resume", id, nil)
			} else {
				agentState(ctx, t, b, protocol.AgentWaiting)
				must(t, a.Type(ctx, "terminal_list\r"))
			}
			must(t, b.Expect(ctx, name+": done\r\n"))
			stopped, err := b.ExpectMessage(ctx, protocol.ServerAgentStopped, nil)
			must(t, err)
			if said, _ := stopped["lastMessage"].(string); !strings.Contains(said, "terminal_list says") || !strings.Contains(said, string(id)) {
				text, _ := json.Marshal(stopped)
				t.Errorf("agent_stopped says %s", text)
			}
			agentState(ctx, t, b, protocol.AgentWaiting)
			must(t, a.Type(ctx, "/exit\r"))
			agentState(ctx, t, b, protocol.AgentStopped)
		})
	}
}

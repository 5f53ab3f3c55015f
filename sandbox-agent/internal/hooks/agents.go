package hooks

import (
	_ "embed"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
)

const (
	// ServerName is what our MCP server is called in settings.
	ServerName = "fairlead" // of our tools, in coding agents' settings
	// bridgeCommand is the subcommand of sandbox-agent that is our MCP server.
	bridgeCommand = "mcp-bridge"

	// Events that hooks report.
	eventStart = "start" // the agent works: it was given a prompt, or a question was answered
	eventStop  = "stop"  // its turn is over
	eventAsk   = "ask"   // it asks the person a question within its turn
	eventFail  = "fail"  // its turn ended with an error
	eventReady = "ready" // it waits for its first prompt
	// eventInterrupt reports that a person interrupted the turn.
	eventInterrupt = "interrupt"
)

// An agent is a coding agent that Wire can configure.
type agent struct {
	name     string
	reported string // its name in reports
	files    func(command string) []file
}

// agents in the order of process.CLIs.
var agents = []agent{
	{"claude", "claude-code", claudeFiles},
	{"gemini", "gemini", geminiFiles},
	{"opencode", "opencode", openCodeFiles},
	{"codex", "codex", func(command string) []file {
		return []file{{name: ".codex/config.toml", format: codexFile{command: command}}}
	}},
	{"droid", "droid", droidFiles},
	{"openclaw", "openclaw", openClawFiles},
	{"cursor", "cursor", func(command string) []file {
		return []file{{name: ".cursor/mcp.json", format: jsonFile{
			server(stdio{Command: command, Args: []string{bridgeCommand}}, "mcpServers"),
		}}}
	}},
}

// agentCalled returns the agent called name.
func agentCalled(name string) (agent, bool) {
	i := slices.IndexFunc(agents, func(a agent) bool { return a.name == name })
	if i < 0 {
		return agent{}, false
	}
	return agents[i], true
}

// stdio is an MCP server in the settings of most agents. The settings never
// hold its secret: the environment or the credentials file does.
type stdio struct {
	Type     string   `json:"type,omitempty"`
	Command  string   `json:"command"`
	Args     []string `json:"args"`
	Disabled *bool    `json:"disabled,omitempty"`
}

// server is the entry of our MCP server.
func server(value any, path ...string) entry {
	return entry{path: append(path, ServerName), value: value, mine: func(v json.RawMessage) bool {
		var s struct {
			Command json.RawMessage `json:"command"`
			Args    []string        `json:"args"`
		}
		var argv []string // OpenCode has one list
		if json.Unmarshal(v, &s) != nil {
			return false
		}
		if json.Unmarshal(s.Command, &argv) == nil && len(argv) > 0 {
			s.Args = argv[1:]
		}
		return slices.Equal(s.Args, []string{bridgeCommand})
	}}
}

// A hookGroup holds the hooks that claude, gemini and droid run at an event.
type hookGroup struct {
	Matcher string        `json:"matcher,omitempty"`
	Hooks   []hookProgram `json:"hooks"`
}

type hookProgram struct {
	Name    string `json:"name,omitempty"`
	Type    string `json:"type"`
	Command string `json:"command"` // for a shell
	Timeout int    `json:"timeout"`
}

// hook returns the settings entry by which agent runs our hook at one of its
// own events. timeout is in the agent's unit.
func hook(command, agent, at, event, matcher string, timeout int) entry {
	call := " hook " + agent + " " + event
	p := hookProgram{Type: "command", Command: shellQuote(command) + call, Timeout: timeout}
	if agent == "gemini" { // gemini lists hooks by name
		p.Name = ServerName + "-" + event
	}
	return entry{path: []string{"hooks", at}, listed: true, value: hookGroup{Matcher: matcher, Hooks: []hookProgram{p}},
		mine: func(v json.RawMessage) bool {
			var g hookGroup
			return json.Unmarshal(v, &g) == nil && len(g.Hooks) == 1 && strings.HasSuffix(g.Hooks[0].Command, call)
		}}
}

// shellQuote returns s as one word of a POSIX shell.
func shellQuote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// claudeFiles: a question arrives as a notification, and PostToolUse says that
// it was answered. No hook reports a turn that a person interrupts.
func claudeFiles(command string) []file {
	const seconds = 10
	return []file{
		{name: ".claude.json", format: jsonFile{
			server(stdio{Type: "stdio", Command: command, Args: []string{bridgeCommand}}, "mcpServers"),
		}},
		{name: ".claude/settings.json", format: jsonFile{
			hook(command, "claude", "SessionStart", eventReady, "", seconds),
			hook(command, "claude", "UserPromptSubmit", eventStart, "", seconds),
			hook(command, "claude", "PostToolUse", eventStart, "", seconds),
			hook(command, "claude", "Notification", eventAsk, "permission_prompt|elicitation_dialog", seconds),
			hook(command, "claude", "Stop", eventStop, "", seconds),
		}},
	}
}

// geminiFiles: gemini deletes old sessions by itself, and with an empty file that
// resuming a session leaves behind it deletes the whole session at its next start.
// People delete their conversations themselves.
func geminiFiles(command string) []file {
	const milliseconds = 10_000
	return []file{{name: ".gemini/settings.json", format: jsonFile{
		server(stdio{Command: command, Args: []string{bridgeCommand}}, "mcpServers"),
		{path: []string{"general", "sessionRetention", "enabled"}, value: false, yields: true},
		hook(command, "gemini", "SessionStart", eventReady, "*", milliseconds),
		hook(command, "gemini", "BeforeAgent", eventStart, "*", milliseconds),
		hook(command, "gemini", "AfterTool", eventStart, "*", milliseconds),
		hook(command, "gemini", "Notification", eventAsk, "*", milliseconds),
		hook(command, "gemini", "AfterAgent", eventStop, "*", milliseconds),
	}}}
}

//go:embed opencode.js
var openCodePlugin string

// openCodeFiles: a plugin makes OpenCode fetch a package before it starts. The
// plugin doesn't need it, so the .npmrc lets OpenCode start at once when the
// fetch fails.
func openCodeFiles(command string) []file {
	type local struct {
		Type    string   `json:"type"`
		Command []string `json:"command"`
		Enabled bool     `json:"enabled"`
	}
	const dir = ".config/opencode/"
	return []file{
		{name: dir + "opencode.json", other: dir + "opencode.jsonc", format: jsonFile{
			server(local{"local", []string{command, bridgeCommand}, true}, "mcp"),
		}},
		{name: dir + "plugins/fairlead.js", format: ownFile(strings.ReplaceAll(openCodePlugin, `"COMMAND"`, quote(command)))},
		{name: dir + ".npmrc", format: defaultFile("fetch-retries=0\n")},
	}
}

func droidFiles(command string) []file {
	const seconds = 10
	enabled := false
	return []file{
		{name: ".factory/mcp.json", format: jsonFile{
			server(stdio{Type: "stdio", Command: command, Args: []string{bridgeCommand}, Disabled: &enabled}, "mcpServers"),
		}},
		{name: ".factory/settings.json", format: jsonFile{
			hook(command, "droid", "SessionStart", eventReady, "", seconds),
			hook(command, "droid", "UserPromptSubmit", eventStart, "", seconds),
			hook(command, "droid", "PostToolUse", eventStart, "", seconds),
			hook(command, "droid", "Notification", eventAsk, "", seconds),
			hook(command, "droid", "Stop", eventStop, "", seconds),
		}},
	}
}

//go:embed openclaw.js
var openClawHandler string

//go:embed openclaw.md
var openClawHook string

// openClawFindsHooks reports whether OpenClaw runs every hook that it finds,
// ours included. Once a single hook is named, it runs only named ones.
func openClawFindsHooks(root *hujson.Value) bool {
	var c struct {
		Hooks struct {
			Internal struct {
				Enabled bool                       `json:"enabled"`
				Entries map[string]json.RawMessage `json:"entries"`
			} `json:"internal"`
		} `json:"hooks"`
	}
	return json.Unmarshal(plain(root), &c) == nil && c.Hooks.Internal.Enabled && len(c.Hooks.Internal.Entries) == 0
}

func openClawFiles(command string) []file {
	const dir = ".openclaw/"
	return []file{
		{name: dir + "openclaw.json", format: jsonFile{
			server(stdio{Command: command, Args: []string{bridgeCommand}}, "mcp", "servers"),
			{
				path: []string{"hooks", "internal", "entries", ServerName}, value: map[string]bool{"enabled": true},
				mine:   func(v json.RawMessage) bool { return equal(v, json.RawMessage(`{"enabled":true}`)) },
				unless: openClawFindsHooks,
			},
		}},
		{name: dir + "hooks/fairlead/HOOK.md", format: ownFile(openClawHook)},
		{name: dir + "hooks/fairlead/handler.js", format: ownFile(strings.ReplaceAll(openClawHandler, `"COMMAND"`, quote(command)))},
	}
}

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/tailscale/hujson"
)

// settings are what an agent makes of its files.
type settings struct {
	server []string          // the command of the MCP server
	keeps  func(string) bool // which variables the server gets
	hooks  map[string][]hook // by moment: ready, start and stop
}

// How a hook is told what was said.
const (
	onStdin = iota
	asArgument
	inEnvironment
)

// A hook is a program that is run.
type hook struct {
	argv []string
	how  int
	said string // the name under which it is told what was said
}

// environ returns what the server gets of an environment.
func (s settings) environ(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return !s.keeps(name)
	})
}

// read reads the settings of the agent called name.
func read(name, home string) (settings, error) {
	readers := map[string]func(string) (settings, error){
		"claude": readClaude, "gemini": readGemini, "opencode": readOpenCode,
		"codex": readCodex, "droid": readDroid, "openclaw": readOpenClaw,
	}
	r, ok := readers[name]
	if !ok {
		return settings{}, fmt.Errorf("no coding agent is called %q", name)
	}
	s, err := r(home)
	if err == nil && len(s.server) == 0 {
		err = errors.New("no MCP server fairlead in the settings")
	}
	return s, err
}

// A serverEntry is an MCP server in JSON; OpenCode's command is a list.
type serverEntry struct {
	Command json.RawMessage `json:"command"`
	Args    []string        `json:"args"`
}

func (e serverEntry) argv() []string {
	var list []string
	if json.Unmarshal(e.Command, &list) == nil {
		return list
	}
	var program string
	if json.Unmarshal(e.Command, &program) != nil || program == "" {
		return nil
	}
	return append([]string{program}, e.Args...)
}

// shellHooks are hooks as claude, gemini and droid have them.
type shellHooks map[string][]struct {
	Matcher string `json:"matcher"`
	Hooks   []struct {
		Command string `json:"command"`
	} `json:"hooks"`
}

// at returns what runs at moments, each given as "moment=its name there".
func (h shellHooks) at(said string, moments ...string) map[string][]hook {
	all := make(map[string][]hook)
	for _, m := range moments {
		moment, theirs, _ := strings.Cut(m, "=")
		for _, group := range h[theirs] {
			for _, one := range group.Hooks {
				all[moment] = append(all[moment], hook{argv: []string{"sh", "-c", one.Command}, how: onStdin, said: said})
			}
		}
	}
	return all
}

// readJSON reads a file that may have comments into v; one that isn't there
// says nothing.
func readJSON(v any, path ...string) error {
	name := filepath.Join(path...)
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		text, err = hujson.Standardize(text)
	}
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func anything(string) bool { return true }

func readClaude(home string) (settings, error) {
	var servers struct {
		All map[string]serverEntry `json:"mcpServers"`
	}
	var rest struct {
		Hooks shellHooks `json:"hooks"`
	}
	err := errors.Join(readJSON(&servers, home, ".claude.json"), readJSON(&rest, home, ".claude", "settings.json"))
	return settings{
		server: servers.All["fairlead"].argv(), keeps: anything,
		hooks: rest.Hooks.at("last_assistant_message", "ready=SessionStart", "start=UserPromptSubmit", "stop=Stop"),
	}, err
}

// readGemini: its servers get no variable whose name sounds secret.
func readGemini(home string) (settings, error) {
	var all struct {
		Servers map[string]serverEntry `json:"mcpServers"`
		Hooks   shellHooks             `json:"hooks"`
	}
	err := readJSON(&all, home, ".gemini", "settings.json")
	return settings{
		server: all.Servers["fairlead"].argv(), keeps: func(name string) bool { return !strings.Contains(name, "SECRET") },
		hooks: all.Hooks.at("prompt_response", "ready=SessionStart", "start=BeforeAgent", "stop=AfterAgent"),
	}, err
}

func readDroid(home string) (settings, error) {
	var servers struct {
		All map[string]serverEntry `json:"mcpServers"`
	}
	var rest struct {
		Hooks shellHooks `json:"hooks"`
	}
	err := errors.Join(readJSON(&servers, home, ".factory", "mcp.json"), readJSON(&rest, home, ".factory", "settings.json"))
	return settings{
		server: servers.All["fairlead"].argv(), keeps: anything,
		hooks: rest.Hooks.at("last_assistant_message", "ready=SessionStart", "start=UserPromptSubmit", "stop=Stop"),
	}, err
}

// spawned finds the program that a plugin in JavaScript runs.
var spawned = regexp.MustCompile(`spawn\(("[^"]*")`)

// pluginHooks does what the plugin in a file does for moments.
func pluginHooks(agent string, moments []string, path ...string) (map[string][]hook, error) {
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		return nil, err
	}
	m := spawned.FindSubmatch(text)
	var program string
	if m == nil || json.Unmarshal(m[1], &program) != nil {
		return nil, errors.New("the plugin runs no program")
	}
	all := make(map[string][]hook)
	for _, moment := range moments {
		all[moment] = []hook{{argv: []string{program, "hook", agent, moment}, how: inEnvironment, said: "last_assistant_message"}}
	}
	return all, nil
}

func readOpenCode(home string) (settings, error) {
	var all struct {
		Servers map[string]serverEntry `json:"mcp"`
	}
	dir := filepath.Join(home, ".config", "opencode")
	err := errors.Join(readJSON(&all, dir, "opencode.json"), readJSON(&all, dir, "opencode.jsonc"))
	hooks, err2 := pluginHooks("opencode", []string{"ready", "start", "stop"}, dir, "plugins", "fairlead.js")
	return settings{server: all.Servers["fairlead"].argv(), keeps: anything, hooks: hooks}, errors.Join(err, err2)
}

// readOpenClaw: its servers get none of our variables.
func readOpenClaw(home string) (settings, error) {
	var all struct {
		MCP struct {
			Servers map[string]serverEntry `json:"servers"`
		} `json:"mcp"`
	}
	dir := filepath.Join(home, ".openclaw")
	err := readJSON(&all, dir, "openclaw.json")
	hooks, err2 := pluginHooks("openclaw", []string{"start", "stop"}, dir, "hooks", "fairlead", "handler.js")
	return settings{
		server: all.MCP.Servers["fairlead"].argv(), keeps: func(name string) bool { return !strings.HasPrefix(name, "FAIRLEAD_") }, hooks: hooks,
	}, errors.Join(err, err2)
}

// readCodex: its servers get what is named, and little else.
func readCodex(home string) (settings, error) {
	text, err := os.ReadFile(filepath.Join(home, ".codex", "config.toml"))
	if err != nil {
		return settings{}, err
	}
	var all struct {
		Notify  []string `toml:"notify"`
		Servers map[string]struct {
			Command   string   `toml:"command"`
			Args      []string `toml:"args"`
			Variables []string `toml:"env_vars"`
		} `toml:"mcp_servers"`
	}
	if err := toml.Unmarshal(text, &all); err != nil {
		return settings{}, fmt.Errorf("config.toml: %w", err)
	}
	server := all.Servers["fairlead"]
	s := settings{keeps: func(name string) bool {
		return slices.Contains(server.Variables, name) || slices.Contains([]string{"HOME", "PATH", "LANG", "TERM"}, name)
	}}
	if server.Command != "" {
		s.server = append([]string{server.Command}, server.Args...)
	}
	if len(all.Notify) > 0 {
		s.hooks = map[string][]hook{"stop": {{argv: all.Notify, how: asArgument, said: "last-assistant-message"}}}
	}
	return s, nil
}

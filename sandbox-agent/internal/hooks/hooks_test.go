package hooks

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/tailscale/hujson"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const command = "/opt/fairlead/bin/sandbox-agent"

// newHome returns a home with files in it.
func newHome(t *testing.T, files map[string]string) *os.Root {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	home, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { home.Close() })
	return home
}

// snapshot returns all files and folders of home with their content.
func snapshot(t *testing.T, home *os.Root) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := fs.WalkDir(home.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		if d.IsDir() {
			all[name+"/"] = ""
			return nil
		}
		if d.Type()&fs.ModeSymlink != 0 {
			to, err := home.Readlink(name)
			all[name+"@"] = to
			return err
		}
		text, err := home.ReadFile(name)
		all[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// sameSnapshot reports what differs.
func sameSnapshot(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	for name, text := range want {
		if there, ok := got[name]; !ok {
			t.Errorf("%s: %s is missing", what, name)
		} else if there != text {
			t.Errorf("%s: %s is\n%q\nwant\n%q", what, name, there, text)
		}
	}
	for name, text := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: %s is there: %q", what, name, text)
		}
	}
}

func wire(t *testing.T, home *os.Root, o Options) {
	t.Helper()
	if o.Command == "" {
		o.Command = command
	}
	if err := Wire(home, o); err != nil {
		t.Fatal(err)
	}
}

// homes are those in which wiring must leave no trace when it is undone.
var homes = map[string]map[string]string{
	"empty":  {},
	"spaces": {".claude.json": "", ".gemini/settings.json": " \n\n", ".codex/config.toml": ""},
	"plain": {
		".claude.json":                   `{"numStartups": 3, "mcpServers": {"eco": {"command": "eco"}}}`,
		".claude/settings.json":          "{\n    \"model\": \"opus\",\n    \"hooks\": {\n        \"Stop\": [\n            {\"hooks\": [{\"type\": \"command\", \"command\": \"say done\"}]}\n        ]\n    }\n}\n",
		".gemini/settings.json":          "{\"mcpServers\":{},\"hooks\":{\"AfterAgent\":[]}}",
		".config/opencode/opencode.json": "{\n\t\"mcp\": {\n\t}\n}",
		".config/opencode/.npmrc":        "registry=http://127.0.0.1:1\n",
		".codex/config.toml":             "model = \"o9\"\n\n[mcp_servers.eco]\ncommand = \"eco\"",
		".factory/mcp.json":              "{}",
		".factory/settings.json":         "{ }\n",
		".openclaw/openclaw.json":        "{\"hooks\": {\"internal\": {\"entries\": {\"session-memory\": {\"enabled\": true}}}}}",
	},
	"comments": {
		".claude/settings.json":           "// mine\n{\n  // the model\n  \"model\": \"opus\", // best\n  /* none yet */\n  \"hooks\": { /* Stop: later */ }, // trailing\n}\n// end\n",
		".gemini/settings.json":           "{\"a\":1 // last\n}",
		".config/opencode/opencode.jsonc": "{\n  // nothing here\n}\n",
		".codex/config.toml":              "# mine\nmodel = \"o9\" # best\nnotify = [\"say\", \"done\"]\n\n# trusted\n[projects.\"/w\"] # this one\ntrust_level = \"trusted\" # yes\n# the end\n",
		".factory/mcp.json":               "{\n  \"mcpServers\": {\n    \"x\": {\"command\": \"x\"}, // x\n    // \"y\": {}\n  }\n}",
	},
	"decided": {
		".gemini/settings.json": "{\n  \"general\": {\"sessionRetention\": {\"enabled\": true, \"maxAge\": \"7d\"}}\n}\n",
		".codex/config.toml":    "[features] # mine\ndaemon_auto_start = true\n",
	},
	"beside": {
		".gemini/settings.json": "{\"general\": {\"vimMode\": true, \"sessionRetention\": {} } }",
		".codex/config.toml":    "[features] # mine\n# none yet\n\n[tui]\nx = 1\n",
	},
	"odd": {
		".gemini/settings.json": "{\"general\": true}",
		".codex/config.toml":    "features = { goals = true }\n",
	},
	"dotted": {".codex/config.toml": "features.goals = true\n", ".gemini/settings.json": "{\"general\": {\"sessionRetention\": null}}"},
	"windows": {
		".claude/settings.json": "{\r\n  \"model\": \"opus\"\r\n}\r\n",
		".codex/config.toml":    "model = \"o9\"\r\n[tui]\r\nx = 1\r\n",
	},
}

// TestDefaults: what loses conversations is turned off where a person has decided
// nothing, and stays as somebody decides afterwards.
func TestDefaults(t *testing.T) {
	const retained, served = `"sessionRetention":{"enabled":false}`, "[features]\ndaemon_auto_start = false\n"
	set := func(home *os.Root) (gemini, codex bool) {
		all := snapshot(t, home)
		text := regexp.MustCompile(`\s`).ReplaceAllString(all[".gemini/settings.json"], "")
		return strings.Contains(text, retained), strings.Contains(strings.ReplaceAll(all[".codex/config.toml"], " # mine", ""), served)
	}
	for name, want := range map[string][2]bool{
		"empty": {true, true}, "spaces": {true, true}, "plain": {true, true}, "comments": {true, true}, "beside": {true, true},
		"decided": {}, "odd": {}, "dotted": {},
	} {
		home := newHome(t, homes[name])
		wire(t, home, Options{ToolsOnly: true})
		if gemini, codex := set(home); gemini != want[0] || codex != want[1] {
			t.Errorf("%s: set for gemini %v, for codex %v: %q", name, gemini, codex, snapshot(t, home))
		}
	}
	home := newHome(t, nil)
	wire(t, home, Options{})
	for file, text := range map[string]string{".gemini/settings.json": "true", ".codex/config.toml": "true"} {
		before := snapshot(t, home)[file]
		after := strings.ReplaceAll(before, "daemon_auto_start = false", "daemon_auto_start = "+text)
		after = regexp.MustCompile(`("enabled":\s*)false`).ReplaceAllString(after, "${1}"+text)
		if before == after {
			t.Fatalf("%s: nothing to decide: %s", file, before)
		}
		if err := home.WriteFile(file, []byte(after), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	decided := snapshot(t, home)
	wire(t, home, Options{})
	sameSnapshot(t, "wired again", snapshot(t, home), decided)
	if err := Unwire(home, Options{Command: command}); err != nil {
		t.Fatal(err)
	}
	all := snapshot(t, home)
	if !strings.Contains(all[".gemini/settings.json"], "true") || !strings.Contains(all[".codex/config.toml"], "[features]\ndaemon_auto_start = true\n") {
		t.Errorf("what a person has decided is gone: %q", all)
	}
}

// TestToolsOnly: every agent finds the tools, no file has a hook, and all of it
// goes again.
func TestToolsOnly(t *testing.T) {
	for name, files := range homes {
		home := newHome(t, files)
		before := snapshot(t, home)
		wire(t, home, Options{ToolsOnly: true})
		found := 0
		for file, text := range snapshot(t, home) {
			if strings.Contains(text, " hook ") || strings.Contains(file, "fairlead.js") || strings.Contains(file, "hooks/fairlead") {
				t.Errorf("%s: %s has hooks: %s", name, file, text)
			}
			if strings.Contains(text, bridgeCommand) && !strings.Contains(before[file], bridgeCommand) {
				found++
			}
		}
		if found != len(agents) && before[".claude.json"] == "" {
			t.Errorf("%s: %d agents of %d have tools", name, found, len(agents))
		}
		if err := Unwire(home, Options{Command: command}); err != nil {
			t.Error(err)
		}
		for file, text := range snapshot(t, home) {
			if strings.Contains(text, bridgeCommand) && !strings.Contains(before[file], bridgeCommand) {
				t.Errorf("%s: %s stays: %s", name, file, text)
			}
		}
	}
}

func TestWireAndUnwire(t *testing.T) {
	for name, files := range homes {
		t.Run(name, func(t *testing.T) {
			home := newHome(t, files)
			before := snapshot(t, home)
			wire(t, home, Options{})
			wired := snapshot(t, home)
			for file, text := range files {
				kept(t, file, text, wired[file])
			}
			all, err := Status(home, Options{Command: command})
			if err != nil || len(all) != len(agents) {
				t.Fatalf("%d, %v", len(all), err)
			}
			for _, s := range all {
				if !s.Wired || s.Err != nil {
					t.Errorf("%s: %+v", s.Agent, s)
				}
			}
			wire(t, home, Options{})
			sameSnapshot(t, "a second time", snapshot(t, home), wired)
			wire(t, home, Options{Command: "/other/sandbox-agent"})
			wire(t, home, Options{})
			sameSnapshot(t, "another command and back", snapshot(t, home), wired)
			if err := Unwire(home, Options{Command: command}); err != nil {
				t.Fatal(err)
			}
			sameSnapshot(t, "unwired", snapshot(t, home), before)
			if err := Unwire(home, Options{Command: command}); err != nil {
				t.Fatal(err)
			}
			sameSnapshot(t, "unwired twice", snapshot(t, home), before)
		})
	}
}

// kept checks that after says all that before says, comments included.
func kept(t *testing.T, file, before, after string) {
	t.Helper()
	left := make(map[string]int)
	for _, comment := range comments(t, file, after) {
		left[comment]++
	}
	for _, comment := range comments(t, file, before) {
		if left[comment]--; left[comment] < 0 {
			t.Errorf("%s lost %q:\n%s", file, comment, after)
		}
	}
	if strings.TrimSpace(before) == "" || strings.HasSuffix(file, ".npmrc") {
		return
	}
	var x, y any
	if strings.HasSuffix(file, ".toml") {
		x, y = decodeTOML(t, before), decodeTOML(t, after)
	} else {
		x, y = decodeJSON(t, before), decodeJSON(t, after)
	}
	if !within(x, y) {
		t.Errorf("%s lost something:\n%s", file, after)
	}
}

var inTOML = regexp.MustCompile(`(?m)# .*$`)

// comments returns those of a text.
func comments(t *testing.T, file, text string) (all []string) {
	t.Helper()
	if strings.HasSuffix(file, ".toml") {
		return inTOML.FindAllString(text, -1)
	}
	if strings.TrimSpace(text) == "" || strings.HasSuffix(file, ".npmrc") {
		return nil
	}
	v, err := hujson.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for v := range v.All() {
		extras := []hujson.Extra{v.BeforeExtra, v.AfterExtra, elementsOf(v).last}
		for _, extra := range extras {
			for _, c := range inJSON.FindAllString(string(extra), -1) {
				all = append(all, strings.TrimSpace(c))
			}
		}
	}
	return all
}

var inJSON = regexp.MustCompile(`//[^\n]*|/\*.*?\*/`)

func decodeTOML(t *testing.T, text string) any {
	t.Helper()
	v, err := parseTOML([]byte(text))
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

func decodeJSON(t *testing.T, text string) (v any) {
	t.Helper()
	standard, err := hujson.Standardize([]byte(text))
	if err == nil {
		err = json.Unmarshal(standard, &v)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// within reports whether y has all that x has: arrays may be longer.
func within(x, y any) bool {
	switch x := x.(type) {
	case map[string]any:
		o, ok := y.(map[string]any)
		for name, v := range x {
			if w, there := o[name]; !there || !within(v, w) {
				return false
			}
		}
		return ok
	case []any:
		a, ok := y.([]any)
		if !ok || len(a) < len(x) {
			return false
		}
		for i := range x {
			if !within(x[i], a[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(x, y)
}

// TestMalformed: a file that can't be understood is named and stays as it is,
// and so does all that the same agent has.
func TestMalformed(t *testing.T) {
	for name, text := range map[string]string{
		".claude.json": `{"mcpServers": {`, ".claude/settings.json": `{"hooks": []}`, ".gemini/settings.json": `{"mcpServers": 3}`,
		".config/opencode/opencode.json": `[]`, ".codex/config.toml": "model = \n[", ".factory/mcp.json": "nonsense",
		".factory/settings.json":  `{"hooks": {"Stop": "x"}}`,
		".openclaw/openclaw.json": `{mcp: {servers: 'no'}}`,
	} {
		t.Run(name, func(t *testing.T) {
			home := newHome(t, map[string]string{name: text})
			err := Wire(home, Options{Command: command})
			var f *FileError
			if !errors.As(err, &f) || f.File != name || !strings.Contains(err.Error(), "~/"+name) {
				t.Fatalf("%v", err)
			}
			after := snapshot(t, home)
			if after[name] != text {
				t.Errorf("it became %q", after[name])
			}
			all, err := Status(home, Options{Command: command})
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range all {
				if mine := s.Err != nil; s.Wired == mine {
					t.Errorf("%+v", s)
				}
				for _, file := range s.Files {
					if s.Err != nil && file != name && after[file] != "" {
						t.Errorf("%s was written: %q", file, after[file])
					}
				}
			}
		})
	}
}

// TestUnquoted: of a key without its quotes nothing is in the error, only where
// it is.
func TestUnquoted(t *testing.T) {
	for name, text := range map[string]string{
		".claude.json":       "{\n  \"apiKey\": sk-ant-sesame}",
		".codex/config.toml": "model = \"x\"\nkey = sk-ant-sesame\n",
	} {
		err := Wire(newHome(t, map[string]string{name: text}), Options{Command: command})
		if err == nil || strings.Contains(err.Error(), "sesame") || !strings.Contains(err.Error(), "line 2, column ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTheirServer: an MCP server of our name that is a person's stays.
func TestTheirServer(t *testing.T) {
	for agent, files := range map[string]map[string]string{
		"claude": {".claude.json": `{"mcpServers": {"fairlead": {"command": "mine"}}}`},
		"codex":  {".codex/config.toml": "[mcp_servers.fairlead]\ncommand = \"mine\"\n"},
	} {
		home := newHome(t, files)
		before := snapshot(t, home)
		if err := Wire(home, Options{Agent: agent, Command: command}); err == nil || !strings.Contains(err.Error(), "something else") {
			t.Errorf("%s: %v", agent, err)
		}
		sameSnapshot(t, agent, snapshot(t, home), before)
		if err := Unwire(home, Options{Agent: agent, Command: command}); err != nil {
			t.Error(err)
		}
		sameSnapshot(t, agent, snapshot(t, home), before)
	}
}

// TestOneAgent: the others' files aren't touched.
func TestOneAgent(t *testing.T) {
	for _, a := range agents {
		home := newHome(t, nil)
		wire(t, home, Options{Agent: a.name})
		own := make(map[string]bool)
		for _, f := range a.files(command) {
			own[f.name] = true
		}
		for name := range snapshot(t, home) {
			if !strings.HasSuffix(name, "/") && !own[name] && name != recordFile {
				t.Errorf("%s: %s was made", a.name, name)
			}
		}
	}
	home := newHome(t, nil)
	if err := Wire(home, Options{Agent: "nobody", Command: command}); !errors.Is(err, ErrUnknownAgent) {
		t.Error(err)
	}
	if err := Wire(home, Options{Command: "sandbox-agent"}); err == nil {
		t.Error("a relative path was taken")
	}
}

// TestTheirsAddedLater: what a person adds around ours stays when ours goes.
func TestTheirsAddedLater(t *testing.T) {
	home := newHome(t, nil)
	wire(t, home, Options{})
	for name, edit := range map[string][2]string{
		".claude.json":       {`"mcpServers": {`, `"mcpServers": {"eco": {"command": "eco"},`},
		".codex/config.toml": {"tool_timeout_sec = 660\n", "tool_timeout_sec = 660\n\n# my own\n[tui]\nx = 1\n"},
	} {
		text, err := home.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := home.WriteFile(name, bytes.Replace(text, []byte(edit[0]), []byte(edit[1]), 1), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Unwire(home, Options{Command: command}); err != nil {
		t.Fatal(err)
	}
	sameSnapshot(t, "unwired", snapshot(t, home), map[string]string{
		".claude.json": "{\n  \"mcpServers\": {\"eco\": {\"command\": \"eco\"}\n  }\n}\n",
		".codex/":      "", ".codex/config.toml": "\n# my own\n[tui]\nx = 1\n",
	})
}

package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

func TestCheckInstalled(t *testing.T) {
	empty, bin := t.TempDir(), t.TempDir()
	for name, mode := range map[string]os.FileMode{"claude": 0o755, "codex": 0o644} {
		if err := os.WriteFile(filepath.Join(bin, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(bin, "gemini"), 0o755); err != nil {
		t.Fatal(err)
	}
	path := empty + ":" + bin
	home := t.TempDir()
	if err := os.MkdirAll(filepath.Join(home, HomePrograms, "opencode"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/nowhere/anything", filepath.Join(home, HomePrograms, "mine")); err != nil {
		t.Fatal(err)
	}
	for _, there := range []string{"claude", filepath.Join(bin, "claude"), "./claude", "mine"} {
		if err := CheckInstalled(there, path, home); err != nil {
			t.Errorf("%s: %v", there, err)
		}
	}
	for missing, says := range map[string]string{
		"codex": "@openai/codex", "gemini": "@google/gemini-cli", "droid": "droid", "openclaw": "openclaw",
		"opencode": "opencode-ai", "helper": "helper is not installed", bin + "/x": "not installed",
	} {
		err := CheckInstalled(missing, path, home)
		if protocol.KindOf(err) != protocol.KindInvalid || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", missing, err)
		}
	}
	for _, c := range CLIs {
		if found, ok := Find(c.Name); !ok || found != c || c.Install == "" {
			t.Errorf("%+v", c)
		}
	}
	for missing, says := range map[string]string{
		"codex": "as root: npm install -g --prefix /usr/local @openai/codex", "helper": "helper is not installed",
		"cursor-agent": "as root: curl https://cursor.com/install -fsS | HOME=/opt bash && ln -sf /opt/.local/bin/cursor-agent /usr/local/bin/",
	} {
		if err := CheckInstalledForAll(missing, path, home); protocol.KindOf(err) != protocol.KindInvalid || !strings.HasSuffix(err.Error(), says) && missing != "helper" {
			t.Errorf("%s: %v", missing, err)
		}
	}
	if err := CheckInstalledForAll("claude", path, home); err != nil {
		t.Error(err)
	}
	if _, ok := Find("sh"); ok {
		t.Error("sh is a coding agent")
	}
}

func TestProgram(t *testing.T) {
	for line, want := range map[string]string{
		"claude": "claude", " claude --resume x": "claude", "/opt/x/bin/agent -v": "/opt/x/bin/agent", "a-b_c.d+e@1 x": "a-b_c.d+e@1",
		"": "", "while :; do x; done": "", "exec claude": "", "A=1 claude": "", "claude;x": "", "$AGENT": "", "'my agent'": "", "(x)": "", "cd x && y": "",
	} {
		if got, ok := Program(line); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", line, got, ok)
		}
	}
}

func TestKnownAgent(t *testing.T) {
	for name, want := range map[string]string{
		"claude": "claude", "claude-code": "claude", "Claude-Code": "claude", "gemini-cli": "gemini", "codex": "codex", "openclaw": "openclaw",
		"opencode": "opencode", "droid": "droid", "": "", "robot": "", "code": "", "claude-code-x": "", "-cli": "",
	} {
		if got := KnownAgent(name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}

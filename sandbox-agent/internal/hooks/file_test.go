package hooks

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOddFiles: whatever stands where settings belong is named, left alone, and
// never waited for.
func TestOddFiles(t *testing.T) {
	const name = ".claude/settings.json"
	for what, make := range map[string]func(path string) error{
		"a folder": func(p string) error { return os.Mkdir(p, 0o700) },
		"a FIFO":   func(p string) error { return unix.Mkfifo(p, 0o600) },
		"a device": func(p string) error { return os.Symlink("/dev/zero", p) },
		"a link that leads out": func(p string) error {
			return os.Symlink("../../../../../../etc/hostname", p)
		},
		"a link to itself": func(p string) error { return os.Symlink(filepath.Base(p), p) },
		"too large":        func(p string) error { return os.WriteFile(p, []byte("{}"), 0o600) },
	} {
		home := newHome(t, map[string]string{".claude/x": ""})
		path := filepath.Join(home.Name(), name)
		if err := make(path); err != nil {
			t.Fatal(err)
		}
		if what == "too large" {
			if err := os.Truncate(path, maxFile+1); err != nil {
				t.Fatal(err)
			}
		}
		before, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		err = Wire(home, Options{Agent: "claude", Command: command})
		var f *FileError
		if !errors.As(err, &f) || f.File != name {
			t.Errorf("%s: %v", what, err)
		}
		if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
			t.Errorf("%s: it is another: %v", what, err)
		}
		if _, err := home.Lstat(".claude.json"); err == nil {
			t.Errorf("%s: the agent is half wired", what)
		}
	}
}

// TestLinksAndModes: a link within the home stays one, modes stay, new files are
// their owner's alone, and everything new is given away.
func TestLinksAndModes(t *testing.T) {
	home := newHome(t, map[string]string{"dotfiles/claude.json": "{}", ".gemini/settings.json": "{}"})
	if err := home.MkdirAll(".claude", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := home.Symlink("../dotfiles/claude.json", ".claude/settings.json"); err != nil {
		t.Fatal(err)
	}
	given := make(map[string]bool)
	wire(t, home, Options{Chown: func(f *os.File) error {
		st, err := f.Stat()
		if err == nil {
			given[st.Name()] = true
		}
		return err
	}})
	if to, err := home.Readlink(".claude/settings.json"); err != nil || to != "../dotfiles/claude.json" {
		t.Errorf("%q, %v", to, err)
	}
	text, err := home.ReadFile("dotfiles/claude.json")
	if err != nil || !strings.Contains(string(text), "hook claude stop") {
		t.Errorf("%v: %s", err, text)
	}
	for name, mode := range map[string]os.FileMode{
		"dotfiles/claude.json": 0o640, ".gemini/settings.json": 0o640, ".claude.json": 0o600, ".codex/config.toml": 0o600,
		".codex": 0o700, ".config": 0o700, recordFile: 0o600,
	} {
		st, err := home.Stat(name)
		if err != nil || st.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", name, st.Mode(), err)
		}
	}
	for _, name := range []string{".codex", ".config", ".config/opencode", ".fairlead"} {
		if !given[filepath.Base(name)] && !given[name] {
			t.Errorf("%s was not given to its user: %v", name, given)
		}
	}
	if err := Unwire(home, Options{Command: command}); err != nil {
		t.Fatal(err)
	}
	if text, _ := home.ReadFile("dotfiles/claude.json"); string(text) != "{}" {
		t.Errorf("%s", text)
	}
}

// TestOpenClawFindsHooks: naming our hook would end the finding of all others.
func TestOpenClawFindsHooks(t *testing.T) {
	const name, text = ".openclaw/openclaw.json", `{"hooks": {"internal": {"enabled": true}}}`
	home := newHome(t, map[string]string{name: text})
	wire(t, home, Options{Agent: "openclaw"})
	after, err := home.ReadFile(name)
	if err != nil || strings.Contains(string(after), "entries") || !strings.Contains(string(after), bridgeCommand) {
		t.Errorf("%v: %s", err, after)
	}
}

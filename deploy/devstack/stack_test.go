package devstack

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// programs makes a directory with files where the programs should be.
func programs(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho a "+name+" that fails >&2; exit 1\n"), 0o755))
	}
	return dir
}

func TestMissingProgram(t *testing.T) {
	cfg := Config{Bin: programs(t, "controlplane", "relay"), StateDir: t.TempDir(), Relays: 1, Sandboxes: 1}
	if err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "sandbox-agent is not beside devstack in "+cfg.Bin) {
		t.Errorf("Run: %v", err)
	}
}

// TestFailingProgram: a stack that can't start ends, and says who is at fault
// and what it said.
func TestFailingProgram(t *testing.T) {
	cfg := Config{
		Bin: programs(t, "controlplane", "relay", "sandbox-agent"), StateDir: t.TempDir(),
		ReadyFile: filepath.Join(t.TempDir(), "ready.json"), Relays: 1, Sandboxes: 1, Out: &bytes.Buffer{},
	}
	must(t, os.WriteFile(cfg.ReadyFile, []byte("of an earlier stack"), 0o600))
	if err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "controlplane exit status 1: a controlplane that fails") {
		t.Errorf("Run: %v", err)
	}
	if _, err := os.Stat(cfg.ReadyFile); !os.IsNotExist(err) {
		t.Errorf("the ready file is left: %v", err)
	}
	must(t, os.Chmod(filepath.Join(cfg.Bin, "controlplane"), 0o600))
	if err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("Run of what isn't executable: %v", err)
	}
}

// TestOneStackPerDirectory: the second one leaves the first one's files alone.
func TestOneStackPerDirectory(t *testing.T) {
	cfg := Config{Bin: programs(t, "controlplane", "relay", "sandbox-agent"), StateDir: t.TempDir(), Relays: 1, Sandboxes: 1}
	cfg.ReadyFile = filepath.Join(cfg.StateDir, "ready.json")
	_, lock, err := prepare(cfg)
	must(t, err)
	must(t, os.WriteFile(cfg.ReadyFile, nil, 0o600))
	if _, _, err := prepare(cfg); err == nil || !strings.Contains(err.Error(), cfg.StateDir+": another devstack uses it") {
		t.Errorf("the second one: %v", err)
	}
	if _, err := os.Stat(cfg.ReadyFile); err != nil {
		t.Errorf("the first one's ready file: %v", err)
	}
	must(t, lock.Close())
	_, lock, err = prepare(cfg)
	must(t, err)
	must(t, lock.Close())
}

// TestSandboxFiles: terminals' users can pass through, and another state
// directory has other files.
func TestSandboxFiles(t *testing.T) {
	one, err := sandboxFiles(filepath.Join(t.TempDir(), "one"))
	must(t, err)
	defer os.Remove(one)
	two, err := sandboxFiles(filepath.Join(t.TempDir(), "two"))
	must(t, err)
	defer os.Remove(two)
	if one == two {
		t.Errorf("both have %s", one)
	}
	if info, err := os.Stat(one); err != nil || info.Mode().Perm() != 0o711 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestFound21FilesOfAUser: what isn't temporary stays, also when another stack
// starts; what is temporary goes at the end, and with a stack that was killed.
func TestFound21FilesOfAUser(t *testing.T) {
	made := func(cfg Config) (*Stack, string) {
		cfg.Bin, cfg.Relays, cfg.Sandboxes, cfg.Out = programs(t, "controlplane", "relay", "sandbox-agent"), 1, 1, &bytes.Buffer{}
		s, lock, err := prepare(cfg)
		must(t, err)
		dir, err := s.makeFiles(filepath.Join(s.cfg.StateDir, "sandbox-agent-1"))
		must(t, err)
		t.Cleanup(func() {
			lock.Close()
			os.RemoveAll(dir)
		})
		must(t, os.WriteFile(filepath.Join(dir, "work"), nil, 0o600))
		return s, dir
	}
	there := func(what, dir string, want bool) {
		t.Helper()
		if _, err := os.Stat(filepath.Join(dir, "work")); (err == nil) != want {
			t.Errorf("%s: %v", what, err)
		}
	}
	user, users := made(Config{StateDir: t.TempDir()})
	ended, endeds := made(Config{StateDir: t.TempDir(), Temporary: true})
	_, runnings := made(Config{StateDir: t.TempDir(), Temporary: true})
	gone := t.TempDir()
	_, killeds := made(Config{StateDir: gone, Temporary: true})
	kept := t.TempDir()
	_, adopteds := made(Config{StateDir: kept, Temporary: true})
	for _, dir := range []string{gone, kept} { // what a kill does to their locks
		must(t, os.Remove(filepath.Join(dir, lockName)))
	}
	user.removeFiles()
	ended.removeFiles()
	made(Config{StateDir: kept}) // a user takes it over
	there("a user's", users, true)
	there("an ended stack's", endeds, false)
	there("a running stack's", runnings, true)
	there("a killed stack's", killeds, false)
	there("one that is no longer temporary", adopteds, true)
	made(Config{StateDir: t.TempDir()})
	there("one that is no longer temporary, later", adopteds, true)
}

package provider

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// bash is the input of Bash for a command.
func bash(command string) json.RawMessage { return object(map[string]string{"command": command}) }

func TestAllowed(t *testing.T) {
	for _, c := range []struct {
		rule, tool string
		input      json.RawMessage
		want       bool
	}{
		{"Read", "Read", json.RawMessage(`{"file_path":"x"}`), true},
		{"Read", "ReadMore", nil, false},
		{"Bash", "Bash", bash("rm -rf /; ls"), true},
		{"", "", nil, false},
		{"*", "Read", nil, false},
		{"mcp__x__*", "mcp__x__y", nil, false},
		{"AskUserQuestion", "AskUserQuestion", nil, false},
		{"ExitPlanMode", "ExitPlanMode", nil, false},
		{"Bash(git:*)", "Bash", bash("git"), true},
		{"Bash(git:*)", "Bash", bash("git status"), true},
		{"Bash(git:*)", "Bash", bash("  git \t status  "), true},
		{"Bash(git:*)", "Bash", bash("gitk"), false},
		{"Bash(git:*)", "Bash", bash("git-evil"), false},
		{"Bash(git:*)", "Bash", bash(""), false},
		{"Bash(git:*)", "Read", bash("git status"), false},
		{"Bash(git log:*)", "Bash", bash("git log -3"), true},
		{"Bash(git log:*)", "Bash", bash("git logs"), false},
		{"Bash(git log:*)", "Bash", bash("git"), false},
		{"Bash(git log:*)", "Bash", bash("git -c log"), false},
		{"Bash(git:*)", "Bash", bash("git commit -m 'a; b && c | d > e $(f) `g`'"), true},
		{"Bash(git:*)", "Bash", bash(`git commit -m "a; b && c | d > e (f)"`), true},
		{"Bash(git:*)", "Bash", bash(`git log --format=\;`), true},
		{"Bash(git:*)", "Bash", bash(`git log $HOME "$HOME"`), true},
		{"Bash(git:*)", "Bash", bash("git x; rm -rf /"), false},
		{"Bash(git:*)", "Bash", bash("git x;rm -rf /"), false},
		{"Bash(git:*)", "Bash", bash("git x && rm -rf /"), false},
		{"Bash(git:*)", "Bash", bash("git x || rm -rf /"), false},
		{"Bash(git:*)", "Bash", bash("git x & rm -rf /"), false},
		{"Bash(git:*)", "Bash", bash("git x | sh"), false},
		{"Bash(git:*)", "Bash", bash("git x\nrm -rf /"), false},
		{"Bash(git:*)", "Bash", bash("git x\rrm -rf /"), false},
		{"Bash(git:*)", "Bash", bash("git x\x00rm -rf /"), false},
		{"Bash(git:*)", "Bash", bash("git $(rm -rf /)"), false},
		{"Bash(git:*)", "Bash", bash(`git "$(rm -rf /)"`), false},
		{"Bash(git:*)", "Bash", bash("git `rm -rf /`"), false},
		{"Bash(git:*)", "Bash", bash("git \"`rm -rf /`\""), false},
		{"Bash(git:*)", "Bash", bash("git ${x:-$(rm -rf /)}"), false},
		{"Bash(git:*)", "Bash", bash("git $[$(rm)]"), false},
		{"Bash(git:*)", "Bash", bash(`git $'\'' ; rm -rf / #'`), false},
		{"Bash(git:*)", "Bash", bash("git log > /etc/passwd"), false},
		{"Bash(git:*)", "Bash", bash("git log <(rm -rf /)"), false},
		{"Bash(git:*)", "Bash", bash("git log 'unfinished"), false},
		{"Bash(git:*)", "Bash", bash(`git log \`), false},
		{"Bash(git:*)", "Bash", bash("git\u00a0status"), false}, // to a shell it is one word
		{"Bash(git:*)", "Bash", bash("git\u2028status"), false},
		{"Bash(git:*)", "Bash", bash("X=1 git status"), false},
		{"Bash(git:*)", "Bash", bash("'git' status"), false},
		{"Bash(git:*)", "Bash", json.RawMessage(`{"command":"rm -rf /","Command":"git status"}`), false},
		{"Bash(git:*)", "Bash", json.RawMessage(`{"Command":"git status"}`), false},
		{"Bash(git:*)", "Bash", json.RawMessage(`{"command":["git"]}`), false},
		{"Bash(git:*)", "Bash", json.RawMessage(`"git"`), false},
		{"Bash(git:*)", "Bash", nil, false},
		{"Bash(:*)", "Bash", bash("git"), false},
		{"Bash(git)", "Bash", bash("git"), false},
		{"Bash(git:*", "Bash", bash("git"), false},
		{"Bash(git | head:*)", "Bash", bash("git | head"), false},
	} {
		if got := Allowed([]string{"Other", c.rule}, c.tool, c.input); got != c.want {
			t.Errorf("%s allows %s %s: %v", c.rule, c.tool, c.input, got)
		}
	}
	if Allowed(nil, "Read", nil) {
		t.Error("without a rule")
	}
}

// TestAllowedInShells runs commands made of what is special to shells, where a
// rule allows them: no shell runs another program than the rule's.
func TestAllowedInShells(t *testing.T) {
	dir := t.TempDir()
	ran := filepath.Join(dir, "ran")
	for name, script := range map[string]string{"git": "exit 0", "evil": ": >>" + ran} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var shells []string
	for _, name := range []string{"sh", "bash", "zsh"} {
		if path, err := exec.LookPath(name); err == nil {
			shells = append(shells, path)
		}
	}
	runs := func(shell, command string) bool {
		_ = os.Remove(ran) // it may not be there
		c := exec.Command(shell, "-c", command)
		c.Dir, c.Env = dir, []string{"PATH=" + dir, "x=evil"}
		_ = c.Run() // most aren't what a shell understands
		_, err := os.Stat(ran)
		return err == nil
	}
	if !runs(shells[0], "git; evil") {
		t.Fatal("the test can't tell that evil runs")
	}
	tokens := []string{"evil", "evil", " ", " ", "'", "'", `"`, `"`, `\`, "$", ";", "&", "|", "`", "(", ")", "{", "}", "[", "]", "<", ">", "#", "\n", "=", "*", "!", "~", "x", ",", "'\\''", `\"`}
	const seed = 16
	random := rand.New(rand.NewPCG(seed, 0))
	allowed := 0
	for range 1000 {
		var b strings.Builder
		b.WriteString("git ")
		for range 2 + random.IntN(10) {
			b.WriteString(tokens[random.IntN(len(tokens))])
		}
		command := b.String()
		if !Allowed([]string{"Bash(git:*)"}, "Bash", bash(command)) {
			continue
		}
		allowed++
		for _, shell := range shells {
			if runs(shell, command) {
				t.Errorf("seed %d: %s runs evil in %q", seed, shell, command)
			}
		}
	}
	t.Logf("%d commands allowed, in %v", allowed, shells)
	if allowed < 30 {
		t.Errorf("only %d commands were allowed", allowed)
	}
}

// FuzzAllowed: what is allowed is one line without substitutions, and begins with
// the rule's word.
func FuzzAllowed(f *testing.F) {
	for _, seed := range []string{"git status", "git 'a;b'", "git $'x'", `git "a\"b"`, "git \\;", "git `x`"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, command string) {
		if !Allowed([]string{"Bash(git:*)"}, "Bash", bash(command)) {
			return
		}
		if strings.ContainsAny(command, "\n\r\x00") || shellWords(command)[0] != "git" {
			t.Errorf("%q is allowed", command)
		}
		bare := 0 // operators outside of quotes, by another way of reading
		quote := rune(0)
		escaped := false
		for _, r := range command {
			switch {
			case escaped:
				escaped = false
			case quote != '\'' && r == '\\':
				escaped = true
			case quote == 0 && (r == '\'' || r == '"'):
				quote = r
			case r == quote:
				quote = 0
			case quote == 0 && strings.ContainsRune(";&|<>()", r), quote != '\'' && r == '`':
				bare++
			}
		}
		if bare > 0 || quote != 0 || escaped {
			t.Errorf("%q is allowed", command)
		}
	})
}

package process

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/protocol"
)

// A CLI is a coding agent that is started by its name.
type CLI struct {
	Name    string
	Command string // the program
	Install string // what a person does about one that is missing
}

// CLIs are the coding agents that can be started by name alone.
var CLIs = []CLI{
	{"claude", "claude", "npm install -g @anthropic-ai/claude-code"},
	{"gemini", "gemini", "npm install -g @google/gemini-cli"},
	{"opencode", "opencode", "npm install -g opencode-ai"},
	{"codex", "codex", "npm install -g @openai/codex"},
	{"droid", "droid", "npm install -g droid"},
	{"openclaw", "openclaw", "npm install -g openclaw"},
}

// Find returns the coding agent called name.
func Find(name string) (CLI, bool) {
	i := slices.IndexFunc(CLIs, func(c CLI) bool { return c.Name == name })
	if i < 0 {
		return CLI{}, false
	}
	return CLIs[i], true
}

// KnownAgent returns the name of the known coding agent that goes by name: its own
// name, its program's, or one with "-code" or "-cli" behind it, as hooks and
// users write them. It is empty when there is none.
func KnownAgent(name string) string {
	name = strings.ToLower(name)
	for _, c := range CLIs {
		if base := strings.TrimSuffix(strings.TrimSuffix(name, "-code"), "-cli"); base == c.Name || name == c.Command {
			return c.Name
		}
	}
	return ""
}

// installed reports whether program, a name or a path, can be run with
// searchPath as PATH. It can't tell of a relative path, so that says yes.
func installed(program, searchPath string) bool {
	if strings.Contains(program, "/") {
		return !filepath.IsAbs(program) || executable(program)
	}
	return slices.ContainsFunc(filepath.SplitList(searchPath), func(dir string) bool {
		return executable(filepath.Join(dir, program))
	})
}

func executable(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
}

// CheckInstalled fails with KindInvalid, saying what to install, when program
// can't be run with searchPath as PATH.
func CheckInstalled(program, searchPath string) error {
	if installed(program, searchPath) {
		return nil
	}
	i := slices.IndexFunc(CLIs, func(c CLI) bool { return c.Command == program })
	if i < 0 {
		return protocol.Errorf(protocol.KindInvalid, "%s is not installed in the sandbox", program)
	}
	return protocol.Errorf(protocol.KindInvalid, "%s is not installed in the sandbox; install it for all its users: %s",
		program, CLIs[i].Install)
}

// Program returns the program that the shell command line begins with. It is
// false where only a shell can tell.
func Program(commandLine string) (string, bool) {
	word, _, _ := strings.Cut(strings.TrimSpace(commandLine), " ")
	plain := word != "" && !strings.ContainsFunc(word, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && !strings.ContainsRune("/._+-@", r)
	})
	if !plain || slices.Contains(shellWords, word) {
		return "", false
	}
	return word, true
}

// shellWords are the words that a POSIX shell knows by itself.
var shellWords = strings.Fields(`. alias bg break case cd command continue eval exec exit export false fc fg
	for getopts hash if jobs kill newgrp printf pwd read readonly return set shift test time times trap true
	type ulimit umask unalias unset until wait while`)

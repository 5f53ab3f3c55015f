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
	{"claude", "claude", "npm install -g --prefix ~/.local @anthropic-ai/claude-code"},
	{"gemini", "gemini", "npm install -g --prefix ~/.local @google/gemini-cli"},
	{"opencode", "opencode", "npm install -g --prefix ~/.local opencode-ai"},
	{"codex", "codex", "npm install -g --prefix ~/.local @openai/codex"},
	{"droid", "droid", "npm install -g --prefix ~/.local droid"},
	{"openclaw", "openclaw", "npm install -g --prefix ~/.local openclaw"},
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

// installedBy reports whether the user of home has installed program. A link of
// theirs is not followed: what it leads to is for them to see and not for us.
func installedBy(program, home string) bool {
	if home == "" || strings.Contains(program, "/") {
		return false
	}
	st, err := os.Lstat(filepath.Join(home, HomePrograms, program))
	return err == nil && !st.IsDir()
}

func executable(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
}

// HomePrograms is where, below the home of a terminal's user, programs are that
// this user has installed; terminals have it at the end of their PATH.
const HomePrograms = ".local/bin"

// CheckInstalled fails with KindInvalid, saying how the terminal's user can
// install it, when program can't be run with searchPath as PATH by somebody whose
// home is home.
func CheckInstalled(program, searchPath, home string) error {
	if installed(program, searchPath) || installedBy(program, home) {
		return nil
	}
	i := slices.IndexFunc(CLIs, func(c CLI) bool { return c.Command == program })
	if i < 0 {
		return protocol.Errorf(protocol.KindInvalid, "%s is not installed in the sandbox", program)
	}
	return protocol.Errorf(protocol.KindInvalid, "%s is not installed in the sandbox; this installs it for this terminal: %s",
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

package process

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/protocol"
)

// A CLI is a coding agent that can be started by its name.
type CLI struct {
	Name    string
	Command string // the program
	Install string // tells a person how to install it
}

// installForAll returns what installs c in a folder of the PATH of all terminals.
func (c CLI) installForAll() string {
	if npm, ok := strings.CutPrefix(c.Install, "npm install -g --prefix ~/.local "); ok {
		return "npm install -g --prefix /usr/local " + npm
	}
	const home = "/opt" // open to everybody
	return strings.Replace(c.Install, "| bash", "| HOME="+home+" bash", 1) +
		" && ln -sf " + home + "/" + HomePrograms + "/" + c.Command + " /usr/local/bin/"
}

// CLIs are the coding agents that can be started by name alone.
var CLIs = []CLI{
	{"claude", "claude", "npm install -g --prefix ~/.local @anthropic-ai/claude-code"},
	{"gemini", "gemini", "npm install -g --prefix ~/.local @google/gemini-cli"},
	{"opencode", "opencode", "npm install -g --prefix ~/.local opencode-ai"},
	{"codex", "codex", "npm install -g --prefix ~/.local @openai/codex"},
	{"droid", "droid", "npm install -g --prefix ~/.local droid"},
	{"openclaw", "openclaw", "npm install -g --prefix ~/.local openclaw"},
	{"cursor", "cursor-agent", "curl https://cursor.com/install -fsS | bash"},
}

// Find returns the coding agent called name.
func Find(name string) (CLI, bool) {
	i := slices.IndexFunc(CLIs, func(c CLI) bool { return c.Name == name })
	if i < 0 {
		return CLI{}, false
	}
	return CLIs[i], true
}

// KnownAgent returns the known coding agent's name that matches name: its own
// name, its program's, or one with "-code" or "-cli" appended, as hooks and
// users write them. It returns "" for an unknown name.
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
// searchPath as PATH. For a relative path it can't tell, so it returns true.
func installed(program, searchPath string) bool {
	if strings.Contains(program, "/") {
		return !filepath.IsAbs(program) || executable(program)
	}
	return slices.ContainsFunc(filepath.SplitList(searchPath), func(dir string) bool {
		return executable(filepath.Join(dir, program))
	})
}

// installedBy reports whether home's user has installed program. It follows no
// link: the target is for the user to see and not for us.
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

// HomePrograms is the folder, relative to a user's home, of programs that the
// user has installed. Terminals have it at the end of their PATH.
const HomePrograms = ".local/bin"

// CheckInstalledForAll is [CheckInstalled] for a home in which people don't work:
// the error says how to install program for everybody.
func CheckInstalledForAll(program, searchPath, home string) error {
	err := CheckInstalled(program, searchPath, home)
	if i := slices.IndexFunc(CLIs, func(c CLI) bool { return c.Command == program }); err != nil && i >= 0 {
		return protocol.Errorf(protocol.KindInvalid, "%s is not installed in the sandbox; this installs it, as root: %s",
			program, CLIs[i].installForAll())
	}
	return err
}

// CheckInstalled fails with KindInvalid if program can't be run with searchPath
// as PATH by the user of home. The error says how the user can install it.
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

// Program returns the program that the shell command line begins with, false if
// only a shell can tell.
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

// shellWords are the words that a POSIX shell handles itself.
var shellWords = strings.Fields(`. alias bg break case cd command continue eval exec exit export false fc fg
	for getopts hash if jobs kill newgrp printf pwd read readonly return set shift test time times trap true
	type ulimit umask unalias unset until wait while`)

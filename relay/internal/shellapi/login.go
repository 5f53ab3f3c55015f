package shellapi

import (
	"path"
	"slices"
	"strings"
)

// loginWords are the arguments by which a coding agent's program signs somebody in.
var loginWords = []string{"login", "/login", "setup-token"}

// agentPrograms are those programs, and the packages that runners take them from.
var agentPrograms = []string{
	"claude", "claude-code", "codex", "cursor-agent", "gemini", "gemini-cli", "opencode", "opencode-ai",
}

// authPrograms are others, whose command for it is "auth login".
var authPrograms = []string{"fly", "flyctl", "gcloud", "gh", "glab", "hf"}

// runners are programs that run the one that their arguments name.
var runners = []string{"bunx", "command", "env", "exec", "nice", "nohup", "npx", "sudo", "time"}

// signsIn reports whether a command signs somebody in. Then what runs already is of
// no use, as its address has been opened or is too old: it is started anew. Who only
// speaks of it, or looks for the word login in a file, goes on with what runs.
func signsIn(command string) bool {
	return slices.ContainsFunc(commands(command), func(words []string) bool {
		words = program(words)
		if len(words) == 0 {
			return false
		}
		args := words[1:]
		name, _, _ := strings.Cut(path.Base(words[0]), "@")
		if slices.Contains(agentPrograms, name) {
			return slices.ContainsFunc(args, func(arg string) bool { return slices.Contains(loginWords, arg) })
		}
		args = slices.DeleteFunc(slices.Clone(args), isFlag)
		return slices.Contains(authPrograms, name) && len(args) >= 2 && args[0] == "auth" && args[1] == "login"
	})
}

func isFlag(word string) bool { return strings.HasPrefix(word, "-") }

// program returns a command from the name of what it runs in the end.
func program(words []string) []string {
	for i := 0; i < len(words); i++ {
		variable := strings.Contains(words[i], "=") && !strings.HasPrefix(words[i], "=")
		if !variable && !isFlag(words[i]) && !slices.Contains(runners, path.Base(words[i])) {
			return words[i:]
		}
	}
	return nil
}

// commands returns the words of each command of a line for a shell. What the shell
// would put in place of a word isn't known here: it stays what it is.
func commands(line string) (all [][]string) {
	var words []string
	var word strings.Builder
	inWord, escaped := false, false
	var quote rune
	endWord := func() {
		if inWord {
			words = append(words, word.String())
		}
		word.Reset()
		inWord = false
	}
	for _, r := range line {
		switch {
		case escaped:
			escaped, inWord = false, true
			word.WriteRune(r)
		case r == '\\' && quote != '\'':
			escaped = true
		case r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case r == ' ' || r == '\t':
			endWord()
		case strings.ContainsRune("\r\n;&|()`{}", r):
			endWord()
			all, words = append(all, words), nil
		default:
			inWord = true
			word.WriteRune(r)
		}
	}
	endWord()
	return append(all, words)
}

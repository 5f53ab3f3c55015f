package provider

import (
	"encoding/json"
	"slices"
	"strings"
)

// Allowed reports whether one of rules lets a tool be used with input without a
// question. A rule is the exact name of a tool, or Bash(prefix:*): commands that
// begin with the words of prefix and are one simple command. Other rules allow
// nothing, and none answers a tool that asks a person something.
func Allowed(rules []string, tool string, input json.RawMessage) bool {
	if slices.Contains(questions, tool) {
		return false
	}
	for _, rule := range rules {
		if rule == tool && rule != "" {
			return true
		}
		if prefix, ok := bashPrefix(rule); ok && tool == bashTool && beginsWith(command(input), prefix) {
			return true
		}
	}
	return false
}

// bashTool runs commands.
const bashTool = "Bash"

// bashPrefix returns the words of prefix in Bash(prefix:*).
func bashPrefix(rule string) (words []string, ok bool) {
	rule, begins := strings.CutPrefix(rule, bashTool+"(")
	rule, ends := strings.CutSuffix(rule, ":*)")
	words = shellWords(rule)
	return words, begins && ends && len(words) > 0
}

// command returns the command that Bash would run; "" if there is none. Names of
// members count letter by letter, as they do for a program in JavaScript.
func command(input json.RawMessage) string {
	var members map[string]json.RawMessage
	var text string
	if json.Unmarshal(input, &members) != nil || json.Unmarshal(members["command"], &text) != nil {
		return ""
	}
	return text
}

// beginsWith reports whether command is one simple command whose first words are
// words.
func beginsWith(command string, words []string) bool {
	fields := shellWords(command)
	return len(fields) >= len(words) && slices.Equal(fields[:len(words)], words) && simple(command)
}

// shellWords splits at what separates a shell's words within a line; at no other
// white space.
func shellWords(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '\t' })
}

// simple reports whether a shell takes command as one command: without lists,
// pipes, redirections, subshells, substitutions and line breaks, also where it is
// not sure that a shell would see one.
func simple(command string) bool {
	quote := byte(0)
	for i := 0; i < len(command); i++ {
		c := command[i]
		switch {
		case c < ' ' && c != '\t' || c == 0x7f:
			return false
		case quote == '\'':
			if c == '\'' {
				quote = 0
			}
		case c == '\\':
			if i++; i == len(command) || command[i] < ' ' {
				return false
			}
		case c == '`', c == '$' && i+1 < len(command) && strings.IndexByte("({['\"", command[i+1]) >= 0:
			return false
		case quote == '"':
			if c == '"' {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case strings.IndexByte(";&|<>()", c) >= 0:
			return false
		}
	}
	return quote == 0
}

package provider

import (
	"slices"
	"strings"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// claude is Claude Code, by its stdio protocol: one JSON object per line, both
// ways. One process does many turns.
type claude struct {
	window int64 // tokens of the context, 0: as it says
}

func (claude) Name() string { return "claude" }

func (claude) Capabilities() Capabilities {
	return Capabilities{
		Provider:                   "claude",
		PermissionModes:            []string{modeDefault, "auto", "acceptEdits", op.BypassPermissions, modePlan},
		DefaultPermissionMode:      modeDefault,
		SupportsImages:             true,
		SupportsAbort:              true,
		SupportsPermissionRequests: true,
		SupportsTokenUsage:         true,
	}
}

func (c claude) Check(s Start, t Turn) error {
	switch {
	case !slices.Contains(c.Capabilities().PermissionModes, claudeMode(s)):
		return protocol.Errorf(protocol.KindInvalid, "claude has no permission mode %q", s.Mode)
	case !plainArgument(s.Model):
		return protocol.Errorf(protocol.KindInvalid, "%q is not the name of a model", s.Model)
	case !plainArgument(s.Native):
		return protocol.Errorf(protocol.KindInvalid, "%q is not the id of a session of claude", s.Native)
	case strings.TrimSpace(t.Content) == "" && len(t.Images) == 0:
		return protocol.Errorf(protocol.KindInvalid, "the message is empty")
	}
	for _, rule := range slices.Concat(s.AllowedTools, s.DisallowedTools) {
		if !plainRule(rule) {
			return protocol.Errorf(protocol.KindInvalid, "%q is not a rule for tools", rule)
		}
	}
	return nil
}

func (claude) Command(s Start) Command {
	const install = "npm install -g @anthropic-ai/claude-code"
	if s.InTerminal {
		return Command{Program: "claude", Args: []string{"--resume", s.Native}, Install: install}
	}
	args := []string{
		"-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose",
		"--include-partial-messages", "--replay-user-messages", "--permission-prompt-tool", "stdio",
	}
	add := func(flag, value string) {
		if value != "" {
			args = append(args, flag, value)
		}
	}
	add("--resume", s.Native)
	add("--model", s.Model)
	add("--permission-mode", claudeMode(s))
	add("--allowedTools", strings.Join(s.AllowedTools, ","))
	add("--disallowedTools", strings.Join(s.DisallowedTools, ","))
	add("--setting-sources", "user,project,local")
	return Command{Program: "claude", Args: args, Install: install}
}

func (c claude) Talk(s Start) Talk {
	return newClaudeTalk(s, c.window)
}

// plainArgument reports whether s, unless it is empty, can be the value of a
// flag and of nothing else.
func plainArgument(s string) bool {
	for i, r := range s {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		case i > 0 && strings.ContainsRune("._-:/@+[]", r):
		default:
			return false
		}
	}
	return true
}

// plainRule reports whether s can be an entry of a list of tools: it begins with
// a letter and its parentheses match, so that it ends where it seems to.
func plainRule(s string) bool {
	depth := 0
	for i, r := range s {
		switch {
		case i == 0 && !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'), r < ' ', r == 0x7f:
			return false
		case r == '(':
			depth++
		case r == ')':
			depth--
		case depth == 0 && (r == ' ' || r == ','):
			return false
		}
		if depth < 0 {
			return false
		}
	}
	return s != "" && depth == 0
}

package standin

import (
	"encoding/json"
	"slices"
	"strings"
)

// permissions are what a person has said beforehand about the use of tools.
type permissions struct {
	mode       string // default, acceptEdits, bypassPermissions, plan, auto
	allowed    []string
	disallowed []string
}

// forbids reports whether a use is out of the question.
func (p permissions) forbids(u use) bool { return slices.Contains(p.disallowed, u.name) }

// asks reports whether a person must be asked about a use.
func (p permissions) asks(u use) bool {
	switch {
	case u.name == askUserQuestion || u.name == exitPlanMode:
		return true
	case p.mode == "bypassPermissions":
		return false
	case u.ask:
		return true
	case slices.ContainsFunc(p.allowed, func(rule string) bool { return covers(rule, u) }):
		return false
	}
	switch u.name {
	case "Read", "Glob", "Grep":
		return false
	case "Write", "Edit":
		return p.mode != "acceptEdits"
	}
	return true
}

// covers reports whether a rule, a tool or Bash(prefix:*), names a use.
func covers(rule string, u use) bool {
	prefix, ok := strings.CutPrefix(rule, "Bash(")
	if !ok || u.name != "Bash" {
		return rule == u.name
	}
	var in struct {
		Command string `json:"command"`
	}
	_ = json.Unmarshal(u.input, &in) // "" without a command
	return strings.HasPrefix(in.Command+" ", strings.TrimSuffix(prefix, ":*)")+" ")
}

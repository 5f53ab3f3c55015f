package op

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
)

// Texts of seed 002 for what a shell can't be started with.
const (
	ShellBadPath    = "Invalid project path"
	ShellBadSession = "Invalid session ID"
)

// PlainShell is the provider of shells without a coding agent.
const PlainShell = "plain-shell"

// shellProviders are the providers of shells, and their programs.
var shellProviders = map[string]string{
	"claude": "claude", "cursor": "cursor-agent", "codex": "codex", "gemini": "gemini", "opencode": "opencode", PlainShell: "",
}

const (
	maxShellPath    = 4096 // bytes
	maxShellCommand = 8192 // bytes
)

// shellSession is seed 002's rule for ids of sessions. None begins like an option:
// the id becomes an argument.
var shellSession = regexp.MustCompile(`^[a-zA-Z0-9_.:][a-zA-Z0-9_.:\-]*$`)

// A Shell is what a terminal of seed 002's web client runs: a coding agent, or a
// command. The sandbox knows how.
type Shell struct {
	ProjectPath    string `json:"project_path,omitempty"`    // where it starts, below the workspace; default: that
	SessionID      string `json:"session_id,omitempty"`      // of a conversation, or an id of the coding agent's own
	Provider       string `json:"provider"`                  // "claude", "cursor", "codex", "gemini", "opencode" or "plain-shell"
	HasSession     bool   `json:"has_session,omitempty"`     // the coding agent resumes the session
	InitialCommand string `json:"initial_command,omitempty"` // run by bash -c
	Plain          bool   `json:"plain,omitempty"`           // no coding agent
}

// Check reports what is wrong with a shell.
func (s *Shell) Check() error {
	switch {
	case s.ProjectPath != "" && !text(s.ProjectPath, maxShellPath):
		return protocol.Errorf(protocol.KindInvalid, ShellBadPath)
	case s.SessionID != "" && (len(s.SessionID) > protocol.MaxIDBytes || !shellSession.MatchString(s.SessionID)):
		return protocol.Errorf(protocol.KindInvalid, ShellBadSession)
	}
	if _, known := shellProviders[s.Provider]; !known {
		return protocol.Errorf(protocol.KindInvalid, "op.shell.provider is not one that shells have")
	}
	if s.InitialCommand != "" && !text(s.InitialCommand, maxShellCommand) {
		return protocol.Errorf(protocol.KindInvalid, "op.shell.initial_command must be at most %d bytes of text", maxShellCommand)
	}
	return nil
}

// text reports whether s may be an argument of a program, of so many bytes at most.
func text(s string, most int) bool {
	return len(s) <= most && utf8.ValidString(s) && strings.IndexByte(s, 0) < 0
}

// IsPlain reports whether the shell runs a command, or a shell, rather than a
// coding agent.
func (s *Shell) IsPlain() bool {
	return s.Plain || s.Provider == PlainShell || s.InitialCommand != "" && !s.HasSession
}

// Resumes reports whether a coding agent is to go on with a session.
func (s *Shell) Resumes() bool { return s.HasSession && s.SessionID != "" && !s.IsPlain() }

// Program returns the coding agent's program, "" for a plain shell.
func (s *Shell) Program() string {
	if s.IsPlain() {
		return ""
	}
	return shellProviders[s.Provider]
}

// PTYID returns the id of the shell's terminal in a session: whoever asks for the
// same shell gets the same terminal, at any relay.
func (s *Shell) PTYID(session protocol.SessionID) protocol.PTYID {
	command := sha256.Sum256([]byte(s.InitialCommand))
	named, plain := cmp.Or(s.SessionID, "default"), ""
	if s.IsPlain() {
		plain = "plain"
	}
	sum := sha256.New()
	for _, part := range []string{string(session), path.Clean(s.ProjectPath), named, s.Provider, plain, string(command[:])} {
		sum.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		sum.Write([]byte(part))
	}
	name := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum.Sum(nil))
	return protocol.PTYID("pty_" + strings.ToLower(name))
}

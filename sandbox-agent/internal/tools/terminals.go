package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/arbiter"
	"github.com/fairlead/fairlead/sandbox-agent/internal/shell"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

const (
	defaultLines   = 100
	maxLines       = 2000
	defaultTimeout = 60 * time.Second
	maxTimeout     = 600 * time.Second
)

// A Host has terminals, as terminal.Host does.
type Host interface {
	List(session protocol.SessionID) []protocol.PTYInfo
	OpenTo(session protocol.SessionID, id, programs protocol.PTYID) bool
	Screen(session protocol.SessionID, id protocol.PTYID, lines int) (string, protocol.PTYInfo, error)
	TypeFor(ctx context.Context, session protocol.SessionID, id protocol.PTYID, by arbiter.Typist, text []byte) error
	Run(ctx context.Context, session protocol.SessionID, id protocol.PTYID, by arbiter.Typist, command string) (shell.Result, error)
}

// Terminals are the tools that read and use the terminals of the caller's
// session: terminal_list, terminal_read, terminal_send and terminal_run. People
// need the capability view, and control to type. Programs have their own terminal,
// and those that somebody has opened to them. Who has control otherwise keeps it:
// then typing is refused, and the error says who it is.
type Terminals struct{ Host Host }

// permit reports, as an error, what caller may not do.
func (s *Terminals) permit(caller toolbox.Caller, pty protocol.PTYID, need protocol.Capability) error {
	if caller.Grant == nil && !s.Host.OpenTo(caller.Session, pty, caller.PTY) {
		return protocol.Errorf(protocol.KindForbidden,
			"that terminal is not open to your programs: somebody who may control it can open it to them, in the console or by terminal.share")
	}
	return caller.Permit(pty, need)
}

// Tools returns the tools, which are always the same.
func (s *Terminals) Tools(toolbox.Caller) []toolbox.Tool {
	return []toolbox.Tool{
		{Tool: terminalList, Needs: protocol.CapView, Call: s.list},
		{Tool: terminalRead, Needs: protocol.CapView, Call: s.read},
		{Tool: terminalSend, Needs: protocol.CapControl, Call: s.send},
		{Tool: terminalRun, Needs: protocol.CapControl, Call: s.run},
	}
}

var terminalList = protocol.Tool{
	Name: "terminal_list",
	Description: "List the terminals of this session that you may use: your own, and those that somebody has opened to you. " +
		"For each, its id, command, size, the coding agent in front if there is one, " +
		"and whether the program has ended.",
	InputSchema: json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`),
}

type listArgs struct{}

// A terminalListing is the answer of terminal_list.
type terminalListing struct {
	Terminals []protocol.PTYInfo `json:"terminals"`
	Own       protocol.PTYID     `json:"own,omitempty"` // the one that the caller runs in, or speaks of
}

func (s *Terminals) list(_ context.Context, caller toolbox.Caller, args json.RawMessage) (protocol.ToolResult, error) {
	if err := toolbox.Decode(args, &listArgs{}); err != nil {
		return protocol.ToolResult{}, err
	}
	answer := terminalListing{Terminals: []protocol.PTYInfo{}, Own: caller.PTY}
	for _, info := range s.Host.List(caller.Session) {
		if s.permit(caller, info.ID, protocol.CapView) == nil {
			answer.Terminals = append(answer.Terminals, info)
		}
	}
	return toolbox.JSON(answer)
}

var terminalRead = protocol.Tool{
	Name: "terminal_read",
	Description: "Read what a terminal shows, as plain text: its screen, and the newest lines above it. " +
		"Secrets are masked.",
	InputSchema: json.RawMessage(`{"type":"object","properties":{
		"pty_id":{"type":"string","description":"The terminal, as terminal_list names it. Default: your own."},
		"lines":{"type":"integer","minimum":0,"maximum":2000,"description":"How many lines above the screen to read as well. Default: 100."}
	},"additionalProperties":false}`),
}

type readArgs struct {
	PTY   protocol.PTYID `json:"pty_id"`
	Lines *int           `json:"lines"`
}

func (s *Terminals) read(_ context.Context, caller toolbox.Caller, args json.RawMessage) (protocol.ToolResult, error) {
	var a readArgs
	if err := toolbox.Decode(args, &a); err != nil {
		return protocol.ToolResult{}, err
	}
	lines := defaultLines
	if a.Lines != nil {
		lines = *a.Lines
	}
	if err := toolbox.Within("lines", int64(lines), 0, maxLines); err != nil {
		return protocol.ToolResult{}, err
	}
	if a.PTY == "" {
		a.PTY = caller.PTY
	}
	if a.PTY == "" {
		return protocol.ToolResult{}, toolbox.Missing("pty_id")
	}
	if err := s.permit(caller, a.PTY, protocol.CapView); err != nil {
		return protocol.ToolResult{}, err
	}
	text, info, err := s.Host.Screen(caller.Session, a.PTY, lines)
	if err == nil {
		err = s.permit(caller, a.PTY, protocol.CapView) // it may have been closed to them just now
	}
	if err != nil {
		return protocol.ToolResult{}, protocol.AsError(err)
	}
	return toolbox.TextAndJSON(text, info)
}

var terminalSend = protocol.Tool{
	Name: "terminal_send",
	Description: "Type into a terminal of this session, as if at its keyboard. Nobody else may have control of it: " +
		"then this fails and says who has. \\u0003 is Ctrl+C, \\u001b Escape. It doesn't wait for what the program does: " +
		"read that with terminal_read.",
	InputSchema: json.RawMessage(`{"type":"object","properties":{
		"pty_id":{"type":"string","description":"The terminal, as terminal_list names it. Not your own, and only one that is open to you."},
		"text":{"type":"string","description":"What to type, at most 64 KiB."},
		"enter":{"type":"boolean","description":"Press Enter at the end. Default: false."}
	},"required":["pty_id","text"],"additionalProperties":false}`),
}

type sendArgs struct {
	PTY   protocol.PTYID `json:"pty_id"`
	Text  *string        `json:"text"`
	Enter bool           `json:"enter"`
}

func (s *Terminals) send(ctx context.Context, caller toolbox.Caller, args json.RawMessage) (protocol.ToolResult, error) {
	var a sendArgs
	if err := toolbox.Decode(args, &a); err != nil {
		return protocol.ToolResult{}, err
	}
	if a.Text == nil {
		return protocol.ToolResult{}, toolbox.Missing("text")
	}
	if err := s.typable(caller, a.PTY); err != nil {
		return protocol.ToolResult{}, err
	}
	text := []byte(*a.Text)
	if a.Enter {
		text = append(text, '\r')
	}
	if err := s.Host.TypeFor(ctx, caller.Session, a.PTY, typist(caller), text); err != nil {
		return protocol.ToolResult{}, protocol.AsError(err)
	}
	return toolbox.Text("typed"), nil
}

// typable says why caller may not type into pty, as far as that doesn't depend
// on who else does.
func (s *Terminals) typable(caller toolbox.Caller, pty protocol.PTYID) error {
	switch {
	case pty == "":
		return toolbox.Missing("pty_id")
	case caller.Grant == nil && pty == caller.PTY:
		return protocol.Errorf(protocol.KindForbidden, "%s is your own terminal: nothing can be typed into it", pty)
	}
	return s.permit(caller, pty, protocol.CapControl)
}

func typist(caller toolbox.Caller) arbiter.Typist {
	return arbiter.Typist{Grant: caller.Grant, PTY: caller.PTY}
}

var terminalRun = protocol.Tool{
	Name: "terminal_run",
	Description: "Run a command in a terminal of this session whose shell, bash or zsh, is at its prompt, and wait until it " +
		"is done: its exit code and what it printed. When the time is over it goes on in the terminal, " +
		"where terminal_read shows it and terminal_send can end it.",
	InputSchema: json.RawMessage(`{"type":"object","properties":{
		"pty_id":{"type":"string","description":"The terminal, as terminal_list names it. Not your own, and only one that is open to you."},
		"command":{"type":"string","description":"What to type at the prompt, at most 16 KiB."},
		"timeout_seconds":{"type":"integer","minimum":1,"maximum":600,"description":"How long to wait. Default: 60."}
	},"required":["pty_id","command"],"additionalProperties":false}`),
}

type runArgs struct {
	PTY     protocol.PTYID `json:"pty_id"`
	Command string         `json:"command"`
	Timeout *int64         `json:"timeout_seconds"`
}

// A runAnswer is the answer of terminal_run.
type runAnswer struct {
	ExitCode  *int   `json:"exit_code,omitempty"` // absent: it hasn't ended
	Output    string `json:"output"`
	Truncated bool   `json:"truncated,omitempty"` // output is the end of what it printed
	Error     string `json:"error,omitempty"`
}

func (s *Terminals) run(ctx context.Context, caller toolbox.Caller, args json.RawMessage) (protocol.ToolResult, error) {
	var a runArgs
	if err := toolbox.Decode(args, &a); err != nil {
		return protocol.ToolResult{}, err
	}
	timeout := defaultTimeout
	if a.Timeout != nil {
		if err := toolbox.Within("timeout_seconds", *a.Timeout, 1, int64(maxTimeout/time.Second)); err != nil {
			return protocol.ToolResult{}, err
		}
		timeout = time.Duration(*a.Timeout) * time.Second
	}
	if a.Command == "" {
		return protocol.ToolResult{}, toolbox.Missing("command")
	}
	if err := s.typable(caller, a.PTY); err != nil {
		return protocol.ToolResult{}, err
	}
	if err := s.permit(caller, a.PTY, protocol.CapView); err != nil {
		return protocol.ToolResult{}, err // the output is what a viewer sees
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	result, err := s.Host.Run(limited, caller.Session, a.PTY, typist(caller), a.Command)
	if g := caller.Grant; g != nil && !time.Now().Before(g.Expires()) {
		return protocol.ToolResult{}, protocol.Errorf(protocol.KindExpired, "the grant has ended while the command ran")
	}
	answer := runAnswer{Output: result.Output, Truncated: result.Truncated}
	switch kind := protocol.KindOf(err); {
	case err == nil:
		answer.ExitCode = &result.ExitCode
	case kind == protocol.KindUnavailable && limited.Err() != nil:
		answer.Error = fmt.Sprintf("it has not ended within %v and goes on", timeout)
	case kind == protocol.KindEnded && result != (shell.Result{}):
		answer.ExitCode, answer.Error = &result.ExitCode, "the shell has ended"
	default:
		return protocol.ToolResult{}, protocol.AsError(err)
	}
	r, err := toolbox.JSON(answer)
	r.IsError = answer.Error != ""
	return r, err
}

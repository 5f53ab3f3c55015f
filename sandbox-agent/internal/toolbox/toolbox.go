// Package toolbox says what a tool is that coding agents and people's MCP
// clients can call.
package toolbox

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// A Caller is on whose behalf a tool is called: a program of a terminal, or a
// person who came through a relay.
type Caller struct {
	Session protocol.SessionID
	PTY     protocol.PTYID // the program's terminal, or the one that the person speaks of; "" for none
	Grant   *jws.Grant     // the person's, verified; nil: a program of terminal PTY
	Tab     int            // of the session's browser, which a program is bound to; 0: none
}

// TabVariable binds a program and what it starts to a tab of the session's browser
// (seed 000); its requests say so by TabHeader. That says what they mean, not what
// they may.
const (
	TabVariable = "BROWSE_TAB"
	TabHeader   = "X-Browse-Tab"
)

// ParseTab returns the tab that a variable or header names; 0: none.
func ParseTab(text string) int {
	tab, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0
	}
	return int(tab)
}

// Allows reports whether the caller may do what needs a capability in the
// terminal pty of its session; "" stands for the session. Programs of the
// sandbox may do all that tools do.
func (c Caller) Allows(pty protocol.PTYID, need protocol.Capability) bool {
	return c.Grant == nil || c.Grant.Allows(c.Session, pty, need)
}

// A Tool is a function with a description.
type Tool struct {
	protocol.Tool
	Needs protocol.Capability // what a person's grant needs beside "mcp"; "": nothing
	// Call carries the tool out. args is an object that fits InputSchema as far
	// as that was checked: its types need checking again. An error is told to
	// the caller as the tool's own; it must hold no secret.
	Call func(ctx context.Context, caller Caller, args json.RawMessage) (protocol.ToolResult, error)
}

// A Set is where tools come from. Tools returns those that caller has at the
// moment, without waiting for anything; a Set whose tools change says so to
// whoever made it.
type Set interface {
	Tools(caller Caller) []Tool
}

// Text is a result of one text.
func Text(text string) protocol.ToolResult {
	return protocol.ToolResult{Content: []protocol.ToolContent{{Type: "text", Text: text}}}
}

// JSON is a result whose text is v as JSON.
func JSON(v any) (protocol.ToolResult, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return protocol.ToolResult{}, err
	}
	return Text(string(text)), nil
}

// TextAndJSON is a result of a text, and behind it v as JSON.
func TextAndJSON(text string, v any) (protocol.ToolResult, error) {
	r, err := JSON(v)
	r.Content = append(Text(text).Content, r.Content...)
	return r, err
}

// Failure is a result that says that the tool could not do it, and why.
func Failure(text string) protocol.ToolResult {
	r := Text(text)
	r.IsError = true
	return r
}

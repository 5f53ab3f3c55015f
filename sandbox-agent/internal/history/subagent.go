package history

import (
	"bytes"
	"encoding/json"
	"path"
	"regexp"
	"strings"

	"github.com/fairlead/fairlead/sandbox-agent/internal/history/rows"
)

// Bounds of what is shown of a subagent.
const (
	maxSubagent = 4 << 20 // bytes of its transcript
	maxSubTools = 200     // tools that it has used
	maxSubKept  = 32      // of one page
)

var subagentID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// subagents are those of one page of claude's messages, by id.
type subagents struct {
	of   *transcript
	seen map[string]json.RawMessage
}

// with returns a row with the tools that the subagent has used whose work it
// reports.
func (s *subagents) with(row rows.Row) rows.Row {
	report := row.ToolUseResult
	if row.ToolResult != nil {
		report = row.ToolResult.ToolUseResult
	}
	if id := rows.SubagentOf(report); s.of != nil && subagentID.MatchString(id) {
		row.SubagentTools = s.tools(id)
	}
	return row
}

// tools returns the tools that a subagent has used, nil if nothing is known.
func (s *subagents) tools(id string) json.RawMessage {
	if known, ok := s.seen[id]; ok || len(s.seen) == maxSubKept {
		return known
	}
	var encoded json.RawMessage
	for _, name := range []string{
		path.Join(strings.TrimSuffix(s.of.name, ".jsonl"), "subagents", "agent-"+id+".jsonl"),
		path.Join(path.Dir(s.of.name), "agent-"+id+".jsonl"), // older versions
	} {
		content, _, err := s.of.home.files.Read(name, maxSubagent)
		if err != nil {
			continue
		}
		if list := rows.SubTools(bytes.Split(content, []byte("\n")), maxSubTools); len(list) > 0 {
			encoded, _ = json.Marshal(list) // it always can be
			break
		}
	}
	if s.seen == nil {
		s.seen = make(map[string]json.RawMessage)
	}
	s.seen[id] = encoded
	return encoded
}

package rows

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/provider"
)

// A claudeLine is one line of its transcript.
type claudeLine struct {
	Type      string          `json:"type"`
	Subtype   string          `json:"subtype"`
	UUID      string          `json:"uuid"`
	Session   string          `json:"sessionId"`
	Timestamp string          `json:"timestamp"`
	Cwd       string          `json:"cwd"`
	Sidechain bool            `json:"isSidechain"`
	Meta      bool            `json:"isMeta"`
	Compact   bool            `json:"isCompactSummary"`
	Parent    string          `json:"parent_tool_use_id"`
	Result    json.RawMessage `json:"toolUseResult"`
	Content   json.RawMessage `json:"content"` // system
	Message   *struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
		Usage   *claudeUsage    `json:"usage"`
		Model   string          `json:"model"`
	} `json:"message"`

	Summary     string `json:"summary"`
	CustomTitle string `json:"customTitle"`
	AITitle     string `json:"aiTitle"`
}

type claudeUsage struct {
	Input    int64 `json:"input_tokens"`
	Output   int64 `json:"output_tokens"`
	Read     int64 `json:"cache_read_input_tokens"`
	Creation int64 `json:"cache_creation_input_tokens"`
}

// A claudePart is one part of a message.
type claudePart struct {
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	Thinking string          `json:"thinking"`
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Input    json.RawMessage `json:"input"`
	Use      string          `json:"tool_use_id"`
	Content  json.RawMessage `json:"content"`
	Error    bool            `json:"is_error"`
	Source   struct {
		Type  string `json:"type"`
		Media string `json:"media_type"`
		Data  string `json:"data"`
	} `json:"source"`
}

// Claude is how claude keeps a session.
func Claude(s State, a *About, raw []byte) (State, []Row) {
	var l claudeLine
	if json.Unmarshal(raw, &l) != nil {
		return s, nil
	}
	list := l.rows()
	if a != nil {
		l.note(a, list)
	}
	return s, list
}

func (l *claudeLine) rows() []Row {
	var list []Row
	switch {
	case l.UUID == "": // of the program itself
	case l.Type == "system" && l.Subtype == "local_command":
		list = l.plain(spoken(l.Content))
	case l.Message == nil:
	case l.Message.Role == "user" && !l.Meta:
		list = l.user()
	case l.Message.Role == "assistant":
		list = l.assistant()
	}
	for i := range list {
		list[i].ParentToolUseID = l.Parent
	}
	return list
}

// user returns the rows of what somebody has said, or a tool has returned.
func (l *claudeLine) user() []Row {
	var text string
	if json.Unmarshal(l.Message.Content, &text) == nil {
		return l.plain(text)
	}
	var parts []claudePart
	if json.Unmarshal(l.Message.Content, &parts) != nil {
		return nil
	}
	images := claudeImages(parts)
	var list []Row
	for i, part := range parts {
		switch part.Type {
		case "tool_result":
			output := provider.ToolOutput(part.Content)
			if part.Error && provider.Interruption(output) {
				continue
			}
			r := result(provider.ToolResultID(l.UUID, part.Use), stamp(l.Timestamp), part.Use, output, part.Error)
			if len(l.Result) <= maxResult && usable(l.Result) {
				r.ToolUseResult = l.Result
			}
			list = append(list, r)
		case "text":
			said := l.said(provider.UserTextID(l.UUID, i), part.Text)
			if len(said) > 0 {
				said[0].Images, images = images, nil
			}
			list = append(list, said...)
		}
	}
	if len(images) > 0 {
		r := say(l.UUID+"_images", stamp(l.Timestamp), protocol.ChatText, "user", "")
		r.Images = images
		list = append(list, r)
	}
	return list
}

// claudeImages returns the images of a message.
func claudeImages(parts []claudePart) (images []protocol.ChatImage) {
	for _, part := range parts {
		if part.Type != "image" || part.Source.Type != "base64" || !strings.HasPrefix(part.Source.Media, "image/") {
			continue
		}
		images = append(images, protocol.ChatImage{
			Data: "data:" + part.Source.Media + ";base64," + part.Source.Data, MimeType: part.Source.Media,
		})
	}
	return images
}

// plain returns the rows of a text that is all of a user's line.
func (l *claudeLine) plain(text string) []Row { return l.said(l.UUID, text) }

// said returns the row of a text, none for one that isn't shown.
func (l *claudeLine) said(id, text string) []Row {
	at := stamp(l.Timestamp)
	if l.Compact {
		if strings.TrimSpace(text) == "" {
			return nil
		}
		r := say(id, at, protocol.ChatText, "assistant", text)
		r.IsCompactSummary = true
		return []Row{r}
	}
	if provider.HiddenText(text) || strings.TrimSpace(text) == "" {
		return nil
	}
	name, message, args, command := localCommand(text)
	if command {
		shown := strings.TrimSpace(strings.TrimSpace(firstOf(name, message)) + " " + strings.TrimSpace(args))
		if shown == "" {
			return nil
		}
		r := say(id, at, protocol.ChatText, "user", shown)
		r.DisplayText, r.CommandName, r.CommandMessage, r.CommandArgs = *r.Content, cut(name, maxSaid), cut(message, maxSaid), cut(args, maxText)
		r.IsLocalCommand = true
		return []Row{r}
	}
	if printed, ok := tagged(text, "local-command-stdout"); ok {
		printed = strings.TrimSpace(styling.ReplaceAllString(printed, ""))
		if printed == "" {
			return nil
		}
		r := say(id, at, protocol.ChatText, "assistant", printed)
		r.IsLocalCommandStdout = true
		return []Row{r}
	}
	return []Row{say(id, at, protocol.ChatText, "user", text)}
}

// styling are the escape sequences of a terminal's colours.
var styling = regexp.MustCompile(`\x1b\[[0-9;?]*[ -/]*[@-~]`)

// localCommand returns the parts of a command that claude itself has carried out.
func localCommand(text string) (name, message, args string, ok bool) {
	name, a := tagged(text, "command-name")
	message, b := tagged(text, "command-message")
	args, c := tagged(text, "command-args")
	return name, message, args, a || b || c
}

// tagged returns what is between <name> and </name>.
func tagged(text, name string) (string, bool) {
	_, rest, begun := strings.Cut(text, "<"+name+">")
	inner, _, ended := strings.Cut(rest, "</"+name+">")
	return inner, begun && ended
}

func firstOf(texts ...string) string {
	for _, text := range texts {
		if strings.TrimSpace(text) != "" {
			return text
		}
	}
	return ""
}

// assistant returns the rows of a message of the model.
func (l *claudeLine) assistant() []Row {
	at := stamp(l.Timestamp)
	var text string
	if json.Unmarshal(l.Message.Content, &text) == nil {
		if text == "" {
			return nil
		}
		return []Row{say(l.UUID, at, protocol.ChatText, "assistant", text)}
	}
	var parts []claudePart
	if json.Unmarshal(l.Message.Content, &parts) != nil {
		return nil
	}
	var list []Row
	for i, part := range parts {
		id := provider.PartID(l.UUID, i)
		switch {
		case part.Type == "text" && part.Text != "":
			list = append(list, say(id, at, protocol.ChatText, "assistant", part.Text))
		case part.Type == "thinking" && part.Thinking != "":
			list = append(list, say(id, at, protocol.ChatThinking, "", part.Thinking))
		case part.Type == "tool_use":
			list = append(list, use(id, at, part.Name, part.ID, part.Input))
		}
	}
	return list
}

// claudeWindow is what seed 002 says of the model's context, in tokens.
const claudeWindow = 160_000

// note adds to a what the line says of its session.
func (l *claudeLine) note(a *About, list []Row) {
	a.Subagent = a.Subagent || l.Sidechain
	if a.Native == "" {
		a.Native = l.Session
	}
	if a.Dir == "" {
		a.Dir = l.Cwd
	}
	a.Title = firstOf(l.CustomTitle, a.Title)
	if l.Type == "summary" || l.Type == "ai-title" {
		a.Title = firstOf(a.Title, l.AITitle, l.Summary)
	}
	for _, r := range list {
		if r.Kind == protocol.ChatText && r.Role == "user" && a.Said == "" && !r.IsLocalCommand {
			a.Said = cut(*r.Content, maxSaid)
		}
	}
	if l.Message == nil {
		return
	}
	if u := l.Message.Usage; l.Message.Role == "assistant" && u != nil && !l.Sidechain {
		input := u.Input + u.Read + u.Creation
		a.Usage = &protocol.TokenBudget{
			Used: input + u.Output, Total: claudeWindow, InputTokens: input, OutputTokens: u.Output,
			CacheReadTokens: u.Read, CacheCreationTokens: u.Creation,
			Breakdown: protocol.TokenBreakdown{Input: input, Output: u.Output},
		}
	}
}

// A SubTool is a tool that a subagent has used, as clients of seed 002 know it.
type SubTool struct {
	ToolID     string          `json:"toolId"`
	ToolName   string          `json:"toolName"`
	ToolInput  json.RawMessage `json:"toolInput"`
	Timestamp  string          `json:"timestamp"`
	ToolResult *SubResult      `json:"toolResult,omitempty"`
}

// A SubResult is what such a tool has returned.
type SubResult struct {
	Content string `json:"content"`
	IsError bool   `json:"isError"`
}

// SubTools returns the tools of a subagent's transcript, at most limit of them.
func SubTools(lines [][]byte, limit int) []SubTool {
	var list []SubTool
	at := make(map[string]int)
	for _, line := range lines {
		_, rows := Claude(State{}, nil, line)
		for _, r := range rows {
			switch i, known := at[r.ToolID]; {
			case r.Kind == protocol.ChatToolUse && len(list) < limit:
				at[r.ToolID] = len(list)
				list = append(list, SubTool{ToolID: r.ToolID, ToolName: r.ToolName, ToolInput: r.ToolInput, Timestamp: r.Timestamp})
			case r.Kind == protocol.ChatToolResult && known:
				list[i].ToolResult = &SubResult{Content: *r.Content, IsError: *r.IsError}
			}
		}
	}
	return list
}

// SubagentOf returns the id of the subagent whose work a result reports, "" for
// any other.
func SubagentOf(result json.RawMessage) string {
	var r struct {
		Agent string `json:"agentId"`
	}
	if !usable(result) || result[0] != '{' || json.Unmarshal(result, &r) != nil {
		return ""
	}
	return r.Agent
}

package rows

import (
	"encoding/json"
	"strings"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/provider"
)

// A codexLine is one line of a rollout.
type codexLine struct {
	Timestamp string          `json:"timestamp"`
	Type      string          `json:"type"`
	Payload   json.RawMessage `json:"payload"`
}

// A codexPayload is what a line says. Which members it has depends on its type.
type codexPayload struct {
	Type   string `json:"type"`
	TurnID string `json:"turn_id"`

	// session_meta and turn_context
	ID     string          `json:"id"`
	Cwd    string          `json:"cwd"`
	Source json.RawMessage `json:"source"`

	// user_message, agent_message, agent_reasoning, error
	Message     string   `json:"message"`
	Kind        string   `json:"kind"`
	Text        string   `json:"text"`
	Images      []string `json:"images"`
	LocalImages []string `json:"local_images"`

	// calls
	Call      string          `json:"call_id"`
	Name      string          `json:"name"`
	Namespace string          `json:"namespace"`
	Arguments string          `json:"arguments"`
	Input     string          `json:"input"`
	Output    json.RawMessage `json:"output"`
	Action    json.RawMessage `json:"action"`

	Item       *codexItem  `json:"item"` // item_completed
	Info       *codexUsage `json:"info"` // token_count
	ThreadName string      `json:"thread_name"`
}

// A codexItem is something of a turn that is over.
type codexItem struct {
	Type    string `json:"type"`
	ID      string `json:"id"`
	Client  string `json:"client_id"`
	Content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
		URL  string `json:"image_url"`
	} `json:"content"`
	Summary []string `json:"summary_text"`
	Raw     []string `json:"raw_content"`
	Output  *string  `json:"aggregated_output"`
	Stdout  string   `json:"stdout"`
	Stderr  string   `json:"stderr"`
	Exit    *int     `json:"exit_code"`
	Status  string   `json:"status"`
	Query   string   `json:"query"`
}

type codexUsage struct {
	Total  codexTokens `json:"total_token_usage"` // of all turns together
	Last   codexTokens `json:"last_token_usage"`  // what the context holds; older versions don't say
	Window int64       `json:"model_context_window"`
}

type codexTokens struct {
	Input  int64 `json:"input_tokens"`
	Cached int64 `json:"cached_input_tokens"`
	Output int64 `json:"output_tokens"`
	All    int64 `json:"total_tokens"`
}

// codexWindow is seed 002's, where codex doesn't say its model's.
const codexWindow = 200_000

// Codex is how codex keeps a session: a rollout.
func Codex(s State, a *About, raw []byte) (State, []Row) {
	var l codexLine
	var p codexPayload
	if json.Unmarshal(raw, &l) != nil || json.Unmarshal(l.Payload, &p) != nil {
		return s, nil
	}
	if a != nil {
		l.note(a, &p)
	}
	if p.TurnID != "" && p.TurnID != s.Said.Turn() {
		s.Said.Begin(p.TurnID)
	}
	at := stamp(l.Timestamp)
	switch l.Type {
	case "event_msg":
		if p.Type == "item_completed" && p.Item != nil {
			return s, p.completed(&s, at)
		}
		return s, p.event(&s.Said, at)
	case "response_item":
		return s, p.item(&s, at)
	}
	return s, nil
}

// completed returns the rows of an item that is over.
func (p *codexPayload) completed(s *State, at string) []Row {
	i := p.Item
	id := provider.CodexItemID(p.TurnID, i.ID)
	var texts []string
	images := false
	for _, c := range i.Content {
		images = images || strings.Contains(strings.ToLower(c.Type), "image")
		if c.Text != "" {
			texts = append(texts, c.Text)
		}
	}
	text := strings.Join(texts, "\n")
	switch i.Type {
	case "UserMessage":
		if i.Client != "" {
			id = provider.CodexMessageID(i.Client, images)
		}
		r := say(id, at, protocol.ChatText, "user", text)
		for _, c := range i.Content {
			if strings.HasPrefix(c.URL, "data:image/") {
				r.Images = append(r.Images, protocol.ChatImage{Data: c.URL})
			}
		}
		return []Row{r}
	case "AgentMessage", "Plan":
		return shownText(say(id, at, protocol.ChatText, "assistant", text))
	case "Reasoning":
		thought := i.Summary
		if len(thought) == 0 {
			thought = i.Raw
		}
		return shownText(say(id, at, protocol.ChatThinking, "", strings.Join(thought, "\n\n")))
	case "WebSearch":
		s.Ended.add(i.ID)
		return []Row{
			use(id, at, "WebSearch", i.ID, object("query", i.Query)),
			result(provider.CodexResultID(p.TurnID, i.ID), at, i.ID, "", false),
		}
	case "CommandExecution", "FileChange":
		if s.Ended.has(i.ID) {
			return nil // its output came first: it was aborted
		}
		s.Ended.add(i.ID)
		content := i.Stdout
		if i.Output != nil {
			content = *i.Output
		}
		failed := i.Status == "failed" || i.Status == "declined" || (i.Exit != nil && *i.Exit != 0)
		return []Row{result(provider.CodexResultID(p.TurnID, i.ID), at, i.ID, firstOf(content, i.Stderr), failed)}
	}
	return nil
}

// shownText returns a row, unless it says nothing.
func shownText(r Row) []Row {
	if strings.TrimSpace(*r.Content) == "" {
		return nil
	}
	return []Row{r}
}

// event returns the rows of what was said, as older versions keep it.
func (p *codexPayload) event(said *provider.Said, at string) []Row {
	switch p.Type {
	case "user_message":
		if (p.Kind != "" && p.Kind != "plain") || (strings.TrimSpace(p.Message) == "" && len(p.Images) == 0) {
			return nil
		}
		r := say(said.Next(protocol.ChatText, "user", p.Message), at, protocol.ChatText, "user", p.Message)
		for _, image := range p.Images {
			if strings.HasPrefix(image, "data:image/") {
				r.Images = append(r.Images, protocol.ChatImage{Data: image})
			}
		}
		return []Row{r}
	case "agent_message":
		if strings.TrimSpace(p.Message) != "" {
			return []Row{say(said.Next(protocol.ChatText, "assistant", p.Message), at, protocol.ChatText, "assistant", p.Message)}
		}
	case "agent_reasoning":
		if strings.TrimSpace(p.Text) != "" {
			return []Row{say(said.Next(protocol.ChatThinking, "", p.Text), at, protocol.ChatThinking, "", p.Text)}
		}
	case "error":
		if strings.TrimSpace(p.Message) != "" {
			return []Row{say(said.Next(protocol.ChatError, "", p.Message), at, protocol.ChatError, "", p.Message)}
		}
	}
	return nil
}

// item returns the rows of a tool's use or result. What was said is in events.
func (p *codexPayload) item(s *State, at string) []Row {
	switch p.Type {
	case "function_call", "custom_tool_call", "local_shell_call", "web_search_call":
		if p.Call == "" {
			p.Call = p.ID
		}
		if p.Call == "" || p.Type == "web_search_call" && s.Ended.has(p.Call) {
			return nil
		}
		tool, input := p.tool()
		return []Row{use(provider.CodexItemID(s.Said.Turn(), p.Call), at, tool, p.Call, input)}
	case "function_call_output", "custom_tool_call_output":
		if p.Call == "" || s.Ended.has(p.Call) {
			return nil
		}
		s.Ended.add(p.Call)
		content, failed := codexOutput(p.Output)
		return []Row{result(provider.CodexResultID(s.Said.Turn(), p.Call), at, p.Call, content, failed)}
	}
	return nil
}

// tool returns the name and input under which clients know a tool of codex.
func (p *codexPayload) tool() (string, json.RawMessage) {
	var args struct {
		Command json.RawMessage `json:"command"`
		Cmd     string          `json:"cmd"`
		Plan    json.RawMessage `json:"plan"`
		Query   string          `json:"query"`
		Path    string          `json:"path"`
	}
	text := firstOf(p.Arguments, string(p.Action))
	_ = json.Unmarshal([]byte(text), &args) // of something else, members stay empty
	switch {
	case p.Type == "web_search_call":
		return "WebSearch", object("query", args.Query)
	case p.Type == "custom_tool_call" && p.Name == "apply_patch":
		return "FileChanges", object("patch", p.Input)
	case p.Type == "custom_tool_call":
		return p.Name, object("input", p.Input)
	case p.Name == "shell", p.Name == "exec_command", p.Name == "shell_command", p.Name == "local_shell", p.Type == "local_shell_call":
		return "Bash", object("command", firstOf(args.Cmd, commandLine(args.Command)))
	case p.Name == "view_image" && args.Path != "":
		return "ImageView", object("path", args.Path)
	case p.Name == "update_plan" && usable(args.Plan):
		return "TodoList", object("items", args.Plan)
	}
	if json.Valid([]byte(text)) && strings.HasPrefix(strings.TrimSpace(text), "{") {
		return p.fullName(), json.RawMessage(text)
	}
	return p.fullName(), object("input", text)
}

// fullName is the name of a tool with that of its server.
func (p *codexPayload) fullName() string {
	if server, ok := strings.CutPrefix(p.Namespace, "mcp__"); ok {
		return provider.CodexMCPTool(strings.TrimSuffix(server, "__"), p.Name)
	}
	return p.Namespace + p.Name
}

// object returns {name: value}.
func object(name string, value any) json.RawMessage {
	encoded, err := json.Marshal(map[string]any{name: value})
	if err != nil {
		return nil
	}
	return encoded
}

// commandLine returns a command: a text, or a shell's arguments.
func commandLine(raw json.RawMessage) string {
	var argv []string
	if json.Unmarshal(raw, &argv) != nil {
		return spoken(raw)
	}
	if len(argv) == 3 && strings.HasSuffix(argv[0], "sh") && strings.HasPrefix(argv[1], "-") {
		return argv[2]
	}
	return strings.Join(argv, " ")
}

// codexOutput returns what a tool has printed. Some print it as JSON with their
// exit status.
func codexOutput(raw json.RawMessage) (string, bool) {
	text := provider.ToolOutput(raw)
	var wrapped struct {
		Output   *string         `json:"output"`
		Content  json.RawMessage `json:"content"`
		Success  *bool           `json:"success"`
		Metadata struct {
			ExitCode int `json:"exit_code"`
		} `json:"metadata"`
	}
	if !strings.HasPrefix(text, "{") || json.Unmarshal([]byte(text), &wrapped) != nil {
		return text, false
	}
	failed := wrapped.Metadata.ExitCode != 0 || (wrapped.Success != nil && !*wrapped.Success)
	switch {
	case wrapped.Output != nil:
		return *wrapped.Output, failed
	case usable(wrapped.Content):
		return provider.ToolOutput(wrapped.Content), failed
	}
	return text, failed
}

// note adds to a what the line says of its session.
func (l *codexLine) note(a *About, p *codexPayload) {
	switch {
	case l.Type == "session_meta":
		if a.Native == "" {
			a.Native, a.Dir = p.ID, p.Cwd
		}
		var subagent struct {
			Subagent json.RawMessage `json:"subagent"`
		}
		a.Subagent = a.Subagent || (json.Unmarshal(p.Source, &subagent) == nil && usable(subagent.Subagent))
	case l.Type == "event_msg" && p.Type == "user_message" && a.Said == "" && (p.Kind == "" || p.Kind == "plain"):
		a.Said = cut(p.Message, maxSaid)
	case l.Type == "event_msg" && p.Item != nil && p.Item.Type == "UserMessage" && a.Said == "":
		for _, c := range p.Item.Content {
			a.Said = cut(firstOf(a.Said, c.Text), maxSaid)
		}
	case l.Type == "event_msg" && p.Type == "thread_name_updated":
		a.Title = firstOf(p.ThreadName, a.Title)
	case l.Type == "event_msg" && p.Type == "token_count" && p.Info != nil:
		u := p.Info.Last
		if u.All == 0 {
			u = p.Info.Total
		}
		a.Usage = &protocol.TokenBudget{
			Used: u.All, Total: p.Info.Window, InputTokens: u.Input, OutputTokens: u.Output, CacheReadTokens: u.Cached,
			Breakdown: protocol.TokenBreakdown{Input: u.Input, Output: u.Output},
		}
		if a.Usage.Total == 0 {
			a.Usage.Total = codexWindow
		}
	}
}

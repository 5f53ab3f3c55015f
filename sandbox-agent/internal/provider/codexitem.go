package provider

import (
	"encoding/json"
	"fmt"
	"strings"
)

// CodexMessageID is the id of the event that comes of an item UserMessage, whose
// client_id is client, with or without images.
func CodexMessageID(client string, images bool) string {
	if images {
		return Turn{ID: client, Images: make([]Image, 1)}.EventID()
	}
	return client
}

// CodexItemID is the id of the event that comes of an item of a turn: its text,
// its thinking or the use of its tool. Ids of items are the model's, and some
// models count from 1 again in each turn.
func CodexItemID(turn, item string) string {
	if turn == "" {
		return item
	}
	return turn + "_" + item
}

// CodexResultID is the id of the event that comes of the end of an item that is
// a tool's.
func CodexResultID(turn, item string) string { return CodexItemID(turn, item) + "_result" }

// A codexItem is one thing of a turn: a text, a thought, a tool.
type codexItem struct {
	Type string `json:"type"`
	ID   string `json:"id"`

	Text    string          `json:"text"`    // agentMessage, plan
	Summary []string        `json:"summary"` // reasoning
	Content json.RawMessage `json:"content"` // reasoning: strings

	Command          string  `json:"command"` // commandExecution
	Cwd              string  `json:"cwd"`
	AggregatedOutput *string `json:"aggregatedOutput"`
	ExitCode         *int    `json:"exitCode"`
	Status           string  `json:"status"` // of every tool: inProgress, completed, failed, declined

	Changes json.RawMessage `json:"changes"` // fileChange

	Server    string          `json:"server"` // mcpToolCall
	Tool      string          `json:"tool"`   // and dynamicToolCall, collabAgentToolCall
	Arguments json.RawMessage `json:"arguments"`
	Result    *struct {
		Content []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"content"`
	} `json:"result"`
	Error *codexError `json:"error"`

	Query  string `json:"query"`  // webSearch
	Path   string `json:"path"`   // imageView
	Prompt string `json:"prompt"` // collabAgentToolCall

	Revised string `json:"revisedPrompt"` // imageGeneration
	Saved   string `json:"savedPath"`
}

// use returns what tool an item is a use of.
func (i codexItem) use() (name string, input json.RawMessage, ok bool) {
	switch i.Type {
	case "commandExecution":
		return "Bash", object(map[string]any{"command": unwrapped(i.Command)}), true
	case "fileChange":
		return "FileChanges", object(map[string]any{"changes": orNull(i.Changes)}), true
	case "mcpToolCall":
		return CodexMCPTool(i.Server, i.Tool), i.Arguments, true
	case "dynamicToolCall", "collabAgentToolCall":
		if i.Prompt != "" {
			return i.Tool, object(map[string]any{"prompt": i.Prompt}), true
		}
		return i.Tool, i.Arguments, true
	case "webSearch":
		return "WebSearch", object(map[string]any{"query": i.Query}), true
	case "imageView":
		return "ImageView", object(map[string]any{"path": i.Path}), true
	case "imageGeneration":
		return "ImageGeneration", object(map[string]any{"prompt": i.Revised, "path": i.Saved}), true
	}
	return "", nil, false
}

// comesWhole reports whether only the end of an item says what it is about: the
// model searches first, and then codex tells what for.
func (i codexItem) comesWhole() bool {
	return i.Type == "webSearch" && i.Query == "" || i.Type == "imageGeneration"
}

// CodexMCPTool is how a tool of an MCP server is called.
func CodexMCPTool(server, tool string) string { return "mcp__" + server + "__" + tool }

// outcome returns what a tool has come to.
func (i codexItem) outcome() (content string, failed bool, raw json.RawMessage) {
	failed = i.Status == "failed" || i.Status == "declined"
	switch i.Type {
	case "commandExecution":
		if i.AggregatedOutput != nil {
			content = *i.AggregatedOutput
		}
		if i.Status == "declined" {
			content = "The command was denied."
		}
		more := map[string]any{"status": i.Status}
		if i.ExitCode != nil {
			more["exitCode"] = *i.ExitCode
			failed = failed || *i.ExitCode != 0
		}
		return content, failed, object(more)
	case "fileChange":
		switch i.Status {
		case "declined":
			return "The changes were denied.", true, nil
		case "failed":
			return "The changes could not be made.", true, nil
		}
		return "", false, nil
	}
	if i.Error != nil {
		return i.Error.Message, true, nil
	}
	if i.Result != nil {
		var parts []string
		for _, part := range i.Result.Content {
			if part.Type == "text" {
				parts = append(parts, part.Text)
			} else {
				parts = append(parts, fmt.Sprintf("[%s]", part.Type))
			}
		}
		content = strings.Join(parts, "\n")
	}
	return content, failed, nil
}

// thought returns what the model has thought, in short where there is a short
// form.
func (i codexItem) thought() string {
	if len(i.Summary) > 0 {
		return strings.Join(i.Summary, "\n\n")
	}
	var content []string
	_ = json.Unmarshal(i.Content, &content) // items of other types have other contents
	return strings.Join(content, "\n\n")
}

// unwrapped returns the script of a command that is a shell with one script, as
// codex runs every command, and any other command as it is.
func unwrapped(command string) string {
	shell, rest, ok := strings.Cut(command, " ")
	if !ok || !strings.HasSuffix(shell, "/bash") && !strings.HasSuffix(shell, "/zsh") && !strings.HasSuffix(shell, "/sh") &&
		shell != "bash" && shell != "zsh" && shell != "sh" {
		return command
	}
	flag, script, ok := strings.Cut(rest, " ")
	if !ok || flag != "-lc" && flag != "-c" {
		return command
	}
	if word, ok := oneWord(script); ok {
		return word
	}
	return command
}

// oneWord undoes a shell's quoting of exactly one word. It knows no expansion: a
// word that has one is refused.
func oneWord(s string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == '\'':
			end := strings.IndexByte(s[i+1:], '\'')
			if end < 0 {
				return "", false
			}
			b.WriteString(s[i+1 : i+1+end])
			i += end + 2
		case c == '"':
			n, ok := doubleQuoted(&b, s[i+1:])
			if !ok {
				return "", false
			}
			i += n + 1
		case c == '\\' && i+1 < len(s):
			b.WriteByte(s[i+1])
			i += 2
		case strings.IndexByte(" \t\n\\$`&|;<>()*?[]#~{}!", c) >= 0:
			return "", false
		default:
			b.WriteByte(c)
			i++
		}
	}
	return b.String(), len(s) > 0
}

// doubleQuoted undoes a double-quoted part, whose first quote is gone. It returns
// how many bytes it has taken.
func doubleQuoted(b *strings.Builder, s string) (n int, ok bool) {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return i + 1, true
		case c == '$' || c == '`':
			return 0, false
		case c == '\\' && i+1 < len(s) && strings.IndexByte("\"\\$`", s[i+1]) >= 0:
			i++
			b.WriteByte(s[i])
		default:
			b.WriteByte(c)
		}
	}
	return 0, false
}

// orNull returns raw, or null where there is nothing.
func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}

// A codexNotice is what notifications of interest have.
type codexNotice struct {
	ThreadID  string          `json:"threadId"`
	TurnID    string          `json:"turnId"`
	ItemID    string          `json:"itemId"`
	Delta     string          `json:"delta"`
	Item      codexItem       `json:"item"`
	Turn      codexTurn       `json:"turn"`
	Error     *codexError     `json:"error"`
	WillRetry bool            `json:"willRetry"`
	RequestID json.RawMessage `json:"requestId"`
	Plan      []struct {
		Step   string `json:"step"`
		Status string `json:"status"`
	} `json:"plan"`
	TokenUsage struct {
		Last struct {
			Total       int64 `json:"totalTokens"`
			Input       int64 `json:"inputTokens"`
			CachedInput int64 `json:"cachedInputTokens"`
			CacheWrite  int64 `json:"cacheWriteInputTokens"`
			Output      int64 `json:"outputTokens"`
		} `json:"last"`
		ContextWindow int64 `json:"modelContextWindow"`
	} `json:"tokenUsage"`
}

type codexTurn struct {
	ID     string      `json:"id"`
	Status string      `json:"status"` // completed, interrupted, failed
	Error  *codexError `json:"error"`
}

type codexError struct {
	Message string `json:"message"`
}

package standin

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"
)

const codexVersion = "0.169.0"

// codex is OpenAI's codex: its app-server.
func codex(p *process) int {
	switch {
	case p.has("--version", "-V"):
		p.write([]byte("codex-cli " + codexVersion + "\n"))
		return 0
	case len(p.args) == 0 || p.args[0] != "app-server":
		fmt.Fprintln(p.err, "the stand-in for codex knows only: codex app-server")
		return 2
	case p.has("--help", "-h"):
		p.write([]byte("Usage: codex app-server [OPTIONS]\n"))
		return 0
	}
	ctx, stop := untilSignal()
	defer stop()
	c := &codexServer{peer: newPeer(p, ""), stage: &stage{p: p, ctx: ctx}}
	c.peer.read(c.take)
	c.stage.abort()
	c.stage.busy.Wait()
	return 0
}

// codexServer is a running app-server, with one thread.
type codexServer struct {
	peer  *peer
	stage *stage

	// Owned by the goroutine that reads, and by the stage while it is busy.
	thread string
	path   string // of the thread's rollout
	mode   string
	rows   int
	said   []string
}

// codexParams are the members of params that it reads.
type codexParams struct {
	ThreadID string `json:"threadId"`
	Approval string `json:"approvalPolicy"`
	ClientID string `json:"clientUserMessageId"`
	Input    []struct {
		Type string `json:"type"`
		Text string `json:"text"`
		Path string `json:"path"`
	} `json:"input"`
}

func (c *codexServer) take(m called) {
	var q codexParams
	_ = json.Unmarshal(m.Params, &q) // what is missing is empty
	switch m.Method {
	case "initialize":
		c.peer.reply(m.ID, map[string]any{"userAgent": "stand-in/" + codexVersion, "codexHome": filepath.Join(c.peer.p.home, ".codex"), "platformFamily": "unix", "platformOs": "linux"})
	case "initialized":
	case "thread/start", "thread/resume":
		c.open(m.ID, q)
	case "turn/start":
		c.turn(m.ID, q)
	case "turn/interrupt":
		c.peer.reply(m.ID, map[string]any{})
		c.stage.abort()
	case "thread/backgroundTerminals/list": // of an interrupted turn nothing runs on
		c.peer.reply(m.ID, map[string]any{"data": []any{}, "nextCursor": nil})
	case "thread/backgroundTerminals/clean":
		c.peer.reply(m.ID, map[string]any{})
	default:
		if m.ID != nil {
			c.peer.refuse(m.ID, -32600, "Invalid request: unknown variant `"+m.Method+"`")
		}
	}
}

// open begins a thread or reads an earlier one.
func (c *codexServer) open(id json.RawMessage, q codexParams) {
	c.stage.busy.Wait()
	sessions := filepath.Join(c.peer.p.home, ".codex", "sessions")
	c.mode = "default"
	if q.Approval == "never" {
		c.mode = "bypassPermissions"
	}
	if q.ThreadID != "" {
		found, _ := filepath.Glob(filepath.Join(sessions, "*", "*", "*", "rollout-*-"+q.ThreadID+".jsonl"))
		if len(found) == 0 {
			c.peer.refuse(id, -32600, "no rollout found for thread id "+q.ThreadID)
			return
		}
		c.thread, c.path = q.ThreadID, found[0]
		if err := rows(c.path, c.remember); err != nil {
			c.peer.refuse(id, -32603, err.Error())
			return
		}
	} else {
		at := time.Now()
		c.thread = newUUID()
		c.path = filepath.Join(sessions, at.Format("2006/01/02"), "rollout-"+at.Format("2006-01-02T15-04-05")+"-"+c.thread+".jsonl")
		c.row("session_meta", map[string]any{
			"session_id": c.thread, "id": c.thread, "timestamp": now(), "cwd": c.peer.p.dir, "originator": "stand-in",
			"cli_version": codexVersion, "source": "vscode", "model_provider": "stand-in",
		})
	}
	thread := map[string]any{"id": c.thread, "sessionId": c.thread, "path": c.path, "cwd": c.peer.p.dir, "turns": []any{}}
	c.peer.reply(id, map[string]any{"thread": thread, "model": "stand-in", "cwd": c.peer.p.dir})
}

// remember takes what was said before from a row of a rollout.
func (c *codexServer) remember(row map[string]any) {
	c.rows++
	payload, _ := row["payload"].(map[string]any)
	item, _ := payload["item"].(map[string]any)
	if word(item, "type") != "UserMessage" {
		return
	}
	parts, _ := item["content"].([]any)
	for _, part := range parts {
		if m, _ := part.(map[string]any); word(m, "type") == "text" {
			c.said = append(c.said, word(m, "text"))
		}
	}
}

// row appends a row to the rollout.
func (c *codexServer) row(kind string, payload any) {
	appendJSON(c.peer.p, c.path, map[string]any{"timestamp": now(), "ordinal": c.rows, "type": kind, "payload": payload})
	c.rows++
}

// turn performs a message.
func (c *codexServer) turn(id json.RawMessage, q codexParams) {
	c.stage.busy.Wait()
	text, images := "", []int(nil)
	for _, part := range q.Input {
		if text += part.Text; part.Type == "localImage" {
			images = append(images, size(part.Path))
		}
	}
	v := &codexVoice{c: c, turn: newUUID(), may: permissions{mode: c.mode}}
	c.peer.reply(id, map[string]any{"turn": map[string]any{"id": v.turn, "status": "inProgress"}})
	c.peer.notify("turn/started", map[string]any{"threadId": c.thread, "turn": map[string]any{"id": v.turn, "status": "inProgress"}})
	c.row("event_msg", map[string]any{"type": "task_started", "turn_id": v.turn})
	content := []any{map[string]any{"type": "text", "text": text, "text_elements": []any{}}}
	for _, part := range q.Input {
		if part.Type == "localImage" {
			content = append(content, map[string]any{"type": "local_image", "path": part.Path})
		}
	}
	v.row(map[string]any{"type": "UserMessage", "id": newUUID(), "client_id": q.ClientID, "content": content})
	said := append([]string(nil), c.said...)
	c.said = append(c.said, text)
	c.stage.perform(v, text, said, images, v.end)
}

// codexVoice says what happens in a turn.
type codexVoice struct {
	c    *codexServer
	turn string
	may  permissions

	item string // of the text that is said; "": none is
	text string
}

func (v *codexVoice) notify(method string, params map[string]any) {
	params["threadId"], params["turnId"] = v.c.thread, v.turn
	v.c.peer.notify(method, params)
}

// row keeps the end of an item.
func (v *codexVoice) row(item map[string]any) {
	v.c.row("event_msg", map[string]any{"type": "item_completed", "thread_id": v.c.thread, "turn_id": v.turn, "item": item})
}

func (v *codexVoice) delta(text string) {
	if v.item == "" {
		v.item = "msg_" + newUUID()
		v.notify("item/started", map[string]any{"item": map[string]any{"type": "agentMessage", "id": v.item, "text": ""}})
	}
	v.text += text
	v.notify("item/agentMessage/delta", map[string]any{"itemId": v.item, "delta": text})
}

func (v *codexVoice) endText() {
	if v.item == "" {
		return
	}
	v.row(map[string]any{"type": "AgentMessage", "id": v.item, "content": []any{map[string]any{"type": "Text", "text": v.text}}})
	v.notify("item/completed", map[string]any{"item": map[string]any{"type": "agentMessage", "id": v.item, "text": v.text}})
	v.item, v.text = "", ""
}

func (v *codexVoice) think(text string) {
	id := "rs_" + newUUID()
	v.row(map[string]any{"type": "Reasoning", "id": id, "summary_text": []string{text}, "raw_content": []any{}})
	v.notify("item/completed", map[string]any{"item": map[string]any{"type": "reasoning", "id": id, "summary": []string{text}, "content": []any{}}})
}

func (v *codexVoice) useID() string { return "call_" + newUUID() }

// itemOf returns a tool's item as the protocol has it.
func (v *codexVoice) itemOf(u use, status string) map[string]any {
	in := members(u.input)
	item := map[string]any{"id": u.id, "status": status}
	switch u.name {
	case "Bash":
		item["type"], item["command"], item["cwd"] = "commandExecution", "/bin/bash -lc "+quote(word(in, "command")), v.c.peer.p.dir
	case "Write":
		change := map[string]any{"path": word(in, "file_path"), "kind": map[string]any{"type": "add"}, "diff": word(in, "content")}
		item["type"], item["changes"] = "fileChange", []any{change}
	default:
		item["type"], item["server"], item["tool"], item["arguments"] = "mcpToolCall", "standin", u.name, u.input
	}
	return item
}

// use asks in the way that fits the tool.
func (v *codexVoice) use(ctx context.Context, u use) (json.RawMessage, error) {
	if u.name != askUserQuestion {
		v.notify("item/started", map[string]any{"item": v.itemOf(u, "inProgress")})
	}
	if !v.may.asks(u) {
		return u.input, nil
	}
	params := map[string]any{"threadId": v.c.thread, "turnId": v.turn, "itemId": u.id, "reason": "the script says so"}
	method := "mcpServer/elicitation/request"
	switch u.name {
	case "Bash":
		method = "item/commandExecution/requestApproval"
		params["kind"], params["command"], params["cwd"] = "command", v.itemOf(u, "")["command"], v.c.peer.p.dir
	case "Write":
		method = "item/fileChange/requestApproval"
	case askUserQuestion:
		method = "item/tool/requestUserInput"
		params["questions"] = []any{map[string]any{
			"id": "q1", "header": "Choice", "question": "Which one?", "isOther": false, "isSecret": false,
			"options": []any{map[string]any{"label": "A", "description": "the first"}, map[string]any{"label": "B", "description": "the second"}},
		}}
	default:
		params["serverName"], params["mode"], params["message"] = "standin", "form", "Allow the standin MCP server to run tool \""+u.name+"\"?"
		params["requestedSchema"] = map[string]any{"type": "object", "properties": map[string]any{}}
		params["_meta"] = map[string]any{"codex_approval_kind": "mcp_tool_call", "tool_name": u.name, "tool_params": u.input}
	}
	id, result, err := v.c.peer.ask(ctx, method, params, u.giveUp)
	v.c.peer.notify("serverRequest/resolved", map[string]any{"threadId": v.c.thread, "requestId": id})
	if err != nil {
		return nil, err
	}
	return v.answered(u, result)
}

// answered returns the input that a tool gets after an answer.
func (v *codexVoice) answered(u use, result json.RawMessage) (json.RawMessage, error) {
	var said struct {
		Decision string `json:"decision"`
		Action   string `json:"action"`
		Answers  map[string]struct {
			Answers []string `json:"answers"`
		} `json:"answers"`
	}
	_ = json.Unmarshal(result, &said) // an error denies
	if u.name == askUserQuestion {
		if len(said.Answers["q1"].Answers) == 0 {
			return nil, &refusal{"nobody has answered"}
		}
		b, _ := json.Marshal(map[string]any{"answers": map[string]string{"Which one?": said.Answers["q1"].Answers[0]}}) // can't fail
		return b, nil
	}
	if said.Decision != "accept" && said.Action != "accept" {
		return nil, &refusal{"rejected by user"}
	}
	return u.input, nil
}

func (v *codexVoice) result(u use, output string, bad bool) {
	if u.name == askUserQuestion {
		return
	}
	status, code := "completed", 0
	if bad {
		status, code = "failed", 1
	}
	item := v.itemOf(u, status)
	kept := map[string]any{"id": u.id, "status": status}
	call := map[string]any{"type": "function_call", "call_id": u.id, "name": u.name, "arguments": string(u.input)}
	switch item["type"] {
	case "commandExecution":
		arguments, _ := json.Marshal(map[string]string{"cmd": word(members(u.input), "command")}) // it always can be
		call["name"], call["arguments"] = "exec_command", string(arguments)
		item["aggregatedOutput"], item["exitCode"] = output, code
		kept["type"], kept["command"] = "CommandExecution", []string{"/bin/bash", "-lc", word(members(u.input), "command")}
		kept["cwd"], kept["aggregated_output"], kept["exit_code"] = "file://"+v.c.peer.p.dir, output, code
	case "fileChange":
		in := members(u.input)
		call["type"], call["name"], call["input"] = "custom_tool_call", "apply_patch", word(in, "content")
		kept["type"], kept["stdout"] = "FileChange", output
		kept["changes"] = map[string]any{word(in, "file_path"): map[string]any{"type": "add", "content": word(in, "content")}}
	default:
		content := map[string]any{"content": []any{map[string]any{"type": "text", "text": output}}}
		item["result"] = content
		kept["type"], kept["server"], kept["tool"], kept["arguments"], kept["result"] = "McpToolCall", "standin", u.name, u.input, content
	}
	v.c.row("response_item", call)
	v.row(kept)
	v.notify("item/completed", map[string]any{"item": item})
}

// end ends the turn.
func (v *codexVoice) end(err error) {
	turn := map[string]any{"id": v.turn, "status": "completed", "items": []any{}}
	switch bad := err.(type) {
	case nil:
		v.endText()
	case *failed:
		turn["status"], turn["error"] = "failed", map[string]any{"message": bad.text}
	default:
		turn["status"] = "interrupted"
	}
	usage := map[string]any{"totalTokens": 20, "inputTokens": 10, "outputTokens": 10}
	v.notify("thread/tokenUsage/updated", map[string]any{"tokenUsage": map[string]any{"total": usage, "last": usage, "modelContextWindow": 200_000}})
	kept := map[string]any{"input_tokens": 10, "cached_input_tokens": 0, "output_tokens": 10, "total_tokens": 20}
	v.c.row("event_msg", map[string]any{"type": "token_count", "info": map[string]any{"total_token_usage": kept, "last_token_usage": kept, "model_context_window": 200_000}})
	v.c.row("event_msg", map[string]any{"type": "task_complete", "turn_id": v.turn})
	v.c.peer.notify("turn/completed", map[string]any{"threadId": v.c.thread, "turn": turn})
}

package standin

import "os"

// claudeOut is what claude prints, and the questions in it that wait for an
// answer.
type claudeOut struct {
	// Static after construction.
	p     *process
	t     *transcript // owned by the goroutine that serves
	model string

	may permissions // owned by the goroutine that serves

	asked questions // by request
}

// A line is what claude prints in a turn.
type line struct {
	Type    string  `json:"type"`
	Subtype string  `json:"subtype,omitempty"`
	Event   any     `json:"event,omitempty"`
	Message any     `json:"message,omitempty"`
	Output  any     `json:"tool_use_result,omitempty"`
	Replay  bool    `json:"isReplay,omitempty"`
	Session string  `json:"session_id"`
	Parent  *string `json:"parent_tool_use_id"`
	UUID    string  `json:"uuid"`
	Time    string  `json:"timestamp,omitempty"`
	Status  string  `json:"status,omitempty"`
}

func (o *claudeOut) print(l line) {
	l.Session = o.t.id
	if l.UUID == "" {
		l.UUID = newUUID()
	}
	o.p.print(l)
}

// begin says that a turn begins.
func (o *claudeOut) begin() {
	o.p.print(map[string]any{
		"type": "system", "subtype": "init", "cwd": o.p.dir, "session_id": o.t.id, "model": o.model,
		"tools": []string{"Bash", "Read", "Write", askUserQuestion, exitPlanMode}, "mcp_servers": []any{},
		"permissionMode": o.may.mode, "claude_code_version": claudeVersion, "uuid": newUUID(),
	})
	o.print(line{Type: "system", Subtype: "status", Status: "requesting"})
}

// result says that a turn is over.
func (o *claudeOut) result(subtype, text string, bad bool) {
	usage := map[string]any{"input_tokens": 10, "output_tokens": 10, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
	o.p.print(map[string]any{
		"type": "result", "subtype": subtype, "is_error": bad, "num_turns": 1, "result": text, "session_id": o.t.id,
		"usage": usage, "permission_denials": []any{}, "uuid": newUUID(),
		"modelUsage": map[string]any{o.model: map[string]any{"contextWindow": 200_000}},
	})
}

// setMode changes the permission mode.
func (o *claudeOut) setMode(mode string) {
	o.may.mode = mode
	o.p.print(map[string]any{"type": "system", "subtype": "status", "status": nil, "permissionMode": mode, "uuid": newUUID(), "session_id": o.t.id})
}

// respond says that a request is done.
func (o *claudeOut) respond(request string) {
	o.p.print(map[string]any{"type": "control_response", "response": map[string]any{
		"subtype": "success", "request_id": request,
		"response": map[string]any{"commands": []any{}, "agents": []any{}, "models": []any{}, "account": map[string]any{}, "pid": os.Getpid()},
	}})
}

package standin

import (
	"context"
	"crypto/md5" //nolint:gosec // names a folder, as cursor-agent does
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"
)

// cursor is Cursor's cursor-agent in its print mode: one message on its input.
// It keeps what was said in ~/.cursor/chats/<MD5 of the folder>/<session>, in a
// file of lines where the real program has a database of its own making.
func cursor(p *process) int {
	switch {
	case p.has("--version", "-v"):
		p.write([]byte("2026.01.23-stand-in\n"))
		return 0
	case p.has("--help", "-h"):
		p.write([]byte("  --output-format <format>  text | json | stream-json\n"))
		return 0
	case !p.has("-p", "--print"):
		fmt.Fprintln(p.err, "the stand-in for cursor-agent knows only: cursor-agent -p")
		return 1
	}
	ctx, stop := untilSignal()
	defer stop()
	id, resumed := p.flag("--resume")
	if !resumed {
		id = newUUID()
	}
	sum := md5.Sum([]byte(p.dir)) //nolint:gosec // no secret
	v := &cursorVoice{p: p, session: id, path: filepath.Join(p.home, ".cursor", "chats", hex.EncodeToString(sum[:]), id, "stand-in.jsonl")}
	v.force = p.has("-f", "--force")
	var said []string
	if resumed {
		_ = rows(v.path, func(row map[string]any) { said = append(said, word(row, "text")) }) // else it was told nothing
	}
	text, err := io.ReadAll(p.in)
	if err != nil || strings.TrimSpace(string(text)) == "" {
		fmt.Fprintln(p.err, "no prompt was given")
		return 1
	}
	v.print(map[string]any{"type": "system", "subtype": "init", "apiKeySource": "login", "cwd": p.dir, "model": "stand-in", "permissionMode": "default"})
	v.print(map[string]any{"type": "user", "message": cursorMessage("user", string(text))})
	appendJSON(p, v.path, map[string]any{"text": string(text)})
	g := &stage{p: p, ctx: ctx}
	g.perform(v, string(text), said, nil, v.end)
	g.busy.Wait()
	return v.status
}

func cursorMessage(role, text string) map[string]any {
	return map[string]any{"role": role, "content": []any{map[string]any{"type": "text", "text": text}}}
}

// cursorVoice says what happens as stream-json does.
type cursorVoice struct {
	p       *process
	session string
	path    string
	force   bool
	text    string
	latest  string
	status  int
}

func (v *cursorVoice) print(m map[string]any) {
	m["session_id"] = v.session
	v.p.print(m)
}

func (v *cursorVoice) delta(text string) {
	v.text += text
	v.print(map[string]any{"type": "assistant", "message": cursorMessage("assistant", text), "timestamp_ms": time.Now().UnixMilli()})
}

func (v *cursorVoice) endText() {
	if v.text != "" {
		v.print(map[string]any{"type": "assistant", "message": cursorMessage("assistant", v.text)})
		v.latest, v.text = v.latest+v.text, ""
	}
}

func (v *cursorVoice) think(text string) {
	v.print(map[string]any{"type": "thinking", "subtype": "delta", "text": text})
	v.print(map[string]any{"type": "thinking", "subtype": "completed"})
}

func (v *cursorVoice) useID() string { return "call_" + newUUID() }

func (v *cursorVoice) call(u use, subtype string, result any) {
	key := strings.ToLower(u.name[:1]) + u.name[1:] + "ToolCall"
	if u.name == "Bash" {
		key = "shellToolCall"
	}
	call := map[string]any{"args": u.input}
	if result != nil {
		call["result"] = result
	}
	v.print(map[string]any{"type": "tool_call", "subtype": subtype, "call_id": u.id, "tool_call": map[string]any{key: call}})
}

// use asks nobody: what -f doesn't allow is rejected.
func (v *cursorVoice) use(_ context.Context, u use) (json.RawMessage, error) {
	v.call(u, "started", nil)
	if !v.force && u.name != "Read" {
		return nil, &refusal{"rejected"}
	}
	return u.input, nil
}

func (v *cursorVoice) result(u use, output string, bad bool) {
	if bad {
		v.call(u, "completed", map[string]any{"failure": map[string]any{"stderr": output, "exitCode": 1}})
		return
	}
	v.call(u, "completed", map[string]any{"success": map[string]any{"stdout": output}})
}

func (v *cursorVoice) end(err error) {
	switch bad := err.(type) {
	case nil:
		v.endText()
		v.print(map[string]any{"type": "result", "subtype": "success", "is_error": false, "result": v.latest, "duration_ms": 1})
	case *failed:
		v.status = 1
		v.print(map[string]any{"type": "result", "subtype": "error", "is_error": true, "result": bad.text, "duration_ms": 1})
	default:
		v.status = 130
	}
}

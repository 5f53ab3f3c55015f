package standin

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

const geminiVersion = "0.61.0"

// gemini is Google's gemini: the Agent Client Protocol with --acp.
func gemini(p *process) int {
	switch {
	case p.has("--version", "-v"):
		p.write([]byte(geminiVersion + "\n"))
		return 0
	case p.has("--help", "-h"):
		p.write([]byte("  --acp  Starts the agent in ACP mode  [boolean]\n"))
		return 0
	case !p.has("--acp", "--experimental-acp"):
		fmt.Fprintln(p.err, "the stand-in for gemini knows only: gemini --acp")
		return 42
	}
	return acp(p, "gemini-cli", geminiVersion, &geminiMemory{p: p})
}

// notInNames is what gemini doesn't take over from ids into names of files.
var notInNames = regexp.MustCompile("[^a-zA-Z0-9_-]")

// geminiMemory keeps sessions in ~/.gemini/tmp/<project>/chats, a file for each.
type geminiMemory struct {
	p    *process
	path string
}

func (g *geminiMemory) mode() string  { return "default" }
func (g *geminiMemory) replays() bool { return true }

// open begins a file, also where a session is loaded and goes on in its own. As
// with gemini that may be the same one.
func (g *geminiMemory) open(id string) (session string, said []string, err error) {
	folder := filepath.Join(g.p.home, ".gemini", "tmp", filepath.Base(g.p.dir))
	session = cmp.Or(id, newUUID())
	name := time.Now().UTC().Format("2006-01-02T15-04") + "-" + notInNames.ReplaceAllString(session, "_")[:8]
	g.path = filepath.Join(folder, "chats", "session-"+name+".jsonl")
	sum := sha256.Sum256([]byte(g.p.dir))
	appendJSON(g.p, g.path, map[string]any{
		"sessionId": session, "projectHash": hex.EncodeToString(sum[:]), "startTime": now(), "lastUpdated": now(), "kind": "main",
	})
	appendJSON(g.p, g.path, map[string]any{"$set": map[string]any{"messages": []any{}}})
	if id == "" {
		return session, nil, os.WriteFile(filepath.Join(folder, ".project_root"), []byte(g.p.dir), 0o600)
	}
	files, _ := filepath.Glob(filepath.Join(folder, "chats", "session-*.jsonl"))
	for _, file := range files {
		is := false
		err := rows(file, func(row map[string]any) {
			is = is || word(row, "sessionId") == strings.TrimSpace(id)
			if row["$set"] != nil {
				said = nil
			}
			parts, _ := row["content"].([]any)
			for _, part := range parts {
				if m, _ := part.(map[string]any); is && word(row, "type") == "user" && word(m, "text") != "" {
					said = append(said, word(m, "text"))
				}
			}
		})
		if is && err == nil && len(said) > 0 {
			g.path = file
			return id, said, nil
		}
		said = nil
	}
	return "", nil, errNoSession(id)
}

func (g *geminiMemory) add(s acpSaid) {
	row := map[string]any{"id": newUUID(), "timestamp": now(), "type": "gemini", "content": "", "model": "stand-in"}
	switch s.kind {
	case "user":
		row["type"], row["content"] = "user", []any{map[string]any{"text": s.text}}
		delete(row, "model")
	case "text":
		row["content"] = s.text
	case "thought":
		subject, description, _ := strings.Cut(strings.TrimPrefix(s.text, "**"), "**\n")
		row["thoughts"] = []any{map[string]any{"subject": subject, "description": description, "timestamp": now()}}
	case "tool":
		status := "success"
		if s.failed {
			status = "error"
		}
		answer := map[string]any{"functionResponse": map[string]any{"id": s.id, "name": s.tool, "response": map[string]any{"output": s.text}}}
		row["toolCalls"] = []any{map[string]any{"id": s.id, "name": s.tool, "args": s.input, "result": []any{answer}, "status": status, "timestamp": now()}}
	}
	appendJSON(g.p, g.path, row)
}

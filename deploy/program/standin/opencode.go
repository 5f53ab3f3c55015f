package standin

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	_ "modernc.org/sqlite" // opencode's database
)

const opencodeVersion = "1.18.33"

// opencode is opencode: the Agent Client Protocol with acp.
func opencode(p *process) int {
	switch {
	case p.has("--version", "-v"):
		p.write([]byte(opencodeVersion + "\n"))
		return 0
	case len(p.args) == 0 || p.args[0] != "acp":
		fmt.Fprintln(p.err, "the stand-in for opencode knows only: opencode acp")
		return 1
	case p.has("--help", "-h"):
		p.write([]byte("opencode acp\n"))
		return 0
	}
	return acp(p, "OpenCode", opencodeVersion, &opencodeMemory{p: p})
}

// opencodeMemory keeps sessions in the database
// ~/.local/share/opencode/opencode.db, in those columns of the real one's tables
// that tell what was said.
type opencodeMemory struct {
	p       *process
	db      *sql.DB
	session string
	user    string // id of the last message of a person
	last    int64  // part of the latest id
}

const opencodeTables = `
CREATE TABLE IF NOT EXISTS session (id text PRIMARY KEY, project_id text NOT NULL, directory text NOT NULL, title text NOT NULL,
	version text NOT NULL, time_created integer NOT NULL, time_updated integer NOT NULL, parent_id text, time_archived integer);
CREATE TABLE IF NOT EXISTS message (id text PRIMARY KEY, session_id text NOT NULL, time_created integer NOT NULL,
	time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE IF NOT EXISTS part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL, time_created integer NOT NULL,
	time_updated integer NOT NULL, data text NOT NULL);`

// mode follows OPENCODE_PERMISSION: opencode itself asks nothing.
func (o *opencodeMemory) mode() string {
	if strings.Contains(os.Getenv("OPENCODE_PERMISSION"), `"bash":"ask"`) {
		return "default"
	}
	return "bypassPermissions"
}

func (o *opencodeMemory) replays() bool { return false }

func (o *opencodeMemory) open(id string) (session string, said []string, err error) {
	folder := filepath.Join(o.p.home, ".local", "share", "opencode")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", nil, err
	}
	dsn := "file:" + filepath.Join(folder, "opencode.db") + "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)"
	if o.db, err = sql.Open("sqlite", dsn); err != nil {
		return "", nil, err
	}
	o.db.SetMaxOpenConns(1)
	if _, err := o.db.Exec(opencodeTables); err != nil {
		return "", nil, err
	}
	at := time.Now().UnixMilli()
	if id == "" {
		o.session = o.id("ses")
		_, err := o.db.Exec(`INSERT INTO session (id, project_id, directory, title, version, time_created, time_updated) VALUES (?, 'global', ?, 'New session', ?, ?, ?)`,
			o.session, o.p.dir, opencodeVersion, at, at)
		return o.session, nil, err
	}
	var found int
	if err := o.db.QueryRow(`SELECT count(*) FROM session WHERE id = ?`, id).Scan(&found); err != nil || found == 0 {
		return "", nil, errNoSession(id)
	}
	o.session = id
	said, err = o.texts()
	return id, said, err
}

// texts returns what persons have said in the session.
func (o *opencodeMemory) texts() (said []string, err error) {
	list, err := o.db.Query(`SELECT part.data FROM part JOIN message ON message.id = part.message_id
		WHERE part.session_id = ? AND message.data LIKE '{"role":"user"%' ORDER BY part.id`, o.session)
	if err != nil {
		return nil, err
	}
	defer list.Close()
	for list.Next() {
		var data []byte
		if err := list.Scan(&data); err != nil {
			return nil, err
		}
		said = append(said, word(members(data), "text"))
	}
	return said, list.Err()
}

// id makes an id that sorts behind all earlier ones.
func (o *opencodeMemory) id(kind string) string {
	o.last = max(o.last+1, time.Now().UnixMicro())
	return fmt.Sprintf("%s_%016x%s", kind, o.last, newUUID()[:8])
}

func (o *opencodeMemory) add(s acpSaid) {
	message, part := s.id, map[string]any{"type": "text", "text": s.text}
	role := `{"role":"assistant","parentID":"` + o.user + `","modelID":"stand-in","providerID":"stand-in","finish":"stop"}`
	id := o.id("prt")
	switch s.kind {
	case "user":
		message = o.id("msg")
		o.user, role = message, `{"role":"user","agent":"build"}`
	case "text": // its message has the id that the protocol tells
	case "thought":
		message, id, part["type"] = o.id("msg"), s.id, "reasoning"
	case "tool":
		status := "completed"
		if s.failed {
			status = "error"
		}
		message = o.id("msg")
		part = map[string]any{"type": "tool", "tool": s.tool, "callID": s.id, "state": map[string]any{
			"status": status, "input": s.input, "output": s.text, "title": s.tool,
		}}
	}
	data, err := json.Marshal(part)
	at := time.Now().UnixMilli()
	for _, row := range []struct {
		sql  string
		args []any
	}{
		{`INSERT OR IGNORE INTO message VALUES (?, ?, ?, ?, ?)`, []any{message, o.session, at, at, role}},
		{`INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)`, []any{id, message, o.session, at, at, string(data)}},
		{`UPDATE session SET time_updated = ? WHERE id = ?`, []any{at, o.session}},
	} {
		if err == nil {
			_, err = o.db.Exec(row.sql, row.args...)
		}
	}
	if err != nil {
		fmt.Fprintln(o.p.err, "database:", err)
	}
}

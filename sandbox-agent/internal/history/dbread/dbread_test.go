package dbread

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// TestMain is also the process that reads.
func TestMain(m *testing.M) {
	if os.Getenv("HOME") != "" && len(os.Args) == 2 && os.Args[1] == "read" {
		if err := Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			syscall.Exit(1)
		}
		syscall.Exit(0) // at once: the race detector waits a second in os.Exit
	}
	os.Exit(m.Run())
}

// reader returns a Reader whose process is this test, where any user can run it.
func reader(t *testing.T) Reader {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	from, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	copied := filepath.Join(openDir(t), "reader")
	to, err := os.OpenFile(copied, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	return Reader{Command: []string{copied, "read"}, Patience: time.Minute} // which only a hang reaches
}

// openDir returns a folder that all users get to.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// give gives a home to a user of its own, if that can be.
func give(t *testing.T, dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, 54321, 54321)
	})
	if err != nil {
		t.Fatal(err)
	}
}

const opencodeSchema = `
	CREATE TABLE project (id text PRIMARY KEY, worktree text NOT NULL, time_created integer NOT NULL, time_updated integer NOT NULL);
	CREATE TABLE session (id text PRIMARY KEY, project_id text NOT NULL REFERENCES project(id) ON DELETE CASCADE, parent_id text,
		slug text NOT NULL, directory text NOT NULL, title text NOT NULL, version text NOT NULL, time_created integer NOT NULL,
		time_updated integer NOT NULL);
	CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL REFERENCES session(id) ON DELETE CASCADE,
		time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
	CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL REFERENCES message(id) ON DELETE CASCADE, session_id text NOT NULL,
		time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);`

// home returns a home with a database, which stays open: what is written is in its
// log.
func home(t *testing.T, name, schema string) (File, *sql.DB) {
	t.Helper()
	dir := filepath.Join(openDir(t), "home")
	file := File{Format: Opencode, Home: dir, Name: name}
	if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, name)+"?_pragma=journal_mode(wal)&_pragma=foreign_keys(1)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	do(t, db, schema)
	return file, db
}

func do(t *testing.T, db *sql.DB, text string, args ...any) {
	t.Helper()
	if _, err := db.Exec(text, args...); err != nil {
		t.Fatal(err)
	}
}

const opencodeName = ".local/share/opencode/opencode.db"

// talk returns a home with a session of two messages, and one of a subagent.
func talk(t *testing.T) (File, *sql.DB) {
	t.Helper()
	file, db := home(t, opencodeName, opencodeSchema)
	do(t, db, `INSERT INTO project VALUES ('p', '/work', 1, 1)`)
	for i, parent := range []any{nil, "ses_0"} {
		do(t, db, `INSERT INTO session VALUES (?, 'p', ?, 's', '/work', 'A talk', '1.18', 1, 5)`, fmt.Sprintf("ses_%d", i), parent)
	}
	for i, role := range []string{"user", "assistant"} {
		message := fmt.Sprintf("msg_%d", i)
		do(t, db, `INSERT INTO message VALUES (?, 'ses_0', ?, 9, ?)`, message, i, fmt.Sprintf(`{"role":%q}`, role))
		for j := range 2 {
			do(t, db, `INSERT INTO part VALUES (?, ?, 'ses_0', 1, 1, ?)`, fmt.Sprintf("prt_%d%d", i, j), message, fmt.Sprintf(`{"type":"text","text":"%d%d"}`, i, j))
		}
	}
	do(t, db, `INSERT INTO part VALUES ('prt_02', 'msg_0', 'ses_0', 1, 1, 'no JSON')`)
	give(t, file.Home)
	return file, db
}

// TestOpencode: a database that a program has open is read, with what is only in
// its log, and a session is deleted with its subagents'.
func TestOpencode(t *testing.T) {
	r := reader(t)
	file, db := talk(t)
	sessions, err := r.Sessions(t.Context(), file)
	if err != nil || len(sessions) != 2 || sessions[0].ID != "ses_0" || sessions[0].Dir != "/work" || sessions[0].Title != "A talk" || sessions[0].Updated != 9 {
		t.Fatalf("%+v, %v", sessions, err)
	}
	messages, err := r.Messages(t.Context(), file, "ses_0")
	if err != nil || len(messages) != 2 || messages[1].ID != "msg_1" || string(messages[0].Data) != `{"role":"user"}` ||
		fmt.Sprint(messages[0].IDs) != "[prt_00 prt_01]" || string(messages[1].Parts[1]) != `{"type":"text","text":"11"}` {
		t.Fatalf("%+v, %v", messages, err)
	}
	if err := r.Delete(t.Context(), file, "ses_0"); err != nil {
		t.Fatal(err)
	}
	var left int
	if err := db.QueryRow(`SELECT (SELECT count(*) FROM session) + (SELECT count(*) FROM message) + (SELECT count(*) FROM part)`).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d rows are left, %v", left, err)
	}
}

// TestLong: of a session that is too long the end is read, as whole messages.
func TestLong(t *testing.T) {
	r := reader(t)
	file, db := home(t, opencodeName, opencodeSchema)
	do(t, db, `INSERT INTO project VALUES ('p', '/work', 1, 1)`)
	do(t, db, `INSERT INTO session VALUES ('ses', 'p', NULL, 's', '/work', 'A talk', '1.18', 1, 5)`)
	r.Content = 8 << 10
	const size = 1<<10 - 16
	for i := range 10 {
		message := fmt.Sprintf("msg_%02d", i)
		do(t, db, `INSERT INTO message VALUES (?, 'ses', ?, 9, '{}')`, message, i)
		do(t, db, `INSERT INTO part VALUES (?, ?, 'ses', 1, 1, ?)`, "p"+message, message, `"`+strings.Repeat("x", size-2)+`"`)
	}
	do(t, db, `INSERT INTO message VALUES ('msg_99', 'ses', 99, 9, ?)`, `"`+strings.Repeat("x", maxValue)+`"`)
	give(t, file.Home)
	messages, err := r.Messages(t.Context(), file, "ses")
	if err != nil || len(messages) != 8 || messages[0].ID != "msg_02" || messages[len(messages)-1].ID != "msg_09" {
		t.Errorf("%d messages, %v", len(messages), err)
	}
}

// TestHostile: what is no database of a home leads nowhere, and nobody waits for
// it.
func TestHostile(t *testing.T) {
	r := reader(t)
	good, _ := talk(t)
	outside, _ := home(t, "outside.db", opencodeSchema)
	file, db := home(t, "trap.db", `CREATE TABLE message (id, session_id, time_updated);
		CREATE VIEW session AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
		SELECT i AS id, '' AS parent_id, '' AS directory, '' AS title, 0 AS time_updated FROM n`)
	db.Close()
	dir := file.Home
	for name, make := range map[string]func(path string) error{
		"link.db":   func(path string) error { return os.Symlink(filepath.Join(outside.Home, "outside.db"), path) },
		"folder":    func(path string) error { return os.Symlink(outside.Home, path) },
		"a.db":      func(path string) error { return os.Mkdir(path, 0o755) },
		"no.db":     func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("no database", 1000)), 0o644) },
		"empty.db":  func(path string) error { return os.WriteFile(path, nil, 0o644) },
		"secret.db": func(path string) error { return os.Link(filepath.Join(good.Home, opencodeName), path) },
	} {
		if err := make(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	give(t, dir)
	hurried, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if sessions, err := r.Sessions(hurried, File{Opencode, dir, "trap.db"}); err == nil {
		t.Errorf("without an end: %+v", sessions)
	}
	for _, name := range []string{"link.db", "folder/outside.db", "a.db", "no.db", "empty.db", "none.db", "../home/trap.db", filepath.Join(outside.Home, "outside.db"), "", "a.db?mode=rwc"} {
		if sessions, err := r.Sessions(t.Context(), File{Opencode, dir, name}); err == nil {
			t.Errorf("%s: %+v", name, sessions)
		}
	}
	if _, err := r.Sessions(t.Context(), File{"other", dir, "no.db"}); err == nil {
		t.Error("a format that there isn't")
	}
	if _, err := r.Sessions(t.Context(), File{Opencode, dir + "/none", "no.db"}); err == nil {
		t.Error("a home that there isn't")
	}
}

// TestRights: the process has no more rights than the user of the home.
func TestRights(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	r := reader(t)
	file, _ := talk(t)
	if _, err := r.Sessions(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	private := filepath.Join(file.Home, opencodeName)
	for _, name := range []string{private, private + "-wal", private + "-shm"} {
		if err := os.Chown(name, 0, 0); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if sessions, err := r.Sessions(t.Context(), file); err == nil {
		t.Errorf("root's file is read: %+v", sessions)
	}
}

// cursorStore returns a home with a session of cursor-agent.
func cursorStore(t *testing.T, messages ...string) File {
	t.Helper()
	file, db := home(t, ".cursor/chats/bucket/11111111-1111-4111-8111-111111111111/store.db",
		`CREATE TABLE blobs (id TEXT PRIMARY KEY, data BLOB); CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT)`)
	var root []byte
	for i, m := range messages {
		id := bytes.Repeat([]byte{byte(i + 1)}, 32)
		do(t, db, `INSERT INTO blobs VALUES (?, ?)`, hex.EncodeToString(id), []byte(m))
		root = protowire.AppendBytes(protowire.AppendTag(root, cursorBelow, protowire.BytesType), id)
	}
	root = protowire.AppendBytes(protowire.AppendTag(root, cursorBelow, protowire.BytesType), bytes.Repeat([]byte{99}, 32)) // there is none
	root = protowire.AppendBytes(protowire.AppendTag(root, cursorWorkspace, protowire.BytesType), []byte("/work"))
	do(t, db, `INSERT INTO blobs VALUES ('root', ?)`, root)
	above := protowire.AppendBytes(protowire.AppendTag(nil, 7, protowire.BytesType), []byte("something"))
	do(t, db, `INSERT INTO blobs VALUES ('unused', ?)`, above)
	about, _ := json.Marshal(map[string]any{"name": cursorUntitled, "latestRootBlobId": "root", "createdAt": 1})
	do(t, db, `INSERT INTO meta VALUES ('0', ?)`, hex.EncodeToString(about))
	file.Format = Cursor
	give(t, file.Home)
	return file
}

// TestCursor: the messages that the latest root names are read, in their order.
func TestCursor(t *testing.T) {
	r := reader(t)
	var all []string
	for i := range 20 {
		all = append(all, fmt.Sprintf(`{"role":"user","content":"%d"}`, i))
	}
	file := cursorStore(t, all...)
	sessions, err := r.Sessions(t.Context(), file)
	if err != nil || len(sessions) != 1 || sessions[0].Dir != "/work" || sessions[0].Title != "" || len(sessions[0].Head) != maxCursorTop {
		t.Fatalf("%+v, %v", sessions, err)
	}
	messages, err := r.Messages(t.Context(), file, "")
	if err != nil || len(messages) != len(all) {
		t.Fatalf("%+v, %v", messages, err)
	}
	for i, m := range messages {
		if string(m.Data) != all[i] {
			t.Errorf("%d: %s", i, m.Data)
		}
	}
	if err := r.Delete(t.Context(), file, ""); err == nil {
		t.Error("a session that is a file is deleted from it")
	}
}

func FuzzCursorChildren(f *testing.F) {
	f.Add([]byte{0x0a, 0x20})
	f.Fuzz(func(t *testing.T, data []byte) {
		if children, dir := cursorChildren(data); len(children)*34 > len(data) || len(dir) > len(data) {
			t.Error(children, dir)
		}
	})
}

package files

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/files/workspace"
	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox/toolboxtest"
)

const hidden = "correct-horse-battery"

// newFiles returns the tools over a workspace, and its folder.
func newFiles(t *testing.T) (*Files, string) {
	t.Helper()
	dir := t.TempDir()
	fs, err := workspace.Open(workspace.Options{Dir: dir})
	toolboxtest.Works(t, err)
	t.Cleanup(func() { fs.Close() })
	secrets, err := redact.Compile([]string{hidden})
	toolboxtest.Works(t, err)
	return &Files{
		FS: fs, Redact: func() Masker { return secrets.NewStream() }, Marked: []string{".env", "*.pem"},
	}, dir
}

func put(t *testing.T, dir, name, content string) {
	t.Helper()
	toolboxtest.Works(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
	toolboxtest.Works(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
}

func noteOf(t *testing.T, texts []string) fileNote {
	t.Helper()
	var note fileNote
	if len(texts) != 2 || json.Unmarshal([]byte(texts[1]), &note) != nil {
		t.Fatalf("got %q, want a text and a note", texts)
	}
	return note
}

func TestFileRead(t *testing.T) {
	s, dir := newFiles(t)
	text := strings.Repeat("aä€😀", 5000)
	put(t, dir, "d/a.txt", text)
	var got strings.Builder
	for next, pieces := int64(0), 0; pieces == 0 || next > 0; pieces++ {
		texts, err := toolboxtest.Call(t, s, toolboxtest.Program, "file_read", fmt.Sprintf(`{"path":"/d/a.txt","offset":%d,"limit":1001}`, next))
		toolboxtest.Works(t, err)
		note := noteOf(t, texts)
		if *note.Size != int64(len(text)) || note.ETag == "" || note.Path != "/d/a.txt" {
			t.Fatalf("note %+v", note)
		}
		got.WriteString(texts[0])
		next = note.Next
	}
	if got.String() != text {
		t.Errorf("%d bytes in pieces, want %d", got.Len(), len(text))
	}
	texts, err := toolboxtest.Call(t, s, toolboxtest.Program, "file_read", `{"path":"d/a.txt","offset":100000}`)
	if toolboxtest.Works(t, err); texts[0] != "" || noteOf(t, texts).Next != 0 {
		t.Errorf("behind the end: %q", texts)
	}

	put(t, dir, "b.bin", "\x00\xff\x01")
	_, err = toolboxtest.Call(t, s, toolboxtest.Program, "file_read", `{"path":"b.bin"}`)
	toolboxtest.Fails(t, err, protocol.KindInvalid, "base64")
	texts, err = toolboxtest.Call(t, s, toolboxtest.Program, "file_read", `{"path":"b.bin","encoding":"base64"}`)
	if toolboxtest.Works(t, err); texts[0] != base64.StdEncoding.EncodeToString([]byte("\x00\xff\x01")) {
		t.Errorf("got %q", texts)
	}
	put(t, dir, "emoji", "😀")
	_, err = toolboxtest.Call(t, s, toolboxtest.Program, "file_read", `{"path":"emoji","limit":1}`)
	toolboxtest.Fails(t, err, protocol.KindInvalid, "base64")

	for args, kind := range map[string]protocol.Kind{
		`{}`:                                  protocol.KindInvalid,
		`{"path":"../etc/passwd"}`:            protocol.KindInvalid,
		`{"path":"none"}`:                     protocol.KindNotFound,
		`{"path":"d"}`:                        protocol.KindInvalid,
		`{"path":"b.bin","offset":-1}`:        protocol.KindInvalid,
		`{"path":"b.bin","limit":0}`:          protocol.KindInvalid,
		`{"path":"b.bin","limit":1048577}`:    protocol.KindInvalid,
		`{"path":"b.bin","encoding":"utf16"}`: protocol.KindInvalid,
	} {
		_, err := toolboxtest.Call(t, s, toolboxtest.Program, "file_read", args)
		toolboxtest.Fails(t, err, kind, "")
	}
}

// What services mask for whom is masked here, at any offset.
func TestFileMasked(t *testing.T) {
	s, dir := newFiles(t)
	put(t, dir, ".env", "A=1\nKEY="+hidden+"\n")
	toolboxtest.Works(t, os.Symlink(".env", filepath.Join(dir, "plain")))
	all := []string{"*"}
	for _, name := range []string{".env", "plain"} {
		for offset := range 24 {
			for _, encoding := range []string{"utf-8", "base64"} {
				args := fmt.Sprintf(`{"path":%q,"offset":%d,"limit":8,"encoding":%q}`, name, offset, encoding)
				texts, err := toolboxtest.Call(t, s, toolboxtest.Person(all, protocol.CapFilesRead), "file_read", args)
				toolboxtest.Works(t, err)
				note := noteOf(t, texts)
				if !note.Masked || note.ETag != "" || note.Size != nil {
					t.Fatalf("%s: note %+v", args, note)
				}
				text := []byte(texts[0])
				if encoding == "base64" {
					text, err = base64.StdEncoding.DecodeString(texts[0])
					toolboxtest.Works(t, err)
				}
				for i := 0; i+4 <= len(hidden); i++ {
					if bytes.Contains(text, []byte(hidden[i:i+4])) {
						t.Fatalf("%s: told %q", args, text)
					}
				}
			}
		}
		// Who may set secrets isn't told one either, and learns that it was left out.
		texts, err := toolboxtest.Call(t, s, toolboxtest.Person(all, protocol.CapFilesRead, protocol.CapEnv), "file_read", `{"path":"`+name+`"}`)
		note := noteOf(t, texts)
		if toolboxtest.Works(t, err); strings.Contains(texts[0], hidden) || !note.Masked || note.ETag != "" {
			t.Errorf("who may set secrets was told %q", texts)
		}
		texts, err = toolboxtest.Call(t, s, toolboxtest.Program, "file_read", `{"path":"`+name+`","limit":4}`)
		note = noteOf(t, texts)
		if toolboxtest.Works(t, err); texts[0] != "A=1\n" || note.Masked || note.ETag == "" || note.Next != 4 {
			t.Errorf("a program was told %q of what holds no secret", texts)
		}
	}
	texts, err := toolboxtest.Call(t, s, toolboxtest.Person(all, protocol.CapFilesRead), "file_search", `{"query":"KEY="}`)
	if toolboxtest.Works(t, err); strings.Contains(texts[0], hidden) || !strings.Contains(texts[0], "/.env") {
		t.Errorf("a search told %s", texts[0])
	}
	texts, err = toolboxtest.Call(t, s, toolboxtest.Person(all, protocol.CapFilesRead), "file_search", `{"query":"`+hidden[:9]+`"}`)
	if toolboxtest.Works(t, err); strings.Contains(texts[0], "/.env") {
		t.Errorf("a search for it told %s", texts[0])
	}

	writer := toolboxtest.Person(all, protocol.CapFilesWrite)
	_, err = toolboxtest.Call(t, s, writer, "file_move", `{"from":".env","to":"b.txt"}`)
	toolboxtest.Fails(t, err, protocol.KindForbidden, "name")
	_, err = toolboxtest.Call(t, s, writer, "file_move", `{"from":".env","to":"b.pem"}`)
	toolboxtest.Works(t, err)
	_, err = toolboxtest.Call(t, s, toolboxtest.Program, "file_move", `{"from":"b.pem","to":"b.txt"}`)
	toolboxtest.Works(t, err)

	s.Marked = nil // nobody has said which hold secrets
	texts, err = toolboxtest.Call(t, s, toolboxtest.Person(all, protocol.CapFilesRead), "file_read", `{"path":"b.txt"}`)
	if toolboxtest.Works(t, err); !noteOf(t, texts).Masked {
		t.Error("a file was not masked though any may hold secrets")
	}
}

func TestFileChanges(t *testing.T) {
	s, dir := newFiles(t)
	_, err := toolboxtest.Call(t, s, toolboxtest.Program, "file_write", `{"path":"a/b.txt","content":"one"}`)
	toolboxtest.Works(t, err)
	texts, err := toolboxtest.Call(t, s, toolboxtest.Program, "file_read", `{"path":"a/b.txt"}`)
	toolboxtest.Works(t, err)
	etag := noteOf(t, texts).ETag
	_, err = toolboxtest.Call(t, s, toolboxtest.Program, "file_write", fmt.Sprintf(`{"path":"a/b.txt","content":"dHdv","encoding":"base64","if_match":%q}`, etag))
	toolboxtest.Works(t, err)
	_, err = toolboxtest.Call(t, s, toolboxtest.Program, "file_write", fmt.Sprintf(`{"path":"a/b.txt","content":"three","if_match":%q}`, etag))
	toolboxtest.Fails(t, err, protocol.KindConflict, "")
	_, err = toolboxtest.Call(t, s, toolboxtest.Program, "file_write", `{"path":"a/b.txt","content":"four","overwrite":false}`)
	toolboxtest.Fails(t, err, protocol.KindConflict, "")
	if text, err := os.ReadFile(filepath.Join(dir, "a/b.txt")); err != nil || string(text) != "two" {
		t.Errorf("%q, %v", text, err)
	}
	texts, err = toolboxtest.Call(t, s, toolboxtest.Program, "file_write", `{"path":"empty","content":""}`)
	if toolboxtest.Works(t, err); !strings.Contains(texts[0], `"created":true`) {
		t.Errorf("got %s", texts[0])
	}
	_, err = toolboxtest.Call(t, s, toolboxtest.Program, "file_mkdir", `{"path":"c/d"}`)
	toolboxtest.Works(t, err)
	_, err = toolboxtest.Call(t, s, toolboxtest.Program, "file_move", `{"from":"empty","to":"a/b.txt"}`)
	toolboxtest.Fails(t, err, protocol.KindConflict, "")
	_, err = toolboxtest.Call(t, s, toolboxtest.Program, "file_move", `{"from":"empty","to":"a/b.txt","overwrite":true}`)
	toolboxtest.Works(t, err)
	_, err = toolboxtest.Call(t, s, toolboxtest.Program, "file_delete", `{"path":"a"}`)
	toolboxtest.Works(t, err)
	texts, err = toolboxtest.Call(t, s, toolboxtest.Program, "file_list", `{"recursive":true}`)
	toolboxtest.Works(t, err)
	var listing fileListing
	toolboxtest.Works(t, json.Unmarshal([]byte(texts[0]), &listing))
	if len(listing.Files) != 2 || listing.Files[0].Path != "/c" || listing.Files[1].Path != "/c/d" || listing.Truncated {
		t.Errorf("left is %s", texts[0])
	}
	texts, err = toolboxtest.Call(t, s, toolboxtest.Program, "file_list", `{"recursive":true,"limit":1}`)
	if toolboxtest.Works(t, err); !strings.Contains(texts[0], `"truncated":true`) {
		t.Errorf("got %s", texts[0])
	}
	for _, bad := range []string{`{"path":"x","content":"%","encoding":"base64"}`, `{"path":"x"}`, `{"content":"x"}`, `{"path":"x","content":1}`} {
		_, err := toolboxtest.Call(t, s, toolboxtest.Program, "file_write", bad)
		toolboxtest.Fails(t, err, protocol.KindInvalid, "")
	}
}

func TestFileCapabilities(t *testing.T) {
	s, dir := newFiles(t)
	put(t, dir, "a", "x")
	for _, test := range []struct {
		name, args string
		need       protocol.Capability
	}{
		{"file_list", `{}`, protocol.CapFilesRead},
		{"file_read", `{"path":"a"}`, protocol.CapFilesRead},
		{"file_search", `{"query":"x"}`, protocol.CapFilesRead},
		{"file_mkdir", `{"path":"b"}`, protocol.CapFilesWrite},
		{"file_write", `{"path":"a","content":"y"}`, protocol.CapFilesWrite},
		{"file_move", `{"from":"a","to":"b/a"}`, protocol.CapFilesWrite},
		{"file_delete", `{"path":"b"}`, protocol.CapFilesWrite},
	} {
		var others []protocol.Capability
		for _, c := range protocol.Capabilities {
			if c != test.need {
				others = append(others, c)
			}
		}
		_, err := toolboxtest.Call(t, s, toolboxtest.Person([]string{"*"}, others...), test.name, test.args)
		toolboxtest.Fails(t, err, protocol.KindForbidden, string(test.need))
		elsewhere := toolboxtest.Person([]string{"*"}, protocol.Capabilities...)
		elsewhere.Session = "s2"
		_, err = toolboxtest.Call(t, s, elsewhere, test.name, test.args)
		toolboxtest.Fails(t, err, protocol.KindForbidden, string(test.need))
		_, err = toolboxtest.Call(t, s, toolboxtest.Person([]string{"*"}, test.need), test.name, test.args)
		toolboxtest.Works(t, err)
	}
}

func TestFileSearch(t *testing.T) {
	s, dir := newFiles(t)
	put(t, dir, "a.go", "one\nTwo (x)\nthree\n")
	put(t, dir, "sub/b.txt", strings.Repeat("y", 2*maxLineBytes)+"\ntwo\n")
	put(t, dir, "sub/c.bin", "two\x00")
	put(t, dir, "node_modules/m/d.go", "two\n")
	put(t, dir, ".git/config", "two\n")
	find := func(args string) searchAnswer {
		t.Helper()
		texts, err := toolboxtest.Call(t, s, toolboxtest.Program, "file_search", args)
		toolboxtest.Works(t, err)
		var answer searchAnswer
		toolboxtest.Works(t, json.Unmarshal([]byte(texts[0]), &answer))
		return answer
	}
	places := func(a searchAnswer) string {
		var list []string
		for _, m := range a.Matches {
			list = append(list, fmt.Sprintf("%s:%d", m.Path, m.Line))
		}
		return strings.Join(list, " ")
	}
	for args, want := range map[string]string{
		`{"query":"two"}`:                            "/sub/b.txt:2",
		`{"query":"two","ignore_case":true}`:         "/a.go:2 /sub/b.txt:2",
		`{"query":"(x)"}`:                            "/a.go:2",
		`{"query":"^t.*e$","regexp":true}`:           "/a.go:3",
		`{"query":"o","name":"*.go"}`:                "/a.go:1 /a.go:2",
		`{"query":"two","path":"sub"}`:               "/sub/b.txt:2",
		`{"query":"two","path":"/node_modules"}`:     "/node_modules/m/d.go:1",
		`{"query":"nothing like this"}`:              "",
		`{"query":"o","ignore_case":true,"limit":2}`: "/a.go:1 /a.go:2",
	} {
		answer := find(args)
		if got := places(answer); got != want {
			t.Errorf("%s: got %q, want %q", args, got, want)
		}
		if (answer.Truncated != "") != strings.Contains(args, "limit") {
			t.Errorf("%s: truncated %q", args, answer.Truncated)
		}
	}
	if text := find(`{"query":"yyy"}`).Matches[0].Text; len(text) != maxExcerptBytes {
		t.Errorf("%d bytes of a line were told", len(text))
	}
	for _, bad := range []string{`{}`, `{"query":"(","regexp":true}`, `{"query":"x","name":"["}`, `{"query":"x","limit":0}`,
		`{"query":"` + strings.Repeat("x", maxQueryBytes+1) + `"}`} {
		if _, err := toolboxtest.Call(t, s, toolboxtest.Program, "file_search", bad); err == nil {
			t.Errorf("%.40s was taken", bad)
		}
	}
	_, err := toolboxtest.Call(t, s, toolboxtest.Program, "file_search", `{"query":"x","path":"none"}`)
	toolboxtest.Fails(t, err, protocol.KindNotFound, "")
}

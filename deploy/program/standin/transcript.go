package standin

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	claudeVersion = "2.1.197"
	// interrupted is how claude marks that a person has stopped it.
	interrupted = "[Request interrupted by user"
)

// A transcript is a conversation of claude's on disk, one row of JSON per line.
type transcript struct {
	path    string
	id      string // of the session
	dir     string
	version string
	last    string // uuid of the last row
	said    []string
}

// A row is one line of a transcript.
type row struct {
	Type    string  `json:"type"`
	UUID    string  `json:"uuid,omitempty"`
	Parent  *string `json:"parentUuid"`
	Side    bool    `json:"isSidechain"`
	Session string  `json:"sessionId"`
	Dir     string  `json:"cwd"`
	Version string  `json:"version"`
	Kind    string  `json:"userType"`
	Time    string  `json:"timestamp"`
	Message any     `json:"message,omitempty"`
	Output  any     `json:"toolUseResult,omitempty"`
}

// projectDir is where claude keeps the transcripts of what it does in dir.
func projectDir(home, dir string) string {
	name := strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' {
			return r
		}
		return '-'
	}, dir)
	return filepath.Join(home, ".claude", "projects", name)
}

// newTranscript returns the transcript of session id, which is read if the
// session is resumed. A resumed one that isn't there is an error.
func newTranscript(p *process, id string, resumed bool) (*transcript, error) {
	t := &transcript{path: filepath.Join(projectDir(p.home, p.dir), id+".jsonl"), id: id, dir: p.dir, version: claudeVersion}
	if !resumed {
		return t, nil
	}
	f, err := os.Open(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("No conversation found with session ID: %s", id)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return t, t.read(f)
}

// read takes what was said before from rows.
func (t *transcript) read(r io.Reader) error {
	lines := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		var row struct {
			Type    string `json:"type"`
			UUID    string `json:"uuid"`
			Message struct {
				Content json.RawMessage `json:"content"`
			} `json:"message"`
		}
		if json.Unmarshal(line, &row) == nil && row.UUID != "" {
			t.last = row.UUID
			if text, _ := content(row.Message.Content); row.Type == "user" && text != "" && !strings.HasPrefix(text, interrupted) {
				t.said = append(t.said, text)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// add appends a row with a message.
func (t *transcript) add(kind, uuid string, message, output any) {
	r := row{
		Type: kind, UUID: uuid, Session: t.id, Dir: t.dir, Version: t.version, Kind: "external", Time: now(),
		Message: message, Output: output,
	}
	if t.last != "" {
		r.Parent = &t.last
	}
	line, err := json.Marshal(r)
	if err == nil {
		err = appendFile(t.path, append(line, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "transcript:", err)
	}
	t.last = uuid
}

// appendFile appends to a file, which it makes with its folders.
func appendFile(path string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write(b)
	return err
}

// content returns the text of a message's content, and the bytes of each of its
// images.
func content(raw json.RawMessage) (text string, images []int) {
	if json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var parts []struct {
		Type   string `json:"type"`
		Text   string `json:"text"`
		Source struct {
			Data []byte `json:"data"`
		} `json:"source"`
	}
	_ = json.Unmarshal(raw, &parts) // something else has no text
	for _, p := range parts {
		switch p.Type {
		case "text":
			if !strings.HasPrefix(p.Text, "<system-reminder>") { // no person's words
				text += p.Text
			}
		case "image":
			images = append(images, len(p.Source.Data))
		}
	}
	return text, images
}

package hooks

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxTranscript bounds how much of a transcript's end is read.
const maxTranscript = 1 << 20

// lastInTranscript returns what the assistant said last in a transcript, "" if
// nothing. A transcript has one JSON object on each line, as claude and droid
// write it.
func lastInTranscript(name string) string {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return ""
	}
	from := max(0, st.Size()-maxTranscript)
	text, err := io.ReadAll(io.NewSectionReader(f, from, maxTranscript))
	if err != nil {
		return ""
	}
	for _, line := range slices.Backward(bytes.Split(text, []byte("\n"))) {
		if said := saidIn(line); said != "" {
			return said
		}
	}
	return ""
}

// saidIn returns the text of an assistant's message, "" for other lines.
func saidIn(line []byte) string {
	var l struct {
		Sidechain bool `json:"isSidechain"` // a subagent's
		Message   struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"message"`
	}
	if json.Unmarshal(line, &l) != nil || l.Sidechain || l.Message.Role != "assistant" {
		return ""
	}
	var said string
	if json.Unmarshal(l.Message.Content, &said) == nil {
		return said
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(l.Message.Content, &parts) != nil {
		return ""
	}
	var texts []string
	for _, p := range parts {
		if p.Type == "text" && p.Text != "" {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, "\n")
}

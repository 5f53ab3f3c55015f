package hooks

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/tailscale/hujson"
)

// A settingsWriter writes settings as people do, at random: with and without
// comments, trailing commas, empty lines and what Wire puts there, too.
type settingsWriter struct {
	*rand.Rand
	comments bool
}

// gap returns what may stand between two tokens.
func (w settingsWriter) gap(indent string) string {
	gaps := []string{"", "", " ", "\n" + indent}
	if w.comments {
		gaps = append(gaps, " /* ours? */ ", " // note\n"+indent, "\n"+indent+"// a line of its own\n"+indent)
	}
	return gaps[w.IntN(len(gaps))]
}

// comma returns what may stand before the end of a container.
func (w settingsWriter) comma(n int) string {
	if w.comments && n > 0 && w.IntN(3) == 0 {
		return ","
	}
	return ""
}

// names are those that Wire looks for, and others.
var names = []string{
	"mcpServers", "hooks", "Stop", "SessionStart", "UserPromptSubmit", "PostToolUse", "mcp", "servers", "internal",
	"entries", "general", "sessionRetention", "enabled", "eco", "theme", "model", "é\\u00e9", "a//b", "",
}

// object writes an object with members of all kinds.
func (w settingsWriter) object(b *strings.Builder, indent string, depth int) {
	b.WriteString("{")
	n := w.IntN(4)
	inner := indent + "  "
	seen := map[string]bool{}
	written := 0
	for range n {
		name := names[w.IntN(len(names))]
		if seen[name] {
			continue
		}
		seen[name] = true
		if written++; written > 1 {
			b.WriteString(",")
		}
		b.WriteString(w.gap(inner) + `"` + name + `"` + w.gap(inner) + ":" + w.gap(inner))
		w.value(b, name, inner, depth)
		b.WriteString(w.gap(inner))
	}
	b.WriteString(w.comma(written) + w.gap(indent) + "}")
}

// value writes one that has the kind which Wire expects under name.
func (w settingsWriter) value(b *strings.Builder, name, indent string, depth int) {
	switch name {
	case "mcpServers", "hooks", "mcp", "servers", "internal", "entries", "general", "sessionRetention":
		w.object(b, indent, depth+1)
	case "Stop", "SessionStart", "UserPromptSubmit", "PostToolUse":
		b.WriteString("[")
		n := w.IntN(3)
		for i := range n {
			if i > 0 {
				b.WriteString(",")
			}
			fmt.Fprintf(b, `%s{"hooks": [{"type": "command", "command": "say %d // not a comment"}]}%s`, w.gap(indent), i, w.gap(indent))
		}
		b.WriteString(w.comma(n) + w.gap(indent) + "]")
	default:
		b.WriteString([]string{`"x, } // ] /*"`, "-1.5e3", "null", "true", `[]`, `[1, {"Stop": 2}]`}[w.IntN(6)])
	}
}

func (w settingsWriter) json() string {
	var b strings.Builder
	b.WriteString(w.gap(""))
	w.object(&b, "", 0)
	b.WriteString(w.gap("") + []string{"", "\n"}[w.IntN(2)])
	return b.String()
}

// toml writes lines of all kinds; each key and table once.
func (w settingsWriter) toml() string {
	root := []string{
		"model = \"o9\"\n", "# a comment\n", "\n", "notify = [\n  \"say\", # done\n  \"done\",\n]\n", "text = \"\"\"\n[mcp_servers.fairlead]\n\"\"\"\n",
		"tui.theme = 'dark' # best\n", "list = [\n  [1, 2],\n]\n",
	}
	tables := []string{
		"[mcp_servers.eco]\ncommand = \"eco\"\nenv = { A = \"b\" } # inline\n", "[projects.\"/w#x\"]\ntrust_level = \"trusted\"\n",
		"\n# about hooks\n[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ntype = \"command\"\n", "  [indented]\n  x = 1\n", "[mcp_servers]\n",
		"[features] # some\ngoals = true # yes\n",
	}
	var b strings.Builder
	for _, lines := range [][]string{root, tables} {
		w.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
		for _, line := range lines[:w.IntN(len(lines)+1)] {
			b.WriteString(line)
		}
	}
	text := b.String()
	if w.IntN(3) == 0 {
		text = strings.TrimSuffix(text, "\n")
	}
	return text
}

var rounds = flag.Int("hooks.rounds", 30, "homes with random settings")

// TestRandomSettings: whatever a person has in the files, Wire keeps all of it,
// does nothing the second time, and Unwire gives back every byte.
func TestRandomSettings(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := settingsWriter{Rand: rand.New(rand.NewPCG(seed, 1))}
	home := newHome(t, nil)
	made := 0
	for round := range *rounds {
		w.comments = round%2 == 0
		files := make(map[string]string)
		for _, a := range agents {
			for _, f := range a.files(command) {
				switch f.format.(type) {
				case jsonFile:
					if w.IntN(5) > 0 {
						files[f.name] = w.json()
					}
				case codexFile:
					files[f.name] = w.toml()
				}
			}
		}
		for name, text := range files {
			if _, err := (homeDir{root: home}).write(name, []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		before := snapshot(t, home)
		wire(t, home, Options{})
		wired := snapshot(t, home)
		for name, text := range files {
			kept(t, name, text, wired[name])
			if wired[name] != text {
				made++
			}
		}
		wire(t, home, Options{})
		sameSnapshot(t, "a second time", snapshot(t, home), wired)
		if err := Unwire(home, Options{Command: command}); err != nil {
			t.Fatal(err)
		}
		sameSnapshot(t, "unwired", snapshot(t, home), before)
		if t.Failed() {
			t.Fatalf("round %d of seed %d", round, seed)
		}
		for name := range files {
			if err := home.Remove(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if made < *rounds {
		t.Errorf("only %d files were wired", made)
	}
}

// fuzzFormat checks what must hold of a format and any text.
func fuzzFormat(t *testing.T, f format, text []byte) {
	before := bytes.Clone(text)
	after, made, err := f.wire(text)
	if !bytes.Equal(text, before) {
		t.Fatal("the text was changed in place")
	}
	if err != nil {
		return
	}
	again, more, err := f.wire(after)
	if err != nil || len(more) > 0 || !bytes.Equal(again, after) {
		t.Fatalf("the second time: %v, made %q:\n%q\n%q", err, more, after, again)
	}
	back, err := f.unwire(after, fileRecord{Made: made})
	if err != nil {
		t.Fatalf("%v: %q", err, after)
	}
	if first, _, _ := f.wire(text); bytes.Equal(first, text) {
		return // it had ours before
	}
	if _, _, err := f.wire(back); err != nil {
		t.Fatalf("it was broken: %v\n%q\n%q\n%q", err, text, after, back)
	}
}

func FuzzJSON(f *testing.F) {
	for _, files := range homes {
		for name, text := range files {
			if strings.Contains(name, ".json") {
				f.Add([]byte(text))
			}
		}
	}
	f.Add([]byte(`{"mcpServers": {"fairlead": {"args": ["mcp-bridge"]}, "fairlead": {"args": ["mcp-bridge"]}}}`))
	formats := []format{claudeFiles(command)[0].format, claudeFiles(command)[1].format, openCodeFiles(command)[0].format}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, format := range formats {
			fuzzFormat(t, format, text)
		}
		if v, err := hujson.Parse(text); err == nil && !bytes.Equal(v.Pack(), text) {
			t.Fatal("positions in the text can't be relied upon")
		}
	})
}

func FuzzTOML(f *testing.F) {
	for _, files := range homes {
		f.Add([]byte(files[".codex/config.toml"]))
	}
	f.Add([]byte("[features]"))
	f.Fuzz(func(t *testing.T, text []byte) { fuzzFormat(t, codexFile{command: command}, text) })
}

func FuzzTranscript(f *testing.F) {
	f.Add([]byte(transcript))
	f.Fuzz(func(t *testing.T, text []byte) {
		name := t.TempDir() + "/transcript"
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		clip(lastInTranscript(name))
	})
}

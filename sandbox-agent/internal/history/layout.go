package history

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/fairlead/fairlead/sandbox-agent/internal/history/homefs"
	"github.com/fairlead/fairlead/sandbox-agent/internal/history/rows"
)

// Bounds of what is read of transcripts, in bytes.
const (
	maxLines    = 2 << 30  // of one whose lines are indexed
	maxDocument = 64 << 20 // of one that is read as a whole
	glance      = 64 << 10 // of its beginning and its end, to list it
)

// A layout says where a provider's program keeps sessions in a home.
type layout interface {
	provider() string
	patterns() []string // as [homefs.Home.Find] takes them
	// native returns the session's id from the path, "" if it is in the content.
	native(name string) string
	// locate completes what a transcript says by what follows from where it lies,
	// and reports whether it lies where it belongs. folders are those in which
	// conversations work.
	locate(home *homefs.Home, name string, about *rows.About, folders []string) bool
	// beside returns what else belongs to a transcript.
	beside(name string) []string
}

// A lined layout is of lines that are only ever appended.
type lined interface {
	layout
	lines() rows.Lines
}

// A whole layout is of files that are read as a whole.
type whole interface {
	layout
	document(content []byte) rows.Document
}

// anywhere is a layout whose transcripts have their ids in them, and may lie
// anywhere.
type anywhere struct{}

func (anywhere) native(string) string                                    { return "" }
func (anywhere) beside(string) []string                                  { return nil }
func (anywhere) locate(*homefs.Home, string, *rows.About, []string) bool { return true }

type (
	claude   struct{}
	codex    struct{ anywhere }
	gemini   struct{ anywhere }
	cursor   struct{ anywhere }
	opencode struct{ anywhere } // a database: one file for all sessions
)

// layouts are those of all providers.
var layouts = []layout{claude{}, codex{}, gemini{}, cursor{}, opencode{}}

func (claude) provider() string          { return "claude" }
func (claude) patterns() []string        { return []string{".claude/projects/*/*.jsonl"} }
func (claude) lines() rows.Lines         { return rows.Claude }
func (claude) native(name string) string { return baseName(name) }
func (claude) beside(name string) []string {
	return []string{strings.TrimSuffix(name, ".jsonl")}
}

func (claude) locate(_ *homefs.Home, name string, about *rows.About, _ []string) bool {
	return about.Dir == "" || isDashed(path.Base(path.Dir(name)), about.Dir)
}

func (codex) provider() string          { return "codex" }
func (codex) patterns() []string        { return []string{".codex/sessions/*/*/*/rollout-*.jsonl"} }
func (codex) lines() rows.Lines         { return rows.Codex }
func (codex) native(name string) string { return trailingUUID.FindString(baseName(name)) }

func (gemini) provider() string { return "gemini" }
func (gemini) patterns() []string {
	return []string{".gemini/tmp/*/chats/session-*.jsonl", ".gemini/tmp/*/chats/session-*.json"}
}
func (gemini) document(content []byte) rows.Document { return rows.Gemini(content) }

// locate: gemini names the folder beside the chats, or has the SHA-256 of its path
// in theirs.
func (gemini) locate(home *homefs.Home, name string, about *rows.About, folders []string) bool {
	project := path.Dir(path.Dir(name))
	if content, _, err := home.Read(project+"/.project_root", 4096); err == nil {
		about.Dir = strings.TrimSpace(string(content))
		return true
	}
	for _, folder := range folders {
		sum := sha256.Sum256([]byte(folder))
		if hex.EncodeToString(sum[:]) == path.Base(project) {
			about.Dir = folder
		}
	}
	return true
}

func (cursor) provider() string { return "cursor" }
func (cursor) patterns() []string {
	return []string{".cursor/projects/*/agent-transcripts/*.jsonl", ".cursor/projects/*/agent-transcripts/*/*.jsonl"}
}
func (cursor) lines() rows.Lines         { return rows.Cursor }
func (cursor) native(name string) string { return baseName(name) }

// locate: cursor calls the transcripts' folder after the one where it works.
func (cursor) locate(_ *homefs.Home, name string, about *rows.About, folders []string) bool {
	slug := strings.Split(name, "/")[2]
	for _, folder := range folders {
		if strings.Trim(dashed(folder), "-") == slug {
			about.Dir = folder
		}
	}
	return true
}

func (opencode) provider() string { return "opencode" }
func (opencode) patterns() []string {
	return []string{".local/share/opencode/opencode.db", ".local/share/opencode/opencode.db-wal"}
}

// patterns are those of all layouts.
func patterns() (all []string) {
	for _, l := range layouts {
		all = append(all, l.patterns()...)
	}
	return all
}

// layoutOf returns the layout of the transcript at name, nil if it is none.
func layoutOf(name string) layout {
	for _, l := range layouts {
		if slices.ContainsFunc(l.patterns(), func(p string) bool { ok, _ := path.Match(p, name); return ok }) {
			return l
		}
	}
	return nil
}

var trailingUUID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

func baseName(name string) string { return strings.TrimSuffix(path.Base(name), path.Ext(name)) }

// maxDashed is where claude cuts the name of a folder, to which it then adds a
// hash.
const maxDashed = 200

// dashed is how claude and cursor call the folder of a project.
func dashed(dir string) string {
	var name strings.Builder
	for _, r := range dir {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
			name.WriteRune(r)
		case utf16.RuneLen(r) == 2:
			name.WriteString("--")
		default:
			name.WriteByte('-')
		}
	}
	return name.String()
}

// isDashed reports whether name is what claude calls the folder dir.
func isDashed(name, dir string) bool {
	want := dashed(dir)
	if len(want) > maxDashed {
		return strings.HasPrefix(name, want[:maxDashed]+"-")
	}
	return name == want
}

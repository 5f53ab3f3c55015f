package history

import (
	"crypto/md5" //nolint:gosec // cursor names folders by it
	"crypto/sha256"
	"encoding/hex"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/history/dbread"
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
	// and reports whether it lies where it belongs. folders returns those in which
	// conversations work.
	locate(home *homefs.Home, name string, about *rows.About, folders func() []string) bool
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

// A stored layout is of databases: of one session each, or one for all of a home.
type stored interface {
	layout
	format() dbread.Format
	messages(list []rows.Stored) rows.Document
}

// anywhere is a layout whose transcripts have their ids in them, and may lie
// anywhere.
type anywhere struct{}

func (anywhere) native(string) string                                           { return "" }
func (anywhere) beside(string) []string                                         { return nil }
func (anywhere) locate(*homefs.Home, string, *rows.About, func() []string) bool { return true }

type (
	claude   struct{}
	codex    struct{ anywhere }
	gemini   struct{ anywhere }
	cursor   struct{}           // a database for each session
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

func (claude) locate(_ *homefs.Home, name string, about *rows.About, _ func() []string) bool {
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
func (gemini) locate(home *homefs.Home, name string, about *rows.About, folders func() []string) bool {
	project := path.Dir(path.Dir(name))
	if content, _, err := home.Read(project+"/.project_root", 4096); err == nil {
		about.Dir = strings.TrimSpace(string(content))
		return true
	}
	for _, folder := range folders() {
		sum := sha256.Sum256([]byte(folder))
		if hex.EncodeToString(sum[:]) == path.Base(project) {
			about.Dir = folder
		}
	}
	return true
}

func (cursor) provider() string { return "cursor" }
func (cursor) patterns() []string {
	return []string{".cursor/chats/*/*/store.db", ".cursor/chats/*/*/store.db-wal"}
}
func (cursor) format() dbread.Format                     { return dbread.Cursor }
func (cursor) messages(list []rows.Stored) rows.Document { return rows.Cursor(list) }
func (cursor) native(name string) string                 { return path.Base(path.Dir(name)) }
func (cursor) beside(name string) []string               { return []string{path.Dir(name)} }

// locate: cursor calls the folder of a project's sessions after the MD5 of its
// path.
func (cursor) locate(_ *homefs.Home, name string, about *rows.About, folders func() []string) bool {
	bucket := path.Base(path.Dir(path.Dir(name)))
	for _, folder := range append(folders(), about.Dir) {
		if sum := md5.Sum([]byte(folder)); hex.EncodeToString(sum[:]) == bucket {
			about.Dir = folder
			return true
		}
	}
	return about.Dir == ""
}

func (opencode) provider() string { return "opencode" }
func (opencode) patterns() []string {
	return []string{".local/share/opencode/opencode.db", ".local/share/opencode/opencode.db-wal"}
}
func (opencode) format() dbread.Format                     { return dbread.Opencode }
func (opencode) messages(list []rows.Stored) rows.Document { return rows.Opencode(list) }

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

// inWorkspace returns dir by the workspace's own name, and whether it is in it.
func (h *History) inWorkspace(dir string) (string, bool) {
	if !path.IsAbs(dir) {
		return "", false
	}
	dir = filepath.Clean(dir)
	for _, folder := range h.folders {
		if dir == folder {
			return h.folders[0], true
		}
		if rest, ok := strings.CutPrefix(dir, strings.TrimSuffix(folder, "/")+"/"); ok {
			return filepath.Join(h.folders[0], rest), true
		}
	}
	return "", false
}

// projectDirs returns what returns the folders in which a session's conversations
// work, as programs may name them: few layouts ask.
func (h *History) projectDirs(session protocol.SessionID) func() []string {
	return func() []string {
		all := append([]string(nil), h.folders...)
		for _, info := range h.o.Conversations.List(session) {
			if slices.Contains(all, info.ProjectPath) {
				continue // most conversations work in one of a few folders
			}
			all = append(all, info.ProjectPath)
			if real, err := filepath.EvalSymlinks(info.ProjectPath); err == nil && real != info.ProjectPath {
				all = append(all, real)
			}
		}
		return all
	}
}

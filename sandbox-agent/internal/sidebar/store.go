package sidebar

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/lineup"
)

const (
	// fileEnd ends the names of panels' files.
	fileEnd = ".json"
	// fileFormat is of the files that this version writes.
	fileFormat = 1
	// ahead is by how much numbers begin beyond the one that was stored: entries
	// that came later stored none.
	ahead = 1 << 20
	// maxPast bounds the earlier sessions of a panel that are listed.
	maxPast = 20
	// chapterName is what the panel calls a session.
	chapterName = "Side panel"
)

// A stored panel is its file.
type stored struct {
	Format int         `json:"format"`
	Next   uint64      `json:"next"` // the number of the next entry, at that time
	Active lineup.Tab  `json:"active"`
	Now    chapter     `json:"now"`
	Past   []chapter   `json:"past,omitempty"` // the newest first
	Tabs   []storedTab `json:"tabs,omitempty"`
}

type storedTab struct {
	ID           lineup.Tab              `json:"id"`
	Conversation protocol.ConversationID `json:"conversation"`
	Works        bool                    `json:"works,omitempty"`   // something runs
	Waiting      int                     `json:"waiting,omitempty"` // messages do
	Told         uint64                  `json:"told,omitempty"`    // the event that the panel was told of last
}

// A chapter is what the panel calls a session: what was said between two
// sidebar.new. It names no provider's session: those are known here alone.
type chapter struct {
	ID             string  `json:"id"`
	Name           string  `json:"name"`
	ClaudeSession  *string `json:"claudeSessionId"` // always null
	WorktreePath   *string `json:"worktreePath"`    // always null
	CreatedAt      string  `json:"createdAt"`
	LastActiveAt   string  `json:"lastActiveAt"`
	ChatLines      int     `json:"chatLines"`
	ConversationID string  `json:"conversationId,omitempty"` // of the active tab, for other clients
}

// firstNumber returns the number of the first entry behind one that was stored.
// Unix ms × 1,000 fits what browsers count exactly.
func firstNumber(stored uint64, now time.Time) uint64 {
	first := uint64(now.UnixMilli()) * 1000
	if stored > 0 {
		first = max(first, stored+ahead)
	}
	return first
}

// load reads a panel's file, if there is one.
func load(path string) (f stored, there bool, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err == nil && f.Format != fileFormat {
		err = fmt.Errorf("%s: of format %d", path, f.Format)
	}
	return f, err == nil, err
}

func newChapter(now time.Time) chapter {
	return chapter{ID: uuid.NewString(), Name: chapterName, CreatedAt: stamp(now), LastActiveAt: stamp(now)}
}

// write replaces a panel's file.
func write(path string, f stored) error {
	f.Format = fileFormat
	text, err := json.Marshal(f)
	if err == nil {
		err = program.ReplaceFile(path, text, 0o600)
	}
	return err
}

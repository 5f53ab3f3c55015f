package history

import (
	"context"
	"path"
	"strings"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/history/homefs"
	"github.com/fairlead/fairlead/sandbox-agent/internal/history/rows"
)

// readDatabase bounds the reading of a program's database.
const readDatabase = 10 * time.Second

// A Database reads what opencode keeps in the database of a home. It does so as
// the home's user: the database may be anything.
type Database interface {
	// Sessions returns the sessions of the database file, which is in the home dir.
	Sessions(ctx context.Context, dir, file string) ([]DatabaseSession, error)
	// Messages returns the messages of one, in their order.
	Messages(ctx context.Context, dir, file, session string) ([]rows.OpencodeMessage, error)
}

// A DatabaseSession is a session in a database.
type DatabaseSession struct {
	ID      string `json:"id"`
	Parent  string `json:"parent"` // "": it is no subagent's
	Dir     string `json:"dir"`
	Title   string `json:"title"`
	Updated int64  `json:"updated"` // Unix milliseconds
}

// isDatabase reports whether many sessions share a file.
func isDatabase(l layout) bool { _, ok := l.(opencode); return ok }

// examineDatabase is examine for a database.
func (h *History) examineDatabase(p place, l layout) (changed []*transcript) {
	file := strings.TrimSuffix(p.name, "-wal")
	if h.o.Database == nil {
		return nil
	}
	f, err := p.home.files.Open(file)
	if err != nil {
		return nil
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(context.Background(), readDatabase)
	defer cancel()
	sessions, err := h.o.Database.Sessions(ctx, p.home.dir, file)
	if err != nil {
		h.counts.refused.Add(1)
		h.log.Debug("a database of a coding agent is refused", "session", p.home.session, "file", path.Base(file), "err", err)
		return nil
	}
	for _, s := range sessions {
		dir, ok := h.inWorkspace(s.Dir)
		if s.Parent != "" || !ok || s.Title == "" || !protocol.ValidConversation(protocol.ConversationID(s.ID)) {
			continue
		}
		seen := sighting{
			place: place{p.home, file}, layout: l, native: native{l.provider(), s.ID}, dir: dir,
			about: rows.About{Native: s.ID, Dir: s.Dir, Title: s.Title},
			stat:  homefs.Stat{ID: f.Stat.ID, Modified: time.UnixMilli(s.Updated)},
		}
		if h.isNews(seen) {
			changed = append(changed, h.keep(seen)...)
		}
	}
	return changed
}

// isNews reports whether something has changed since a session was seen before.
func (h *History) isNews(seen sighting) bool {
	h.mu.Lock()
	s := h.sessions[seen.home.session]
	var t *transcript
	if s != nil {
		t = s.found[seen.native]
	}
	h.mu.Unlock()
	if t == nil || t.home != seen.home {
		return true
	}
	last := t.last()
	return last.about.Title != seen.about.Title || !last.stat.Modified.Equal(seen.stat.Modified)
}

// stored returns the content of a transcript in a database.
func (h *History) stored(ctx context.Context, t *transcript) (*content, error) {
	if h.o.Database == nil {
		return contentOf(&rows.Document{}), nil
	}
	t.reading.Lock()
	defer t.reading.Unlock()
	at := t.last().stat
	if t.document == nil || t.at != at {
		ctx, cancel := context.WithTimeout(ctx, readDatabase)
		defer cancel()
		messages, err := h.o.Database.Messages(ctx, t.home.dir, t.name, t.native.id)
		if err != nil {
			return nil, err
		}
		doc := rows.Opencode(messages)
		t.document, t.at = &doc, at
	}
	return contentOf(t.document), nil
}

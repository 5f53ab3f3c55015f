package history

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/history/dbread"
	"github.com/fairlead/fairlead/sandbox-agent/internal/history/homefs"
	"github.com/fairlead/fairlead/sandbox-agent/internal/history/rows"
)

// A Database reads the databases of programs, as the home's user: they may be
// anything. [dbread.Reader] implements it.
type Database interface {
	// Sessions returns the sessions of a database.
	Sessions(ctx context.Context, file dbread.File) ([]dbread.Session, error)
	// Messages returns the messages of one, in their order.
	Messages(ctx context.Context, file dbread.File, session string) ([]rows.Stored, error)
	// Delete deletes one.
	Delete(ctx context.Context, file dbread.File, session string) error
}

// errNoDatabase is of an agent that reads no databases.
var errNoDatabase = protocol.Errorf(protocol.KindUnavailable, "databases of coding agents aren't read here")

// walSuffix is what SQLite has behind the name of a database's log.
const walSuffix = "-wal"

// shared reports whether many sessions share a file.
func shared(l layout) bool {
	s, ok := l.(stored)
	return ok && s.native("") == ""
}

// database returns the file of a layout at p, once its home's user is whom its
// files belong to.
func (h *History) database(p place, l stored) (dbread.File, error) {
	if h.o.Database == nil {
		return dbread.File{}, errNoDatabase
	}
	if p.home.pty == chatHome {
		if err := h.o.ChatHomes.Hold(p.home.session); err != nil {
			return dbread.File{}, err
		}
	}
	return dbread.File{Format: l.format(), Home: p.home.dir, Name: p.name}, nil
}

// statDatabase is what changes whenever a database does: its own file, and its
// log beside it.
func statDatabase(p place) (homefs.Stat, error) {
	f, err := p.home.files.Open(p.name)
	if err != nil {
		return homefs.Stat{}, err
	}
	stat := f.Stat
	f.Close()
	if f, err = p.home.files.Open(p.name + walSuffix); err == nil {
		stat.Size += f.Stat.Size
		if f.Stat.Size > 0 && f.Stat.Modified.After(stat.Modified) { // who only reads makes an empty one
			stat.Modified = f.Stat.Modified
		}
		f.Close()
	}
	return stat, nil
}

// examineDatabase is examine for a database.
func (h *History) examineDatabase(ctx context.Context, p place, l stored) (changed []*transcript) {
	p.name = strings.TrimSuffix(p.name, walSuffix)
	stat, err := statDatabase(p)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			h.lost(p)
		}
		return nil
	}
	var sessions []dbread.Session
	file, err := h.database(p, l)
	if err == nil {
		sessions, err = h.o.Database.Sessions(ctx, file)
	}
	if err != nil {
		h.counts.refused.Add(1)
		h.log.Debug("a database of a coding agent is refused", "session", p.home.session, "file", path.Base(p.name), "err", err)
		return nil
	}
	there := make(map[native]bool)
	for _, s := range sessions {
		seen, ok := h.sighted(p, l, s, stat)
		if !ok {
			continue
		}
		there[seen.native] = true
		if h.isNews(seen) {
			changed = append(changed, h.keep(seen)...)
		}
	}
	if shared(l) && len(sessions) < dbread.MaxSessions {
		h.lostBut(p, there)
	}
	return changed
}

// sighted returns what a database says of a session, false if that isn't shown.
func (h *History) sighted(p place, l stored, s dbread.Session, stat homefs.Stat) (sighting, bool) {
	about := rows.About{Native: cmp.Or(l.native(p.name), s.ID), Dir: s.Dir, Title: s.Title, Subagent: s.Parent != ""}
	about.Said = l.messages(s.Head).About.Said
	if !l.locate(p.home.files, p.name, &about, h.projectDirs(p.home.session)) {
		return sighting{}, false
	}
	dir, ok := h.inWorkspace(about.Dir)
	if !ok || about.Subagent || about.Name() == "" || !protocol.ValidConversation(protocol.ConversationID(about.Native)) {
		return sighting{}, false
	}
	if s.Updated > 0 {
		stat = homefs.Stat{ID: stat.ID, Modified: time.UnixMilli(s.Updated)}
	}
	return sighting{place: p, layout: l, native: native{l.provider(), about.Native}, stat: stat, about: about, dir: dir}, true
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

// lostBut forgets the transcripts at p but those that are still there.
func (h *History) lostBut(p place, there map[native]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.sessions[p.home.session]; s != nil {
		for n, t := range s.found {
			if t.place == p && !there[n] {
				delete(s.found, n)
			}
		}
	}
}

// stored returns the content of a transcript in a database.
func (h *History) stored(ctx context.Context, t *transcript, l stored) (*content, error) {
	t.reading.Lock()
	defer t.reading.Unlock()
	at, err := statDatabase(t.place)
	if err != nil {
		return nil, err
	}
	if t.document == nil || t.at != at {
		file, err := h.database(t.place, l)
		if err != nil {
			return nil, err
		}
		messages, err := h.o.Database.Messages(ctx, file, t.native.id)
		if err != nil {
			return nil, err
		}
		doc := l.messages(messages)
		t.document, t.at = &doc, at
	}
	return contentOf(t.document), nil
}

// deleteStored deletes a session from a database that it shares with others.
func (h *History) deleteStored(ctx context.Context, t *transcript, l stored) error {
	file, err := h.database(t.place, l)
	if err == nil {
		err = h.o.Database.Delete(ctx, file, t.native.id)
	}
	if err == nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		if s := h.sessions[t.home.session]; s != nil && s.found[t.native] == t {
			delete(s.found, t.native)
		}
	}
	return err
}

// databases returns the names of files without the logs of databases.
func databases(names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, walSuffix) })
}

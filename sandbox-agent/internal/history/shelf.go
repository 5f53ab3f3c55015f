package history

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chat"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/history/homefs"
	"github.com/fairlead/fairlead/sandbox-agent/internal/history/lineindex"
	"github.com/fairlead/fairlead/sandbox-agent/internal/history/rows"
)

// chatHome stands in the place of a terminal for the home of conversations.
const chatHome protocol.PTYID = ""

// saysWithin is how soon a conversation says what its provider calls it.
const saysWithin = time.Minute

// maxFound bounds the transcripts of one pattern in one home.
const maxFound = 2000

// A shelf is the transcripts of a session.
type shelf struct {
	id protocol.SessionID // static
	// Guarded by the History's mu.
	homes map[protocol.PTYID]*home // those that are there; of its conversations: chatHome
	found map[native]*transcript
	// awaiting are copied to the home of conversations once that is there.
	awaiting []*transcript
}

// A native is a provider's session.
type native struct{ provider, id string }

// A home is one that is looked through.
type home struct {
	// Static after construction.
	session protocol.SessionID
	pty     protocol.PTYID // chatHome: of conversations
	dir     string
	files   *homefs.Home
	scan    sync.Once

	aside bool // guarded by the History's mu: a database in it is being looked at
}

// A sighting is what was seen of a provider's session.
type sighting struct {
	place
	layout layout
	native native
	stat   homefs.Stat
	about  rows.About
	dir    string // where it works
}

// A transcript is a provider's session that was found.
type transcript struct {
	// Static after construction.
	place
	layout layout
	native native

	mu   sync.Mutex
	seen sighting // guarded by mu

	reading sync.Mutex // held while the transcript is read; before mu
	// Guarded by reading.
	index    *lineindex.Index // nil: not in memory
	document *rows.Document   // nil: not in memory
	at       homefs.Stat      // of the file of which one of them is
}

// see notes what was seen later.
func (t *transcript) see(s sighting) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen = s
}

// last returns what was seen last.
func (t *transcript) last() sighting {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.seen
}

// shelf returns the session's. The caller holds mu.
func (h *History) shelf(session protocol.SessionID) *shelf {
	s := h.sessions[session]
	if s == nil {
		s = &shelf{id: session, homes: make(map[protocol.PTYID]*home), found: make(map[native]*transcript)}
		h.sessions[session] = s
	}
	return s
}

// open opens a home that is there and watches it, unless that is done.
func (h *History) open(session protocol.SessionID, pty protocol.PTYID, dir string) {
	files, err := homefs.Open(dir)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			h.log.Warn("a home isn't watched for coding agents", "session", session, "pty", pty, "err", err)
		}
		return
	}
	at := &home{session: session, pty: pty, dir: dir, files: files}
	h.mu.Lock()
	s := h.shelf(session)
	if h.closed || s.homes[pty] != nil {
		h.mu.Unlock()
		files.Close()
		return
	}
	h.homes[files], s.homes[pty] = at, at
	h.mu.Unlock()
	h.watcher.Add(files, patterns()) // without mu: it may tell of something
}

// TerminalEnded implements [feature.Ender]. What was begun in the terminal, and
// didn't go on elsewhere, goes with it.
func (h *History) TerminalEnded(of feature.Terminal) {
	h.mu.Lock()
	s := h.sessions[of.Session]
	var at *home
	if s != nil {
		at = s.homes[of.PTY]
		delete(s.homes, of.PTY)
	}
	h.mu.Unlock()
	if at == nil {
		return
	}
	for _, n := range h.close(s, at) {
		info, known := h.o.Conversations.ByNative(of.Session, n.provider, n.id)
		if !known || !info.Adopted || h.transcriptOf(info) != nil {
			continue
		}
		if err := h.o.Runs.Delete(of.Session, info.ID); err != nil { // it isn't listed, all the same
			h.log.Debug("a conversation outlives its terminal", "session", of.Session, "conversation", info.ID, "err", err)
		}
	}
}

// SessionEnded implements [feature.SessionEnder].
func (h *History) SessionEnded(session protocol.SessionID) error {
	h.mu.Lock()
	s := h.sessions[session]
	delete(h.sessions, session)
	var all []*home
	if s != nil {
		for _, at := range h.homes {
			if at.session == session {
				all = append(all, at)
			}
		}
	}
	h.mu.Unlock()
	for _, at := range all {
		h.close(s, at)
	}
	h.news.end(session)
	return h.o.Assets.Forget(session)
}

// close forgets a home with its transcripts, and returns whose they were.
func (h *History) close(s *shelf, at *home) (gone []native) {
	h.watcher.Remove(at.files)
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.homes, at.files)
	h.changed.drop(func(p place) bool { return p.home == at })
	for n, t := range s.found {
		if t.home == at {
			delete(s.found, n)
			gone = append(gone, n)
		}
	}
	at.files.Close()
	return gone
}

// look returns the session's shelf with all that is found in its homes.
func (h *History) look(session protocol.SessionID) *shelf {
	h.openChat(session)
	h.mu.Lock()
	s := h.shelf(session)
	all := slices.Collect(maps.Values(s.homes))
	h.mu.Unlock()
	for _, at := range all {
		at.scan.Do(func() { h.scan(context.Background(), at) })
	}
	return s
}

// openChat opens the home of the session's conversations, once it is there.
func (h *History) openChat(session protocol.SessionID) {
	h.mu.Lock()
	s := h.sessions[session]
	known := s != nil && s.homes[chatHome] != nil
	h.mu.Unlock()
	if dir := h.o.ChatHomes.ChatHome(session); !known && dir != "" {
		h.open(session, chatHome, dir)
	}
}

// scan looks at all transcripts in a home.
func (h *History) scan(ctx context.Context, at *home) {
	for _, l := range layouts {
		for _, pattern := range l.patterns() {
			for _, name := range databases(at.files.Find(pattern, maxFound)) {
				h.examine(ctx, place{at, name})
			}
		}
	}
}

// refresh looks at what has changed, and tells who follows.
func (h *History) refresh(ctx context.Context, p place) {
	switch _, slow := layoutOf(p.name).(stored); {
	case p.name == "":
		h.scan(ctx, p.home)
	case slow:
		h.refreshAside(ctx, p)
	default:
		h.tellOfAll(h.examine(ctx, p))
	}
}

// refreshAside is refresh for a database, for which nobody else waits. Of a home
// one is looked at at a time.
func (h *History) refreshAside(ctx context.Context, p place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.home.aside {
		h.changed.touch(p, time.Now())
		return
	}
	p.home.aside = true
	h.asides.Go(func() { // Run waits for it
		h.tellOfAll(h.examine(ctx, p))
		h.mu.Lock()
		defer h.mu.Unlock()
		p.home.aside = false
	})
}

// tellOfAll tells who follows of transcripts that have changed.
func (h *History) tellOfAll(changed []*transcript) {
	for _, t := range changed {
		if t.home.pty != chatHome {
			h.o.Runs.Outside(t.home.session, t.native.provider, t.native.id)
		}
		h.tell(t)
	}
}

// examine looks at a transcript and gives it a conversation. It returns what has
// changed.
func (h *History) examine(ctx context.Context, p place) []*transcript {
	l := layoutOf(p.name)
	if l == nil {
		return nil
	}
	if l, ok := l.(stored); ok {
		return h.examineDatabase(ctx, p, l)
	}
	about, stat, err := h.glance(l, p)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			h.counts.refused.Add(1)
			h.log.Debug("a transcript is refused", "session", p.home.session, "provider", l.provider(), "err", err)
		}
		h.lost(p)
		return nil
	}
	dir, ok := h.inWorkspace(about.Dir)
	if about.Subagent || about.Name() == "" || !ok || !protocol.ValidConversation(protocol.ConversationID(about.Native)) {
		h.lost(p) // it may have been another one
		return nil
	}
	return h.keep(sighting{place: p, layout: l, native: native{l.provider(), about.Native}, stat: stat, about: about, dir: dir})
}

// errForeign is of a transcript that says something else than where it lies.
var errForeign = errors.New("it isn't where its session would keep it")

// glance reads what a transcript says of its session.
func (h *History) glance(l layout, p place) (about rows.About, stat homefs.Stat, err error) {
	switch l := l.(type) {
	case lined:
		var f *homefs.File
		if f, err = p.home.files.Open(p.name); err == nil {
			about, stat = lineindex.Glance(l.lines(), f, f.Stat.Size, glance), f.Stat
			f.Close()
		}
	case whole:
		var content []byte
		if content, stat, err = p.home.files.Read(p.name, maxDocument); err == nil {
			about = l.document(content).About
		}
	}
	if err != nil {
		return about, stat, err
	}
	if !h.placed(l, p, &about) {
		return about, stat, errForeign
	}
	return about, stat, nil
}

// placed completes what a transcript says by what follows from where it lies, and
// reports whether it lies where its session would keep it.
func (h *History) placed(l layout, p place, about *rows.About) bool {
	if id := l.native(p.name); id != "" {
		if about.Native != "" && about.Native != id {
			return false
		}
		about.Native = id
	}
	return l.locate(p.home.files, p.name, about, h.projectDirs(p.home.session))
}

// still reports whether a transcript that was just read is the session's that was
// found there: another one may have taken its place.
func (h *History) still(t *transcript, about rows.About) bool {
	if _, ok := t.layout.(stored); ok {
		return true // it was asked for by its id
	}
	ok := h.placed(t.layout, t.place, &about) && about.Native == t.native.id
	if ok {
		_, ok = h.inWorkspace(about.Dir)
	}
	return ok
}

// keep puts what was seen on its shelf, and returns its transcript if anybody may
// see it. Of two transcripts of one session that of
// conversations counts, and in one home the one that was written last: gemini
// begins another one each time that it goes on.
func (h *History) keep(seen sighting) []*transcript {
	h.mu.Lock()
	s := h.sessions[seen.home.session]
	if s == nil || h.homes[seen.home.files] == nil {
		h.mu.Unlock()
		return nil // it has ended meanwhile
	}
	t := s.found[seen.native]
	switch {
	case t == nil, t.home != seen.home && seen.home.pty == chatHome, t.home == seen.home && t.name != seen.name && seen.stat.Modified.After(t.last().stat.Modified):
		t = &transcript{place: seen.place, layout: seen.layout, native: seen.native}
		s.found[seen.native] = t
	case t.place != seen.place:
		h.mu.Unlock()
		return nil
	}
	h.mu.Unlock()
	t.see(seen)
	if !h.adopt(seen) {
		return nil
	}
	return []*transcript{t}
}

// adopt gives a session a conversation, unless it has one. What is in the home of
// conversations was most likely begun by one, which will say so: it is looked at
// again when that has had its time.
func (h *History) adopt(seen sighting) bool {
	of, n := seen.home.session, seen.native
	if _, known := h.o.Conversations.ByNative(of, n.provider, n.id); known {
		return true
	}
	if seen.home.pty == chatHome && time.Since(seen.stat.Modified) < saysWithin {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.changed.touch(seen.place, seen.stat.Modified.Add(saysWithin))
		h.poke()
		return false
	}
	_, _, err := h.o.Conversations.Adopt(chat.ConversationInfo{
		Session: of, Provider: n.provider, Native: n.id, ProjectPath: seen.dir, UpdatedAt: seen.stat.Modified.UnixMilli(),
	})
	if err != nil {
		h.counts.unadopted.Add(1)
		h.log.Warn("a session of a coding agent has no conversation", "session", of, "provider", n.provider, "err", err)
	}
	return err == nil
}

// lost forgets the transcript of a file that isn't there any more.
func (h *History) lost(p place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.sessions[p.home.session]; s != nil {
		for n, t := range s.found {
			if t.place == p {
				delete(s.found, n)
			}
		}
	}
}

// transcriptOf returns the transcript of a conversation, nil if none is found.
func (h *History) transcriptOf(info chat.ConversationInfo) *transcript {
	if info.Native == "" {
		return nil
	}
	s := h.look(info.Session)
	h.mu.Lock()
	defer h.mu.Unlock()
	return s.found[native{info.Provider, info.Native}]
}

package history

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
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

// FurnishHome implements [feature.Furnisher]: it watches the home of a terminal
// from its start on. It writes nothing, but the transcripts that a program in the
// home of conversations is about to go on with.
func (h *History) FurnishHome(of feature.Home) error {
	switch {
	case of.Root.Name() == h.o.ChatHomes.ChatHome(of.Session):
		h.open(of.Session, chatHome, of.Root.Name())
		return h.bringAll(of.Session)
	case of.Agent == "" && of.PTY != "":
		h.open(of.Session, of.PTY, of.Root.Name())
	}
	return nil
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

// TerminalEnded implements [feature.Ender].
func (h *History) TerminalEnded(of feature.Terminal) {
	h.mu.Lock()
	s := h.sessions[of.Session]
	var at *home
	if s != nil {
		at = s.homes[of.PTY]
		delete(s.homes, of.PTY)
	}
	h.mu.Unlock()
	if at != nil {
		h.close(s, at)
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

// close forgets a home with its transcripts.
func (h *History) close(s *shelf, at *home) {
	h.watcher.Remove(at.files)
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.homes, at.files)
	h.changed.drop(func(p place) bool { return p.home == at })
	for n, t := range s.found {
		if t.home == at {
			delete(s.found, n)
		}
	}
	at.files.Close()
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
	if id := l.native(p.name); id != "" {
		if about.Native != "" && about.Native != id {
			return about, stat, errForeign
		}
		about.Native = id
	}
	if !l.locate(p.home.files, p.name, &about, h.projectDirs(p.home.session)) {
		return about, stat, errForeign
	}
	return about, stat, nil
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
// conversations was begun by one, which will say so: only what lies there from
// earlier is adopted.
func (h *History) adopt(seen sighting) bool {
	of, n := seen.home.session, seen.native
	if _, known := h.o.Conversations.ByNative(of, n.provider, n.id); known {
		return true
	}
	if seen.home.pty == chatHome && time.Since(seen.stat.Modified) < time.Minute {
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

// Bring has the transcript of a conversation lie where its program goes on with
// it. That of one that was begun in a terminal is copied into the home of
// conversations; if that isn't there yet, as soon as it is. A database isn't: it
// fails with KindUnsupported.
func (h *History) Bring(session protocol.SessionID, id protocol.ConversationID) error {
	info, err := h.o.Conversations.Get(session, id)
	if err != nil {
		return err
	}
	t := h.transcriptOf(info)
	if t == nil {
		return nil
	}
	if t.home.pty == chatHome {
		return h.setApart(t, time.Now())
	}
	if _, ok := t.layout.(stored); ok {
		return protocol.Errorf(protocol.KindUnsupported,
			"%s keeps this session in a database of the terminal where it was begun: it can go on only there", t.native.provider)
	}
	h.mu.Lock()
	s := h.shelf(info.Session)
	to := s.homes[chatHome]
	if to == nil {
		s.awaiting = append(s.awaiting, t)
	}
	h.mu.Unlock()
	if to == nil {
		return nil
	}
	return h.copy(t, to)
}

// bringAll copies what waits for the home of conversations.
func (h *History) bringAll(session protocol.SessionID) error {
	h.mu.Lock()
	s := h.shelf(session)
	all, to := s.awaiting, s.homes[chatHome]
	s.awaiting = nil
	h.mu.Unlock()
	var errs []error
	for _, t := range all {
		if to != nil {
			errs = append(errs, h.copy(t, to))
		}
	}
	return errors.Join(errs...)
}

// copy copies a transcript to another home, unless that has it.
func (h *History) copy(t *transcript, to *home) error {
	f, err := t.home.files.Open(t.name)
	if err != nil {
		return protocol.Fault(protocol.KindUnavailable, err)
	}
	defer f.Close()
	err = to.files.Write(t.name, f)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return protocol.Fault(protocol.KindUnavailable, err)
	}
	h.examine(context.Background(), place{to, t.name})
	return nil
}

// geminiName is how gemini calls a transcript: by the minute in which it began it,
// and the beginning of the session's id.
const geminiName = "session-2006-01-02T15-04-"

// setApart gives a transcript of gemini's that was begun in this minute the name
// of an earlier one: gemini would begin another one for the session that it goes
// on with, by the same name, and so write over what it wants to read.
func (h *History) setApart(t *transcript, now time.Time) error {
	dir, base := path.Split(t.name)
	now = now.UTC()
	rest, this := strings.CutPrefix(base, now.Format(geminiName))
	if _, ok := t.layout.(gemini); !ok || !this {
		return nil
	}
	for minutes := range 60 {
		name := dir + now.Add(-time.Duration(minutes+1)*time.Minute).Format(geminiName) + rest
		err := t.home.files.Rename(t.name, name)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return protocol.Fault(protocol.KindUnavailable, err)
		}
		h.lost(t.place)
		h.examine(context.Background(), place{t.home, name})
		return nil
	}
	return protocol.Errorf(protocol.KindUnavailable, "gemini has too many transcripts of one session")
}

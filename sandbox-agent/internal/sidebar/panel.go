package sidebar

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/protocol/taburl"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/lineup"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/places"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/ring"
)

const (
	// maxTabs bounds the tabs of a panel. The one that was used least recently and
	// has nothing to do gives way.
	maxTabs = 32
	// firstTab is the active tab of a new panel: the one of the session's browser.
	firstTab = 1
)

// A Panel is the side panel of one session. It owns the queues and the entries.
type Panel struct {
	board
	file     string // static
	restored sync.Once

	// Guarded by mu.
	tabs    []*tab // the one that was used last is last
	active  lineup.Tab
	past    []chapter
	streams int

	revision uint64 // guarded by mu: of the browser's list of tabs
}

// newPanel returns a session's panel, which must be restored.
func newPanel(o *Options, counts *counts, session protocol.SessionID, file string) *Panel {
	now := time.Now()
	p := &Panel{file: file, active: firstTab, board: board{
		o: o, counts: counts, session: session, closing: make(chan struct{}), changed: make(chan struct{}), now: newChapter(now),
		lineup: &lineup.Lineup[message]{}, entries: ring.New[Entry](firstNumber(0, now), maxEntries, maxEntryBytes), places: &places.File{},
	}}
	p.keeper = p
	return p
}

// tabOf returns a tab, nil if there is none. The caller holds mu.
func (p *Panel) tabOf(id lineup.Tab) *tab {
	if i := slices.IndexFunc(p.tabs, func(t *tab) bool { return t.id == id }); i >= 0 {
		return p.tabs[i]
	}
	return nil
}

// use returns a tab that something is to be done in, made if it is missing. It
// fails with KindTooMany when all tabs are busy. The caller holds mu.
func (p *Panel) use(id lineup.Tab) (*tab, error) {
	t := p.tabOf(id)
	if t == nil {
		if len(p.tabs) >= maxTabs && !p.makeRoom() {
			return nil, protocol.Errorf(protocol.KindTooMany, "something runs in each of %d tabs", maxTabs)
		}
		t = &tab{board: &p.board, id: id}
	}
	p.tabs = append(slices.DeleteFunc(p.tabs, func(o *tab) bool { return o == t }), t)
	return t, nil
}

// makeRoom forgets the tab that was used least recently of those in which nothing
// runs. Its conversation stays. The caller holds mu.
func (p *Panel) makeRoom() bool {
	for _, t := range p.tabs {
		if p.lineup.Status(t.id, time.Now()).State == lineup.Idle {
			t.leave()
			p.tabs = slices.DeleteFunc(p.tabs, func(o *tab) bool { return o == t })
			return true
		}
	}
	return false
}

// target returns the tab that a message is for: the one that it names, else the
// one that shows its URL, else the active one. The caller holds mu.
func (p *Panel) target(body *op.SidebarSend, shown []BrowserTab) lineup.Tab {
	if body.TabID != 0 {
		return lineup.Tab(body.TabID)
	}
	if body.URL != "" {
		for _, b := range shown {
			if b.URL == body.URL {
				return b.ID
			}
		}
		for _, t := range slices.Backward(p.tabs) {
			if t.url == body.URL {
				return t.id
			}
		}
	}
	return p.active
}

// send takes a message: it runs or waits, at a position from 1, in a tab that is
// the active one now.
func (p *Panel) send(m message, shown []BrowserTab) (position int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0, errOver
	}
	id := p.target(m.body, shown)
	if p.o.Browser.Closed(p.session, id) {
		return 0, errTabClosed
	}
	t, err := p.use(id)
	if err == nil {
		err = t.open()
	}
	if err != nil {
		return 0, err
	}
	position, err = p.lineup.Accept(t.id, m, time.Now())
	if err != nil {
		p.counts.message(messageFull, 1)
		return 0, err
	}
	p.active = t.id
	if m.body.TabID != 0 && m.body.URL != "" {
		t.url = m.body.URL
	}
	p.add(t.id, Entry{Role: roleUser, Message: m.body.Message, command: m.command.CommandID})
	if position == 0 {
		t.begin(m)
	} else {
		p.counts.message(messageWaits, 1)
	}
	p.save()
	return position, nil
}

var errTabClosed = protocol.Errorf(protocol.KindInvalid, "Invalid tab id")

var errOver = protocol.Errorf(protocol.KindEnded, "the session is over")

// stop stops what runs in a tab, or in all, and empties the queues. It returns how
// many messages waited. It fails before it has done anything if somebody else has
// control of a conversation.
func (p *Panel) stop(user protocol.UserID, id lineup.Tab, why string) (dropped int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.halt(user, id, why)
}

// halt is stop. The caller holds mu.
func (p *Panel) halt(user protocol.UserID, id lineup.Tab, why string) (dropped int, err error) {
	if p.closed {
		return 0, errOver
	}
	busy := p.lineup.Busy()
	if id != 0 {
		busy = slices.DeleteFunc(busy, func(b lineup.Tab) bool { return b != id })
	}
	var stopping []*tab
	for _, b := range busy {
		t := p.tabOf(b)
		if t == nil {
			continue
		}
		if err := p.o.Conversations.MayStop(p.session, t.conversation, user); err != nil {
			return 0, err
		}
		stopping = append(stopping, t)
	}
	for _, t := range stopping {
		_, waited := p.lineup.Stop(t.id)
		dropped += len(waited)
		t.stop(user, why)
	}
	p.counts.message(messageStopped, dropped)
	p.tell()
	p.save()
	return dropped, nil
}

// clear forgets what was said in a tab, or in all. Numbers go on.
func (p *Panel) clear(id lineup.Tab) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.entries.Drop(func(e Entry) bool { return id == 0 || e.TabID == id })
	if id == 0 {
		p.now.ChatLines = 0
	}
	p.place()
	p.tell()
	p.save()
}

// dismiss takes a message out of a tab's queue.
func (p *Panel) dismiss(id lineup.Tab, index int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.lineup.Dismiss(cmp.Or(id, p.active), index); !ok {
		return protocol.Errorf(protocol.KindInvalid, "Invalid index")
	}
	p.counts.message(messageDismissed, 1)
	p.tell()
	p.save()
	return nil
}

// renew begins a new session of the panel: what runs is stopped, and each tab gets
// a conversation of its own anew.
func (p *Panel) renew(user protocol.UserID) (chapter, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.halt(user, 0, textStopped); err != nil {
		return chapter{}, err
	}
	for _, t := range p.tabs {
		t.leave()
	}
	p.past = append([]chapter{p.chapter()}, p.past...)
	p.past = p.past[:min(len(p.past), maxPast)]
	p.tabs, p.lineup, p.now = nil, &lineup.Lineup[message]{}, newChapter(time.Now())
	p.entries.Drop(func(Entry) bool { return true })
	p.place()
	p.tell()
	p.save()
	return p.now, nil
}

// chapter returns the present session of the panel. The caller holds mu.
func (p *Panel) chapter() chapter {
	c := p.now
	if t := p.tabOf(p.active); t != nil {
		c.ConversationID = string(t.conversation)
	}
	return c
}

// show makes a tab the active one.
func (p *Panel) show(id lineup.Tab, shown []BrowserTab) (listedTab, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.list(shown) {
		if t.ID == id {
			p.active, t.Active = id, true
			p.tell()
			p.save()
			return t, nil
		}
	}
	return listedTab{}, protocol.Errorf(protocol.KindInvalid, "Invalid tab id")
}

// A listedTab is one as the panel lists it.
type listedTab struct {
	ID             lineup.Tab              `json:"id"`
	URL            string                  `json:"url"`
	Title          string                  `json:"title"`
	Active         bool                    `json:"active"`
	ConversationID protocol.ConversationID `json:"conversationId,omitempty"` // for other clients
}

// list returns the browser's tabs, and the panel's that aren't among them. The
// caller holds mu.
func (p *Panel) list(shown []BrowserTab) []listedTab {
	all := []listedTab{}
	for _, b := range shown {
		all = append(all, listedTab{ID: b.ID, URL: taburl.Mask(b.URL), Title: b.Title})
	}
	for _, t := range p.tabs {
		i := slices.IndexFunc(all, func(l listedTab) bool { return l.ID == t.id })
		if i < 0 {
			i = len(all)
			all = append(all, listedTab{ID: t.id, URL: taburl.Mask(t.url)})
		}
		all[i].ConversationID = t.conversation
	}
	slices.SortFunc(all, func(a, b listedTab) int { return cmp.Compare(a.ID, b.ID) })
	for i := range all {
		all[i].Active = all[i].ID == p.active
	}
	return all
}

// count counts the tabs in which something runs by their states.
func (p *Panel) count(states map[string]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range p.lineup.Busy() {
		states[p.lineup.Status(id, time.Now()).State]++
	}
}

// save stores the panel. The caller holds mu. A panel that can't be stored works
// on, and begins anew with the next agent.
func (p *Panel) save() {
	f := stored{Next: p.entries.Next(), Active: p.active, Now: p.now, Past: p.past}
	for _, t := range p.tabs {
		s := p.lineup.Status(t.id, time.Now())
		f.Tabs = append(f.Tabs, storedTab{t.id, t.conversation, s.State != lineup.Idle, len(s.Waiting), t.told})
	}
	if err := write(p.file, f); err != nil {
		p.o.Log.Warn("a side panel is not stored", "session", p.session, "err", err)
	}
}

// close ends the panel's streams, and returns when it hears no conversation any
// more.
func (p *Panel) close() {
	close(p.closing)
	p.mu.Lock()
	p.closed = true
	for _, t := range p.tabs {
		t.leave()
	}
	p.places.Close()
	p.tell()
	p.mu.Unlock()
	p.wait.Wait()
}

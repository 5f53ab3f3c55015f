package sidebar

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/lineup"
)

// TabsChanged notes that tabs of a session's browser were opened, closed or
// switched.
func (s *Sidebars) TabsChanged(session protocol.SessionID) {
	s.mu.Lock()
	p := s.panels[session]
	s.mu.Unlock()
	if p != nil {
		p.tabsChanged()
	}
}

// tabsChanged ends what was said in tabs that were closed, and has panels look at
// the list.
func (p *Panel) tabsChanged() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	for _, t := range slices.Clone(p.tabs) {
		if p.o.Browser.Closed(p.session, t.id) {
			p.tabClosed(t)
		}
	}
	if p.o.Browser.Closed(p.session, p.active) {
		p.active = p.o.Browser.Active(p.session)
	}
	p.revision++
	p.tell()
	p.save()
}

// tabClosed ends a tab: what the panel has begun there is stopped, and what waits
// isn't sent. The conversation and its entries stay. The caller holds mu.
func (p *Panel) tabClosed(t *tab) {
	runs, waited := p.lineup.Stop(t.id)
	text := "The tab was closed."
	if n := len(waited); n > 0 {
		text += fmt.Sprintf(" %d waiting messages were not sent.", n)
	}
	p.counts.message(messageClosed, len(waited))
	p.add(t.id, Entry{Role: roleAgent, Type: typeError, Error: text})
	t.runs.ended = true        // nothing comes behind
	if runs && t.ours != nil { // what somebody else has begun goes on
		t.stop(t.ours.message.command.UserID, text)
	}
	p.lineup.Over(t.id, time.Now())
	t.leave()
	p.tabs = slices.DeleteFunc(p.tabs, func(o *tab) bool { return o == t })
}

// BoundTab returns the tab of the session's browser that a conversation is about; 0:
// none.
func (s *Sidebars) BoundTab(session protocol.SessionID, id protocol.ConversationID) lineup.Tab {
	s.mu.Lock()
	p := s.panels[session]
	s.mu.Unlock()
	if p == nil {
		if _, err := os.Stat(s.file(session)); err != nil {
			return 0 // nobody has had a panel there
		}
		var err error
		if p, err = s.panel(session); err != nil {
			return 0
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.tabs {
		if t.conversation == id {
			return t.id
		}
	}
	return 0
}

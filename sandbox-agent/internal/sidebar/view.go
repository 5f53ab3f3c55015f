package sidebar

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/lineup"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/push"
)

// A standing is how the panel stands.
type standing struct {
	Total       uint64     `json:"total"` // the number of the next entry, of all tabs
	AgentStatus string     `json:"agentStatus"`
	ActiveTabID lineup.Tab `json:"activeTabId"`
	Queued      int        `json:"queued"`        // messages that wait in that tab
	Tab         lineup.Tab `json:"tabId"`         // whose status it is
	Busy        []busyTab  `json:"tabs"`          // in which something runs
	SessionID   string     `json:"sidebarId"`     // of the panel's session
	Security    security   `json:"security"`      // nothing is looked for
	First       uint64     `json:"availableFrom"` // the oldest entry that is held
	TabsRev     uint64     `json:"tabsRevision"`  // changes when browser tabs were opened, closed or switched
}

// security is what the seed's panel shows of its searches for injected prompts.
type security struct {
	Status string `json:"status"`
}

var securityOff = security{"off"}

// A busyTab is a tab in which something runs.
type busyTab struct {
	ID     lineup.Tab `json:"id"`
	Status string     `json:"agentStatus"`
	Queued int        `json:"queued"`
}

// standing returns how the panel and a tab stand; 0 is the active one. The caller
// holds mu.
func (p *Panel) standing(tab lineup.Tab) standing {
	if tab == 0 {
		tab = p.active
	}
	now := time.Now()
	of := p.lineup.Status(tab, now)
	s := standing{
		Total: p.entries.Next(), AgentStatus: of.State, ActiveTabID: p.active, Queued: len(of.Waiting), Tab: tab,
		Busy: []busyTab{}, SessionID: p.now.ID, Security: securityOff, First: p.entries.First(), TabsRev: p.revision,
	}
	for _, id := range p.lineup.Busy() {
		b := p.lineup.Status(id, now)
		s.Busy = append(s.Busy, busyTab{id, b.State, len(b.Waiting)})
	}
	return s
}

// from returns the entries from a number on, of a tab or, with 0, of all. The
// caller holds mu.
func (p *Panel) from(number uint64, tab lineup.Tab) []Entry {
	all := p.entries.From(number)
	if tab == 0 {
		return all
	}
	own := all[:0]
	for _, e := range all {
		if e.TabID == tab {
			own = append(own, e)
		}
	}
	return own
}

// A chatAnswer answers a poll.
type chatAnswer struct {
	Entries []Entry `json:"entries"`
	standing
}

// poll is GET …/sidebar/chat?after=&tabId=.
func (p *Panel) poll(after uint64, tab lineup.Tab) chatAnswer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return chatAnswer{p.from(after, tab), p.standing(tab)}
}

// maxStreams bounds the streams of one session.
const maxStreams = 64

// A follower sends a panel's entries as they come. It is for one goroutine.
type follower struct {
	panel *Panel
	tab   lineup.Tab // 0: all
	next  uint64
	told  string // the standing that was told last
}

// follow follows the entries from a number on. The follower must be closed.
func (p *Panel) follow(after uint64, tab lineup.Tab) (*follower, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return nil, errOver
	case p.streams >= maxStreams:
		p.counts.refused.Inc()
		return nil, protocol.Errorf(protocol.KindTooMany, "over %d streams of this session are open", maxStreams)
	}
	p.streams++
	p.counts.streams.Inc()
	return &follower{panel: p, tab: tab, next: after}, nil
}

func (f *follower) close() {
	f.panel.mu.Lock()
	defer f.panel.mu.Unlock()
	f.panel.streams--
	f.panel.counts.streams.Dec()
}

// Next implements [push.Source].
func (f *follower) Next() (events []byte, changed <-chan struct{}, over bool) {
	p := f.panel
	p.mu.Lock()
	defer p.mu.Unlock()
	mask := p.o.Secrets.Mask
	first := p.entries.First()
	if f.next > 0 && f.next < first && p.entries.Len() > 0 {
		events = push.Append(events, "gap", 0, map[string]uint64{"gapFrom": f.next, "availableFrom": first}, mask)
	}
	for _, e := range p.from(f.next, f.tab) {
		events = push.Append(events, "entry", e.ID, e, mask)
	}
	now := p.standing(f.tab)
	f.next = now.Total
	if told := fmt.Sprint(now); told != f.told || len(events) > 0 {
		f.told = told
		events = push.Append(events, "state", 0, now, mask)
	}
	return events, p.changed, p.closed
}

// number returns a query parameter that is a number, absent 0.
func number(r *http.Request, name string) (uint64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 53)
	if err != nil {
		return 0, protocol.Errorf(protocol.KindInvalid, "%s is a number", name)
	}
	return n, nil
}

// asked returns what a request for entries asks for.
func asked(r *http.Request) (after uint64, tab lineup.Tab, err error) {
	if after, err = number(r, "after"); err != nil {
		return 0, 0, err
	}
	id, err := number(r, "tabId")
	if err == nil && id >= 1<<31 {
		err = protocol.Errorf(protocol.KindInvalid, "tabId is the id of a tab")
	}
	return after, lineup.Tab(id), err
}

// Package activity is what the tools of sessions' browsers have done, as the side
// panel shows it (seed 000): the newest entries, without what is secret.
package activity

import (
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/taburl"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/push"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/ring"
)

const (
	// maxEntries and maxBytes bound what is held of a session (seed 000: 1,000).
	maxEntries = 1000
	maxBytes   = 2 << 20
	// maxSessions bounds the sessions of which something is held. Beyond it the
	// one of which nothing was heard for longest is forgotten.
	maxSessions = 256
	// maxResult bounds what an entry shows of a result, in characters.
	maxResult = 200
)

// Types of entries.
const (
	typeStart      = "command_start"
	typeEnd        = "command_end"
	typeNavigation = "navigation"
	typeError      = "error"
)

// An Entry is one thing that a tool has begun or done.
type Entry struct {
	ID       uint64   `json:"id"`
	Time     int64    `json:"timestamp"` // Unix milliseconds
	Type     string   `json:"type"`
	Command  string   `json:"command,omitempty"`
	Args     []string `json:"args,omitempty"`
	URL      string   `json:"url,omitempty"`
	Duration int64    `json:"duration,omitempty"` // milliseconds
	Status   string   `json:"status,omitempty"`   // "ok" or "error"
	Error    string   `json:"error,omitempty"`
	Result   string   `json:"result,omitempty"`
	Tabs     int      `json:"tabs,omitempty"`  // that were open
	TabID    int      `json:"tabId,omitempty"` // that it was done in
}

// A Place is where a tool does something.
type Place struct {
	Tab  int // 0: not known
	Open int // tabs
}

func (e Entry) size() int {
	n := 256 + len(e.URL) + len(e.Error) + len(e.Result)
	for _, a := range e.Args {
		n += len(a)
	}
	return n
}

// A Log holds the activity of a sandbox's browsers. It is safe for concurrent use;
// its zero value is ready.
type Log struct {
	mu sync.Mutex
	// Guarded by mu.
	sessions map[protocol.SessionID]*history
}

// history is what is held of one session.
type history struct {
	entries     *ring.Ring[Entry]
	added       uint64
	heard       time.Time
	changed     chan struct{}
	subscribers int
	over        bool
}

// of returns what is held of a session. The caller holds mu.
func (l *Log) of(session protocol.SessionID) *history {
	if h := l.sessions[session]; h != nil {
		return h
	}
	if l.sessions == nil {
		l.sessions = map[protocol.SessionID]*history{}
	}
	if len(l.sessions) >= maxSessions {
		l.forgetOldest()
	}
	now := time.Now()
	h := &history{entries: ring.New[Entry](uint64(now.UnixMilli())*1000, maxEntries, maxBytes), heard: now, changed: make(chan struct{})}
	l.sessions[session] = h
	return h
}

// forgetOldest forgets a session. The caller holds mu.
func (l *Log) forgetOldest() {
	var oldest protocol.SessionID
	var since time.Time
	for session, h := range l.sessions {
		if oldest == "" || h.heard.Before(since) {
			oldest, since = session, h.heard
		}
	}
	l.forget(oldest)
}

// forget forgets a session. The caller holds mu.
func (l *Log) forget(session protocol.SessionID) {
	if h := l.sessions[session]; h != nil {
		h.over = true
		close(h.changed)
		delete(l.sessions, session)
	}
}

// SessionEnded forgets a session.
func (l *Log) SessionEnded(session protocol.SessionID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(session)
}

// add adds an entry.
func (l *Log) add(session protocol.SessionID, at Place, e Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h, now := l.of(session), time.Now()
	e.Time, e.Tabs, e.TabID = now.UnixMilli(), at.Open, at.Tab
	h.entries.Add(e.size(), func(number uint64) Entry {
		e.ID = number
		return e
	})
	h.added++
	h.heard = now
	close(h.changed)
	h.changed = make(chan struct{})
}

// Began notes that a tool is called, and returns what notes how that ended.
func (l *Log) Began(session protocol.SessionID, at Place, tool string, args json.RawMessage) (ended func(Place, protocol.ToolResult, error)) {
	command, shown, address := describe(tool, args)
	l.add(session, at, Entry{Type: typeStart, Command: command, Args: shown, URL: address})
	began := time.Now()
	return func(at Place, result protocol.ToolResult, err error) {
		e := Entry{Type: typeEnd, Command: command, Args: shown, URL: address, Duration: time.Since(began).Milliseconds(), Status: "ok", Result: short(textOf(result))}
		switch {
		case err != nil:
			e.Type, e.Status, e.Error, e.Result = typeError, "error", short(protocol.AsError(err).Error()), ""
		case result.IsError:
			e.Status, e.Error, e.Result = "error", e.Result, ""
		case command == commandGoto, strings.HasPrefix(tool, "browser_tab"): // pages' own words, with addresses
			e.Result = ""
		case tool == "browser_get_url":
			e.Result = taburl.Mask(textOf(result))
		}
		l.add(session, at, e)
		if err == nil && !result.IsError && address != "" {
			l.add(session, at, Entry{Type: typeNavigation, URL: address, Status: "ok"})
		}
	}
}

// textOf returns the text of a result.
func textOf(result protocol.ToolResult) string {
	for _, c := range result.Content {
		if c.Text != "" {
			return c.Text
		}
	}
	return ""
}

// short is a text of bounded length.
func short(text string) string {
	if runes := []rune(text); len(runes) > maxResult {
		return string(runes[:maxResult]) + "..."
	}
	return text
}

// Page is the newest entries of a session.
type Page struct {
	Entries     []Entry `json:"entries"`
	TotalAdded  uint64  `json:"totalAdded"`
	Subscribers int     `json:"subscribers"`
}

// Newest returns the newest entries of a session, the oldest of them first.
func (l *Log) Newest(session protocol.SessionID, limit int) Page {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.sessions[session]
	if h == nil {
		return Page{Entries: []Entry{}}
	}
	all := h.entries.From(0)
	return Page{all[max(0, len(all)-limit):], h.added, h.subscribers}
}

// A Masker masks secrets.
type Masker interface{ Mask(text []byte) []byte }

// A Subscription follows a session's activity. It is for one goroutine.
type Subscription struct {
	log     *Log
	history *history
	session protocol.SessionID
	next    uint64
	gap     bool // entries between what the subscriber has and the oldest one are missing
	mask    Masker
}

// Subscribe follows what comes behind the entry after; 0: all that is held, and
// what comes. mask masks what is sent. The subscription must be closed.
func (l *Log) Subscribe(session protocol.SessionID, after uint64, mask Masker) *Subscription {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.of(session)
	h.subscribers++
	s := &Subscription{log: l, history: h, session: session, next: after + 1, mask: mask}
	if after >= h.entries.Next() { // of another agent's time, or of nobody's
		s.next = h.entries.First()
	}
	s.gap = after != 0 && after+1 < h.entries.First()
	return s
}

// Close ends the subscription.
func (s *Subscription) Close() {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	s.history.subscribers--
}

// Next implements [push.Source].
func (s *Subscription) Next() (events []byte, changed <-chan struct{}, over bool) {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	h := s.history
	if first := h.entries.First(); s.gap || s.next < first && s.next > 1 {
		events = push.Append(events, "gap", 0, map[string]uint64{"gapFrom": s.next, "availableFrom": first}, s.mask.Mask)
	}
	s.gap = false
	for _, e := range h.entries.From(s.next) {
		events = push.Append(events, "activity", e.ID, e, s.mask.Mask)
	}
	s.next = h.entries.Next()
	return events, h.changed, h.over
}

package activity

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

const session = protocol.SessionID("ses_1")

// plain masks nothing.
type plain struct{}

func (plain) Mask(p []byte) []byte { return p }

func text(s string) protocol.ToolResult {
	return protocol.ToolResult{Content: []protocol.ToolContent{{Type: "text", Text: s}}}
}

// kept returns the only session's entries.
func kept(l *Log) []Entry { return l.Newest(session, maxEntries).Entries }

// What stands for secrets isn't kept.
func TestMasked(t *testing.T) {
	for args, want := range map[string]struct {
		tool string
		args []string
	}{
		`{"selector":"#q","text":"typed"}`:                          {"browser_type", []string{hidden, hidden}},
		`{"selector":"#q","text":"shown","clear":true}`:             {"browser_type", []string{"#q", "shown"}},
		`{"selector":"#PassWord2","text":"x","clear":true}`:         {"browser_type", []string{"#PassWord2", hidden}},
		`{"selector":"[name=api-token]","text":"x","clear":true}`:   {"browser_type", []string{"[name=api-token]", hidden}},
		`{"url":"https://u:p@a.example/?a=b&TOKEN=c#key=d"}`:        {"browser_navigate", []string{"https://a.example/?a=b&TOKEN=[REDACTED]#key=[REDACTED]"}},
		`{"script":"document.cookie='x'"}`:                          {"browser_evaluate", []string{hidden}},
		`{"script":"fetch('/',{headers:{}})"}`:                      {"browser_evaluate", []string{hidden}},
		`{"script":"1+1"}`:                                          {"browser_evaluate", []string{"1+1"}},
		`{"selector":"` + strings.Repeat("x", maxArgument+1) + `"}`: {"browser_click", []string{strings.Repeat("x", maxArgument) + "..."}},
		`{"x":1,"y":-2.5}`:                                          {"browser_scroll", []string{"1", "-2.5"}},
		`{"full_page":true}`:                                        {"browser_screenshot", []string{"full page"}},
		`not JSON`:                                                  {"browser_click", nil},
	} {
		var l Log
		l.Began(session, Place{Tab: 2, Open: 3}, want.tool, json.RawMessage(args))(Place{Tab: 2, Open: 3}, text("ok"), nil)
		for _, e := range kept(&l) {
			if e.Type != typeNavigation && strings.Join(e.Args, "\x00") != strings.Join(want.args, "\x00") {
				t.Errorf("%s: %s %q, want %q", args, e.Type, e.Args, want.args)
			}
			if e.ID == 0 || e.Time == 0 || e.Command == "" && e.Type != typeNavigation {
				t.Errorf("%s: %+v", args, e)
			}
		}
	}
}

// Each call is told twice, and a page that was opened once more.
func TestEntries(t *testing.T) {
	var l Log
	l.Began(session, Place{Tab: 2, Open: 3}, "browser_navigate", []byte(`{"url":"https://a.example/"}`))(Place{Tab: 2, Open: 3}, text("{}"), nil)
	l.Began(session, Place{Tab: 2, Open: 3}, "browser_get_content", nil)(Place{Tab: 2, Open: 3}, text(strings.Repeat("ä", 300)), nil)
	l.Began(session, Place{Tab: 2, Open: 3}, "browser_click", nil)(Place{Tab: 2, Open: 3}, protocol.ToolResult{}, protocol.Errorf(protocol.KindNotFound, "no such element"))
	l.Began(session, Place{Tab: 2, Open: 3}, "browser_wait", nil)(Place{Tab: 2, Open: 3}, protocol.ToolResult{IsError: true, Content: text("late").Content}, nil)
	var all []string
	for _, e := range kept(&l) {
		all = append(all, fmt.Sprint(e.Type, " ", e.Command, " ", e.Status, " ", e.Error, " ", len(e.Result)))
	}
	if got := strings.Join(all, "\n"); got != `command_start goto   0
command_end goto ok  0
navigation  ok  0
command_start text   0
command_end text ok  403
command_start click   0
error click error no such element 0
command_start wait   0
command_end wait error late 0` {
		t.Errorf("%s", got)
	}
}

// Only the newest entries are held, of the sessions that were heard of last; who
// lacks some is told.
func TestBounds(t *testing.T) {
	var l Log
	first := l.Subscribe(session, 0, plain{})
	defer first.Close()
	if events, _, over := first.Next(); len(events) > 0 || over {
		t.Errorf("%s", events)
	}
	for range maxEntries {
		l.Began(session, Place{Tab: 2, Open: 3}, "browser_click", nil)(Place{Tab: 2, Open: 3}, protocol.ToolResult{}, nil)
	}
	page := l.Newest(session, 3)
	if len(page.Entries) != 3 || page.TotalAdded != 2*maxEntries || page.Subscribers != 1 || len(kept(&l)) != maxEntries {
		t.Errorf("%d entries, %+v", len(kept(&l)), page)
	}
	events, _, _ := first.Next()
	if n := strings.Count(string(events), "event: activity"); n != maxEntries {
		t.Errorf("%d entries", n)
	}
	oldest := kept(&l)[0].ID
	for after, want := range map[uint64]bool{oldest - 1: false, oldest - 2: true, 0: false, 1 << 52: false} {
		s := l.Subscribe(session, after, plain{})
		events, _, _ := s.Next()
		if gap := strings.HasPrefix(string(events), "event: gap\ndata: {\"availableFrom\":"); gap != want || strings.Count(string(events), "event: activity") != maxEntries {
			t.Errorf("after %d: %.200s", after, events)
		}
		s.Close()
	}
	for i := range maxSessions {
		l.Began(protocol.SessionID(fmt.Sprint("ses_more", i)), Place{Tab: 2, Open: 3}, "browser_click", nil)
	}
	if _, _, over := first.Next(); !over || len(l.sessions) != maxSessions {
		t.Errorf("over %t, %d sessions", over, len(l.sessions))
	}
	l.SessionEnded("ses_more1")
	l.SessionEnded("ses_unknown")
	if len(l.sessions) != maxSessions-1 {
		t.Errorf("%d sessions", len(l.sessions))
	}
}

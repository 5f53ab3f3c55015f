package provider

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// A checked talk keeps the rules of Talk: one Done for each turn and nothing of a
// turn behind it, every question answered or taken back, whole lines of JSON.
type checked struct {
	t       testing.TB
	talk    Talk
	lines   bool // what is written are lines of JSON
	running bool
	over    bool
	open    map[string]bool
	dones   int
	out     []Effect
}

func check(t testing.TB, p Provider, s Start) *checked {
	return &checked{t: t, talk: p.Talk(s), lines: p.Name() != "cursor", open: make(map[string]bool)}
}

func (c *checked) take(effects []Effect) {
	c.t.Helper()
	for _, e := range effects {
		switch e := e.(type) {
		case Emit:
			c.event(e.Event)
		case Ask:
			if !c.running || c.open[e.Question] || !json.Valid(e.Input) || e.Context != nil && !json.Valid(e.Context) {
				c.t.Fatalf("a question out of place: %+v", e)
			}
			c.open[e.Question] = true
		case Withdraw:
			if !c.open[e.Question] {
				c.t.Fatalf("taken back, but not asked: %q", e.Question)
			}
			delete(c.open, e.Question)
		case Done:
			if !c.running || len(c.open) > 0 {
				c.t.Fatalf("done: running %v, open questions %v", c.running, c.open)
			}
			c.running = false
			c.dones++
		case Write:
			if c.lines && (!bytes.HasSuffix(e.Bytes, []byte("\n")) || bytes.Count(e.Bytes, []byte("\n")) != 1 || !json.Valid(e.Bytes)) {
				c.t.Fatalf("written: %q", e.Bytes)
			}
			if c.over {
				c.t.Fatalf("written to a process that has ended: %q", e.Bytes)
			}
		}
	}
	c.out = append(c.out, effects...)
}

func (c *checked) event(e protocol.ChatEvent) {
	c.t.Helper()
	if !c.running {
		c.t.Fatalf("an event outside of a turn: %+v", e)
	}
	if e.SessionID != "" || e.Timestamp != "" || e.Seq != 0 || e.Kind == protocol.ChatComplete {
		c.t.Fatalf("not the provider's to say: %+v", e)
	}
	if _, err := json.Marshal(e); err != nil {
		c.t.Fatalf("%v: %+v", err, e)
	}
	if e.Kind == protocol.ChatToolUse && (e.ToolID == "" || !strings.HasPrefix(string(e.ToolInput), "{") && !json.Valid(e.ToolInput)) {
		c.t.Fatalf("the use of a tool: %+v", e)
	}
}

func (c *checked) begin() { c.take(c.talk.Begin()) }

func (c *checked) send(turn Turn) {
	if c.running {
		return
	}
	c.running = true
	c.take(c.talk.Send(turn))
}

func (c *checked) line(line string) { c.take(c.talk.Line([]byte(line))) }

func (c *checked) answer(question string, a Answer) {
	delete(c.open, question)
	c.take(c.talk.Answer(question, a))
}

func (c *checked) end(code int, stderr string) {
	c.over = true
	c.take(c.talk.End(code, []byte(stderr)))
	if c.running || len(c.open) > 0 {
		c.t.Fatalf("the process has ended, and the turn not: open questions %v", c.open)
	}
}

// drain returns what has happened since the last time, as lines to compare.
func (c *checked) drain() []string {
	var lines []string
	for _, e := range c.out {
		lines = append(lines, describe(e))
	}
	c.out = nil
	return lines
}

// describe returns an effect as one line.
func describe(e Effect) string {
	switch e := e.(type) {
	case Write:
		return "> " + strings.TrimSuffix(string(e.Bytes), "\n")
	case CloseInput:
		return "close"
	case Emit:
		return "event " + string(object(e.Event))
	case Native:
		return "native " + e.ID
	case Ask:
		return "ask " + string(object(e))
	case Withdraw:
		return "withdraw " + e.Question
	case Done:
		return "done " + string(object(e))
	}
	return fmt.Sprintf("%T", e)
}

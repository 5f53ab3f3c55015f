package mcp

import (
	"fmt"
	"slices"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestCall(t *testing.T) {
	w := newWorld(t)
	c := w.program(t, pty1)
	listed, err := c.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(listed.Tools) != len(w.shelf.tools) {
		t.Errorf("%d tools listed, there are %d", len(listed.Tools), len(w.shelf.tools))
	}
	for _, tool := range listed.Tools {
		if tool.Name == signal.Name {
			t.Error("the signal is listed")
		}
	}
	if got := c.InitializeResult(); got.ServerInfo.Name != Name || !got.Capabilities.Tools.ListChanged {
		t.Errorf("initialized as %+v", got)
	}
	if _, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: signal.Name}); err == nil {
		t.Error("the signal can be called")
	}
	for _, tt := range []struct {
		tool string
		args any
		text string
		fail bool
	}{
		{"echo", map[string]any{"text": "hi"}, `{"text":"hi"}`, false},
		{"echo", nil, "{}", false},
		{"echo", map[string]any{"text": 1}, `argument text must be "string"`, true},
		{"echo", map[string]any{"count": 1.5}, `argument count must be "integer"`, true},
		{"echo", map[string]any{"evil": 1, "bad": 2}, `unknown arguments: "bad", "evil"`, true},
		{"whoami", nil, "program of pty_1", false},
		{"leak", nil, "it is ***************", false},
		{"leak_error", nil, "no: ***************", true},
		{"panic", nil, "the tool failed", true},
	} {
		if text, failed := c.call(t, tt.tool, tt.args); text != tt.text || failed != tt.fail {
			t.Errorf("%s(%v) = %q, failed %t", tt.tool, tt.args, text, failed)
		}
	}
}

// Clients of several sessions, of whatever version, hear of other tools soon.
func TestListChanged(t *testing.T) {
	w := newWorld(t)
	clients := []*client{
		w.program(t, pty1), w.program(t, pty1),
		connectBy(t, "2024-11-05", w.mcpURL(pty1), headers{secret: "secret-of-1"}),
		connectBy(t, "2026-07-28", w.mcpURL(pty1), headers{secret: "secret-of-1"}),
	}
	stranger := w.program(t, pty2)
	var took []time.Duration
	for round := range 5 {
		name := fmt.Sprint("gmail_", round)
		w.shelf.put(pty1, tool(name, "", echo))
		start := time.Now()
		w.Changed(sessionID, pty1)
		for _, c := range clients {
			took = append(took, await(t, c.changed, "list_changed").Sub(start))
			if text, failed := c.call(t, name, nil); failed || text != "{}" {
				t.Errorf("the new tool answers %q", text)
			}
		}
	}
	slices.Sort(took)
	t.Logf("told after %s to %s", took[0], took[len(took)-1])
	if took[0] > time.Second { // the best, for other work of the machine is not what is measured
		t.Errorf("told after %s", took[0])
	}
	select {
	case <-stranger.changed:
		t.Error("another terminal was told")
	default:
	}
}

// Who says ten thousand times that something may have changed has clients told
// a few times, and only when it has.
func TestChangedIsCoalesced(t *testing.T) {
	w := newWorld(t)
	c := w.program(t, pty1)
	for range 10_000 {
		w.Changed(sessionID, pty1)
	}
	start := time.Now()
	for i := range 10_000 {
		if i%100 == 0 {
			w.shelf.put(pty1, tool(fmt.Sprint("more_", i), "", echo))
		}
		w.Changed(sessionID, "")
	}
	took := time.Since(start)
	await(t, c.changed, "list_changed")
	for last := false; !last; {
		select {
		case <-c.changed:
		case <-time.After(100 * time.Millisecond):
			last = true
		}
	}
	pushed := testutil.ToFloat64(w.metrics.pushed)
	if most := 2 + took.Seconds()/changePause.Seconds(); pushed == 0 || pushed > most {
		t.Errorf("told %v times in %s", pushed, took)
	}
	if text, failed := c.call(t, "more_9900", nil); failed || text != "{}" {
		t.Errorf("the last tool answers %q", text)
	}
}

// The façade is told how many tools a terminal's programs have.
func TestOnTools(t *testing.T) {
	w := newWorld(t)
	there := len(w.shelf.tools)
	changes := func(n int) (got [][2]int) {
		eventually(t, "change", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			got = slices.Clone(w.changes)
			return len(got) >= n
		})
		return got
	}
	w.Changed(sessionID, pty1)
	changes(1)
	w.shelf.put(pty1, tool("more", "", echo))
	w.Changed(sessionID, pty1)
	if got := changes(2); got[0] != [2]int{0, there} || got[1] != [2]int{there, there + 1} {
		t.Errorf("told of %v, there are %d", got, there)
	}
}

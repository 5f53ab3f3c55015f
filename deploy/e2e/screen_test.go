package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/deploy/e2e/internal/source"
	"github.com/fairlead/fairlead/protocol"
)

// xterm is the oracle of the agent's package screen: xterm.js, which is what
// viewers run, without a browser.
const xterm = "../../sandbox-agent/internal/screen/oracle"

// A feed is what one terminal gets to see.
type feed struct {
	cols, rows int
	parts      [][]byte
}

// screens feeds terminals and returns what they show.
func screens(t *testing.T, feeds []feed) []map[string]any {
	t.Helper()
	node, err := exec.LookPath("node")
	if err == nil {
		_, err = os.Stat(filepath.Join(xterm, "node_modules", "@xterm", "headless"))
	}
	switch {
	case err != nil && os.Getenv("CI") == "true":
		t.Fatalf("no terminal to compare with: %v", err)
	case err != nil:
		t.Skipf("no terminal to compare with (needs node, and npm ci in %s): %v", xterm, err)
	}
	type step struct {
		Write    []byte `json:"write,omitempty"`
		Snapshot bool   `json:"snapshot,omitempty"`
	}
	type request struct {
		Cols       int    `json:"cols"`
		Rows       int    `json:"rows"`
		Scrollback int    `json:"scrollback"`
		Steps      []step `json:"steps"`
	}
	var in bytes.Buffer
	for _, f := range feeds {
		r := request{Cols: f.cols, Rows: f.rows, Scrollback: protocol.MaxKeyframeHistory}
		for _, part := range f.parts {
			r.Steps = append(r.Steps, step{Write: part})
		}
		r.Steps = append(r.Steps, step{Snapshot: true})
		must(t, json.NewEncoder(&in).Encode(r))
	}
	cmd := exec.CommandContext(within(t), node, filepath.Join(xterm, "oracle.mjs"))
	cmd.Stdin, cmd.Stderr = &in, os.Stderr
	out, err := cmd.Output()
	must(t, err)
	var states []map[string]any
	for decoder := json.NewDecoder(bytes.NewReader(out)); len(states) < len(feeds); {
		var reply struct {
			States []map[string]any `json:"states"`
			Error  json.RawMessage  `json:"error"`
		}
		must(t, decoder.Decode(&reply))
		if len(reply.States) != 1 {
			t.Fatalf("xterm.js fails: %s", reply.Error)
		}
		states = append(states, reply.States[0])
	}
	return states
}

// shows is what of an oracle's state a keyframe must bring about.
var shows = []string{"cols", "rows", "x", "y", "title", "mouse", "modes", "screen", "other", "history", "pen", "deep"}

// sameScreen reports how two terminals differ. got may lack the oldest lines
// above the screen. What no output can bring about, as the oracle says, is not
// compared.
func sameScreen(got, want map[string]any) error {
	all, _ := want["history"].([]any)
	some, _ := got["history"].([]any)
	if len(some) > len(all) {
		return fmt.Errorf("%d lines above the screen, want %d", len(some), len(all))
	}
	want = maps.Clone(want)
	want["history"] = all[len(all)-len(some):]
	if want["misfit"] == true {
		return nil
	}
	for _, key := range shows {
		if key == "deep" && want["savedOff"] == true {
			continue
		}
		if where := difference(got[key], want[key]); where != "" {
			return fmt.Errorf("%s%s", key, where)
		}
	}
	return nil
}

// difference says where two values of an oracle's state differ, "" if nowhere.
func difference(got, want any) string {
	switch want := want.(type) {
	case []any:
		got, ok := got.([]any)
		got, want = cells(got), cells(want)
		if !ok || len(got) != len(want) {
			break
		}
		for i := range want {
			if where := difference(got[i], want[i]); where != "" {
				return fmt.Sprintf("[%d]%s", i, where)
			}
		}
		return ""
	case map[string]any:
		got, ok := got.(map[string]any)
		if !ok || len(got) != len(want) {
			break
		}
		for _, key := range slices.Sorted(maps.Keys(want)) {
			if where := difference(got[key], want[key]); where != "" {
				return fmt.Sprintf(".%s%s", key, where)
			}
		}
		return ""
	case string:
		if got, ok := got.(string); ok && (got == want || forgotten(got, want) || forgotten(want, got)) {
			return ""
		}
	default:
		if got == want {
			return ""
		}
	}
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(want)
	return fmt.Sprintf(": %s, want %s", a[:min(len(a), 300)], b[:min(len(b), 300)])
}

// cells returns a look for each cell instead of runs, each a count and a look,
// of cells that look alike: a link that was begun twice makes two runs. Another
// list stays as it is.
func cells(list []any) []any {
	var out []any
	for _, item := range list {
		run, ok := item.([]any)
		if !ok || len(run) != 2 {
			return list
		}
		count, ok := run[0].(float64)
		if look, isLook := run[1].([]any); !ok || !isLook || len(look) == 0 {
			return list
		}
		for range int(count) {
			out = append(out, run[1])
		}
	}
	return out
}

// forgotten reports whether one is a link that xterm.js has forgotten, which
// ends in NUL, and the other one is a link.
func forgotten(one, other string) bool { return strings.HasSuffix(one, "\x00") && other != "" }

// shownBy returns the feed of a terminal that saw all of stream before end.
func shownBy(stream *source.Stream, end uint64, cols, rows int) feed {
	from := source.PageStart(end)
	from -= min(from, source.PageBytes) // the title is not reset
	return feed{cols, rows, [][]byte{stream.Range(from, end)}}
}

// shownAfter returns the feed of a viewer's terminal that got a keyframe, after
// whatever it had before, and then the output up to end.
func shownAfter(stream *source.Stream, k Shown, end uint64) feed {
	var parts [][]byte
	if from := source.PageStart(k.Before); !k.Joined && from < k.Before {
		parts = append(parts, stream.Range(from, k.Before))
	}
	parts = append(parts, k.Bytes)
	if k.Offset < end {
		parts = append(parts, stream.Range(max(k.Offset, source.PageStart(end)-min(source.PageStart(end), source.PageBytes)), end))
	}
	return feed{k.Cols, k.Rows, parts}
}

// A screenCheck collects what terminals must show, to ask for all at once.
type screenCheck struct {
	t      *testing.T
	stream *source.Stream
	seen   int
	cases  []screenCase
}

// A screenCase is a viewer's terminal that got a keyframe and then the output
// up to at.
type screenCase struct {
	name string
	Shown
	at uint64
}

// mostScreens is how many screens one check compares.
const mostScreens = 200

// add wants a viewer's terminal to be right directly after a keyframe and at
// end, unless a page that began in between makes that trivial. Of more than
// mostScreens a random sample is taken.
func (c *screenCheck) add(name string, k Shown, end uint64) {
	for _, at := range []uint64{k.Offset, end} {
		if at != k.Offset && source.PageStart(at) > k.Offset || at < k.Offset {
			continue
		}
		c.seen++
		switch i := rand.IntN(c.seen); {
		case len(c.cases) < mostScreens:
			c.cases = append(c.cases, screenCase{name, k, at})
		case i < mostScreens:
			c.cases[i] = screenCase{name, k, at}
		}
	}
}

// run compares.
func (c *screenCheck) run() {
	c.t.Helper()
	if c.seen == 0 {
		c.t.Log("there was no keyframe")
		return
	}
	var feeds []feed
	size := 0
	for _, k := range c.cases {
		size += len(k.Bytes)
		feeds = append(feeds, shownAfter(c.stream, k.Shown, k.at), shownBy(c.stream, k.at, k.Cols, k.Rows))
	}
	states := screens(c.t, feeds)
	bad := 0
	for i, k := range c.cases {
		if err := sameScreen(states[2*i], states[2*i+1]); err != nil {
			if bad++; bad <= 5 {
				c.t.Errorf("%s: a keyframe of %d bytes for %d, at %d: %v", k.name, len(k.Bytes), k.Offset, k.at, err)
			}
		}
	}
	if bad > 0 {
		c.t.Errorf("%d of %d screens are wrong", bad, len(c.cases))
	}
	c.t.Logf("%d of %d screens compared with xterm.js, keyframes of %d bytes on average", len(c.cases), c.seen, size/len(c.cases))
}

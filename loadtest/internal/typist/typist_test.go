package typist

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/client"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/protocol"
)

// typing makes a typist who has typed n keys.
func typing(n int) (*Typist, *measure.Recorder) {
	rec := measure.NewRecorder()
	rec.Begin(time.Now().Add(-time.Hour))
	t := New(rec, "echo")
	t.listening = true
	for range n {
		t.due = append(t.due, key{due: time.Now()})
	}
	t.typed = n
	return t, rec
}

// Echoes are matched with keys in order; what is missing, doubled or another
// byte shows.
func TestTypistCompares(t *testing.T) {
	const keys = "abcdefghijklmnopqrstuvwxyzab"
	for _, row := range []struct {
		name, echoed  string
		garbled, open int64
	}{
		{"all", keys, 0, 0},
		{"some", keys[:5], 0, int64(len(keys)) - 5},
		{"one doubled", "aabc", 1, int64(len(keys)) - 3},
		{"one lost", "acd", 2, int64(len(keys)) - 1},
		{"too many", keys + "c", 1, 0},
		{"another", "A", 1, int64(len(keys))},
	} {
		typist, rec := typing(len(keys))
		for _, b := range []byte(row.echoed) { // cut anywhere
			typist.Output([]byte{b}, time.Now())
		}
		if open := int64(len(typist.due)); open != row.open {
			t.Errorf("%s: %d keys are open, want %d", row.name, open, row.open)
		}
		typist.giveUp()
		s := rec.Snapshot()
		if s.Counters["garbled_keys"] != row.garbled || s.Counters["lost_keys"] != row.open {
			t.Errorf("%s: %v", row.name, s.Counters)
		}
		typist.due = append(typist.due, key{due: time.Now()})
		typist.Output([]byte{keyOf(len(keys))}, time.Now())
		if len(typist.due) != 0 {
			t.Errorf("%s: what was typed after the loss isn't recognised", row.name)
		}
	}
}

// A jump that leaves something out takes what was echoed in it; a resumption
// doesn't.
func TestTypistJumps(t *testing.T) {
	typist, rec := typing(3)
	here := protocol.Position{Epoch: 5, Offset: 7}
	typist.Jump(client.Jump{From: here, To: here, Socket: 2})
	typist.Jump(client.Jump{From: here, To: protocol.Position{Epoch: 5, Offset: 9}, Socket: 2})
	if n := rec.Snapshot().Counters["lost_keys"]; n != 3 {
		t.Errorf("%d keys are lost, want 3", n)
	}
}

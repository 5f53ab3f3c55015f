package talk

import (
	"fmt"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/client"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/protocol"
)

func TestParseWord(t *testing.T) {
	for text, want := range map[string]int{"0:1795406826154039747 ": 0, "17:5": 17, "say": -1, "a:b": -1, "3:": -1} {
		w, ok := parseWord(text)
		if ok != (want >= 0) || ok && w.index != want {
			t.Errorf("%q: %+v, %t", text, w, ok)
		}
	}
}

// TestEar: words are counted, and those that come twice or out of order are
// faults.
func TestEar(t *testing.T) {
	e := NewEar(measure.NewRecorder(), "first", "line")
	bring := func(kind protocol.ChatKind, seq uint64, word string) {
		e.Frame(client.ChatFrame{At: time.Now(), Kind: kind, Seq: seq, JSON: fmt.Appendf(nil, `{"content":%q}`, word)})
	}
	e.asked()
	bring(protocol.ChatSubscribedKind, 0, "")
	for i, n := range []int{0, 1, 1, 3} {
		bring(protocol.ChatStreamDelta, uint64(i+1), fmt.Sprintf("%d:%d ", n, time.Now().UnixNano()))
	}
	if words, faults, last := e.Heard(); words != 4 || faults != 2 || last.IsZero() {
		t.Errorf("%d words, %d faults", words, faults)
	}
	e.Lost(time.Now(), nil)
	bring(protocol.ChatComplete, 5, "")
	for _, err := range []error{e.Subscribed(t.Context(), time.Minute), e.Runs(t.Context(), time.Minute, 1)} {
		if err != nil {
			t.Error(err)
		}
	}
	if at, err := e.Resumed(t.Context(), time.Minute); err != nil || at.IsZero() {
		t.Errorf("%v, %v", at, err)
	}
	if err := e.Runs(t.Context(), 0, 2); err == nil {
		t.Error("a run that isn't over")
	}
}

package viewers

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/client"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/pattern"
	"github.com/fairlead/fairlead/protocol"
)

var spec = pattern.Spec{Seed: 3, Chunk: 100, Rate: 10, Burst: 1, Start: time.Unix(1_800_000_000, 0), Chunks: 5}

// whole returns the bytes of the stream.
func whole() []byte {
	var all []byte
	for k := range spec.Chunks {
		all = spec.Append(all, k)
	}
	return all
}

// newWatcher returns one that was greeted at offset 40, and checks the stream.
func newWatcher(a Arm) *watcher {
	rec := measure.NewRecorder()
	w := &watcher{open: new(atomic.Int64), received: rec.Counter("received_bytes")}
	a.Streams, a.latency = []pattern.Spec{spec}, rec.Latency("delivery")
	if !a.Late {
		w.Jump(client.Jump{To: protocol.Position{Epoch: 1, Offset: 40}, Socket: 1})
	}
	w.arm(a)
	return w
}

func TestWatcherMissesNothing(t *testing.T) {
	all := whole()
	for name, test := range map[string]struct {
		pieces [][]byte
		want   Tally
	}{
		"everything":         {[][]byte{all[:7], all[7:333], all[333:]}, Tally{Clean: 1, Bytes: 500}},
		"a byte is missing":  {[][]byte{all[:250], all[251:]}, Tally{Bytes: 499, Lost: 1}},
		"a chunk is missing": {[][]byte{all[:200], all[300:]}, Tally{Bytes: 400, Lost: 100}},
		"the end is missing": {[][]byte{all[:400]}, Tally{Bytes: 400, Lost: 100, Incomplete: 1}},
		"the beginning is":   {[][]byte{all[100:]}, Tally{Bytes: 400, Lost: 100}},
		"a chunk is doubled": {[][]byte{all[:300], all[200:]}, Tally{Bytes: 500, Duplicate: 100}},
		"the end is doubled": {[][]byte{all, all[400:]}, Tally{Bytes: 500, Duplicate: 100}},
		"nothing comes":      {nil, Tally{Lost: 500, Incomplete: 1, Silent: 1}},
	} {
		w := newWatcher(Arm{})
		for _, p := range test.pieces {
			w.Output(p, spec.Start)
		}
		got := w.finish(false)
		if (got.Clean == 1) != (got.Worst == "") {
			t.Errorf("%s: %d clean, and %q", name, got.Clean, got.Worst)
		}
		got.Worst, got.Viewers, got.Chunks = "", 0, 0
		if got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
		if n := w.open.Load(); n != 0 {
			t.Errorf("%s: %d checks are open at the end", name, n)
		}
	}
}

// A run that is interrupted hasn't lost what wasn't printed yet.
func TestCutShort(t *testing.T) {
	all := whole()
	for name, test := range map[string]struct {
		pieces [][]byte
		want   Tally
	}{
		"in the middle":             {[][]byte{all[:250]}, Tally{Clean: 1, Bytes: 250}},
		"before anything came":      {nil, Tally{Clean: 1, Silent: 1}},
		"after a byte was lost":     {[][]byte{all[:150], all[151:350]}, Tally{Bytes: 349, Lost: 1}},
		"after a chunk was doubled": {[][]byte{all[:200], all[100:300]}, Tally{Bytes: 300, Duplicate: 100}},
	} {
		w := newWatcher(Arm{})
		for _, p := range test.pieces {
			w.Output(p, spec.Start)
		}
		got := w.finish(true)
		got.Worst, got.Viewers, got.Chunks = "", 0, 0
		if got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

// All bytes come, but the offset that the relay names is not theirs.
func TestFalseOffsetIsNotClean(t *testing.T) {
	w, all := newWatcher(Arm{}), whole()
	w.Output(all[:200], spec.Start)
	w.Jump(client.Jump{From: protocol.Position{Epoch: 1, Offset: 240}, To: protocol.Position{Epoch: 1, Offset: 140}, Socket: 1})
	w.Output(all[200:], spec.Start)
	if got := w.finish(false); got.Clean != 0 || got.Worst == "" {
		t.Errorf("%+v", got)
	}
}

func TestAnnouncedSkipIsLostToAFastViewer(t *testing.T) {
	all := whole()
	for _, slow := range []bool{false, true} {
		w := newWatcher(Arm{})
		w.slow = slow
		w.Output(all[:200], spec.Start)
		w.Jump(client.Jump{From: protocol.Position{Epoch: 1, Offset: 240}, To: protocol.Position{Epoch: 1, Offset: 390}, Mode: protocol.ServerResync, Socket: 1})
		w.Output(all[350:], spec.Start)
		got := w.finish(false)
		want := [2]int64{150, 0}
		if slow {
			want = [2]int64{0, 150}
		}
		if [2]int64{got.Lost, got.Skipped} != want || got.Duplicate+got.Corrupt != 0 {
			t.Errorf("slow %v: %+v, want lost and skipped %v", slow, got, want)
		}
	}
}

func TestNewcomerAnswersForWhatComesAfterIt(t *testing.T) {
	all := whole()
	for name, test := range map[string]struct {
		offset uint64
		output []byte
		lost   int64
	}{
		"before the stream":     {10, append([]byte("prompt> "), all...), 0},
		"at its beginning":      {40, all, 0},
		"between two chunks":    {240, all[200:], 0},
		"within a chunk":        {250, all[210:], 0},
		"and misses a chunk":    {240, all[300:], 100},
		"and gets nothing more": {240, nil, 300},
	} {
		w := newWatcher(Arm{Late: true, Base: []uint64{40}})
		w.Jump(client.Jump{To: protocol.Position{Epoch: 1, Offset: test.offset}, Mode: protocol.ModeKeyframe, Socket: 1})
		w.Output(test.output, spec.Start)
		if got := w.finish(false); got.Lost != test.lost {
			t.Errorf("%s: %+v, want %d lost", name, got, test.lost)
		}
	}
	w := newWatcher(Arm{Late: true, Base: []uint64{40}})
	if got := w.finish(false); got != (Tally{}) {
		t.Errorf("somebody who didn't get in: %+v", got)
	}
}

func TestWatcherKnowsWhenItIsBack(t *testing.T) {
	w := newWatcher(Arm{})
	at := spec.Start
	w.Output([]byte("x"), at)
	w.Lost(at.Add(time.Second), nil)
	w.Lost(at.Add(2*time.Second), nil) // an attempt that failed
	if !w.waiting || !w.lostAt.Equal(at.Add(time.Second)) {
		t.Errorf("lost at %v, waiting %v", w.lostAt, w.waiting)
	}
	w.Output([]byte("y"), at.Add(3*time.Second))
	if w.waiting || !w.backAt.Equal(at.Add(3*time.Second)) {
		t.Errorf("back at %v, waiting %v", w.backAt, w.waiting)
	}
}

// Crowds have people of their own, where there are enough.
func TestFound10CrowdsSharePeople(t *testing.T) {
	people := []string{"a", "b", "c", "d", "e"}
	for _, tt := range []struct {
		people    []string
		index, of int
		want      string
	}{
		{people, 0, 1, "[a b c d e]"}, {people, 0, 2, "[a c e]"}, {people, 1, 2, "[b d]"}, {people[:2], 2, 3, "[a b]"}, {nil, 0, 1, "[]"},
	} {
		if got := fmt.Sprint(share(tt.people, tt.index, tt.of)); got != tt.want {
			t.Errorf("worker %d of %d has %s of %v, want %s", tt.index, tt.of, got, tt.people, tt.want)
		}
	}
}

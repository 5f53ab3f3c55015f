package pace

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol"
)

// A world is the model of TestModel: a log, a clock, and who is where.
type world struct {
	gate    Gate
	now     time.Time
	head    uint64
	streams []Stream // open
	last    Stream

	at   map[string]uint64    // pace-setters that are there
	from map[string]Stream    // who reports them
	away map[string]time.Time // when an absent one's place ends

	kept map[string]time.Time // until when one that had caught up can't be slow

	lost []orphan
}

func (w *world) open(*rapid.T) {
	w.last++
	w.streams = append(w.streams, w.last)
	w.gate.Found()
	w.lost = nil
}

// close ends a stream, which may be lost.
func (w *world) close(t *rapid.T, lost bool) {
	if len(w.streams) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.streams)-1).Draw(t, "stream")
	s := w.streams[i]
	w.streams = append(w.streams[:i:i], w.streams[i+1:]...)
	if lost {
		sent := w.head - min(w.head, rapid.Uint64Range(0, protocol.LogWindowBytes).Draw(t, "unsent"))
		w.gate.Lose(s, sent, w.now)
		w.lost = append(w.lost, orphan{sent, w.now.Add(grace)})
	} else {
		w.gate.Leave(s, w.now)
	}
	for id, from := range w.from {
		if from == s {
			w.away[id] = w.now.Add(grace)
			delete(w.from, id)
		}
	}
}

func (w *world) set(t *rapid.T) {
	if len(w.streams) == 0 {
		return
	}
	id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "id")
	s := rapid.SampledFrom(w.streams).Draw(t, "stream")
	behind := rapid.Uint64Range(0, 2*protocol.MaxPaceLag).Draw(t, "behind")
	w.at[id], w.from[id] = w.head-min(w.head, behind), s
	delete(w.away, id)
	if w.head-w.at[id] < caughtUp {
		w.kept[id] = w.now.Add(slow)
	}
	if !w.gate.Set(s, id, w.at[id], w.head, w.now) {
		t.Fatal("refused")
	}
}

func (w *world) gone(t *rapid.T) {
	if len(w.streams) == 0 {
		return
	}
	id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "id")
	s := rapid.SampledFrom(w.streams).Draw(t, "stream")
	w.gate.Gone(s, id)
	if w.from[id] == s {
		delete(w.from, id)
		delete(w.at, id)
	}
}

// check compares who is listed, and what is said with what must hold: a no has
// a reason, and a yes has none but slowness, which takes SlowAfter to show.
func (w *world) check(t *rapid.T) {
	for id, until := range w.away {
		if !w.now.Before(until) {
			delete(w.away, id)
			delete(w.at, id)
		}
	}
	pacers := w.gate.Pacers(w.now)
	if len(pacers) != len(w.at) {
		t.Fatalf("listed %v, want %v", pacers, w.at)
	}
	for _, p := range pacers {
		if offset, ok := w.at[p.ID]; !ok || offset != p.Offset {
			t.Fatalf("listed %v, want %v", pacers, w.at)
		}
	}
	firm, soft := false, false // reasons for a no: soft ones may be lifted by slowness
	for id, offset := range w.at {
		if behind(w.head, offset) >= protocol.MaxPaceLag {
			soft = true
			firm = firm || w.now.Before(w.kept[id])
		}
	}
	for _, o := range w.lost {
		if w.now.Before(o.until) && behind(w.head, o.sent) >= protocol.MaxUnsent {
			firm = true
		}
	}
	may := w.gate.MayRead(w.head, w.now)
	if may && firm || !may && !firm && !soft {
		t.Fatalf("may read %v at %d, setters at %v, lost %v", may, w.head, w.at, w.lost)
	}
	if again := w.gate.MayRead(w.head, w.now); again != may {
		t.Fatalf("may read %v, then %v", may, again)
	}
	deadline, ok := w.gate.Deadline(w.head)
	if !may && (!ok || !deadline.After(w.now) || deadline.After(w.now.Add(grace))) {
		t.Fatalf("no, until %v %v; it is %v", deadline, ok, w.now)
	}
}

// settle checks that who is left alone opens the gate in time.
func (w *world) settle(t *rapid.T) {
	begin := w.now
	for !w.gate.MayRead(w.head, w.now) {
		deadline, ok := w.gate.Deadline(w.head)
		if !ok {
			t.Fatal("shut for ever")
		}
		w.now = deadline
		if w.now.Sub(begin) > grace {
			t.Fatalf("shut for %v without a word from anybody", w.now.Sub(begin))
		}
	}
	for _, o := range w.lost { // was it shut as long as it had to be?
		if behind(w.head, o.sent) >= protocol.MaxUnsent && w.now.Before(o.until) {
			t.Fatalf("open at %v, before %v", w.now, o.until)
		}
	}
}

// TestModel opens and loses streams, moves pace-setters and prints at random.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{now: epoch, at: map[string]uint64{}, from: map[string]Stream{}, away: map[string]time.Time{}, kept: map[string]time.Time{}}
		t.Repeat(map[string]func(*rapid.T){
			"open":  w.open,
			"leave": func(t *rapid.T) { w.close(t, false) },
			"lose":  func(t *rapid.T) { w.close(t, true) },
			"set":   w.set,
			"gone":  w.gone,
			"print": func(t *rapid.T) {
				if w.gate.MayRead(w.head, w.now) {
					w.head += rapid.Uint64Range(1, 1<<20).Draw(t, "bytes")
				}
			},
			"wait": func(t *rapid.T) {
				w.now = w.now.Add(time.Duration(rapid.IntRange(0, 4000).Draw(t, "ms")) * time.Millisecond)
			},
			"": w.check,
		})
		w.settle(t)
	})
}

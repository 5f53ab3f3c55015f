package eventlog_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/eventlog"
)

const epoch protocol.Epoch = 0xfeed

// spell returns what the log holds as one string.
func spell(l *eventlog.Log[string]) string {
	var words []string
	for offset, e := range l.All() {
		words = append(words, fmt.Sprintf("%d=%s", offset, e))
	}
	return strings.Join(words, " ")
}

func fill(l *eventlog.Log[string], events ...string) (dropped []string) {
	for _, e := range events {
		dropped = append(dropped, l.Append(e, len(e))...)
	}
	return dropped
}

func TestNewLogIsEmpty(t *testing.T) {
	l := eventlog.New[string](protocol.Position{Epoch: epoch, Offset: 7}, eventlog.Bound{Events: 4})
	if l.Epoch() != epoch || l.First() != 7 || l.Next() != 7 || l.Len() != 0 || l.Bytes() != 0 || spell(l) != "" {
		t.Errorf("epoch %s, [%d, %d), %d events of %d bytes", l.Epoch(), l.First(), l.Next(), l.Len(), l.Bytes())
	}
	if _, ok, err := l.At(7); ok || err != nil {
		t.Errorf("At(7) = %t, %v", ok, err)
	}
	if from, gap := l.Since(&protocol.Position{Epoch: epoch, Offset: 7}); from != 7 || gap {
		t.Errorf("from %d, gap %t", from, gap)
	}
}

func TestBound(t *testing.T) {
	for _, test := range []struct {
		name          string
		bound         eventlog.Bound
		events        []string
		held, dropped string
	}{
		{"nothing is bounded", eventlog.Bound{}, []string{"a", "b", "c"}, "0=a 1=b 2=c", ""},
		{"exactly full", eventlog.Bound{Events: 3, Bytes: 3}, []string{"a", "b", "c"}, "0=a 1=b 2=c", ""},
		{"one event over", eventlog.Bound{Events: 4}, []string{"a", "b", "c", "d", "e"}, "2=c 3=d 4=e", "a b"},
		{"one byte over", eventlog.Bound{Bytes: 8}, []string{"aaaa", "bbbb", "c"}, "1=bbbb 2=c", "aaaa"},
		{"both bounds count", eventlog.Bound{Events: 4, Bytes: 8}, []string{"aaaa", "bbbb", "c", "d", "e", "f"}, "3=d 4=e 5=f", "aaaa bbbb c"},
		{"more than half must go", eventlog.Bound{Bytes: 8}, []string{"aa", "bb", "cc", "dddddd"}, "2=cc 3=dddddd", "aa bb"},
		{"larger than the bound", eventlog.Bound{Bytes: 3}, []string{"a", "b", "cccc"}, "2=cccc", "a b"},
		{"bound of one", eventlog.Bound{Events: 1}, []string{"a", "b"}, "1=b", "a"},
		{"events without a size", eventlog.Bound{Bytes: 1}, []string{"", "", ""}, "0= 1= 2=", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := eventlog.New[string](protocol.Position{Epoch: epoch}, test.bound)
			dropped := strings.Join(fill(l, test.events...), " ")
			if got := spell(l); got != test.held || dropped != test.dropped {
				t.Errorf("holds %q after dropping %q, want %q after %q", got, dropped, test.held, test.dropped)
			}
			if l.Next() != uint64(len(test.events)) {
				t.Errorf("the next event is at %d", l.Next())
			}
		})
	}
}

// TestMakeRoom: room for several events is made at once, before any is appended.
func TestMakeRoom(t *testing.T) {
	l := eventlog.New[string](protocol.Position{Epoch: epoch}, eventlog.Bound{Events: 10})
	fill(l, "a", "b", "c", "d", "e", "f", "g", "h")
	if dropped := l.MakeRoom(2, 2); dropped != nil {
		t.Errorf("dropped %q though there was room", dropped)
	}
	if dropped := strings.Join(l.MakeRoom(6, 6), ""); dropped != "abcd" || l.First() != 4 || l.Next() != 8 {
		t.Errorf("dropped %q, holds [%d, %d)", dropped, l.First(), l.Next())
	}
	if dropped := strings.Join(l.MakeRoom(11, 0), ""); dropped != "efgh" || l.First() != 8 || l.Bytes() != 0 {
		t.Errorf("dropped %q, holds [%d, %d)", dropped, l.First(), l.Next())
	}
}

func TestAt(t *testing.T) {
	l := eventlog.New[string](protocol.Position{Epoch: epoch}, eventlog.Bound{})
	fill(l, "a", "b", "c")
	if dropped := l.DropBefore(2); !slices.Equal(dropped, []string{"a", "b"}) {
		t.Errorf("dropped %q", dropped)
	}
	if e, ok, err := l.At(2); e != "c" || !ok || err != nil {
		t.Errorf("At(2) = %q, %t, %v", e, ok, err)
	}
	if _, ok, err := l.At(3); ok || err != nil {
		t.Errorf("At(3) = %t, %v", ok, err)
	}
	var gap eventlog.ErrGap
	if _, ok, err := l.At(1); ok || !errors.As(err, &gap) || gap.Oldest != 2 {
		t.Errorf("At(1) = %t, %v", ok, err)
	}
	if dropped := l.DropBefore(99); len(dropped) != 1 || l.First() != 3 || l.Next() != 3 || l.Bytes() != 0 {
		t.Errorf("dropped %q, holds [%d, %d) of %d bytes", dropped, l.First(), l.Next(), l.Bytes())
	}
}

func TestSince(t *testing.T) {
	l := eventlog.New[string](protocol.Position{Epoch: epoch, Offset: 10}, eventlog.Bound{})
	fill(l, "a", "b", "c")
	l.DropBefore(11)
	for _, test := range []struct {
		since *protocol.Position
		from  uint64
		gap   bool
	}{
		{nil, 13, false},
		{&protocol.Position{Epoch: epoch, Offset: 11}, 11, false},
		{&protocol.Position{Epoch: epoch, Offset: 13}, 13, false},
		{&protocol.Position{Epoch: epoch, Offset: 10}, 13, true},
		{&protocol.Position{Epoch: epoch, Offset: 14}, 13, true},
		{&protocol.Position{Epoch: epoch + 1, Offset: 12}, 13, true},
		{&protocol.Position{}, 13, true},
	} {
		if from, gap := l.Since(test.since); from != test.from || gap != test.gap {
			t.Errorf("since %v: from %d, gap %t; want %d, %t", test.since, from, gap, test.from, test.gap)
		}
	}
	l.Restart(epoch + 1)
	if from, gap := l.Since(&protocol.Position{Epoch: epoch, Offset: 12}); from != 13 || !gap || spell(l) != "11=b 12=c" {
		t.Errorf("of the epoch before: from %d, gap %t; holds %s", from, gap, spell(l))
	}
}

func TestBackwardStops(t *testing.T) {
	l := eventlog.New[string](protocol.Position{Epoch: epoch}, eventlog.Bound{})
	fill(l, "a", "b", "c")
	var got []string
	for offset, e := range l.Backward() {
		got = append(got, fmt.Sprint(offset, e))
		if len(got) == 2 {
			break
		}
	}
	if !slices.Equal(got, []string{"2c", "1b"}) {
		t.Errorf("%q", got)
	}
	for range l.All() {
		break
	}
}

// A model is the obvious log: every event ever, and where what is held begins.
type model struct {
	epoch protocol.Epoch
	all   []int // sizes; the event at i is i
	first int
}

func (m *model) bytes() (n int) {
	for _, size := range m.all[m.first:] {
		n += size
	}
	return n
}

func (m *model) holds(bound eventlog.Bound, events, bytes int) bool {
	return (bound.Events == 0 || len(m.all)-m.first+events <= bound.Events) && (bound.Bytes == 0 || m.bytes()+bytes <= bound.Bytes)
}

// TestModel compares the log with the model, and a cache that follows the log by
// position with both.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bound := eventlog.Bound{Events: rapid.IntRange(0, 20).Draw(t, "events"), Bytes: rapid.IntRange(0, 100).Draw(t, "bytes")}
		m := &model{epoch: epoch}
		l := eventlog.New[int](protocol.Position{Epoch: epoch}, bound)
		cache := eventlog.New[int](protocol.Position{Epoch: epoch}, eventlog.Bound{Events: 5})
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				size := rapid.IntRange(0, 60).Draw(t, "size")
				fitted, before := m.holds(bound, 1, size), m.first
				dropped := l.Append(len(m.all), size)
				m.first += len(dropped)
				for i, e := range dropped {
					if e != before+i {
						t.Fatalf("dropped %v at %d", dropped, before)
					}
				}
				if fitted != (len(dropped) == 0) && before < len(m.all) {
					t.Fatalf("dropped %v; it fitted: %t", dropped, fitted)
				}
				if m.all = append(m.all, size); !m.holds(bound, 0, 0) && len(m.all)-m.first > 1 {
					t.Fatalf("holds %d events of %d bytes, bound %+v", len(m.all)-m.first, m.bytes(), bound)
				}
			},
			"drop": func(t *rapid.T) {
				to := rapid.IntRange(0, len(m.all)+3).Draw(t, "to")
				l.DropBefore(uint64(to))
				m.first = max(m.first, min(to, len(m.all)))
			},
			"restart": func(t *rapid.T) {
				m.epoch++
				l.Restart(m.epoch)
			},
			"follow": func(t *rapid.T) {
				had := cache.Next()
				from, gap := l.Since(&protocol.Position{Epoch: cache.Epoch(), Offset: had})
				lost := cache.Epoch() != m.epoch || had < uint64(m.first)
				if gap != lost || !gap && from != had || gap && from != uint64(len(m.all)) {
					t.Fatalf("from %d, gap %t; lost %t, had %d of %d", from, gap, lost, had, len(m.all))
				}
				if gap {
					cache = eventlog.New[int](protocol.Position{Epoch: m.epoch, Offset: from}, cache.Bound())
				}
				for e, ok, err := l.At(cache.Next()); ok; e, ok, err = l.At(cache.Next()) {
					if err != nil || e != int(cache.Next()) {
						t.Fatalf("event %d at %d, %v", e, cache.Next(), err)
					}
					cache.Append(e, 0)
				}
			},
			"": func(t *rapid.T) {
				if l.Epoch() != m.epoch || l.First() != uint64(m.first) || l.Next() != uint64(len(m.all)) || l.Bytes() != m.bytes() || l.Len() != len(m.all)-m.first {
					t.Fatalf("[%d, %d) of %d bytes; want [%d, %d) of %d", l.First(), l.Next(), l.Bytes(), m.first, len(m.all), m.bytes())
				}
				for offset := range len(m.all) + 1 {
					e, ok, err := l.At(uint64(offset))
					held := offset >= m.first && offset < len(m.all)
					if ok != held || ok && e != offset || (err != nil) != (offset < m.first) {
						t.Fatalf("At(%d) = %d, %t, %v", offset, e, ok, err)
					}
				}
				want := m.first
				for offset, e := range l.All() {
					if offset != uint64(want) || e != want {
						t.Fatalf("%d at %d, want %d", e, offset, want)
					}
					want++
				}
				for offset, e := range l.Backward() {
					if want--; offset != uint64(want) || e != want {
						t.Fatalf("%d at %d, want %d", e, offset, want)
					}
				}
				if cache.Len() > 5 {
					t.Fatalf("the cache holds %d", cache.Len())
				}
			},
		})
	})
}

// FuzzLog: no sequence of operations has an offset name two events, or exceeds
// the bound.
func FuzzLog(f *testing.F) {
	f.Add(uint8(4), uint8(0), []byte{1, 2, 3, 4, 5, 0x81, 6})
	f.Add(uint8(0), uint8(9), []byte{9, 1, 9, 0x83, 1, 1})
	f.Fuzz(func(t *testing.T, events, bytes uint8, ops []byte) {
		bound := eventlog.Bound{Events: int(events), Bytes: int(bytes)}
		l := eventlog.New[int](protocol.Position{Epoch: epoch, Offset: 1 << 40}, bound)
		var appended, gone int
		for _, op := range ops {
			var dropped []int
			if op < 0x80 {
				dropped = l.Append(appended, int(op))
				appended++
			} else {
				dropped = l.DropBefore(1<<40 + uint64(op-0x80))
			}
			for _, e := range dropped {
				if e != gone {
					t.Fatalf("dropped %d, want %d", e, gone)
				}
				gone++
			}
			over := bound.Events > 0 && l.Len() > bound.Events || bound.Bytes > 0 && l.Bytes() > bound.Bytes
			if over && l.Len() > 1 || l.First() != 1<<40+uint64(gone) || l.Next() != 1<<40+uint64(appended) {
				t.Fatalf("[%d, %d) of %d bytes, bound %+v", l.First(), l.Next(), l.Bytes(), bound)
			}
		}
	})
}

// TestSlidingIsCheap: a window that slides allocates no more than it
// holds.
func TestSlidingIsCheap(t *testing.T) {
	l := eventlog.New[int](protocol.Position{Epoch: epoch}, eventlog.Bound{Events: 1000})
	if n := testing.AllocsPerRun(100, func() {
		for i := range 1000 {
			l.Append(i, 1)
		}
	}); n > 50 {
		t.Errorf("a thousand events allocate %v times", n)
	}
}

func BenchmarkAppend(b *testing.B) {
	l := eventlog.New[[]byte](protocol.Position{Epoch: epoch}, eventlog.Bound{Events: 50_000, Bytes: 16 << 20})
	e := make([]byte, 400)
	b.ReportAllocs()
	for b.Loop() {
		l.Append(e, len(e))
	}
}

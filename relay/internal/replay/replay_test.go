package replay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/bytelog"
)

func mustData(tb testing.TB, r *Ring, p string) {
	tb.Helper()
	if err := r.Data(r.Head(), []byte(p)); err != nil {
		tb.Fatal(err)
	}
}

func mustResize(tb testing.TB, r *Ring, cols, rows int) {
	tb.Helper()
	if err := r.Resize(r.Head(), cols, rows, fmt.Appendf(nil, "%dx%d", cols, rows)); err != nil {
		tb.Fatal(err)
	}
}

func cursorAt(tb testing.TB, r *Ring, offset uint64) *Cursor {
	tb.Helper()
	c, err := r.CursorAt(offset)
	if err != nil {
		tb.Fatalf("CursorAt(%d): %v", offset, err)
	}
	return &c
}

func wantNext(tb testing.TB, r *Ring, c *Cursor, limit int, want string) {
	tb.Helper()
	frames, err := r.Next(c, limit, nil)
	if err != nil {
		tb.Fatalf("Next: %v", err)
	}
	if got := spell(tb, frames); got != want {
		tb.Errorf("Next(%d) = %q, want %q", limit, got, want)
	}
}

func TestNewRingIsEmpty(t *testing.T) {
	r := New(testEpoch, 7, 100, 30, 1<<20)
	if r.Epoch() != testEpoch || r.Oldest() != 7 || r.Head() != 7 || r.LineStart(10) != 7 {
		t.Errorf("New: epoch %s, [%d, %d), line %d", r.Epoch(), r.Oldest(), r.Head(), r.LineStart(10))
	}
	if cols, rows := r.SizeAt(7); cols != 100 || rows != 30 {
		t.Errorf("SizeAt(7) = %d×%d", cols, rows)
	}
	c := cursorAt(t, r, 7)
	wantNext(t, r, c, 10, "")
	mustData(t, r, "")
	wantNext(t, r, c, 10, "")
	mustData(t, r, "ab")
	wantNext(t, r, c, 10, "ab")
}

func TestNewRefusesAnEmptyWindow(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("New with a window of 0 did not panic")
		}
	}()
	New(testEpoch, 0, 80, 24, 0)
}

func TestOnlyTheHeadGrows(t *testing.T) {
	r := New(testEpoch, 7, 80, 24, 1<<20)
	mustData(t, r, "abc")
	for _, offset := range []uint64{0, 7, 9, 11, 1 << 60} {
		if err := r.Data(offset, []byte("x")); protocol.KindOf(err) != protocol.KindUpstream {
			t.Errorf("Data at %d: %v", offset, err)
		}
		if err := r.Resize(offset, 1, 1, []byte("1x1")); protocol.KindOf(err) != protocol.KindUpstream {
			t.Errorf("Resize at %d: %v", offset, err)
		}
	}
	wantNext(t, r, cursorAt(t, r, 7), 100, "abc")
}

func TestCursorBounds(t *testing.T) {
	r := New(testEpoch, 7, 80, 24, 1<<20)
	mustData(t, r, "abc")
	var gap bytelog.ErrGap
	if _, err := r.CursorAt(6); !errors.As(err, &gap) || gap.Oldest != 7 {
		t.Errorf("CursorAt(6): %v, want ErrGap at 7", err)
	}
	if _, err := r.CursorAt(11); !errors.Is(err, bytelog.ErrFuture) {
		t.Errorf("CursorAt(11): %v, want ErrFuture", err)
	}
}

func TestEventsAtOneOffset(t *testing.T) {
	r := New(testEpoch, 0, 80, 24, 1<<20)
	mustData(t, r, "ab")
	early := cursorAt(t, r, 2)
	mustResize(t, r, 1, 1)
	mustResize(t, r, 2, 2)
	late := cursorAt(t, r, 2)
	mustResize(t, r, 3, 3)
	mustData(t, r, "cd")
	r.Text([]byte("closed"))

	wantNext(t, r, early, 100, "<1x1><2x2><3x3>cd<closed>")
	wantNext(t, r, late, 100, "<3x3>cd<closed>")
	wantNext(t, r, cursorAt(t, r, 0), 100, "ab<1x1><2x2><3x3>cd<closed>")
	wantNext(t, r, cursorAt(t, r, 2), 100, "cd<closed>")
	wantNext(t, r, cursorAt(t, r, 4), 100, "<closed>") // never skipped
	for offset, want := range map[uint64]int{0: 80, 1: 80, 2: 3, 4: 3} {
		if cols, _ := r.SizeAt(offset); cols != want {
			t.Errorf("SizeAt(%d) = %d columns, want %d", offset, cols, want)
		}
	}
}

func TestNextWithinAFrame(t *testing.T) {
	r := New(testEpoch, 0, 80, 24, 1<<20)
	mustData(t, r, "abc")
	mustResize(t, r, 1, 1)
	mustData(t, r, "def")
	mustData(t, r, "gh")
	c := cursorAt(t, r, 1)
	wantNext(t, r, c, 1, "bc") // one frame at least, and nothing beyond the limit
	wantNext(t, r, c, 0, "<1x1>")
	wantNext(t, r, c, 4, "def")
	wantNext(t, r, c, 4, "gh")
	wantNext(t, r, cursorAt(t, r, 2), 4, "c<1x1>def")
	wantNext(t, r, cursorAt(t, r, 7), 4, "h")
	wantNext(t, r, cursorAt(t, r, 8), 4, "")
}

func TestLargeOutputBecomesSeveralFrames(t *testing.T) {
	r := New(testEpoch, 0, 80, 24, 1<<20)
	text := strings.Repeat("0123456789abcde\n", 8<<10) // 128 KiB
	mustData(t, r, text)
	mustData(t, r, text)
	c := cursorAt(t, r, 0)
	frames, err := r.Next(c, 1<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := spell(t, frames); got != text+text {
		t.Errorf("%d bytes came back as %d others", 2*len(text), len(got))
	}
	if len(frames) > len(r.slabs) {
		t.Errorf("%d slices from %d slabs", len(frames), len(r.slabs))
	}
}

func TestEventLargerThanASlab(t *testing.T) {
	r := New(testEpoch, 0, 80, 24, 1000)
	mustData(t, r, "ab")
	event := strings.Repeat("e", 70000)
	c := cursorAt(t, r, 2)
	r.Text([]byte(event))
	wantNext(t, r, c, 10, "<"+event+">")
	mustData(t, r, "cd")
	wantNext(t, r, c, 10, "cd")
	if r.held > 1000 {
		t.Errorf("the ring still holds %d bytes", r.held)
	}
}

func TestCursorFallsOut(t *testing.T) {
	r := New(testEpoch, 0, 80, 24, 4<<10)
	mustData(t, r, "ab\n")
	mustResize(t, r, 90, 30)
	c := cursorAt(t, r, 1)
	for r.Oldest() == 0 {
		mustData(t, r, "0123456789abcde\n")
	}
	before := *c
	dst := net.Buffers{[]byte("kept")}
	dst, err := r.Next(c, 100, dst)
	var gap bytelog.ErrGap
	if !errors.As(err, &gap) || gap.Oldest != r.Oldest() || *c != before || len(dst) != 1 {
		t.Errorf("Next of a lost cursor: %v, want ErrGap at %d", err, r.Oldest())
	}
	if cols, rows := r.SizeAt(gap.Oldest); cols != 90 || rows != 30 {
		t.Errorf("SizeAt(%d) = %d×%d, want the size of the dropped event", gap.Oldest, cols, rows)
	}
	held := int(r.Head() - gap.Oldest)
	frames, err := r.Next(cursorAt(t, r, gap.Oldest), 1<<20, nil)
	if got := spell(t, frames); err != nil || len(got) != held {
		t.Errorf("%d of %d bytes, %v", len(got), held, err)
	}
}

// A cursor that has read everything loses nothing, however far the ring moves
// on to its own place.
func TestCursorAtTheEdgeOfTheWindow(t *testing.T) {
	r := New(testEpoch, 0, 80, 24, 64)
	fill := strings.Repeat("x", 60)
	mustData(t, r, fill)
	c := cursorAt(t, r, 60)
	mustData(t, r, fill)
	if r.Oldest() != 60 {
		t.Fatalf("the ring begins at %d", r.Oldest())
	}
	wantNext(t, r, c, 100, fill)
}

func TestWindow(t *testing.T) {
	for _, chunk := range []int{1, 80, 1000, 11 << 10, protocol.MaxDataBytes, 300 << 10} {
		t.Run(fmt.Sprint(chunk), func(t *testing.T) {
			r := New(testEpoch, 0, 80, 24, protocol.RingBytes)
			p := strings.Repeat("x", chunk)
			for r.Oldest() == 0 || r.Head() < 2*protocol.RingBytes {
				mustData(t, r, p)
				if r.held > protocol.RingBytes {
					t.Fatalf("the ring takes %d bytes", r.held)
				}
			}
			// One slab is empty or being filled, another may be partly empty.
			least := protocol.RingBytes * 15 / 16
			if chunk == 1 {
				least /= 3 // two bytes of header each
			}
			if held := int(r.Head() - r.Oldest()); held < least {
				t.Errorf("the ring holds %d bytes of output in %d bytes", held, r.held)
			}
		})
	}
}

func TestQuietRingIsSmall(t *testing.T) {
	r := New(testEpoch, 0, 80, 24, protocol.RingBytes)
	mustData(t, r, "sandbox:/workspace$ ")
	if r.held > 1<<10 {
		t.Errorf("a prompt takes %d bytes", r.held)
	}
}

func TestLineStart(t *testing.T) {
	r := New(testEpoch, 0, 80, 24, 1<<20)
	for _, p := range []string{"one\n", "tw", "o\nth", "r\xe2", "\x82\xace"} { // one, two, thr€e
		mustData(t, r, p)
		mustResize(t, r, 81, 25)
	}
	for _, test := range []struct {
		limit int
		want  uint64
	}{{100, 0}, {14, 4}, {11, 4}, {10, 8}, {7, 8}, {6, 9}, {4, 11}, {3, 14}, {2, 14}, {1, 14}, {0, 15}, {-1, 15}} {
		if got := r.LineStart(test.limit); got != test.want {
			t.Errorf("LineStart(%d) = %d, want %d", test.limit, got, test.want)
		}
	}
}

// What Next hands out may be written while the ring goes on: the race
// detector watches.
func TestFramesAreReadWithoutTheLock(t *testing.T) {
	const total = 1 << 20
	r := New(testEpoch, 0, 80, 24, 256<<10)
	c := cursorAt(t, r, 0)
	writes := make(chan net.Buffers, 4)
	var wg sync.WaitGroup
	var got bytes.Buffer
	wg.Go(func() { // waited for below
		for frames := range writes {
			if _, err := frames.WriteTo(&got); err != nil {
				t.Error(err)
			}
		}
	})
	var want []byte
	for len(want) < total {
		n := len(want)
		for i := range 700 {
			want = append(want, byte((n+i)%251))
		}
		mustData(t, r, string(want[n:]))
		frames, err := r.Next(c, 1<<20, nil)
		if err != nil {
			t.Fatal(err)
		}
		writes <- frames
	}
	close(writes)
	wg.Wait()
	messages, err := parse(got.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	var output []byte
	for _, m := range messages {
		output = append(output, m.payload...)
	}
	if !bytes.Equal(output, want) {
		t.Error("the bytes written are not those appended")
	}
}

func TestNextAllocatesNothing(t *testing.T) {
	r := New(testEpoch, 0, 80, 24, protocol.RingBytes)
	p := bytes.Repeat([]byte("x"), 80)
	for r.Oldest() == 0 {
		mustData(t, r, string(p))
	}
	c := cursorAt(t, r, r.Head())
	mustData(t, r, string(p))
	dst := make(net.Buffers, 0, 4)
	behind := *c
	if n := testing.AllocsPerRun(1000, func() {
		*c = behind
		frames, err := r.Next(c, 256<<10, dst[:0])
		if err != nil || len(frames) != 1 || c.Offset() != r.Head() {
			t.Fatalf("Next: %d slices, %v", len(frames), err)
		}
	}); n != 0 {
		t.Errorf("Next allocates %v times for a viewer one chunk behind", n)
	}
}

// Data allocates for slabs alone, not for chunks.
func TestDataAllocatesSlabs(t *testing.T) {
	const chunk, runs = 80, 4000
	r := New(testEpoch, 0, 80, 24, protocol.RingBytes)
	p := bytes.Repeat([]byte("x"), chunk)
	for r.Oldest() == 0 {
		mustData(t, r, string(p))
	}
	perRun := testing.AllocsPerRun(1, func() {
		for range runs {
			if err := r.Data(r.Head(), p); err != nil {
				t.Fatal(err)
			}
		}
	})
	if most := float64(runs*(chunk+2)/maxSlab + 1); perRun > most {
		t.Errorf("%d chunks allocate %v times, want %v at most", runs, perRun, most)
	}
}

// BenchmarkFanOut appends a chunk and lets every viewer take it.
func BenchmarkFanOut(b *testing.B) {
	for _, viewers := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(viewers), func(b *testing.B) {
			r := New(testEpoch, 0, 80, 24, protocol.RingBytes)
			p := bytes.Repeat([]byte("x"), 1000)
			cursors := make([]Cursor, viewers)
			dst := make(net.Buffers, 0, 64)
			b.SetBytes(int64(len(p) * viewers))
			b.ReportAllocs()
			for b.Loop() {
				if err := r.Data(r.Head(), p); err != nil {
					b.Fatal(err)
				}
				for i := range cursors {
					if _, err := r.Next(&cursors[i], 256<<10, dst[:0]); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// BenchmarkCatchUp brings one viewer from the oldest byte to the head.
func BenchmarkCatchUp(b *testing.B) {
	for _, chunk := range []int{1, 80, protocol.MaxDataBytes} {
		b.Run(fmt.Sprint(chunk), func(b *testing.B) {
			r := New(testEpoch, 0, 80, 24, protocol.RingBytes)
			p := bytes.Repeat([]byte("x"), chunk)
			for r.Oldest() == 0 {
				if err := r.Data(r.Head(), p); err != nil {
					b.Fatal(err)
				}
			}
			oldest, err := r.CursorAt(r.Oldest())
			if err != nil {
				b.Fatal(err)
			}
			dst := make(net.Buffers, 0, 64)
			b.SetBytes(int64(r.Head() - r.Oldest()))
			b.ReportAllocs()
			for b.Loop() {
				for c := oldest; c.Offset() < r.Head(); {
					frames, err := r.Next(&c, 256<<10, dst[:0])
					if err != nil {
						b.Fatal(err)
					}
					if _, err := frames.WriteTo(io.Discard); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

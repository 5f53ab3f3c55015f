package bytelog_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/bytelog"
)

const epoch protocol.Epoch = 0xfeed

// drain reads all that c has yet to deliver and spells it as one string:
// bytes as they are, a resize as <COLSxROWS>, the end as <exit CODE SIGNAL>.
func drain(tb testing.TB, l *bytelog.Log, c *bytelog.Cursor, limit int) string {
	tb.Helper()
	var b strings.Builder
	for {
		item, ok, err := l.Next(c, limit)
		if err != nil {
			tb.Fatalf("Next: %v", err)
		}
		if !ok {
			return b.String()
		}
		b.WriteString(spell(item))
	}
}

// spell turns an item into text for comparison.
func spell(item bytelog.Item) string {
	switch {
	case item.Resized != nil:
		return fmt.Sprintf("<%dx%d>", item.Resized.Cols, item.Resized.Rows)
	case item.Exited != nil:
		return strings.TrimSuffix(fmt.Sprintf("<exit %d %s", item.Exited.Code, item.Exited.Signal), " ") + ">"
	}
	return string(item.Bytes)
}

func cursorAt(tb testing.TB, l *bytelog.Log, offset uint64) *bytelog.Cursor {
	tb.Helper()
	c, err := l.CursorAt(offset)
	if err != nil {
		tb.Fatalf("CursorAt(%d): %v", offset, err)
	}
	return &c
}

func wantSize(tb testing.TB, l *bytelog.Log, offset uint64, cols, rows int) {
	tb.Helper()
	if c, r := l.SizeAt(offset); c != cols || r != rows {
		tb.Errorf("SizeAt(%d) = %d×%d, want %d×%d", offset, c, r, cols, rows)
	}
}

func wantDrain(tb testing.TB, l *bytelog.Log, c *bytelog.Cursor, want string) {
	tb.Helper()
	if got := drain(tb, l, c, 1<<20); got != want {
		tb.Errorf("read %q, want %q", got, want)
	}
}

func TestNewLogIsEmpty(t *testing.T) {
	l := bytelog.New(epoch, 8)
	if l.Epoch() != epoch || l.Oldest() != 0 || l.Head() != 0 {
		t.Errorf("New: epoch %s, [%d, %d)", l.Epoch(), l.Oldest(), l.Head())
	}
	if _, ended := l.Exited(); ended {
		t.Error("a new log has ended")
	}
	wantSize(t, l, 0, protocol.DefaultCols, protocol.DefaultRows)
	wantDrain(t, l, cursorAt(t, l, 0), "")
}

func TestNewRefusesAnEmptyWindow(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("New(epoch, 0) did not panic")
		}
	}()
	bytelog.New(epoch, 0)
}

func TestWindow(t *testing.T) {
	for _, test := range []struct {
		name   string
		window int
		append []string
		oldest uint64
		want   string
	}{
		{"below", 8, []string{"abc", "def"}, 0, "abcdef"},
		{"exactly full", 8, []string{"abcd", "efgh"}, 0, "abcdefgh"},
		{"one over", 8, []string{"abcdefgh", "i"}, 1, "bcdefghi"},
		{"wraps", 8, []string{"abcdef", "ghijkl"}, 4, "efghijkl"},
		{"a window at once", 4, []string{"ab", "cdef"}, 2, "cdef"},
		{"more than a window at once", 4, []string{"ab", "cdefghijk"}, 7, "hijk"},
		{"more than a window, then more", 4, []string{"abcdefghijk", "lm"}, 9, "jklm"},
		{"window of one", 1, []string{"a", "b", "cd"}, 3, "d"},
		{"nothing", 4, []string{"", ""}, 0, ""},
		{"grows in steps", 1 << 14, []string{strings.Repeat("a", 3000), strings.Repeat("b", 3000), strings.Repeat("c", 9000)},
			0, strings.Repeat("a", 3000) + strings.Repeat("b", 3000) + strings.Repeat("c", 9000)},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := bytelog.New(epoch, test.window)
			head := 0
			for _, p := range test.append {
				l.Append([]byte(p))
				head += len(p)
			}
			if l.Oldest() != test.oldest || l.Head() != uint64(head) {
				t.Errorf("holds [%d, %d), want [%d, %d)", l.Oldest(), l.Head(), test.oldest, head)
			}
			wantDrain(t, l, cursorAt(t, l, l.Oldest()), test.want)
		})
	}
}

func TestAppendCopies(t *testing.T) {
	l := bytelog.New(epoch, 8)
	p := []byte("abc")
	l.Append(p)
	copy(p, "xyz")
	wantDrain(t, l, cursorAt(t, l, 0), "abc")
}

func TestNextHonoursLimit(t *testing.T) {
	l := bytelog.New(epoch, 8)
	l.Append([]byte("abcdefg"))
	c := cursorAt(t, l, 0)
	for _, test := range []struct {
		limit int
		want  string
	}{{3, "abc"}, {0, "d"}, {-1, "e"}, {100, "fg"}} {
		item, ok, err := l.Next(c, test.limit)
		if err != nil || !ok || string(item.Bytes) != test.want {
			t.Errorf("Next(%d) = %q, %t, %v, want %q", test.limit, item.Bytes, ok, err, test.want)
		}
	}
}

func TestCursorFallsOut(t *testing.T) {
	l := bytelog.New(epoch, 4)
	l.Append([]byte("ab"))
	c := cursorAt(t, l, 1)
	l.Append([]byte("cde"))
	held := *c
	wantDrain(t, l, &held, "bcde") // its byte is now the oldest
	l.Append([]byte("f"))
	_, _, err := l.Next(c, 10)
	var gap bytelog.ErrGap
	if !errors.As(err, &gap) || gap.Oldest != 2 {
		t.Errorf("Next of a lost cursor: %v, want ErrGap at 2", err)
	}
	if c.Offset() != 1 {
		t.Errorf("the lost cursor moved to %d", c.Offset())
	}
	wantDrain(t, l, cursorAt(t, l, gap.Oldest), "cdef")
}

func TestCursorAtBounds(t *testing.T) {
	l := bytelog.New(epoch, 4)
	l.Append([]byte("abcdef"))
	var gap bytelog.ErrGap
	if _, err := l.CursorAt(1); !errors.As(err, &gap) || gap.Oldest != 2 {
		t.Errorf("CursorAt(1): %v, want ErrGap at 2", err)
	}
	if _, err := l.CursorAt(7); !errors.Is(err, bytelog.ErrFuture) {
		t.Errorf("CursorAt(7): %v, want ErrFuture", err)
	}
	wantDrain(t, l, cursorAt(t, l, 6), "")
}

func TestEventsAtOneOffset(t *testing.T) {
	l := bytelog.New(epoch, 64)
	start := bytelog.Cursor{}
	l.Resize(100, 30)
	before := start
	l.Append([]byte("ab"))
	early := cursorAt(t, l, 2)
	l.Resize(1, 1)
	l.Resize(2, 2)
	late := cursorAt(t, l, 2)
	l.Resize(3, 3)
	l.Append([]byte("cd"))
	l.Exit(7, "")

	wantDrain(t, l, &before, "<100x30>ab<3x3>cd<exit 7>")
	wantDrain(t, l, early, "<3x3>cd<exit 7>")
	wantDrain(t, l, late, "<3x3>cd<exit 7>") // resized since
	wantDrain(t, l, cursorAt(t, l, 0), "ab<3x3>cd<exit 7>")
	wantDrain(t, l, cursorAt(t, l, 2), "cd<exit 7>")
	wantDrain(t, l, cursorAt(t, l, 4), "<exit 7>")
	wantSize(t, l, 0, 100, 30)
	wantSize(t, l, 1, 100, 30)
	wantSize(t, l, 2, 3, 3)
	wantSize(t, l, 4, 3, 3)
}

func TestSupersededResizeReachesTheRightSize(t *testing.T) {
	l := bytelog.New(epoch, 64)
	l.Append([]byte("a"))
	c := cursorAt(t, l, 1)
	l.Resize(100, 30)
	wantDrain(t, l, c, "<100x30>")
	l.Resize(protocol.DefaultCols, protocol.DefaultRows) // back again, at the same offset
	wantDrain(t, l, c, "<80x24>")
	wantDrain(t, l, c, "")
}

func TestResizeToTheSameSizeIsNoEvent(t *testing.T) {
	l := bytelog.New(epoch, 64)
	c := bytelog.Cursor{}
	l.Resize(protocol.DefaultCols, protocol.DefaultRows)
	l.Resize(90, 30)
	l.Append([]byte("a"))
	l.Resize(90, 30)
	wantDrain(t, l, &c, "<90x30>a")
}

func TestResizeAtOldestIsStillDelivered(t *testing.T) {
	l := bytelog.New(epoch, 4)
	l.Append([]byte("ab"))
	c := cursorAt(t, l, 2)
	l.Resize(90, 30)
	l.Append([]byte("cdef")) // the log now begins at 2
	wantDrain(t, l, c, "<90x30>cdef")
	l.Append([]byte("g"))
	wantSize(t, l, 0, 90, 30) // the oldest size known
	wantSize(t, l, 3, 90, 30)
}

func TestNothingFollowsTheEnd(t *testing.T) {
	l := bytelog.New(epoch, 8)
	l.Append([]byte("ab"))
	l.Exit(-1, "SIGKILL")
	c := cursorAt(t, l, 0)
	l.Append([]byte("c"))
	l.Resize(1, 1)
	l.Exit(0, "")
	wantDrain(t, l, c, "ab<exit -1 SIGKILL>")
	wantDrain(t, l, c, "")
	want := protocol.Exited{Offset: 2, Code: -1, Signal: "SIGKILL"}
	if got, ended := l.Exited(); !ended || got != want {
		t.Errorf("Exited() = %+v, %t, want %+v", got, ended, want)
	}
}

func TestItemsDoNotExposeTheLog(t *testing.T) {
	l := bytelog.New(epoch, 8)
	l.Append([]byte("abcd"))
	l.Exit(1, "")
	c := cursorAt(t, l, 0)
	item, _, _ := l.Next(c, 2)
	if grown := append(item.Bytes, "XY"...); !bytes.Equal(grown, []byte("abXY")) {
		t.Fatalf("append to an item: %q", grown)
	}
	wantDrain(t, l, cursorAt(t, l, 0), "abcd<exit 1>")
	c = cursorAt(t, l, 4)
	item, _, _ = l.Next(c, 2)
	item.Exited.Code = 99
	wantDrain(t, l, cursorAt(t, l, 4), "<exit 1>")
}

// A storm of resizes must not grow the log without end: it ends the window.
func TestResizesAreBounded(t *testing.T) {
	const most = 4096
	l := bytelog.New(epoch, 1<<20)
	l.Append([]byte("ab"))
	for i := range most {
		l.Resize(1+i%2, 1)
		l.Append([]byte("x"))
	}
	if l.Oldest() != 0 {
		t.Fatalf("%d resizes moved the window to %d", most, l.Oldest())
	}
	l.Resize(1000, 1000)
	if l.Oldest() != 3 { // behind the first resize, at 2
		t.Fatalf("one more resize moved the window to %d, want 3", l.Oldest())
	}
	wantSize(t, l, l.Oldest(), 2, 1)
	wantSize(t, l, 0, 1, 1)
	wantSize(t, l, l.Head(), 1000, 1000)
}

// A buffer that wrapped before it had to grow keeps its bytes in order.
func TestGrowAfterWrap(t *testing.T) {
	l := bytelog.New(epoch, 1<<20)
	var all []byte
	put := func(n int) {
		for range n {
			all = append(all, byte(len(all)%251))
		}
		l.Append(all[len(all)-n:])
	}
	for i := range 8000 { // more resizes than are held, so the log begins late
		l.Resize(1+i%2, 1)
		put(1)
	}
	if l.Oldest() == 0 {
		t.Fatal("the log still begins at 0")
	}
	for range 4 {
		put(5000)
		var got []byte
		c := cursorAt(t, l, l.Oldest())
		for {
			item, ok, err := l.Next(c, 1000)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			got = append(got, item.Bytes...)
		}
		if !bytes.Equal(got, all[l.Oldest():]) {
			t.Fatalf("at %d bytes the log holds others than were appended", len(all))
		}
	}
}

func TestAppendAllocatesNothing(t *testing.T) {
	l := bytelog.New(epoch, 64<<10)
	p := bytes.Repeat([]byte("0123456789abcde\n"), 64)
	for range 2 * 64 {
		l.Append(p)
	}
	c := cursorAt(t, l, l.Head())
	if n := testing.AllocsPerRun(1000, func() {
		l.Append(p)
		for {
			if _, ok, err := l.Next(c, len(p)); !ok || err != nil {
				return
			}
		}
	}); n != 0 {
		t.Errorf("Append and Next allocate %v times", n)
	}
}

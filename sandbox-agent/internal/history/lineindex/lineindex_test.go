package lineindex

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/history/rows"
)

// A line of a transcript of claude.
func text(n int) string {
	return fmt.Sprintf(`{"uuid":"u%d","timestamp":"2026-06-11T10:00:00Z","message":{"role":"assistant","content":[{"type":"text","text":"text %d"},{"type":"thinking","thinking":"t"}]}}`, n, n)
}

func toolUse(n int) string {
	return fmt.Sprintf(`{"uuid":"u%d","message":{"role":"assistant","content":[{"type":"tool_use","id":"tool%d","name":"Bash","input":{}}]}}`, n, n)
}

func toolResult(n, of int) string {
	return fmt.Sprintf(`{"uuid":"u%d","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"tool%d","content":"out %d"}]}}`, n, of, of)
}

// naive reads a transcript as a whole.
func naive(content []byte) (all []rows.Row) {
	at := make(map[string]int)
	for line := range bytes.Lines(content) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			continue
		}
		_, list := rows.Claude(rows.State{}, nil, line)
		for _, r := range list {
			switch r.Kind {
			case protocol.ChatToolUse:
				at[r.ToolID] = len(all)
			case protocol.ChatToolResult:
				if i, known := at[r.ToolID]; known {
					rows.Merge(&all[i], &r)
				}
			}
			all = append(all, r)
		}
	}
	return all
}

func page(t rapid.TB, x *Index, src io.ReaderAt, first, last int) (list []rows.Row) {
	for r, err := range x.Page(src, first, last) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	return list
}

func encoded(t rapid.TB, list []rows.Row) string {
	text, err := json.Marshal(slices.Concat([]rows.Row{}, list))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestPages: whatever is appended in whatever pieces, each page is what a reader of
// the whole would find there.
func TestPages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := New(rows.Claude)
		var content []byte
		n := 0
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			for range rapid.IntRange(0, 90).Draw(t, "lines") {
				n++
				content = append(content, rapid.SampledFrom([]string{
					text(n), toolUse(n), toolResult(n, max(1, n-rapid.IntRange(0, 5).Draw(t, "back"))), `{"type":"summary"}`, "no JSON", "",
				}).Draw(t, "line")+"\n"...)
			}
			size := len(content) - rapid.IntRange(0, min(len(content), 30)).Draw(t, "torn")
			if int64(size) < x.size {
				size = len(content)
			}
			src := bytes.NewReader(content[:size])
			if same, err := x.Extend(src, int64(size)); !same || err != nil {
				t.Fatal(same, err)
			}
			want := naive(content[:size])
			s := x.Summary()
			counted := 0
			for i := range want {
				if rows.CountsAsMessage(&want[i]) {
					counted++
				}
			}
			if s.Rows != len(want) || s.Counted != counted || s.Skipped != 0 {
				t.Fatalf("%d rows instead of %d, %d instead of %d count", s.Rows, len(want), s.Counted, counted)
			}
			first := rapid.IntRange(0, len(want)).Draw(t, "first")
			last := rapid.IntRange(first, len(want)).Draw(t, "last")
			if got, want := encoded(t, page(t, x, src, first, last)), encoded(t, want[first:last]); got != want {
				t.Fatalf("rows %d to %d are\n%s instead of\n%s", first, last, got, want)
			}
		}
	})
}

// TestOtherTranscript: a transcript that has shrunk or says something else than
// before needs another index.
func TestOtherTranscript(t *testing.T) {
	before := text(1) + "\n" + text(2) + "\n"
	for name, now := range map[string]string{
		"shrunk": text(1) + "\n", "empty": "", "rewritten": text(1) + "\n" + text(3) + "\n" + text(4) + "\n",
	} {
		x := New(rows.Claude)
		if same, err := x.Extend(strings.NewReader(before), int64(len(before))); !same || err != nil {
			t.Fatal(same, err)
		}
		if same, err := x.Extend(strings.NewReader(now), int64(len(now))); same || err != nil {
			t.Errorf("%s: the same transcript (%v)", name, err)
		}
	}
}

// TestShrinksWhileRead: a page of what is gone is an error.
func TestShrinksWhileRead(t *testing.T) {
	content := text(1) + "\n" + text(2) + "\n"
	x := New(rows.Claude)
	if _, err := x.Extend(strings.NewReader(content), int64(len(content))); err != nil {
		t.Fatal(err)
	}
	var failed error
	for _, err := range x.Page(strings.NewReader(content[:len(content)/2]), 0, 4) {
		failed = err
	}
	if failed == nil {
		t.Error("a page of lines that are gone")
	}
}

// A sparse is a transcript with one endless line of zeros.
type sparse struct {
	head string
	size int64
	tail string
}

func (s sparse) ReadAt(p []byte, at int64) (int, error) {
	n := 0
	for ; n < len(p) && at < s.size; n, at = n+1, at+1 {
		switch {
		case at < int64(len(s.head)):
			p[n] = s.head[at]
		case at >= s.size-int64(len(s.tail)):
			p[n] = s.tail[at-(s.size-int64(len(s.tail)))]
		default:
			clear(p[n : n+int(min(int64(len(p)-n), s.size-int64(len(s.tail))-at))])
			skip := int(min(int64(len(p)-n), s.size-int64(len(s.tail))-at)) - 1
			n, at = n+skip, at+int64(skip)
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// TestEndlessLine: a line of 1 GiB costs no more memory than the longest one that is read, and what is around it is read.
func TestEndlessLine(t *testing.T) {
	src := sparse{head: text(1) + "\n", size: 1 << 30, tail: "\n" + text(2) + "\n"}
	x := New(rows.Claude)
	before := allocated()
	same, err := x.Extend(src, src.size)
	if used := allocated() - before; used > 8*MaxLine {
		t.Errorf("%d bytes were allocated", used)
	}
	if s := x.Summary(); !same || err != nil || s.Skipped != 1 || s.Rows != 4 {
		t.Fatalf("%+v, %v, %v", s, same, err)
	}
	if got := page(t, x, src, 2, 4); len(got) != 2 || *got[0].Content != "text 2" {
		t.Errorf("%+v", got)
	}
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// large returns a transcript of about n bytes.
func large(n int) []byte {
	padding := strings.Repeat("lorem ipsum dolor sit amet ", 60)
	var b bytes.Buffer
	for i := 1; b.Len() < n; i += 3 {
		b.WriteString(strings.Replace(text(i), "text ", padding, 1) + "\n" + toolUse(i+1) + "\n")
		b.WriteString(strings.Replace(toolResult(i+2, i+1), "out ", padding, 1) + "\n")
	}
	return b.Bytes()
}

// TestLastPage: the last page of 100 MB takes at most 100 ms, and 32 MiB more
// memory than the file itself, when it is indexed.
// It is about weakness 23 in deploy/e2e/README.md.
func TestLastPage(t *testing.T) {
	if testing.Short() || underRace {
		t.Skip("it indexes 100 MB, which the race detector makes slow")
	}
	content := large(100_000_000)
	src := bytes.NewReader(content)
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	x := New(rows.Claude)
	if _, err := x.Extend(src, src.Size()); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if more := int64(after.HeapAlloc) - int64(before.HeapAlloc); more > 32<<20 {
		t.Errorf("the index has %d bytes", more)
	}
	n := x.Summary().Rows
	best := time.Hour
	for range 5 { // of several, for the machine may be busy
		began := time.Now()
		if got := page(t, x, src, n-100, n); len(got) != 100 {
			t.Fatalf("%d rows", len(got))
		}
		best = min(best, time.Since(began))
	}
	if best > 100*time.Millisecond {
		t.Errorf("a page takes %v", best)
	}
	t.Logf("%d rows, a page takes %v", n, best)
	runtime.KeepAlive(content)
}

func BenchmarkLastPage(b *testing.B) {
	src := bytes.NewReader(large(100_000_000))
	x := New(rows.Claude)
	began := time.Now()
	if _, err := x.Extend(src, src.Size()); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(time.Since(began).Seconds(), "s/index")
	n := x.Summary().Rows
	b.ReportAllocs()
	for b.Loop() {
		if got := page(b, x, src, n-100, n); len(got) != 100 {
			b.Fatalf("%d rows", len(got))
		}
	}
}

// FuzzIndex: whatever a transcript holds, it doesn't matter where it ended when it
// was first indexed, and a page is a piece of the whole.
func FuzzIndex(f *testing.F) {
	f.Add(uint8(0), []byte(text(1)+"\n"+toolUse(2)+"\n\n"+toolResult(3, 2)+"\n"+text(4)), uint16(60))
	f.Add(uint8(1), []byte("{\"type\":\"session_meta\",\"payload\":{\"id\":\"a\"}}\n\x00\n"), uint16(9))
	f.Fuzz(func(t *testing.T, which uint8, content []byte, cut uint16) {
		kind := []rows.Lines{rows.Claude, rows.Codex}[which%2]
		first := min(len(content), int(cut))
		once, twice := New(kind), New(kind)
		for _, step := range []struct {
			x *Index
			n int
		}{{once, len(content)}, {twice, first}, {twice, len(content)}} {
			if same, err := step.x.Extend(bytes.NewReader(content[:step.n]), int64(step.n)); !same || err != nil {
				t.Fatal(same, err)
			}
		}
		src, n := bytes.NewReader(content), once.Summary().Rows
		if !reflect.DeepEqual(once.Summary(), twice.Summary()) {
			t.Fatalf("%+v, and in two steps %+v", once.Summary(), twice.Summary())
		}
		all := page(t, once, src, 0, n)
		from := min(n, int(cut)%(n+1))
		if len(all) != n || encoded(t, all[from:]) != encoded(t, page(t, twice, src, from, n)) {
			t.Fatalf("%d rows of %d, from %d on others", len(all), n, from)
		}
		Glance(kind, src, int64(len(content)), int64(first))
	})
}

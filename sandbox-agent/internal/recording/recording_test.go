package recording

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
)

const session = protocol.SessionID("ses_1")

// start is when every recording of a test begins.
var start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func after(d time.Duration) time.Time { return start.Add(d) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, o Options) *Store {
	t.Helper()
	if o.Dir == "" {
		o.Dir = filepath.Join(t.TempDir(), "recordings")
	}
	s, err := Open(o)
	must(t, err)
	return s
}

func begin(t testing.TB, s *Store) *Recording {
	t.Helper()
	r, err := s.Create(Params{Session: session, PTY: "pty_1", Command: "top -d 1", Cols: 80, Rows: 24, Term: "xterm-256color", Start: start})
	must(t, err)
	return r
}

// An event is one line of a recording.
type event struct {
	at   float64
	code string
	data string
}

// read returns what a recording holds, which must be a valid file.
func read(t testing.TB, s *Store, id string) (header, []event, protocol.RecordingInfo) {
	t.Helper()
	c, err := s.Read(session, id)
	must(t, err)
	defer c.Close()
	lines := bufio.NewScanner(c)
	lines.Buffer(nil, 1<<30)
	var h header
	if !lines.Scan() {
		t.Fatal("no header")
	}
	must(t, json.Unmarshal(lines.Bytes(), &h))
	var events []event
	for lines.Scan() {
		if !utf8.Valid(lines.Bytes()) {
			t.Fatalf("line %q", lines.Bytes())
		}
		var e event
		must(t, json.Unmarshal(lines.Bytes(), &[]any{&e.at, &e.code, &e.data}))
		events = append(events, e)
	}
	must(t, lines.Err())
	return h, events, c.Info
}

func wantEvents(t *testing.T, got []event, want ...event) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d events, want %d: %+v", len(got), len(want), got)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("event %d: %+v, want %+v", i, got[i], want[i])
		}
	}
}

func TestRecording(t *testing.T) {
	s := open(t, Options{})
	r := begin(t, s)
	must(t, r.Output(after(0), []byte("\x18\x1bc\"\\/<&\x00\x7f\r\n\t")))
	must(t, r.Output(after(1500*time.Millisecond), []byte("x")))
	must(t, r.Resize(after(2*time.Second), 100, 30))
	must(t, r.Output(after(time.Second), []byte("the clock went back")))
	running, _, info := read(t, s, r.ID())
	if running.Version != 2 || info.EndedAt != 0 || !r.Buffered() {
		t.Errorf("while it runs: %+v %+v", running, info)
	}
	must(t, r.Flush())
	if _, events, info := read(t, s, r.ID()); len(events) != 4 || info.Bytes == 0 || r.Buffered() {
		t.Errorf("flushed: %d events, %+v", len(events), info)
	}
	must(t, r.End(after(3*time.Second), nil))
	h, events, info := read(t, s, r.ID())
	if h.Width != 80 || h.Height != 24 || h.Timestamp != start.Unix() || h.Title != "top -d 1" || h.Env["TERM"] != "xterm-256color" {
		t.Errorf("header %+v", h)
	}
	wantEvents(t, events,
		event{0, "o", "\x18\x1bc\"\\/<&\x00\x7f\r\n\t"}, event{1.5, "o", "x"}, event{2, "r", "100x30"},
		event{2, "o", "the clock went back"})
	want := protocol.RecordingInfo{
		ID: r.ID(), PTYID: "pty_1", Command: "top -d 1", Cols: 80, Rows: 24,
		StartedAt: start.UnixMilli(), EndedAt: after(3 * time.Second).UnixMilli(), Bytes: info.Bytes,
	}
	if info != want {
		t.Errorf("info %+v, want %+v", info, want)
	}
	if !strings.HasPrefix(r.ID(), "rec_") || len(r.ID()) != len("rec_")+26 || strings.ToLower(r.ID()) != r.ID() {
		t.Errorf("id %q", r.ID())
	}
	for _, suffix := range []string{castSuffix, infoSuffix} {
		st, err := os.Stat(s.path(session, r.ID(), suffix))
		must(t, err)
		if st.Mode() != 0o600 {
			t.Errorf("%s has mode %v", suffix, st.Mode())
		}
	}
}

func TestUTF8(t *testing.T) {
	for _, tt := range []struct {
		chunks []string
		want   []string
	}{
		{[]string{"é"}, []string{"é"}},
		{[]string{"a\xc3", "\xa9b"}, []string{"a", "éb"}},
		{[]string{"\xf0", "\x9f", "\x98", "\x80"}, []string{"😀"}},
		{[]string{"\xf0\x9f", "x"}, []string{"\ufffd\ufffdx"}},
		{[]string{"a\xe2\x82"}, []string{"a", "\ufffd\ufffd"}}, // it ends so
		{[]string{"\xff\xfe\x80ok"}, []string{"\ufffd\ufffd\ufffdok"}},
		{[]string{"\xc3", "\xc3", "\xa9"}, []string{"\ufffd", "é"}},
		{[]string{"\ufffd\u2028\U0010ffff"}, []string{"\ufffd\u2028\U0010ffff"}},
		{[]string{"", ""}, nil},
	} {
		s := open(t, Options{})
		r := begin(t, s)
		for _, c := range tt.chunks {
			must(t, r.Output(start, []byte(c)))
		}
		must(t, r.End(start, nil))
		_, events, _ := read(t, s, r.ID())
		var got []string
		for _, e := range events {
			got = append(got, e.data)
		}
		if strings.Join(got, "|") != strings.Join(tt.want, "|") {
			t.Errorf("%q: %q, want %q", tt.chunks, got, tt.want)
		}
	}
}

// TestLimit: the file doesn't grow beyond it, and holds whole events.
func TestLimit(t *testing.T) {
	s := open(t, Options{MaxBytes: 1000})
	r := begin(t, s)
	var err error
	n := 0
	for ; err == nil; n++ {
		err = r.Output(start, []byte("0123456789"))
	}
	if !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	must(t, r.End(start, err))
	_, events, info := read(t, s, r.ID())
	if len(events) != n-1 || info.Bytes > 1000 || info.Bytes < 960 || info.Note != "it reached the limit of 1000 bytes" || info.EndedAt == 0 {
		t.Errorf("%d events of %d, %+v", len(events), n, info)
	}
	r = begin(t, s)
	must(t, r.Output(start, []byte(strings.Repeat("x", 850)+"\xc3")))
	must(t, r.End(start, nil)) // no room for U+FFFD
	if _, _, info := read(t, s, r.ID()); info.Note == "" {
		t.Errorf("%+v", info)
	}
}

// TestDiskFails: the recording ends with its last whole line, and says why.
func TestDiskFails(t *testing.T) {
	s := open(t, Options{})
	r := begin(t, s)
	must(t, r.Output(start, []byte("kept")))
	must(t, r.Flush())
	file := r.file
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	r.file = full
	must(t, r.Output(start, []byte("lost")))
	err = r.Output(after(time.Second), []byte(strings.Repeat("x", bufferBytes)))
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	must(t, r.End(start, err))
	must(t, file.Close())
	_, events, info := read(t, s, r.ID())
	wantEvents(t, events, event{0, "o", "kept"})
	if info.EndedAt == 0 || info.Note != "it ended early: the disk failed" {
		t.Errorf("%+v", info)
	}
	if _, err := open(t, Options{Dir: filepath.Join(t.TempDir())}).Create(Params{Session: "../x", Start: start}); err == nil {
		t.Error("a session outside the directory")
	}
}

// TestRestart: what an earlier process left is listed, and what it had not
// ended is cut behind its last whole line.
func TestTheOldestGoesFirst(t *testing.T) {
	s := open(t, Options{MaxTotal: 3000})
	var ids []string
	for i := range 4 {
		r := begin(t, s)
		must(t, r.Output(after(time.Second), []byte(strings.Repeat("x", 1000))))
		ids = append(ids, r.ID())
		if i != 1 { // the second one goes on
			must(t, r.End(after(time.Duration(i+2)*time.Second), nil))
		} else {
			must(t, r.Flush())
			defer r.Discard()
		}
	}
	begin(t, s).Discard() // makes room
	var left []string
	for _, info := range s.List(session) {
		left = append(left, info.ID)
	}
	if len(left) != 2 || !slices.Contains(left, ids[1]) || !slices.Contains(left, ids[3]) {
		t.Errorf("%q are left of %q", left, ids)
	}
	if _, err := s.Read(session, ids[0]); protocol.KindOf(err) != protocol.KindNotFound {
		t.Errorf("the removed one: %v", err)
	}
}

func TestRestart(t *testing.T) {
	s := open(t, Options{})
	whole := begin(t, s)
	must(t, whole.Output(start, []byte("whole")))
	must(t, whole.End(after(time.Second), nil))
	cut := begin(t, s)
	must(t, cut.Output(start, []byte("whole")))
	cut.buf = append(cut.buf, `[1.000000, "o", "tor`...)
	cut.buf = append(cut.buf, strings.Repeat("n", 3*tailBytes)...)
	must(t, cut.Flush())
	modified := after(time.Hour)
	must(t, os.Chtimes(s.path(session, cut.ID(), castSuffix), modified, modified))
	must(t, os.WriteFile(s.path(session, "rec_lonely", infoSuffix), []byte(`{"id":"rec_lonely"}`), 0o600))
	must(t, os.WriteFile(s.path(session, "rec_garbage", infoSuffix), []byte(`{"id`), 0o600))
	must(t, os.WriteFile(filepath.Join(s.dir, "file"), nil, 0o600))
	before := s.List(session)
	if len(before) != 2 || before[0].ID != min(whole.ID(), cut.ID()) {
		t.Fatalf("%+v", before)
	}

	s = open(t, Options{Dir: s.dir})
	if l := s.List(session); len(l) != 2 {
		t.Fatalf("%+v", l)
	}
	_, events, info := read(t, s, cut.ID())
	wantEvents(t, events, event{0, "o", "whole"})
	if info.EndedAt != modified.UnixMilli() || info.Note != noteCutShort {
		t.Errorf("%+v", info)
	}
	if _, _, info := read(t, s, whole.ID()); info.EndedAt != after(time.Second).UnixMilli() || info.Note != "" {
		t.Errorf("%+v", info)
	}
	must(t, cut.file.Close())
}

func TestRead(t *testing.T) {
	s := open(t, Options{})
	r := begin(t, s)
	must(t, r.End(start, nil))
	for _, tt := range []struct {
		session protocol.SessionID
		id      string
	}{
		{session, "rec_none"}, {"ses_2", r.ID()}, {session, "../ses_1/" + r.ID()}, {"../recordings/ses_1", r.ID()}, {session, ""},
	} {
		if _, err := s.Read(tt.session, tt.id); err == nil || protocol.KindOf(err) != protocol.KindNotFound {
			t.Errorf("%q %q: %v", tt.session, tt.id, err)
		}
	}
	if l := s.List("../ses_1"); l != nil {
		t.Errorf("%+v", l)
	}
	if l := s.List("ses_2"); l != nil {
		t.Errorf("%+v", l)
	}
	c, err := s.Read(session, r.ID())
	must(t, err)
	defer c.Close()
	if n, err := c.Seek(0, io.SeekEnd); err != nil || n != c.Info.Bytes || !c.Modified.Equal(start) {
		t.Errorf("%d %v %+v", n, err, c.Info)
	}
}

// FuzzOutput cuts output anywhere: the recording is valid, and says the same
// as the whole.
func FuzzOutput(f *testing.F) {
	f.Add([]byte("a\xc3\xa9\x1b[0m\"\xf0\x9f\x98\x80\xff"), []byte{1, 2, 3})
	f.Add([]byte("\xe2\x82\xe2\x82\xac"), []byte{0, 1})
	f.Fuzz(func(t *testing.T, p, cuts []byte) {
		var got strings.Builder
		r := &Recording{store: &Store{maxBytes: 1 << 40}}
		take := func() {
			for _, line := range strings.SplitAfter(string(r.buf), "\n") {
				if line == "" {
					continue
				}
				var e event
				if err := json.Unmarshal([]byte(line), &[]any{&e.at, &e.code, &e.data}); err != nil || !utf8.ValidString(line) {
					t.Fatalf("%q: %v", line, err)
				}
				got.WriteString(e.data)
			}
			r.buf = nil
		}
		rest := p
		for _, c := range cuts {
			n := min(int(c), len(rest))
			must(t, r.Output(start, rest[:n]))
			take()
			rest = rest[n:]
		}
		must(t, r.event(start, 'o', append(r.begun, rest...)))
		take()
		if want := string([]rune(string(p))); got.String() != want {
			t.Fatalf("got %q, want %q", got.String(), want)
		}
	})
}

func BenchmarkOutput(b *testing.B) {
	p := []byte(strings.Repeat("0123456789 \x1b[32mok\x1b[0m some text in a line, é\r\n", 100))
	var buf []byte
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		buf = appendEvent(buf[:0], time.Second, 'o', p)
	}
}

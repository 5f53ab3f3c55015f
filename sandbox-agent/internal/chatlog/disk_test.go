package chatlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// A lazy disk writes, and syncs nothing: no test crashes the machine. It can be
// full, and fail to sync.
type lazy struct {
	room   int // bytes that can be written, if limited
	full   bool
	broken bool
}

func (d *lazy) write(f *os.File, p []byte) error {
	if d.full && len(p) > d.room {
		n, _ := f.Write(p[:d.room])
		d.room -= n
		return &os.PathError{Op: "write", Path: f.Name(), Err: syscall.ENOSPC}
	}
	if d.full {
		d.room -= len(p)
	}
	_, err := f.Write(p)
	return err
}

func (d *lazy) sync(*os.File) error {
	if d.broken {
		return syscall.EIO
	}
	return nil
}

func (d *lazy) syncFolder(string) error { return nil }

func openSmall(t testing.TB, o Options, d disk) (*Store, *Log) {
	t.Helper()
	s := small(t, o, "boot", d)
	t.Cleanup(func() { s.Close() })
	l, err := s.Log(conversation)
	if err != nil {
		t.Fatal(err)
	}
	return s, l
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// filled returns the folder of a log with n events, and these.
func filled(t testing.TB, n int) (dir string, events []Entry) {
	t.Helper()
	dir = t.TempDir()
	s, l := openSmall(t, Options{Dir: dir}, &lazy{})
	for i := range n {
		must(t, l.Append(true, said(fmt.Sprintf("the event %d", i))))
	}
	events = all(t, l, 0)
	must(t, s.Close())
	return dir, events
}

// copied returns a copy of a conversation's folder.
func copied(t testing.TB, from string) string {
	t.Helper()
	to := t.TempDir()
	must(t, os.CopyFS(to, os.DirFS(from)))
	return to
}

func segmentsOf(t testing.TB, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, string(conversation), "events-*.jsonl"))
	must(t, err)
	return paths
}

// TestCutAnywhere: whatever a crash leaves of the last segment, what is whole
// stays, numbers go on, and what comes next can be read.
func TestCutAnywhere(t *testing.T) {
	dir, events := filled(t, 6)
	paths := segmentsOf(t, dir)
	if len(paths) < 2 {
		t.Fatalf("%d segments", len(paths))
	}
	last := filepath.Join(string(conversation), filepath.Base(paths[len(paths)-1]))
	text, err := os.ReadFile(filepath.Join(dir, last))
	must(t, err)
	for cut := range len(text) + 1 {
		zeros := cut % 3 * 50
		at := copied(t, dir)
		must(t, os.WriteFile(filepath.Join(at, last), append(bytes.Clone(text[:cut]), make([]byte, zeros)...), 0o600))
		s := small(t, Options{Dir: at}, "boot", &lazy{})
		l, err := s.Log(conversation)
		must(t, err)
		lost := bytes.Count(text[cut:], []byte("\n"))
		if bytes.IndexByte(text[:cut], '\n') < 0 {
			lost-- // the header
		}
		want := events[:len(events)-lost]
		if got := all(t, l, 0); len(got) != len(want) || !same(got[len(got)-1], want[len(want)-1]) {
			t.Fatalf("cut at %d of %d: %d events, want %d", cut, len(text), len(got), len(want))
		}
		must(t, l.Append(false, said("next")))
		if at := l.Position(); at.First != 1 || at.Last != uint64(len(want)+1) {
			t.Fatalf("cut at %d: %+v", cut, at)
		}
		if got := all(t, l, uint64(len(want))); len(got) != 1 {
			t.Fatalf("cut at %d: %d events behind it", cut, len(got))
		}
		must(t, s.Close())
		must(t, os.RemoveAll(at))
	}
}

// TestDamage: a segment that isn't what was written goes with all older ones, and
// numbers go on far above.
func TestDamage(t *testing.T) {
	dir, events := filled(t, 9)
	paths := segmentsOf(t, dir)
	for i, path := range paths {
		for _, spoil := range []func([]byte) []byte{
			func(text []byte) []byte { // an event is gone
				parts := bytes.SplitAfter(text, []byte("\n"))
				return bytes.Join(append(parts[:1:1], parts[2:]...), nil)
			},
			func(text []byte) []byte { return append([]byte("x"), text...) },
			func(text []byte) []byte { return bytes.Replace(text, []byte(`"kind"`), []byte("\n\"kind"), 1) },
		} {
			at := copied(t, dir)
			name := filepath.Join(at, string(conversation), filepath.Base(path))
			text, err := os.ReadFile(name)
			must(t, err)
			if bytes.Count(text, []byte("\n")) < 3 {
				continue // a cut could do the same
			}
			must(t, os.WriteFile(name, spoil(text), 0o600))
			s, l := openSmall(t, Options{Dir: at}, &lazy{})
			r, was := l.Read(0, l.Position().Last)
			for err == nil {
				_, err = r.Next()
			}
			r.Close()
			now := l.Position()
			renewed := i == len(paths)-1 || err == ErrReset // else the later segments go on
			if now.Covers(1) || renewed != (now.Last > 1e15) || s.Counts().Damaged != 1 || !renewed && err != io.EOF {
				t.Fatalf("segment %d: %v, %+v then %+v, %+v", i, err, was, now, s.Counts())
			}
			must(t, l.Append(false, said("next")))
			got := all(t, l, 0)
			if n := len(got); n < 1 || got[n-1].Seq <= events[len(events)-1].Seq {
				t.Fatalf("%+v", got)
			}
			must(t, s.Close())
			_, l = openSmall(t, Options{Dir: at}, &lazy{})
			if again := all(t, l, 0); len(again) != len(got) || l.Position().Last != got[len(got)-1].Seq {
				t.Fatalf("%d events, then %d", len(got), len(again))
			}
		}
	}
}

// TestBound: whole segments go, the oldest first.
// It is about weakness 15 in deploy/e2e/README.md.
func TestBound(t *testing.T) {
	s, l := openSmall(t, Options{Dir: t.TempDir(), Bytes: 3000}, &lazy{})
	l.Live(true)
	for range 100 {
		must(t, l.Append(false, said("again")))
	}
	at, counts := l.Position(), s.Counts()
	if at.Last != 100 || at.First < 50 || counts.Bytes > 3000+600 || counts.DroppedSegments == 0 || counts.DroppedBytes == 0 {
		t.Fatalf("%+v %+v", at, counts)
	}
	if got := all(t, l, 0); len(got) != int(at.Last-at.First+1) || got[0].Seq != at.First {
		t.Fatalf("%d events of %+v", len(got), at)
	}
	f, _ := l.Subscribe(at.First)
	defer f.Close()
	for range 100 {
		must(t, l.Append(false, said("again")))
	}
	var gap ErrGap
	if _, err := f.Next(t.Context()); !errors.As(err, &gap) || gap.First != l.Position().First {
		t.Fatal(err)
	}
}

// TestBoundOfAll: the conversation that was written longest ago loses its events
// first, one with a run last, and none its numbers.
func TestBoundOfAll(t *testing.T) {
	dir := t.TempDir()
	s := small(t, Options{Dir: dir, AllBytes: 8000}, "boot", &lazy{})
	logs := map[string]*Log{}
	for _, id := range []string{"live", "old", "new"} {
		l, err := s.Log(protocol.ConversationID(id))
		must(t, err)
		l.Live(id == "live")
		for range 10 {
			must(t, l.Append(false, said("again")))
		}
		logs[id] = l
	}
	fill, err := s.Log("fill")
	must(t, err)
	for logs["old"].Position().First <= 10 {
		must(t, fill.Append(false, said("again")))
		if at := logs["new"].Position(); at.First != 1 || at.Last != 10 {
			t.Fatalf("the newer one first: %+v", at)
		}
	}
	fill.Live(true)
	for logs["new"].Position().First <= 10 {
		must(t, fill.Append(false, said("again")))
		if at := logs["live"].Position(); at.First != 1 {
			t.Fatalf("the live one before others: %+v", at)
		}
	}
	for range 200 {
		must(t, fill.Append(false, said("again")))
	}
	if c := s.Counts(); c.Bytes > 8000 || c.Conversations != 4 {
		t.Fatalf("%+v", c)
	}
	must(t, s.Close())
	s = small(t, Options{Dir: dir, AllBytes: 8000}, "boot", &lazy{})
	defer s.Close()
	old, err := s.Log("old")
	must(t, err)
	if at := old.Position(); at.First != 11 || at.Last != 10 || at.Covers(9) || !at.Covers(10) {
		t.Fatalf("%+v", at)
	}
	must(t, old.Append(false, said("next")))
	if at := old.Position(); at.Last != 11 {
		t.Fatalf("%+v", at)
	}
}

// TestAllLive: where nothing may go the Store refuses more.
func TestAllLive(t *testing.T) {
	s, l := openSmall(t, Options{Dir: t.TempDir(), AllBytes: 500}, &lazy{})
	l.Live(true)
	var err error
	for i := 0; err == nil && i < 100; i++ {
		err = l.Append(false, said("again"))
	}
	if protocol.KindOf(err) != protocol.KindNoSpace || s.Counts().NoSpace != 1 {
		t.Fatalf("%v %+v", err, s.Counts())
	}
}

// TestDiskFull: an append that finds no room leaves nothing behind, wherever in
// it the disk is full.
func TestDiskFull(t *testing.T) {
	for room := 0; room < 900; room += 7 {
		d := &lazy{}
		dir := t.TempDir()
		s, l := openSmall(t, Options{Dir: dir}, d)
		must(t, l.Append(true, said("one")))
		d.full, d.room = true, room
		var err error
		stored := 1
		for err == nil {
			if err = l.Append(true, said("two"), said("three")); err == nil {
				stored += 2
			}
		}
		if protocol.KindOf(err) != protocol.KindNoSpace || s.Counts().NoSpace != 1 {
			t.Fatal(err)
		}
		if got := all(t, l, 0); len(got) != stored {
			t.Fatalf("%d events, want %d", len(got), stored)
		}
		d.full = false
		must(t, l.Append(true, said("four")))
		must(t, s.Close())
		_, l = openSmall(t, Options{Dir: dir}, &lazy{})
		if got := all(t, l, 0); len(got) != stored+1 || l.Position().Last != uint64(stored+1) {
			t.Fatalf("%d events, want %d", len(got), stored+1)
		}
	}
}

// TestSyncFails: what the kernel may have dropped is told by another epoch.
func TestSyncFails(t *testing.T) {
	d := &lazy{}
	_, l := openSmall(t, Options{Dir: t.TempDir()}, d)
	must(t, l.Append(false, said("one")))
	f, was := l.Subscribe(1)
	defer f.Close()
	d.broken = true
	if err := l.Append(true, said("two")); protocol.KindOf(err) != protocol.KindUnavailable {
		t.Fatal(err)
	}
	if _, ok, err := f.Ready(); ok || err != nil {
		t.Fatalf("%t %v", ok, err)
	}
	d.broken = false
	must(t, l.Append(true, said("two")))
	var reset *Reset
	if _, err := f.Next(t.Context()); !errors.As(err, &reset) || reset.At.Epoch == was.Epoch || reset.Last != 1 {
		t.Fatal(err)
	}
	if e, err := f.Next(t.Context()); err != nil || e.Seq < 1e15 {
		t.Fatalf("%+v %v", e, err)
	}
	if got := all(t, l, 0); len(got) != 2 {
		t.Fatalf("%d events", len(got))
	}
}

// TestDelete: nothing is left, and a conversation of the same name is another.
func TestDelete(t *testing.T) {
	dir := t.TempDir()
	s, l := openSmall(t, Options{Dir: dir}, &lazy{})
	must(t, l.Append(false, said("one")))
	must(t, os.WriteFile(filepath.Join(s.Folder(conversation), "meta.json"), nil, 0o600))
	f, _ := l.Subscribe(0)
	defer f.Close()
	must(t, s.Delete(conversation))
	if _, err := f.Next(t.Context()); err != ErrEnded {
		t.Fatal(err)
	}
	if err := l.Append(false, said("two")); protocol.KindOf(err) != protocol.KindUnavailable {
		t.Fatal(err)
	}
	must(t, s.Delete(conversation))
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 || len(s.List()) != 0 || s.Counts().Bytes != 0 {
		t.Fatalf("%v %v %v %+v", entries, err, s.List(), s.Counts())
	}
	l, err := s.Log(conversation)
	must(t, err)
	must(t, l.Append(false, said("one")))
	if l.Position().Last != 1 {
		t.Fatalf("%+v", l.Position())
	}
	must(t, os.Mkdir(filepath.Join(dir, deletedName+"x"), 0o700)) // of an interrupted deletion
	must(t, s.Close())
	s, _ = openSmall(t, Options{Dir: dir}, &lazy{})
	if _, err := os.Stat(filepath.Join(dir, deletedName+"x")); !os.IsNotExist(err) || len(s.List()) != 1 {
		t.Fatal(err)
	}
	for _, id := range []protocol.ConversationID{"", "..", "a/b"} {
		if _, err := s.Log(id); protocol.KindOf(err) != protocol.KindInvalid {
			t.Errorf("%q: %v", id, err)
		}
		if err := s.Delete(id); protocol.KindOf(err) != protocol.KindInvalid {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// TestRewriteInterrupted: whenever a crash interrupts a rewrite, each event is as
// it was, or all are masked.
func TestRewriteInterrupted(t *testing.T) {
	dir, events := filled(t, 9)
	after := copied(t, dir)
	_, l := openSmall(t, Options{Dir: after}, &lazy{})
	mask := func(json []byte) []byte { return bytes.ReplaceAll(json, []byte("event"), []byte("*****")) }
	if changed, err := l.Rewrite(mask); !changed || err != nil {
		t.Fatal(err)
	}
	paths := segmentsOf(t, dir)
	for inPlace := -1; inPlace <= len(paths); inPlace++ {
		at := copied(t, dir)
		for i, path := range paths {
			name := filepath.Join(string(conversation), filepath.Base(path))
			text, err := os.ReadFile(filepath.Join(after, name))
			must(t, err)
			switch {
			case i < inPlace:
				must(t, os.WriteFile(filepath.Join(at, name), text, 0o600))
			case inPlace < 0 && i == 1: // it was being written
				must(t, os.WriteFile(filepath.Join(at, name+newSuffix), text[:len(text)/2], 0o600))
			case inPlace >= 0 || i == 0:
				must(t, os.WriteFile(filepath.Join(at, name+newSuffix), text, 0o600))
			}
		}
		_, l := openSmall(t, Options{Dir: at}, &lazy{})
		got := all(t, l, 0)
		if len(got) != len(events) {
			t.Fatalf("%d in place: %d events", inPlace, len(got))
		}
		for i, e := range got {
			want := events[i].JSON
			if inPlace > 0 {
				want = mask(want)
			}
			if e.Seq != events[i].Seq || !bytes.Equal(e.JSON, want) {
				t.Fatalf("%d in place: %s, want %s", inPlace, e.JSON, want)
			}
		}
		if left, err := filepath.Glob(filepath.Join(at, string(conversation), "*"+newSuffix)); err != nil || len(left) > 0 {
			t.Fatal(left, err)
		}
	}
}

// TestRewriteBadly: a mask that spoils an event takes it away.
func TestRewriteBadly(t *testing.T) {
	for name, mask := range map[string]Mask{
		"nothing": func([]byte) []byte { return nil },
		"cut":     func(json []byte) []byte { return json[:len(json)-1] },
		"number":  func(json []byte) []byte { return bytes.Replace(json, []byte(`"seq":`), []byte(`"seq":1`), 1) },
		"line":    func(json []byte) []byte { return bytes.Replace(json, []byte(`,`), []byte(",\n"), 1) },
	} {
		dir, _ := filled(t, 5)
		_, l := openSmall(t, Options{Dir: dir}, &lazy{})
		if changed, err := l.Rewrite(mask); !changed || err != nil {
			t.Fatal(err)
		}
		for i, e := range all(t, l, 0) {
			if e.Seq != uint64(i+1) || strings.Contains(string(e.JSON), "the event") || !strings.Contains(string(e.JSON), `"kind":"text"`) {
				t.Errorf("%s: %s", name, e.JSON)
			}
		}
	}
}

// TestSyncs: what is to outlive a crash of the machine is synced, in a new segment
// too; so is a segment before the next one begins, and where numbers go on when
// all events were dropped. Nothing else waits for the disk.
func TestSyncs(t *testing.T) {
	s, l := openSmall(t, Options{Dir: t.TempDir()}, &lazy{})
	syncs := uint64(0)
	synced := func(what string, want uint64) {
		t.Helper()
		was := syncs
		if syncs = s.Counts().Syncs; syncs-was != want {
			t.Errorf("%s: %d syncs, want %d", what, syncs-was, want)
		}
	}
	must(t, l.Append(true, said("a message")))
	synced("the first segment", 1)
	must(t, l.Append(false, said("a word")))
	synced("a word", 0)
	must(t, l.Append(true, said("a message")))
	synced("a message", 1)
	segments := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.segments)
	}
	for segments() == 1 {
		synced("before the segment is full", 0)
		must(t, l.Append(false, said("another word")))
	}
	synced("another segment", 1)
	must(t, l.dropOldest())
	synced("one of two segments dropped", 0)
	must(t, l.dropOldest())
	synced("the last one dropped", 2)
}

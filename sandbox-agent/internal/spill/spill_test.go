package spill

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

func TestAppendAndRead(t *testing.T) {
	f := open(t, Options{}).Create(pty, epoch)
	wantHeld(t, f, 0, 0)
	f.Append(0, nil)
	f.Append(0, stream(0, 5))
	f.Append(5, stream(5, 40)) // three segments
	wantHeld(t, f, 0, 40)
	f.Append(30, stream(30, 50)) // 10 are there already
	f.Append(0, stream(0, 9))
	wantHeld(t, f, 0, 50)
	if n, next, err := f.Read(3, nil); n != 0 || next != nil || err != nil {
		t.Errorf("Read into nothing = %d, %v, %v", n, next, err)
	}
	for _, offset := range []uint64{50, 51, 1 << 60} {
		if _, _, err := f.Read(offset, make([]byte, 1)); err != io.EOF {
			t.Errorf("Read(%d): %v; want EOF", offset, err)
		}
	}
	if f.Epoch() != epoch {
		t.Errorf("epoch %s", f.Epoch())
	}
}

func TestGapDropsAllThatIsOlder(t *testing.T) {
	dir := t.TempDir()
	f := open(t, Options{Dir: dir}).Create(pty, epoch)
	f.Append(0, stream(0, 40))
	f.Append(50, stream(50, 60))
	wantHeld(t, f, 50, 60)
	want := map[string]int64{"pty_1/00000000000000000050.log": 10}
	if got := onDisk(t, dir); !maps.Equal(got, want) {
		t.Errorf("on disk: %v, want %v", got, want)
	}
	f.Append(1<<63, stream(1<<63, 1<<63+4))
	wantHeld(t, f, 1<<63, 1<<63+4)
}

func TestPerTerminalLimit(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir, PerTerminal: 128})
	f := s.Create(pty, epoch)
	f.Append(0, stream(0, 128))
	wantHeld(t, f, 0, 128)
	f.Append(128, stream(128, 129))
	wantHeld(t, f, 16, 129)
	f.Append(129, stream(129, 1000))
	wantHeld(t, f, 880, 1000)
	if n := s.Bytes(); n != 120 {
		t.Errorf("Bytes() = %d, want 120", n)
	}
	if got := onDisk(t, dir); len(got) != 8 {
		t.Errorf("on disk: %v, want 8 segments", got)
	}
}

func TestTinyLimits(t *testing.T) {
	for _, limit := range []int64{1, 2, 7, 9} {
		f := open(t, Options{PerTerminal: limit}).Create(pty, epoch)
		f.Append(0, stream(0, 30))
		wantHeld(t, f, uint64(30-limit), 30)
	}
	for _, o := range []Options{{PerTerminal: 0, Total: 1}, {PerTerminal: 1, Total: -1}} {
		o.Dir = t.TempDir()
		if _, err := Open(o); err == nil {
			t.Errorf("Open with limits %d and %d succeeded", o.PerTerminal, o.Total)
		}
	}
}

// TestTotalLimit: who has the most loses, not who writes and not who is older.
func TestTotalLimit(t *testing.T) {
	s := open(t, Options{PerTerminal: 1 << 20, Total: 128})
	quiet, loud, late := s.Create("quiet", 1), s.Create("loud", 2), s.Create("late", 3)
	quiet.Append(0, stream(0, 30))
	loud.Append(0, stream(0, 500))
	wantHeld(t, quiet, 0, 30)
	late.Append(0, stream(0, 40))
	wantHeld(t, quiet, 0, 30)
	wantHeld(t, late, 0, 40)
	oldest, _ := loud.Oldest()
	if held := 500 - oldest; held > 58 || held < 42 {
		t.Errorf("the loud one holds %d bytes", held)
	}
	wantHeld(t, loud, oldest, 500)
	if n := s.Bytes(); n > 128 {
		t.Errorf("%d bytes", n)
	}
}

// TestDropClosesTheFile: the bytes of a removed file stay on the disk as long
// as it is open.
func TestDropClosesTheFile(t *testing.T) {
	f := open(t, Options{}).Create(pty, epoch)
	f.Append(0, stream(0, 5))
	out := f.last().out
	f.Append(10, stream(10, 12))
	if _, err := out.Write([]byte("x")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("still open: %v", err)
	}
}

// TestTotalLimitTakesTheSegmentBeingWritten: a terminal that lost all goes on
// where it was.
func TestTotalLimitTakesTheSegmentBeingWritten(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir, PerTerminal: 1 << 20, Total: 64}) // segments of 8
	files := make([]*File, 16)
	for i := range files {
		files[i] = s.Create(fmt.Sprintf("pty_%d", i), epoch)
		files[i].Append(0, stream(0, 7))
	}
	for i, f := range files {
		if i < 7 { // there is room for 9
			wantHeld(t, f, 7, 7)
		} else {
			wantHeld(t, f, 0, 7)
		}
	}
	for i, f := range files {
		f.Append(7, stream(7, 9))
		f.Append(9, stream(9, 10))
		if oldest, ok := f.Oldest(); !ok || f.Head() != 10 {
			t.Errorf("%d did not go on: it holds [%d, %d)", i, oldest, f.Head())
		}
	}
	var total int64
	for _, n := range onDisk(t, dir) {
		total += n
	}
	if n := s.Bytes(); n != total || n > 64 {
		t.Errorf("%d bytes counted, %d on disk", n, total)
	}
}

func TestResizes(t *testing.T) {
	f := open(t, Options{}).Create(pty, epoch)
	f.Resize(0, 100, 30) // before any byte
	f.Append(0, stream(0, 10))
	f.Resize(10, 1, 1)
	f.Resize(10, 110, 30) // supersedes
	f.Append(10, stream(10, 20))
	f.Resize(20, 110, 30) // is in force
	f.Resize(15, 5, 5)    // too late
	f.Append(20, stream(20, 24))
	f.Resize(24, 120, 30) // at the head

	for _, row := range []struct{ offset, n, cols, resized int }{
		{0, 10, 100, 110}, {9, 1, 100, 110},
		{10, 6, 110, 0}, // to the end of the segment
		{16, 8, 110, 120},
	} {
		buf := make([]byte, 100)
		n, next, err := f.Read(uint64(row.offset), buf)
		if err != nil || n != row.n || !bytes.Equal(buf[:n], stream(uint64(row.offset), uint64(row.offset+n))) {
			t.Errorf("Read(%d) = %d, %v; want %d bytes", row.offset, n, err, row.n)
		}
		switch {
		case row.resized == 0 && next != nil,
			row.resized != 0 && (next == nil || *next != protocol.Resized{Offset: uint64(row.offset + n), Cols: row.resized, Rows: 30}):
			t.Errorf("Read(%d) is followed by %+v, want %d columns", row.offset, next, row.resized)
		}
		if cols, rows, ok := f.SizeAt(uint64(row.offset)); !ok || cols != row.cols || rows != 30 {
			t.Errorf("SizeAt(%d) = %d×%d, %t; want %d", row.offset, cols, rows, ok, row.cols)
		}
	}
	if cols, _, ok := f.SizeAt(24); !ok || cols != 120 {
		t.Errorf("SizeAt at the head: %d, %t", cols, ok)
	}
	if _, _, ok := f.SizeAt(25); ok {
		t.Error("a size beyond the head")
	}
}

func TestSizeOutlivesWhatIsDropped(t *testing.T) {
	f := open(t, Options{}).Create(pty, epoch)
	f.Append(0, stream(0, 10))
	f.Resize(10, 100, 30)
	f.Append(10, stream(10, 200)) // the resize is dropped
	oldest, _ := f.Oldest()
	if cols, rows, ok := f.SizeAt(oldest); !ok || cols != 100 || rows != 30 {
		t.Errorf("SizeAt(%d) = %d×%d, %t", oldest, cols, rows, ok)
	}
	if _, _, ok := f.SizeAt(oldest - 1); ok {
		t.Error("a size before the oldest byte")
	}
	f.Resize(300, 90, 20) // a gap
	wantHeld(t, f, 300, 300)
	if _, _, ok := f.SizeAt(300); ok {
		t.Error("a size though nothing is held")
	}
	f.Append(300, stream(300, 310))
	if cols, rows, ok := f.SizeAt(300); !ok || cols != 90 || rows != 20 {
		t.Errorf("SizeAt(300) = %d×%d, %t", cols, rows, ok)
	}
}

func TestTooManyResizes(t *testing.T) {
	s := open(t, Options{PerTerminal: 64 << 20, Total: 64 << 20})               // segments of 1 MiB
	s.o.write = func(_ io.Writer, p []byte) (int, error) { return len(p), nil } // nothing is read here
	f := s.Create(pty, epoch)
	const n = 3*maxResizes + 7
	for i := range uint64(n) {
		f.Append(i, []byte{'x'})
		f.Resize(i+1, 1+int(i%2), 1)
		if len(f.resizes) > maxResizes {
			t.Fatalf("%d resizes", len(f.resizes))
		}
	}
	oldest, _ := f.Oldest()
	if held := n - oldest; held > maxResizes+1 || held < maxResizes-maxSegmentResizes {
		t.Errorf("%d bytes are held, each with a resize", held)
	}
}

func TestNames(t *testing.T) {
	dir := t.TempDir()
	var log journal
	s := open(t, Options{Dir: dir, Logger: log.logger()})
	names := []string{"", ".", "..", "../x", "a/b", "/x", "a\x00", ".x", strings.Repeat("a", protocol.MaxIDBytes+1)}
	for _, name := range names {
		f := s.Create(name, epoch)
		f.Append(0, stream(0, 100))
		f.Resize(100, 1, 1)
		wantHeld(t, f, 0, 0)
		if err := f.Close(); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	if got := onDisk(t, filepath.Dir(dir)); len(got) > 0 {
		t.Errorf("on disk: %v", got)
	}
	if n := log.count("not an id"); n != len(names) {
		t.Errorf("%d lines logged", n)
	}
}

func TestFilesArePrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "spill")
	open(t, Options{Dir: dir}).Create(pty, epoch).Append(0, stream(0, 1))
	for name, want := range map[string]os.FileMode{
		".": 0o700, pty: 0o700, pty + "/00000000000000000000.log": 0o600,
	} {
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", name, st.Mode(), err, want)
		}
	}
}

func TestOpenRemovesOnlyWhatWasSpilled(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "spill")
	const segment = "00000000000000000000.log"
	kept := []string{
		"../outside/" + segment,
		"notes.txt", segment, "pty_file",
		".hidden/" + segment,
		"pty_mixed/notes.txt", "pty_mixed/0.log", "pty_mixed/x" + segment, "pty_mixed/+0000000000000000000.log",
		"pty_deep/deeper/" + segment,
	}
	gone := []string{"pty_1/" + segment, "pty_1/00000000000001048576.log", "pty_mixed/" + segment}
	for _, name := range slices.Concat(kept, gone) {
		writeFile(t, filepath.Join(dir, name))
	}
	if err := errors.Join(
		os.Mkdir(filepath.Join(dir, "empty"), 0o700),
		os.Symlink("../outside", filepath.Join(dir, "link")),
		os.Symlink("../../outside/"+segment, filepath.Join(dir, "pty_mixed", "00000000000000000001.log")),
	); err != nil {
		t.Fatal(err)
	}
	s, err := Open(Options{Dir: dir, PerTerminal: 1, Total: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range append(kept, "empty", "link", "pty_mixed/00000000000000000001.log") {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			t.Errorf("removed: %v", err)
		}
	}
	for _, name := range append(gone, pty) {
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there: %v", name, err)
		}
	}
}

func TestClose(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	f, other := s.Create(pty, epoch), s.Create("other", epoch)
	f.Append(0, stream(0, 50))
	other.Append(0, stream(0, 50))
	for range 2 {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, pty)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its directory is still there: %v", err)
	}
	f.Append(50, stream(50, 60))
	f.Resize(60, 1, 1)
	wantHeld(t, f, 50, 50)
	wantHeld(t, other, 0, 50)
	if n := s.Bytes(); n != 50 {
		t.Errorf("%d bytes", n)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	wantHeld(t, other, 50, 50)
	late := s.Create(pty, epoch)
	late.Append(0, stream(0, 50))
	wantHeld(t, late, 0, 0)
}

// TestSameNameAgain: a later File takes the directory over, however late the
// earlier one is closed.
func TestSameNameAgain(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	first := s.Create(pty, 1)
	first.Append(0, stream(0, 50))
	s.Create(pty, 2) // never writes
	third := s.Create(pty, 3)
	wantHeld(t, first, 0, 50)
	third.Append(0, stream(0, 10))
	wantHeld(t, first, 50, 50)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	wantHeld(t, third, 0, 10)
	if got := onDisk(t, dir); len(got) != 1 {
		t.Errorf("on disk: %v", got)
	}
	fourth := s.Create(pty, 4)
	if err := fourth.Close(); err != nil {
		t.Fatal(err)
	}
	wantHeld(t, third, 10, 10)
}

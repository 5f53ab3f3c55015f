package spill

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
)

const (
	epoch protocol.Epoch = 0xfeed
	pty                  = "pty_1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a store that keeps 8 segments of 16 bytes of each terminal, where
// o doesn't say otherwise, and closes it at the end.
func open(t *testing.T, o Options) *Store {
	t.Helper()
	if o.Dir == "" {
		o.Dir = filepath.Join(t.TempDir(), "spill")
	}
	if o.PerTerminal == 0 {
		o.PerTerminal = 128
	}
	if o.Total == 0 {
		o.Total = 1 << 20
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if n := s.Bytes(); n != 0 {
			t.Errorf("%d bytes are counted after Close", n)
		}
		if left := onDisk(t, o.Dir); len(left) > 0 {
			t.Errorf("left on disk: %v", left)
		}
	})
	return s
}

// stream returns the bytes [from, to) of the one log that tests write: each
// depends on its offset alone.
func stream(from, to uint64) []byte {
	p := make([]byte, 0, to-from)
	for o := from; o < to; o++ {
		p = append(p, byte(o*0x9e3779b97f4a7c15>>56))
	}
	return p
}

// onDisk returns the sizes of all files in dir by path.
func onDisk(t testing.TB, dir string) map[string]int64 {
	t.Helper()
	sizes := make(map[string]int64)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			name, _ := filepath.Rel(dir, path)
			sizes[name] = info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sizes
}

// wantHeld checks what f holds: nothing when oldest is head, and the right
// bytes otherwise.
func wantHeld(t *testing.T, f *File, oldest, head uint64) {
	t.Helper()
	if at, ok := f.Oldest(); at != oldest || ok != (oldest < head) || f.Head() != head {
		t.Fatalf("holds [%d, %d), %t; want [%d, %d)", at, f.Head(), ok, oldest, head)
	}
	if got := readAll(t, f, oldest); !bytes.Equal(got, stream(oldest, head)) {
		t.Fatalf("read %x, want %x", got, stream(oldest, head))
	}
	if oldest > 0 {
		wantGone(t, f, oldest-1, oldest)
	}
}

// readAll reads from offset to the head.
func readAll(t *testing.T, f *File, offset uint64) []byte {
	t.Helper()
	var all []byte
	buf := make([]byte, 1<<10)
	for {
		n, _, err := f.Read(offset+uint64(len(all)), buf)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil || n == 0 {
			t.Fatalf("Read(%d) = %d, %v", offset+uint64(len(all)), n, err)
		}
		all = append(all, buf[:n]...)
	}
}

func wantGone(t *testing.T, f *File, offset, oldest uint64) {
	t.Helper()
	_, _, err := f.Read(offset, make([]byte, 1))
	if want := (ErrGone{oldest}); err != want {
		t.Fatalf("Read(%d): %v; want %v", offset, err, want)
	}
}

// A faultyDisk takes only room more bytes, and counts calls.
type faultyDisk struct {
	mu   sync.Mutex
	room int
	err  error
}

func (d *faultyDisk) set(room int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.room, d.err = room, err
}

func (d *faultyDisk) write(w io.Writer, p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		return w.Write(p)
	}
	taken := min(d.room, len(p))
	d.room -= taken
	n, err := w.Write(p[:taken])
	if err == nil && taken < len(p) {
		err = d.err
	}
	return n, err
}

// A journal is a log whose lines can be counted.
type journal struct {
	mu  sync.Mutex
	buf strings.Builder
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

func (j *journal) count(text string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.buf.String(), text)
}

func writeFile(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
}

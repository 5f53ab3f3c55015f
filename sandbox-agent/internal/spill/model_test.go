package spill

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol"
)

// An op is one step of a test: rapid draws them, the fuzzer's bytes become
// them.
type op struct {
	kind uint8
	a, b uint16
}

const opBytes = 5

// A model is the obvious log: all bytes in one slice, nothing forgotten. It
// doesn't say what the limits and the disk make a File drop, but what is right
// for that which a File says it holds.
type model struct {
	all    []byte // gaps included
	events []protocol.Resized
	start  uint64 // a gap ended here
	intact bool   // neither the disk nor another terminal took anything
}

func (m *model) head() uint64 { return uint64(len(m.all)) }

func (m *model) append(offset uint64, p []byte) {
	m.gap(offset)
	m.all = append(m.all, p[m.head()-offset:]...)
}

func (m *model) gap(offset uint64) {
	if offset > m.head() {
		m.all = append(m.all, make([]byte, offset-m.head())...)
		m.start = offset
	}
}

func (m *model) resize(offset uint64, cols, rows int) {
	if had, lines := m.sizeAt(offset); had == cols && lines == rows {
		return
	}
	m.gap(offset)
	m.events = append(m.events, protocol.Resized{Offset: offset, Cols: cols, Rows: rows})
}

func (m *model) sizeAt(offset uint64) (cols, rows int) {
	cols, rows = protocol.DefaultCols, protocol.DefaultRows
	for _, e := range m.events {
		if e.Offset <= offset {
			cols, rows = e.Cols, e.Rows
		}
	}
	return cols, rows
}

// nextEvent returns the offset of the first event behind offset.
func (m *model) nextEvent(offset uint64) (uint64, bool) {
	for _, e := range m.events {
		if e.Offset > offset {
			return e.Offset, true
		}
	}
	return 0, false
}

// checkRead compares one Read with the model and returns how far it came.
func (m *model) checkRead(tb rapid.TB, f *File, offset uint64, limit int) uint64 {
	tb.Helper()
	oldest, _ := f.Oldest()
	buf := make([]byte, limit)
	n, next, err := f.Read(offset, buf)
	switch {
	case offset >= f.Head():
		if err != io.EOF {
			tb.Fatalf("Read(%d) at the head %d: %v", offset, f.Head(), err)
		}
		return offset
	case offset < oldest:
		var gone ErrGone
		if !errors.As(err, &gone) || gone.Oldest != oldest {
			tb.Fatalf("Read(%d), oldest %d: %v", offset, oldest, err)
		}
		return oldest
	case err != nil || n < 1:
		tb.Fatalf("Read(%d) = %d, %v", offset, n, err)
	}
	end := offset + uint64(n)
	if end > f.Head() || !bytes.Equal(buf[:n], m.all[offset:end]) {
		tb.Fatalf("Read(%d) = %x, want of %x", offset, buf[:n], m.all[offset:])
	}
	event, ok := m.nextEvent(offset)
	if ok && event < end {
		tb.Fatalf("Read(%d) = %d bytes, across the resize at %d", offset, n, event)
	}
	if here := ok && event == end; here != (next != nil) {
		tb.Fatalf("Read(%d) = %d bytes, then %+v; a resize is there: %t", offset, n, next, here)
	}
	if next != nil {
		if cols, rows := m.sizeAt(end); *next != (protocol.Resized{Offset: end, Cols: cols, Rows: rows}) {
			tb.Fatalf("Read(%d) is followed by %+v, want %d×%d", offset, next, cols, rows)
		}
	}
	return end
}

// check compares all that f holds with the model.
func (m *model) check(tb rapid.TB, f *File, limit int) {
	tb.Helper()
	s := f.store
	oldest, ok := f.Oldest()
	head := f.Head()
	switch {
	case ok != (oldest < head) || head > m.head() || m.intact && head != m.head():
		tb.Fatalf("holds [%d, %d), %t; the model is at %d", oldest, head, ok, m.head())
	case head-oldest > uint64(s.o.PerTerminal) || s.Bytes() > s.o.Total:
		tb.Fatalf("holds %d bytes, the store %d", head-oldest, s.Bytes())
	case m.intact && oldest > m.start && head-oldest+uint64(s.segmentBytes) <= uint64(s.o.PerTerminal):
		tb.Fatalf("holds [%d, %d), though there is room from %d", oldest, head, m.start)
	case ok && head > m.start && oldest < m.start:
		tb.Fatalf("holds [%d, %d) across the gap before %d", oldest, head, m.start)
	}
	for at := oldest; at < head; {
		at = m.checkRead(tb, f, at, limit)
	}
	for at := oldest; ok && at <= head; at++ {
		wantCols, wantRows := m.sizeAt(at)
		if cols, rows, ok := f.SizeAt(at); !ok || cols != wantCols || rows != wantRows {
			tb.Fatalf("SizeAt(%d) = %d×%d, %t; want %d×%d", at, cols, rows, ok, wantCols, wantRows)
		}
	}
}

// run does ops to a file and to the model and compares the two after each.
func run(tb rapid.TB, dir string, limit int64, ops []op) {
	tb.Helper()
	var disk faultyDisk
	s, err := Open(Options{Dir: dir, PerTerminal: limit, Total: limit + limit/2, write: disk.write})
	if err != nil {
		tb.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil || s.Bytes() != 0 {
			tb.Fatalf("Close: %v, %d bytes", err, s.Bytes())
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			tb.Fatalf("left on disk: %v, %v", left, err)
		}
	}()
	f, other := s.Create(pty, epoch), s.Create("other", epoch)
	m := &model{intact: true}
	add := func(offset uint64, n int) {
		p := stream(offset, offset+uint64(n))
		f.Append(offset, p)
		m.append(offset, p)
	}
	for _, o := range ops {
		switch o.kind % 10 {
		case 0, 1, 2, 3:
			add(m.head(), int(o.a)%40)
		case 4: // an overlap
			back := min(m.head(), uint64(o.b%20))
			add(m.head()-back, int(back)+int(o.a)%20)
		case 5, 6:
			cols, rows := 1+int(o.a%3), 1+int(o.b%2)
			f.Resize(m.head(), cols, rows)
			m.resize(m.head(), cols, rows)
		case 7:
			m.checkRead(tb, f, uint64(o.a)%(m.head()+3), 1+int(o.b)%50)
		case 8:
			switch o.a % 8 {
			case 0:
				add(m.head()+1+uint64(o.b%5), int(o.b)%30+1)
			case 1:
				f.Resize(m.head()+2, 4+int(o.b%2), 9)
				m.resize(m.head()+2, 4+int(o.b%2), 9)
			case 2:
				m.intact = false
				other.Append(other.Head(), stream(0, uint64(o.b)%100))
			}
		case 9:
			switch o.a % 4 {
			case 0:
				m.intact = false
				disk.set(int(o.b)%30, unix.ENOSPC)
			case 1, 2:
				disk.set(0, nil)
			}
		}
		m.check(tb, f, 8+int(o.b)%50)
	}
}

func TestModel(t *testing.T) {
	dir := t.TempDir()
	step := rapid.Custom(func(t *rapid.T) op {
		return op{rapid.Uint8Range(0, 9).Draw(t, "kind"), rapid.Uint16().Draw(t, "a"), rapid.Uint16().Draw(t, "b")}
	})
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(1, 300).Draw(t, "limit")
		n := rapid.IntRange(1, 60).Draw(t, "n")
		run(t, dir, limit, rapid.SliceOfN(step, n, n).Draw(t, "ops"))
	})
}

func FuzzModel(f *testing.F) {
	f.Add(uint16(7), []byte("\x00\x00\x09\x00\x00\x05\x00\x01\x00\x01\x04\x00\x04\x00\x00\x08\x00\x00\x00\x02\x07\x00\x09\x00\x00"))
	f.Add(uint16(300), bytes.Repeat([]byte("\x00\x00\x27\x00\x03\x05\x00\x02\x00\x01\x09\x00\x00\x00\x09\x00\x00\x27\x00\x00\x09\x00\x01\x00\x00"), 12))
	f.Fuzz(func(t *testing.T, limit uint16, script []byte) {
		var ops []op
		for ; len(script) >= opBytes && len(ops) < 48; script = script[opBytes:] {
			ops = append(ops, op{script[0], binary.BigEndian.Uint16(script[1:]), binary.BigEndian.Uint16(script[3:])})
		}
		run(t, t.TempDir(), 1+int64(limit)%100, ops)
	})
}

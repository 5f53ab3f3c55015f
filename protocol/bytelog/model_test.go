package bytelog_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/bytelog"
	"pgregory.net/rapid"
)

// An op is one step of a test: rapid draws them, the fuzzer's bytes become
// them.
type op struct {
	kind uint8
	a, b uint16
}

const opBytes = 5

// alphabet makes line feeds and pieces of characters likely.
const alphabet = "ab\n\né€😀\x80\xff"

// A model is the obvious log: it forgets nothing and searches from the start.
type model struct {
	window int
	oldest int
	all    []byte
	events []event
	exited *protocol.Exited
}

type event struct {
	offset     int
	size       [2]int
	superseded bool
}

type place struct {
	offset int
	events int // how many were delivered or skipped
	ended  bool
}

func (m *model) append(p []byte) {
	if m.exited == nil {
		m.all = append(m.all, p...)
		m.oldest = max(m.oldest, len(m.all)-m.window)
	}
}

func (m *model) resize(cols, rows int) {
	if m.exited != nil || m.sizeAt(len(m.all)) == [2]int{cols, rows} {
		return
	}
	for i := range m.events {
		if m.events[i].offset == len(m.all) {
			m.events[i].superseded = true
		}
	}
	m.events = append(m.events, event{len(m.all), [2]int{cols, rows}, false})
}

func (m *model) sizeAt(offset int) [2]int {
	size := [2]int{protocol.DefaultCols, protocol.DefaultRows}
	for _, e := range m.events {
		if e.offset <= max(offset, m.oldest-1) {
			size = e.size
		}
	}
	return size
}

func (m *model) placeAt(offset int) place {
	p := place{offset: offset}
	for _, e := range m.events {
		if e.offset <= offset {
			p.events++
		}
	}
	return p
}

// lineStart follows the words of the documentation.
func (m *model) lineStart(limit int) int {
	from := max(len(m.all)-limit, m.oldest)
	if from == 0 {
		return 0
	}
	for o := from; o < len(m.all); o++ {
		if o > m.oldest && m.all[o-1] == '\n' {
			return o
		}
	}
	for o := from; o < min(len(m.all), from+utf8.UTFMax); o++ {
		if utf8.RuneStart(m.all[o]) {
			return o
		}
	}
	if len(m.all)-from < utf8.UTFMax {
		return len(m.all)
	}
	return from
}

// checkNext compares one Next with what the model holds at p, and moves p.
func (m *model) checkNext(tb rapid.TB, l *bytelog.Log, c *bytelog.Cursor, p *place, limit int) (more bool) {
	tb.Helper()
	item, ok, err := l.Next(c, limit)
	if p.offset < m.oldest {
		var gap bytelog.ErrGap
		if !errors.As(err, &gap) || gap.Oldest != uint64(m.oldest) {
			tb.Fatalf("Next at %d, oldest %d: %v, want ErrGap", p.offset, m.oldest, err)
		}
		return false
	}
	if err != nil {
		tb.Fatalf("Next at %d: %v", p.offset, err)
	}
	for p.events < len(m.events) && m.events[p.events].superseded {
		p.events++
	}
	end := len(m.all)
	switch {
	case p.events < len(m.events) && m.events[p.events].offset == p.offset:
		e := m.events[p.events]
		want := protocol.Resized{Offset: uint64(e.offset), Cols: e.size[0], Rows: e.size[1]}
		if item.Resized == nil || *item.Resized != want || item.Bytes != nil || item.Exited != nil {
			tb.Fatalf("Next at %d = %s, want %+v", p.offset, spell(item), want)
		}
		p.events++
		return true
	case p.events < len(m.events):
		end = m.events[p.events].offset
	case p.offset == end && (m.exited == nil || p.ended):
		if ok {
			tb.Fatalf("Next at the head = %s", spell(item))
		}
		return false
	case p.offset == end:
		if item.Exited == nil || *item.Exited != *m.exited {
			tb.Fatalf("Next at the head = %s, want the end", spell(item))
		}
		p.ended = true
		return true
	}
	n := len(item.Bytes)
	if n < 1 || n > max(limit, 1) || p.offset+n > end || !bytes.Equal(item.Bytes, m.all[p.offset:p.offset+n]) {
		tb.Fatalf("Next(%d) at %d = %q, want of %q", limit, p.offset, item.Bytes, m.all[p.offset:end])
	}
	p.offset += n
	if c.Offset() != uint64(p.offset) {
		tb.Fatalf("cursor at %d, want %d", c.Offset(), p.offset)
	}
	return true
}

// checkState compares what needs no cursor.
func (m *model) checkState(tb rapid.TB, l *bytelog.Log, offset, limit int) {
	tb.Helper()
	if l.Oldest() != uint64(m.oldest) || l.Head() != uint64(len(m.all)) {
		tb.Fatalf("holds [%d, %d), want [%d, %d)", l.Oldest(), l.Head(), m.oldest, len(m.all))
	}
	if cols, rows := l.SizeAt(uint64(offset)); m.sizeAt(offset) != [2]int{cols, rows} {
		tb.Fatalf("SizeAt(%d) = %d×%d, want %v", offset, cols, rows, m.sizeAt(offset))
	}
	if got, want := l.LineStart(limit), m.lineStart(limit); got != uint64(want) {
		tb.Fatalf("LineStart(%d) = %d, want %d", limit, got, want)
	}
	exited, ok := l.Exited()
	if ok != (m.exited != nil) || ok && exited != *m.exited {
		tb.Fatalf("Exited() = %+v, %t", exited, ok)
	}
}

// run does ops to a log and to the model and compares the two after each.
func run(tb rapid.TB, window int, ops []op) {
	tb.Helper()
	l, m := bytelog.New(epoch, window), &model{window: window}
	var cursors [3]bytelog.Cursor
	var places [3]place
	for _, o := range ops {
		who := int(o.b) % len(cursors)
		switch o.kind % 8 {
		case 0, 1, 2:
			p := bytes.Repeat([]byte(alphabet), 4)[o.b%16:][:o.a%40]
			l.Append(p)
			m.append(p)
		case 3:
			l.Resize(int(o.a%3)+1, int(o.b%2)+1)
			m.resize(int(o.a%3)+1, int(o.b%2)+1)
		case 4:
			offset := int(o.a) % (len(m.all) + 3)
			c, err := l.CursorAt(uint64(offset))
			if want := offset >= m.oldest && offset <= len(m.all); want != (err == nil) {
				tb.Fatalf("CursorAt(%d) in [%d, %d): %v", offset, m.oldest, len(m.all), err)
			}
			if err == nil {
				cursors[who], places[who] = c, m.placeAt(offset)
			}
		case 5:
			m.checkNext(tb, l, &cursors[who], &places[who], int(o.a%20)-1)
		case 6:
			for m.checkNext(tb, l, &cursors[who], &places[who], int(o.a%50)) {
			}
		case 7:
			if o.a%32 == 31 && m.exited == nil {
				m.exited = &protocol.Exited{Offset: uint64(len(m.all)), Code: int(o.b)}
				l.Exit(int(o.b), "")
			}
		}
		m.checkState(tb, l, int(o.a)%(len(m.all)+2), int(o.b)%(window+5))
	}
	for i := range cursors {
		for m.checkNext(tb, l, &cursors[i], &places[i], window) {
		}
	}
}

func TestModel(t *testing.T) {
	step := rapid.Custom(func(t *rapid.T) op {
		return op{rapid.Uint8Range(0, 7).Draw(t, "kind"), rapid.Uint16().Draw(t, "a"), rapid.Uint16().Draw(t, "b")}
	})
	rapid.Check(t, func(t *rapid.T) {
		window := rapid.IntRange(1, 64).Draw(t, "window")
		n := rapid.IntRange(1, 150).Draw(t, "n")
		run(t, window, rapid.SliceOfN(step, n, n).Draw(t, "ops"))
	})
}

func FuzzModel(f *testing.F) {
	f.Add(uint16(7), []byte("\x00\x00\x09\x00\x00\x03\x00\x01\x00\x01\x05\x00\x04\x00\x00\x00\x00\x27\x00\x00\x06\x00\x09\x00\x00"))
	f.Add(uint16(300), bytes.Repeat([]byte("\x00\xff\xff\x00\x03\x03\x00\x02\x00\x01\x04\x10\x00\x00\x01"), 64))
	f.Fuzz(func(t *testing.T, window uint16, script []byte) {
		var ops []op
		for ; len(script) >= opBytes && len(ops) < 256; script = script[opBytes:] {
			ops = append(ops, op{script[0], binary.BigEndian.Uint16(script[1:]), binary.BigEndian.Uint16(script[3:])})
		}
		run(t, 1+int(window)%512, ops)
	})
}

package replay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

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

const (
	testEpoch = protocol.Epoch(0xfeed)
	origin    = 1000 // offset of a test ring's first byte
)

// An item is one call that added something.
type item struct {
	offset  int
	at      uint64 // position of its first frame
	data    string // output, or an event when it is empty
	event   string
	resized *[2]int
}

// A model is the obvious ring: a list that forgets nothing. What the ring has
// dropped it asks the ring, and then checks that this was allowed.
type model struct {
	*Ring
	head  int
	items []item
}

// A place is a cursor of the model: before byte skip of an item.
type place struct{ item, skip, offset int }

func newModel(window int) *model {
	return &model{Ring: New(testEpoch, origin, 80, 24, window), head: origin}
}

func (m *model) data(tb rapid.TB, p string) {
	tb.Helper()
	if m.Data(uint64(m.head+1), []byte(p)) == nil || m.Data(uint64(m.head-1), []byte(p)) == nil {
		tb.Fatalf("Data took output beside the head")
	}
	at, src := m.end, []byte(p)
	if err := m.Data(uint64(m.head), src); err != nil {
		tb.Fatalf("Data: %v", err)
	}
	clear(src) // the ring must have copied it
	if p != "" {
		m.items = append(m.items, item{offset: m.head, at: at, data: p})
		m.head += len(p)
	}
}

func (m *model) text(event string) {
	m.items = append(m.items, item{offset: m.head, at: m.end, event: event})
	m.Text([]byte(event))
}

func (m *model) resize(tb rapid.TB, cols, rows int) {
	tb.Helper()
	event := fmt.Sprintf("%dx%d", cols, rows)
	at := m.end
	if m.Resize(uint64(m.head+1), cols, rows, []byte(event)) == nil {
		tb.Fatalf("Resize took an offset beside the head")
	}
	if err := m.Resize(uint64(m.head), cols, rows, []byte(event)); err != nil {
		tb.Fatalf("Resize: %v", err)
	}
	m.items = append(m.items, item{offset: m.head, at: at, event: event, resized: &[2]int{cols, rows}})
}

// base returns the position of the oldest frame held.
func (m *model) base() uint64 {
	if len(m.slabs) == 0 {
		return m.end
	}
	return m.slabs[0].base
}

func (m *model) placeAt(offset int) place {
	i := 0
	for ; i < len(m.items); i++ {
		it := m.items[i]
		end := it.offset + len(it.data)
		if end > offset && it.offset <= offset {
			return place{i, offset - it.offset, offset}
		}
		// Events at offset that are held, up to the first that is no resize.
		if it.offset == offset && it.at >= m.base() && it.resized == nil {
			break
		}
	}
	return place{i, 0, offset}
}

// lost reports whether what p would read next is dropped.
func (m *model) lost(p place) bool {
	if p.item == len(m.items) {
		return false
	}
	if it := m.items[p.item]; it.data == "" {
		return it.at < m.base()
	}
	return uint64(p.offset) < m.Oldest()
}

// follow moves p behind frames, which must be what the model holds there, and
// counts their bytes.
func (m *model) follow(tb rapid.TB, p *place, frames []message) (n int) {
	tb.Helper()
	for _, f := range frames {
		if p.item == len(m.items) {
			tb.Fatalf("opcode %d %q follows the end", f.op, f.payload)
		}
		it := m.items[p.item]
		rest := it.data[p.skip:]
		switch {
		case it.data == "" && f.op == 1 && string(f.payload) == it.event:
			p.item++
		case f.op == 2 && len(f.payload) > 0 && strings.HasPrefix(rest, string(f.payload)):
			n += len(f.payload)
			p.offset += len(f.payload)
			if p.skip += len(f.payload); p.skip == len(it.data) {
				p.item, p.skip = p.item+1, 0
			}
		default:
			tb.Fatalf("opcode %d %q at %d, want output %q or event %q", f.op, f.payload, p.offset, rest, it.event)
		}
	}
	return n
}

// checkNext compares one Next with the model, and moves p.
func (m *model) checkNext(tb rapid.TB, c *Cursor, p *place, limit int) {
	tb.Helper()
	before, limited := *c, max(limit, 0)
	buffers, err := m.Next(c, limit, nil)
	if m.lost(*p) {
		var gap bytelog.ErrGap
		if !errors.As(err, &gap) || gap.Oldest != m.Oldest() || *c != before || buffers != nil {
			tb.Fatalf("Next at %d, oldest %d: %v, want ErrGap", p.offset, m.Oldest(), err)
		}
		return
	}
	if err != nil {
		tb.Fatalf("Next at %d, oldest %d: %v", p.offset, m.Oldest(), err)
	}
	frames, err := parse(join(buffers))
	if err != nil {
		tb.Fatalf("Next at %d: not WebSocket frames: %v", p.offset, err)
	}
	more := p.item < len(m.items)
	n := m.follow(tb, p, frames)
	switch {
	case n > limited && len(frames) > 1:
		tb.Fatalf("Next(%d) gave %d bytes in %d frames", limit, n, len(frames))
	case more && len(frames) == 0:
		tb.Fatalf("Next(%d) gave nothing", limit)
	case p.item < len(m.items) && len(m.items[p.item].data)-p.skip <= limited-n:
		tb.Fatalf("Next(%d) gave %d bytes and stopped before what would fit", limit, n)
	case c.Offset() != uint64(p.offset):
		tb.Fatalf("cursor at %d, want %d", c.Offset(), p.offset)
	}
}

func (m *model) checkState(tb rapid.TB, offset, limit int) {
	tb.Helper()
	oldest := int(m.Oldest())
	if m.Head() != uint64(m.head) || oldest > m.head {
		tb.Fatalf("holds [%d, %d), want head %d", oldest, m.Head(), m.head)
	}
	memory := 0
	for _, s := range m.slabs {
		memory += cap(s.frames)
	}
	if memory != m.held || memory > m.window && len(m.slabs) > 1 {
		tb.Fatalf("%d bytes in %d slabs, counted as %d, window %d", memory, len(m.slabs), m.held, m.window)
	}
	size := [2]int{80, 24}
	var output strings.Builder
	for _, it := range m.items {
		if it.resized != nil && (it.offset <= offset || it.at < m.base()) {
			size = *it.resized
		}
		output.WriteString(it.data)
	}
	if cols, rows := m.SizeAt(uint64(offset)); size != [2]int{cols, rows} {
		tb.Fatalf("SizeAt(%d) = %d×%d, want %v", offset, cols, rows, size)
	}
	held := output.String()[oldest-origin:]
	from := max(len(held)-limit, 0)
	at := max(from-1, 0)
	want := bytelog.LineStart(uint64(oldest+from), uint64(oldest+at), m.Head(), func(yield func([]byte) bool) {
		yield([]byte(held[at:]))
	})
	if got := m.LineStart(limit); got != want {
		tb.Fatalf("LineStart(%d) = %d, want %d", limit, got, want)
	}
}

// run does ops to a ring and to the model and compares the two after each.
func run(tb rapid.TB, window int, ops []op) {
	tb.Helper()
	m := newModel(window)
	var cursors [3]Cursor
	var places [3]place
	for i := range cursors {
		cursors[i], places[i] = Cursor{offset: origin}, place{0, 0, origin}
	}
	var kept []net.Buffers // handed out earlier, must not change
	var copies [][]byte
	for _, o := range ops {
		who := int(o.b) % len(cursors)
		switch o.kind % 10 {
		case 0, 1:
			m.data(tb, strings.Repeat(alphabet, 2)[o.b%16:][:o.a%4])
		case 2:
			m.data(tb, strings.Repeat(alphabet, 41)[o.b%16:][:o.a%600])
		case 3:
			m.resize(tb, int(o.a%3)+1, int(o.b%2)+1)
		case 4:
			m.text(strings.Repeat("e", int(o.a%9)))
		case 5:
			offset := origin - 1 + int(o.a)%(m.head-origin+3)
			c, err := m.CursorAt(uint64(offset))
			if want := offset >= int(m.Oldest()) && offset <= m.head; want != (err == nil) {
				tb.Fatalf("CursorAt(%d) in [%d, %d): %v", offset, m.Oldest(), m.head, err)
			}
			if err == nil {
				cursors[who], places[who] = c, m.placeAt(offset)
			}
		case 6:
			m.checkNext(tb, &cursors[who], &places[who], int(o.a%300)-1)
		case 7:
			c := cursors[who]
			if frames, err := m.Next(&c, int(o.a), nil); err == nil {
				kept, copies = append(kept, frames), append(copies, join(frames))
			}
			m.checkNext(tb, &cursors[who], &places[who], 1<<20)
		case 8:
			m.SetWindow(1 + int(o.a)%6000)
		case 9:
			cursors[who], places[who] = m.End(), place{len(m.items), 0, m.head}
		}
		if m.Holds(cursors[who]) == m.lost(places[who]) {
			tb.Fatalf("Holds(%d) = %v, oldest %d", places[who].offset, m.Holds(cursors[who]), m.Oldest())
		}
		m.checkState(tb, origin-1+int(o.a)%(m.head-origin+3), int(o.b)%(window+5))
	}
	for i := range cursors {
		m.checkNext(tb, &cursors[i], &places[i], 1<<20)
	}
	for i := range kept {
		if !bytes.Equal(join(kept[i]), copies[i]) {
			tb.Fatalf("frames changed after they were handed out")
		}
	}
}

func TestModel(t *testing.T) {
	step := rapid.Custom(func(t *rapid.T) op {
		return op{rapid.Uint8Range(0, 9).Draw(t, "kind"), rapid.Uint16().Draw(t, "a"), rapid.Uint16().Draw(t, "b")}
	})
	rapid.Check(t, func(t *rapid.T) {
		window := rapid.IntRange(1, 6000).Draw(t, "window")
		n := rapid.IntRange(1, 150).Draw(t, "n")
		run(t, window, rapid.SliceOfN(step, n, n).Draw(t, "ops"))
	})
}

func FuzzModel(f *testing.F) {
	f.Add(uint16(400), []byte("\x00\x00\x03\x00\x00\x03\x00\x01\x00\x01\x05\x00\x04\x00\x00\x02\x01\x27\x00\x00\x06\x00\x09\x00\x00"))
	f.Add(uint16(3000), bytes.Repeat([]byte("\x02\xff\xff\x00\x03\x03\x00\x02\x00\x01\x05\x10\x00\x00\x01\x07\x00\x50\x00\x02"), 20))
	f.Fuzz(func(t *testing.T, window uint16, script []byte) {
		var ops []op
		for ; len(script) >= opBytes && len(ops) < 256; script = script[opBytes:] {
			ops = append(ops, op{script[0], binary.BigEndian.Uint16(script[1:]), binary.BigEndian.Uint16(script[3:])})
		}
		run(t, 1+int(window)%6000, ops)
	})
}

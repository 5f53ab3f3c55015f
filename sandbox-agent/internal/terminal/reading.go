package terminal

import (
	"errors"
	"fmt"
	"io"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/spill"
)

// errSlid says that a reading was so slow that its place in the log is gone.
var errSlid = errors.New("terminal: the log no longer holds the rest")

var errOtherEpoch = protocol.Errorf(protocol.KindNotFound, "the terminal has another epoch")

// A Reading is a part of a terminal's log that is read at leisure: it holds
// nothing back. What the log has dropped comes from the disk, if it is there. A
// Reading is for one goroutine.
type Reading struct {
	terminal   *Terminal
	epoch      protocol.Epoch
	offset     uint64
	to         uint64
	cols, rows int    // that the reader knows of
	buf        []byte // the bytes of the last DATA
}

// Read opens the part of the log that p names, as far as it is held. Next
// serves it. It fails with KindNotFound for another epoch or a place that the
// log has not reached, and with KindInvalid for a part that ends before it
// begins.
func (t *Terminal) Read(p protocol.ReadParams) (*Reading, protocol.ReadOpened, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case p.Epoch != t.output.Epoch():
		return nil, protocol.ReadOpened{}, errOtherEpoch
	case p.From > t.output.Head():
		return nil, protocol.ReadOpened{}, protocol.Errorf(protocol.KindNotFound, "the log ends at %d", t.output.Head())
	case p.From > p.To:
		return nil, protocol.ReadOpened{}, protocol.Errorf(protocol.KindInvalid, "the part ends before it begins")
	}
	from := max(p.From, t.oldest())
	to := max(from, min(p.To, t.output.Head()))
	r := &Reading{terminal: t, epoch: p.Epoch, offset: from, to: to}
	r.cols, r.rows = t.sizeAt(from)
	return r, protocol.ReadOpened{From: from, To: to, Cols: r.cols, Rows: r.rows}, nil
}

// oldest returns where the log begins, on disk or in memory. It is called with
// mu held.
func (t *Terminal) oldest() uint64 {
	oldest := t.output.Oldest()
	if t.spilled == nil || t.spilled.Head() < oldest { // there is a gap in between
		return oldest
	}
	if spilled, ok := t.spilled.Oldest(); ok {
		return min(oldest, spilled)
	}
	return oldest
}

// sizeAt returns the size at offset, on disk or in memory. It is called with mu
// held.
func (t *Terminal) sizeAt(offset uint64) (cols, rows int) {
	if offset < t.output.Oldest() && t.spilled != nil {
		if cols, rows, ok := t.spilled.SizeAt(offset); ok {
			return cols, rows
		}
	}
	return t.output.SizeAt(offset)
}

// Next returns the next DATA or RESIZED of the part, and io.EOF at its end. It
// fails when the rest was dropped meanwhile, with KindNotFound when
// that was because another epoch has begun. A DATA's bytes are valid until the
// next call.
func (r *Reading) Next() (protocol.Message, error) {
	if r.offset >= r.to {
		return nil, io.EOF
	}
	limit := int(min(r.to-r.offset, protocol.MaxDataBytes))
	m, err := r.fromMemory(limit)
	if m == nil && err == nil {
		m, err = r.fromDisk(limit)
	}
	if data, ok := m.(protocol.Data); ok {
		r.offset += uint64(len(data.Bytes))
	}
	return m, err
}

// fromMemory returns what comes next, nothing when the log has dropped it.
func (r *Reading) fromMemory(limit int) (protocol.Message, error) {
	t := r.terminal
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case r.epoch != t.output.Epoch():
		return nil, errOtherEpoch
	case r.offset < t.output.Oldest():
		return nil, nil
	}
	if cols, rows := t.output.SizeAt(r.offset); cols != r.cols || rows != r.rows {
		return r.resized(cols, rows), nil
	}
	cursor, err := t.output.CursorAt(r.offset)
	if err != nil {
		return nil, err
	}
	item, _, err := t.output.Next(&cursor, limit)
	if err != nil {
		return nil, err
	}
	if len(item.Bytes) == 0 {
		return nil, fmt.Errorf("terminal: the log ends before %d", r.to) // it can't
	}
	r.buf = append(r.buf[:0], item.Bytes...)
	return protocol.Data{Offset: r.offset, Bytes: r.buf}, nil
}

// fromDisk returns what comes next, which the log has dropped.
func (r *Reading) fromDisk(limit int) (protocol.Message, error) {
	file, err := r.file()
	if err != nil {
		return nil, err
	}
	cols, rows, ok := file.SizeAt(r.offset)
	switch {
	case !ok:
		return nil, errSlid
	case cols != r.cols || rows != r.rows:
		return r.resized(cols, rows), nil
	}
	if cap(r.buf) < protocol.MaxDataBytes {
		r.buf = make([]byte, protocol.MaxDataBytes)
	}
	n, _, err := file.Read(r.offset, r.buf[:limit])
	if err != nil {
		return nil, errors.Join(errSlid, err)
	}
	return protocol.Data{Offset: r.offset, Bytes: r.buf[:n]}, nil
}

// file returns where on disk the part is.
func (r *Reading) file() (*spill.File, error) {
	t := r.terminal
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case r.epoch != t.output.Epoch():
		return nil, errOtherEpoch
	case t.spilled == nil:
		return nil, errSlid
	}
	return t.spilled, nil
}

func (r *Reading) resized(cols, rows int) protocol.Resized {
	r.cols, r.rows = cols, rows
	return protocol.Resized{Offset: r.offset, Cols: cols, Rows: rows}
}

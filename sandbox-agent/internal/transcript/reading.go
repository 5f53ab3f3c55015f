package transcript

import (
	"errors"
	"fmt"
	"io"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
	"github.com/fairlead/fairlead/sandbox-agent/internal/spill"
)

// ErrSlid says that the log dropped a slow reading's next bytes.
var ErrSlid = errors.New("transcript: the log no longer holds the rest")

var errOtherEpoch = protocol.Errorf(protocol.KindNotFound, "the terminal has another epoch")

// A Reading reads a part of a terminal's log at the reader's pace, without
// delaying the terminal. It reads from the disk what the log has dropped, if it
// is there. A Reading is for one goroutine.
type Reading struct {
	transcript *Transcript
	epoch      protocol.Epoch
	offset     uint64
	to         uint64
	cols, rows int    // that the reader was told
	buf        []byte // the bytes of the last DATA
}

// Read opens the part of the log that p names, as far as it is held, for Next.
// It fails with KindNotFound for another epoch or an offset that the log has
// not reached, and with KindInvalid if the part ends before it begins.
func (t *Transcript) Read(p protocol.ReadParams) (*Reading, protocol.ReadOpened, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case p.Epoch != t.log.Epoch():
		return nil, protocol.ReadOpened{}, errOtherEpoch
	case p.From > t.log.Head():
		return nil, protocol.ReadOpened{}, protocol.Errorf(protocol.KindNotFound, "the log ends at %d", t.log.Head())
	case p.From > p.To:
		return nil, protocol.ReadOpened{}, protocol.Errorf(protocol.KindInvalid, "the part ends before it begins")
	}
	from := max(p.From, t.oldest())
	to := max(from, min(p.To, t.log.Head()))
	r := &Reading{transcript: t, epoch: p.Epoch, offset: from, to: to}
	r.cols, r.rows = t.sizeAnywhere(from)
	return r, protocol.ReadOpened{From: from, To: to, Cols: r.cols, Rows: r.rows}, nil
}

// oldest returns where the log begins, on disk or in memory. The caller holds
// mu.
func (t *Transcript) oldest() uint64 {
	oldest := t.log.Oldest()
	if t.spilled == nil || t.spilled.Head() < oldest { // a gap lies between disk and memory
		return oldest
	}
	if spilled, ok := t.spilled.Oldest(); ok {
		return min(oldest, spilled)
	}
	return oldest
}

// sizeAnywhere returns the size at offset, on disk or in memory. The caller
// holds mu.
func (t *Transcript) sizeAnywhere(offset uint64) (cols, rows int) {
	if offset < t.log.Oldest() && t.spilled != nil {
		if cols, rows, ok := t.spilled.SizeAt(offset); ok {
			return cols, rows
		}
	}
	return t.log.SizeAt(offset)
}

// Next returns the next DATA or RESIZED of the part, and io.EOF at its end. It
// fails if the rest was dropped meanwhile, with KindNotFound if a new epoch did
// that. A DATA's bytes are valid until the next call.
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

// fromMemory returns the next message, nil if the log has dropped it.
func (r *Reading) fromMemory(limit int) (protocol.Message, error) {
	t := r.transcript
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case r.epoch != t.log.Epoch():
		return nil, errOtherEpoch
	case r.offset < t.log.Oldest():
		return nil, nil
	}
	if cols, rows := t.log.SizeAt(r.offset); cols != r.cols || rows != r.rows {
		return r.resized(cols, rows), nil
	}
	cursor, err := t.log.CursorAt(r.offset)
	if err != nil {
		return nil, err
	}
	item, _, err := t.log.Next(&cursor, limit)
	if err != nil {
		return nil, err
	}
	if len(item.Bytes) == 0 {
		return nil, fmt.Errorf("transcript: the log ends before %d", r.to) // impossible
	}
	r.buf = append(r.buf[:0], item.Bytes...)
	return protocol.Data{Offset: r.offset, Bytes: r.buf}, nil
}

// fromDisk returns the next message, which the log has dropped.
func (r *Reading) fromDisk(limit int) (protocol.Message, error) {
	file, err := r.file()
	if err != nil {
		return nil, err
	}
	cols, rows, ok := file.SizeAt(r.offset)
	switch {
	case !ok:
		return nil, ErrSlid
	case cols != r.cols || rows != r.rows:
		return r.resized(cols, rows), nil
	}
	if cap(r.buf) < protocol.MaxDataBytes {
		r.buf = make([]byte, protocol.MaxDataBytes)
	}
	n, _, err := file.Read(r.offset, r.buf[:limit])
	if err != nil {
		return nil, errors.Join(ErrSlid, err)
	}
	return protocol.Data{Offset: r.offset, Bytes: r.buf[:n]}, nil
}

// file returns the spill file that holds the part.
func (r *Reading) file() (*spill.File, error) {
	t := r.transcript
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case r.epoch != t.log.Epoch():
		return nil, errOtherEpoch
	case t.spilled == nil:
		return nil, ErrSlid
	}
	return t.spilled, nil
}

func (r *Reading) resized(cols, rows int) protocol.Resized {
	r.cols, r.rows = cols, rows
	return protocol.Resized{Offset: r.offset, Cols: cols, Rows: rows}
}

// Holds reports whether the log of epoch holds a secret of set before the place
// to. Of one that another epoch has followed it doesn't matter.
func (t *Transcript) Holds(set *redact.Set, epoch protocol.Epoch, to uint64) bool {
	if set.Empty() {
		return false
	}
	for {
		part, _, err := t.Read(protocol.ReadParams{Epoch: epoch, To: to})
		if err != nil {
			return false
		}
		found, err := part.holds(set)
		if !errors.Is(err, ErrSlid) {
			return found
		}
	}
}

// holds reports whether the rest of r holds a secret of set.
func (r *Reading) holds(set *redact.Set) (bool, error) {
	stream, buf := set.NewStream(), []byte(nil)
	for stream.Matches() == 0 {
		m, err := r.Next()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if data, ok := m.(protocol.Data); ok {
			buf = stream.Write(buf[:0], data.Bytes)
		}
	}
	return true, nil
}

package feed

import (
	"errors"
	"fmt"
	"io"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/replay"
)

// ErrNotServed says that the agent answered with another part of the log than
// the viewer misses.
var ErrNotServed = errors.New("feed: the log doesn't have it")

// A LogReader reads a part of the agent's log, framed for viewers.
type LogReader struct {
	frames     *protocol.FrameReader
	from, to   uint64 // the range that remains
	cols, rows int
	pending    []byte // text frames that wait for the next output
}

// NewLogReader returns a LogReader of a stream that the agent has opened for g.
// It fails if the agent serves another range.
func NewLogReader(stream io.Reader, opened protocol.ReadOpened, g Gap) (*LogReader, error) {
	if opened.From != g.Pos.Offset || opened.To <= opened.From {
		return nil, fmt.Errorf("%w: asked for %d to %d, got %d to %d", ErrNotServed, g.Pos.Offset, g.To, opened.From, opened.To)
	}
	r := &LogReader{
		frames: protocol.NewFrameReader(stream),
		from:   opened.From, to: opened.To, cols: opened.Cols, rows: opened.Rows,
	}
	if opened.Cols != g.Cols || opened.Rows != g.Rows {
		r.pending = sizeFrame(opened.From, opened.Cols, opened.Rows)
	}
	return r, nil
}

// Next returns the next piece and how many bytes of the log it holds, an empty
// piece at the end.
func (r *LogReader) Next() (p Piece, n uint64, err error) {
	at := r.from
	for {
		frame, err := r.frames.Next()
		if errors.Is(err, io.EOF) && at == r.to {
			p := Piece{r.pending, at, r.cols, r.rows}
			r.pending = nil
			return p, 0, nil
		}
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return Piece{}, 0, err
		}
		m, err := protocol.Decode(frame)
		if err != nil {
			return Piece{}, 0, err
		}
		switch m := m.(type) {
		case protocol.Resized:
			if m.Offset != at {
				return Piece{}, 0, fmt.Errorf("%w: a size at %d, expected %d", ErrNotServed, m.Offset, at)
			}
			r.pending = append(r.pending, sizeFrame(m.Offset, m.Cols, m.Rows)...)
			r.cols, r.rows = m.Cols, m.Rows
		case protocol.Data:
			end := at + uint64(len(m.Bytes))
			if m.Offset != at || end > r.to {
				return Piece{}, 0, fmt.Errorf("%w: output at %d, expected %d", ErrNotServed, m.Offset, at)
			}
			p := Piece{replay.AppendBinaryFrame(r.pending, m.Bytes), end, r.cols, r.rows}
			r.from, r.pending = end, nil
			return p, end - at, nil
		default:
			return Piece{}, 0, fmt.Errorf("%w: %s", ErrNotServed, frame.Type)
		}
	}
}

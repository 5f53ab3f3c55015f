package lineindex

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"iter"

	"github.com/fairlead/fairlead/sandbox-agent/internal/history/rows"
)

// MaxLine bounds a line of a transcript, in bytes. A longer one is left out.
const MaxLine = 8 << 20

// A lineReader reads whole lines.
type lineReader struct {
	in   *bufio.Reader
	line []byte
}

func newLineReader(in io.Reader) *lineReader {
	return &lineReader{in: bufio.NewReaderSize(in, 64<<10)}
}

// next returns the next line without its end, and its length with that. The line
// is nil if it is longer than MaxLine, and valid until the next call otherwise. A
// last line without an end doesn't count: it is io.EOF.
func (r *lineReader) next() (line []byte, length int64, err error) {
	r.line = r.line[:0]
	for {
		piece, err := r.in.ReadSlice('\n')
		length += int64(len(piece))
		if length <= MaxLine {
			r.line = append(r.line, piece...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			return nil, 0, err
		case length > MaxLine:
			return nil, length, nil
		}
		return r.line[:len(r.line)-1], length, nil
	}
}

// Glance returns what the beginning and the end of a transcript say of it,
// reading at most n bytes of each.
func Glance(read rows.Lines, src io.ReaderAt, size, n int64) rows.About {
	var about rows.About
	note := func(line []byte) { _, _ = read(rows.State{}, &about, line) }
	for line := range wholeLines(src, 0, min(n, size)) {
		note(line)
	}
	if size > n {
		first := true
		for line := range wholeLines(src, max(n, size-n), size) {
			if !first { // it is cut
				note(line)
			}
			first = false
		}
	}
	return about
}

// wholeLines returns the lines between two places.
func wholeLines(src io.ReaderAt, from, to int64) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		content := make([]byte, to-from)
		n, _ := src.ReadAt(content, from)
		for line := range bytes.Lines(content[:n]) {
			if !bytes.HasSuffix(line, []byte("\n")) || !yield(line[:len(line)-1]) {
				return
			}
		}
	}
}

package audit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// A line is one line of a log, with its line feed.
type line struct {
	text []byte
	torn bool // the file ends within it
}

// lines reads a log line by line, with one line of lookahead.
type lines struct {
	r     *bufio.Reader
	ahead *line
}

func newLines(r io.Reader) *lines { return &lines{r: bufio.NewReaderSize(r, MaxLineBytes)} }

// next returns the next line, [io.EOF] after the last one. A line that is too
// long for a record comes without its end.
func (l *lines) next() (line, error) {
	if l.ahead != nil {
		got := *l.ahead
		l.ahead = nil
		return got, nil
	}
	text, err := l.r.ReadSlice('\n')
	text = append([]byte(nil), text...)
	switch {
	case err == nil:
		return line{text: text}, nil
	case errors.Is(err, bufio.ErrBufferFull):
		return line{text: text}, nil
	case errors.Is(err, io.EOF) && len(text) > 0:
		return line{text: text, torn: true}, nil
	case errors.Is(err, io.EOF):
		return line{}, io.EOF
	}
	return line{}, fmt.Errorf("audit: read: %w", err)
}

// peek returns the record in the next line; nil if there is none, or it is
// unreadable.
func (l *lines) peek() *Record {
	got, err := l.next()
	if err != nil {
		return nil // next returns the error again
	}
	l.ahead = &got
	if got.torn {
		return nil
	}
	r, err := decode(got.text)
	if err != nil {
		return nil
	}
	return r
}

// holds reports whether a later record has this number. It reads to the end.
func (l *lines) holds(sequence uint64) bool {
	for {
		got, err := l.next()
		if err != nil {
			return false
		}
		if r, err := decode(got.text); err == nil && r.Sequence == sequence {
			return true
		}
	}
}

package files

import (
	"errors"
	"io"
)

// A Masker masks secrets in a stream, as redact.Stream does.
type Masker interface {
	Write(dst, p []byte) []byte
	Flush(dst []byte) []byte
}

// masked reads what a Masker makes of another reader.
type masked struct {
	from   io.Reader
	masker Masker
	in     []byte
	out    []byte // what out[at:] holds is to be read
	at     int
	err    error
}

func newMasked(from io.Reader, masker Masker) *masked {
	return &masked{from: from, masker: masker, in: make([]byte, 32<<10)}
}

func (m *masked) Read(p []byte) (int, error) {
	for m.at == len(m.out) {
		if m.err != nil {
			return 0, m.err
		}
		m.at, m.out = 0, m.out[:0]
		var n int
		n, m.err = m.from.Read(m.in)
		m.out = m.masker.Write(m.out, m.in[:n])
		if errors.Is(m.err, io.EOF) {
			m.out = m.masker.Flush(m.out)
		}
	}
	n := copy(p, m.out[m.at:])
	m.at += n
	return n, nil
}

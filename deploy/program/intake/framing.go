package intake

import (
	"bytes"

	"github.com/fairlead/fairlead/protocol"
)

// A framing tracks where requests begin and end on a connection, and finds
// headers that two programs could parse as different requests. net/http
// silently repairs those: if there is a Transfer-Encoding it drops a
// Content-Length, which a balancer in front may have used.
//
// It sees the bytes as they pass and keeps none. It is exact wherever net/http
// would parse another request. After a body with a Transfer-Encoding it stops
// looking, and the connection serves nothing else.
type framing struct {
	phase phase
	body  uint64 // bytes of the body that remain

	// Of the current header.
	lines     int // lines so far
	lengths   int // Content-Length fields
	encodings int // Transfer-Encoding fields
	length    uint64
	version   [len(http11)]byte // the end of the request line

	// Of the current line.
	name     [maxName]byte // in lower case
	named    int           // bytes of the name; above maxName: not a name that matters
	inValue  bool
	ours     bool // the name is one that matters
	digits   int  // of a Content-Length
	ended    bool // space follows them
	returned bool // the last byte was a carriage return
	empty    bool // nothing yet
}

// A phase is what the next byte is part of.
type phase uint8

const (
	inHead phase = iota
	inBody
	beyond // no longer checked
)

const (
	http11           = "HTTP/1.1"
	contentLength    = "content-length"
	transferEncoding = "transfer-encoding"
	// maxName is the length of the longest checked name.
	maxName = len(transferEncoding)
	// maxDigits bounds a Content-Length, so that it fits an int64.
	maxDigits = 18
)

// Why a header is refused.
var (
	errTwice    = protocol.Errorf(protocol.KindInvalid, "the length of the body is given twice")
	errLength   = protocol.Errorf(protocol.KindInvalid, "a Content-Length is not a number")
	errFolded   = protocol.Errorf(protocol.KindInvalid, "a header is continued on another line")
	errLineEnd  = protocol.Errorf(protocol.KindInvalid, "a line of the head doesn't end with CR LF")
	errEncoding = protocol.Errorf(protocol.KindInvalid, "a Transfer-Encoding before HTTP/1.1")
)

func newFraming() framing { return framing{empty: true} }

// pass checks the next bytes of the connection. With an error it returns how
// many of them are good.
func (f *framing) pass(p []byte) (sound int, err *protocol.Error) {
	for i := 0; i < len(p); {
		switch f.phase {
		case beyond:
			return len(p), nil
		case inBody:
			n := min(uint64(len(p)-i), f.body)
			i += int(n)
			if f.body -= n; f.body == 0 {
				*f = newFraming()
			}
		case inHead:
			if n := f.skip(p[i:]); n > 0 {
				i += n
				continue
			}
			if err := f.head(p[i]); err != nil {
				return i, err
			}
			i++
		}
	}
	return len(p), nil
}

// skip returns how many of the next bytes don't matter: those in a line with an
// unchecked name, and those in the request line before its end.
func (f *framing) skip(p []byte) int {
	if f.lines > 0 && (!f.inValue || f.ours) || f.returned {
		return 0
	}
	n := bytes.IndexByte(p, '\r')
	if n < 0 {
		n = len(p)
	}
	if lf := bytes.IndexByte(p[:n], '\n'); lf >= 0 {
		n = lf
	}
	if n == 0 {
		return 0
	}
	f.empty = false
	if f.lines == 0 {
		last := p[max(0, n-len(f.version)):n]
		copy(f.version[:], f.version[len(last):])
		copy(f.version[len(f.version)-len(last):], last)
	}
	return n
}

// head takes one byte of a header.
func (f *framing) head(c byte) *protocol.Error {
	switch {
	case c == '\n' && !f.returned, c != '\n' && f.returned:
		return errLineEnd
	case c == '\n':
		return f.endLine()
	case c == '\r':
		f.returned = true
		return nil
	}
	first := f.empty
	f.empty = false
	switch {
	case first && (c == ' ' || c == '\t'):
		return errFolded
	case f.inValue:
		return f.value(c)
	case c == ':':
		f.inValue, f.ours = true, f.isNamed(contentLength) || f.isNamed(transferEncoding)
	case f.named < maxName:
		f.name[f.named] = lower(c)
		f.named++
	default:
		f.named = maxName + 1
	}
	return nil
}

// value takes one byte of a field's value.
func (f *framing) value(c byte) *protocol.Error {
	switch {
	case !f.isNamed(contentLength):
	case c == ' ' || c == '\t':
		f.ended = f.digits > 0
	case c < '0' || c > '9' || f.ended || f.digits == maxDigits:
		return errLength
	default:
		if f.digits == 0 {
			f.length = 0
		}
		f.length = f.length*10 + uint64(c-'0')
		f.digits++
	}
	return nil
}

func (f *framing) isNamed(name string) bool {
	return f.named == len(name) && bytes.Equal(f.name[:f.named], []byte(name))
}

// endLine ends the current line, and with an empty one the header.
func (f *framing) endLine() *protocol.Error {
	if f.empty && f.lines > 0 {
		f.endHead()
		return nil
	}
	switch {
	case f.isNamed(contentLength):
		if f.digits == 0 {
			return errLength
		}
		f.lengths++
	case f.isNamed(transferEncoding):
		f.encodings++
		if string(f.version[:]) != http11 {
			return errEncoding
		}
	}
	if f.lengths+f.encodings > 1 {
		return errTwice
	}
	f.lines++
	f.named, f.inValue, f.ours, f.digits, f.ended, f.returned, f.empty = 0, false, false, 0, false, false, true
	return nil
}

// endHead determines what follows the header.
func (f *framing) endHead() {
	switch {
	case f.encodings > 0:
		f.phase = beyond
	case f.lengths > 0 && f.length > 0:
		f.phase, f.body = inBody, f.length
	default:
		*f = newFraming()
	}
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + ('a' - 'A')
	}
	return c
}

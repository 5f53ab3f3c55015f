package codingagent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// MaxLine bounds a line of a program. A longer one is dropped.
	MaxLine = 8 << 20
	// MaxWrite bounds what is written to a program at once.
	MaxWrite = 64 << 20

	readBytes   = 64 << 10 // read at once
	stderrBytes = 4 << 10  // of standard error, that are kept
)

// errBroken says that what a program was written ends within a message.
var errBroken = protocol.Errorf(protocol.KindUnavailable, "the program was written half a message, and can't be written any more")

// An outlet is the end of a pipe from which a program's output is read. It never
// loses what has been written before the program ended.
type outlet struct {
	file    *os.File
	hurried atomic.Bool // nobody writes any more who may
}

// Read waits for output until hurry. Then it reads what there is, and returns
// io.EOF behind it.
func (o *outlet) Read(p []byte) (int, error) {
	if !o.hurried.Load() {
		n, err := o.file.Read(p)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
	raw, err := o.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	n := 0
	if failed := raw.Control(func(fd uintptr) {
		for n, err = unix.Read(int(fd), p); errors.Is(err, unix.EINTR); n, err = unix.Read(int(fd), p) {
		}
	}); failed != nil {
		return 0, failed
	}
	if n <= 0 { // also when it would have to wait
		return 0, io.EOF
	}
	return n, nil
}

// hurry ends waiting.
func (o *outlet) hurry() {
	o.hurried.Store(true)
	_ = o.file.SetReadDeadline(time.Unix(1, 0)) // it fails when the file is closed
}

// A Line is one line of what a program prints.
type Line struct {
	// Text is the line without its end, valid UTF-8, until the next one is read.
	Text []byte
	// Dropped is the length of a line above MaxLine, of which nothing is kept.
	Dropped int
}

// A lineReader reads lines. It is for one goroutine.
type lineReader struct {
	from io.Reader
	buf  []byte // read and not returned
	seen int    // of buf, without an end of a line
	long int    // bytes of a line that is too long, so far
	err  error
}

// next returns the next line, also one that the end of the output cuts.
func (r *lineReader) next() (Line, error) {
	for {
		if i := bytes.IndexByte(r.buf[r.seen:], '\n'); i >= 0 {
			text := r.buf[:r.seen+i]
			r.buf, r.seen = r.buf[r.seen+i+1:], 0
			return r.line(text), nil
		}
		if r.seen = len(r.buf); r.seen > MaxLine {
			r.long += r.seen
			r.buf, r.seen = nil, 0
		}
		if r.err != nil {
			text := r.buf
			r.buf, r.seen = nil, 0
			if len(text) == 0 && r.long == 0 {
				return Line{}, r.err
			}
			return r.line(text), nil
		}
		r.read()
	}
}

// line returns what is between two ends of lines.
func (r *lineReader) line(text []byte) Line {
	if r.long > 0 || len(text) > MaxLine {
		l := Line{Dropped: r.long + len(text)}
		r.long = 0
		return l
	}
	return Line{Text: bytes.ToValidUTF8(bytes.TrimSuffix(text, []byte("\r")), []byte("\uFFFD"))}
}

// read adds to buf, whose beginning it may move.
func (r *lineReader) read() {
	if cap(r.buf)-len(r.buf) < readBytes/2 || cap(r.buf) > 4*max(len(r.buf), readBytes) {
		grown := make([]byte, len(r.buf), max(2*len(r.buf), readBytes))
		copy(grown, r.buf)
		r.buf = grown
	}
	n, err := r.from.Read(r.buf[len(r.buf):cap(r.buf)])
	r.buf, r.err = r.buf[:len(r.buf)+n], err
}

// A tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	// Guarded by mu.
	held []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held = append(t.held, p[max(len(p)-stderrBytes, 0):]...)
	if cut := len(t.held) - stderrBytes; cut > 0 {
		t.held = append(t.held[:0], t.held[cut:]...)
	}
	return len(p), nil
}

// text returns what is kept, as valid UTF-8.
func (t *tail) text() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bytes.ToValidUTF8(t.held, []byte("\uFFFD"))
}

// An inlet is the end of a pipe that a program reads.
type inlet struct {
	file    *os.File
	writing chan struct{} // 1 element while somebody writes

	// Owned by whoever writes.
	broken bool
}

// write writes p whole unless ctx ends.
func (i *inlet) write(ctx context.Context, p []byte) error {
	if len(p) > MaxWrite {
		return protocol.Errorf(protocol.KindTooLarge, "more than %d bytes for a coding agent", MaxWrite)
	}
	select {
	case i.writing <- struct{}{}:
		defer func() { <-i.writing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if i.broken {
		return errBroken
	}
	if err := i.file.SetWriteDeadline(time.Time{}); err != nil {
		return protocol.Fault(protocol.KindEnded, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = i.file.SetWriteDeadline(time.Unix(1, 0)) }) // it fails when the file is closed
	defer stop()
	n, err := i.file.Write(p)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		i.broken = n > 0
		return context.Cause(ctx)
	}
	i.broken = true
	return protocol.Fault(protocol.KindEnded, err)
}

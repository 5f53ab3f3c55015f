package reverseproxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// stallTimeout is how long a client may go without reading an answer, or
// sending the body that it has begun. It doesn't apply between events or in a
// WebSocket. It is a variable so that a test can lower it.
var stallTimeout = 60 * time.Second

// After an early answer the rest of the body is read and dropped for a while.
// Otherwise a client that sends everything before it reads would find its
// connection reset rather than the answer. The bounds are the pause between two
// pieces, the whole time, and bytes.
const (
	lingerPause   = 5 * time.Second
	lingerTimeout = 30 * time.Second
	lingerBytes   = 64 << 20
)

// shortAnswer is the largest answer, in bytes and of known length, that is sent
// in one piece: its header alone is useless, and costs a write.
const shortAnswer = 4 << 10

// A pacedWriter closes the connection of a client that doesn't read. It drops a
// sandbox's early hints.
type pacedWriter struct {
	http.ResponseWriter
	ctx     context.Context // the request's
	tally   *tally
	control *http.ResponseController // of the ResponseWriter
	body    *pacedBody               // the request's; nil: it has none
	outer   http.Header              // the headers set before us, which early hints would delete; nil once it began
	began   atomic.Bool              // the header was written
	refused atomic.Bool              // the answer is the relay's own
	taken   bool                     // the connection was hijacked for an upgrade
	bounded bool                     // the answer's end is known in advance
	short   bool                     // the answer is sent when it is complete
}

func newPacedWriter(ctx context.Context, w http.ResponseWriter, r *http.Request, tally *tally) *pacedWriter {
	out := &pacedWriter{ResponseWriter: w, ctx: ctx, tally: tally, control: http.NewResponseController(w), outer: w.Header().Clone()}
	if r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0 {
		out.body = newPacedBody(r.Body, out.control, tally, r.Header.Get("Expect") != "")
	}
	return out
}

// Unwrap is for [http.ResponseController].
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *pacedWriter) WriteHeader(status int) {
	h := w.Header()
	if status < 200 && status != http.StatusSwitchingProtocols {
		// A browser acts on early hints before anything has checked them, and our
		// server sends 100 itself when the body is read.
		clear(h)
		return
	}
	for name, values := range w.outer {
		if _, there := h[name]; !there {
			h[name] = values
		}
	}
	w.outer = nil
	if length, err := strconv.Atoi(h.Get("Content-Length")); err == nil {
		w.short = length <= shortAnswer
	}
	w.bounded = h.Get("Content-Length") != "" || status == http.StatusNoContent || status == http.StatusNotModified
	if w.body != nil && !w.body.ended.Load() && status != http.StatusSwitchingProtocols {
		h.Set("Connection", "close") // the rest of the body must not be parsed as the next request
	}
	w.began.Store(true)
	w.ResponseWriter.WriteHeader(status)
}

// Hijack is for [http.ResponseController]. The connection ends with the
// request, as a browser that doesn't close its side would keep it open.
func (w *pacedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := w.control.Hijack()
	if err == nil {
		w.taken = true
		context.AfterFunc(w.ctx, func() { conn.Close() })
	}
	return conn, buf, err
}

func (w *pacedWriter) Write(p []byte) (int, error) {
	if !w.began.Load() {
		w.WriteHeader(http.StatusOK)
	}
	w.extend()
	n, err := w.ResponseWriter.Write(p)
	w.tally.down.Add(float64(n))
	return n, err
}

// FlushError is for [http.ResponseController].
func (w *pacedWriter) FlushError() error {
	if w.short {
		return nil
	}
	return w.flush()
}

func (w *pacedWriter) flush() error {
	if w.taken {
		return nil
	}
	w.extend()
	return w.control.Flush()
}

// extend renews the write deadline, unless the request is over.
func (w *pacedWriter) extend() {
	w.control.SetWriteDeadline(time.Now().Add(stallTimeout)) // fails where there are no deadlines
	if w.ctx.Err() != nil {
		w.abort() // in case it was called before the line above
	}
}

// abort fails the current write, as nothing else can interrupt it.
func (w *pacedWriter) abort() {
	if w.began.Load() && !w.refused.Load() {
		w.control.SetWriteDeadline(time.Unix(1, 0))
	}
}

// leave lets go of the connection, which may be reused. abort isn't called any more.
func (w *pacedWriter) leave() {
	if w.body != nil {
		w.body.Close()
	}
	w.control.SetWriteDeadline(time.Time{})
}

// finish sends the rest of a complete answer, and lets a client that is still
// sending get to read it.
//
// A sandbox whose stream ends may still complete its answer, and that may
// arrive. What ends after its request is never complete, so the connection is
// cut lest the client take it for complete.
func (w *pacedWriter) finish() {
	if w.ctx.Err() != nil && w.began.Load() && !w.refused.Load() && !w.taken {
		panic(http.ErrAbortHandler)
	}
	err := w.flush() // while there is a deadline
	if err == nil && w.body != nil && w.bounded && !w.taken {
		w.body.linger()
	}
}

// errStalled is the body reader's error after its client sent nothing for too
// long.
var errStalled = protocol.Errorf(protocol.KindInvalid, "the body of the request stalled: nothing of it came for %s, or too little", stallTimeout)

// A pacedBody fails if its client sends nothing for too long. The deadline is
// the connection's, so it is set only while the body is read.
type pacedBody struct {
	// Static after construction.
	body    io.ReadCloser
	control *http.ResponseController
	tally   *tally
	expects bool // the client waits for 100 Continue
	rate    int  // required average, in bytes per second; 0: none

	// Owned by the reader.
	came   int64
	waited time.Duration // time spent waiting for the client

	begun   atomic.Bool // it was read from
	ended   atomic.Bool // it was read to its end
	stalled atomic.Bool

	mu     sync.Mutex
	closed bool // guarded by mu: the connection isn't the reader's any more
}

func newPacedBody(body io.ReadCloser, control *http.ResponseController, tally *tally, expects bool) *pacedBody {
	return &pacedBody{body: body, control: control, tally: tally, expects: expects}
}

func (b *pacedBody) Read(p []byte) (int, error) {
	began := time.Now()
	if !b.deadline(began.Add(b.patience())) {
		return 0, http.ErrBodyReadAfterClose
	}
	b.begun.Store(true)
	n, err := b.body.Read(p)
	b.tally.up.Add(float64(n))
	b.came += int64(n)
	b.waited += time.Since(began)
	open := b.deadline(time.Time{})
	switch {
	case errors.Is(err, io.EOF):
		b.ended.Store(true)
	case open && errors.Is(err, os.ErrDeadlineExceeded):
		if b.stalled.CompareAndSwap(false, true) {
			b.tally.stalled.Inc()
		}
		err = errStalled
	}
	return n, err
}

// patience returns how long the client may send nothing now. Time spent waiting
// for the sandbox doesn't count.
func (b *pacedBody) patience() time.Duration {
	if b.rate == 0 {
		return stallTimeout
	}
	left := stallTimeout + time.Duration(b.came/int64(b.rate))*time.Second - b.waited
	return max(0, min(stallTimeout, left))
}

// deadline sets the read deadline, unless the body is closed.
func (b *pacedBody) deadline(at time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.control.SetReadDeadline(at)
	}
	return !b.closed
}

// close takes the connection from the reader, which may still be reading when a
// handler returns. It reports whether it was open.
func (b *pacedBody) close() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := !b.closed
	b.closed = true
	if first {
		b.control.SetReadDeadline(time.Now().Add(lingerPause)) // also interrupts a present read
	}
	return first
}

// linger drops what the client still sends, for a while. It doesn't wait for a
// client that expects 100 Continue and didn't get it.
func (b *pacedBody) linger() {
	if b.ended.Load() || b.stalled.Load() || b.expects && !b.begun.Load() || !b.close() {
		return
	}
	end := time.Now().Add(lingerTimeout)
	piece := make([]byte, 32<<10)
	for left := lingerBytes; left > 0 && time.Now().Before(end); {
		n, err := b.body.Read(piece)
		if left -= n; err != nil {
			return
		}
		b.control.SetReadDeadline(earlier(time.Now().Add(lingerPause), end))
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// Close ends reading.
func (b *pacedBody) Close() error {
	if !b.close() {
		b.control.SetReadDeadline(time.Unix(1, 0)) // interrupts a present read
	}
	defer b.control.SetReadDeadline(time.Time{})
	return b.body.Close()
}

package passage

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// stallTimeout is how long a client may take nothing of what it is sent, or send
// nothing of the body that it has begun. Between events, and in a WebSocket,
// nobody owes anything. A test has less patience.
var stallTimeout = 60 * time.Second

// discardTimeout bounds how long the rest of a body is read that nobody wants,
// so that the connection can be used again.
const discardTimeout = 5 * time.Second

// A pacedWriter ends the connection of a client that takes nothing. It lets no
// early hints of a sandbox through.
type pacedWriter struct {
	http.ResponseWriter
	ctx     context.Context          // the passage's
	control *http.ResponseController // of the ResponseWriter
	outer   http.Header              // what was set before us, which early hints wipe out
	began   atomic.Bool              // the header is written
	taken   bool                     // the connection is the proxy's own: it was upgraded
}

func newPacedWriter(ctx context.Context, w http.ResponseWriter) *pacedWriter {
	return &pacedWriter{ResponseWriter: w, ctx: ctx, control: http.NewResponseController(w), outer: w.Header().Clone()}
}

// Unwrap is for [http.ResponseController].
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *pacedWriter) WriteHeader(status int) {
	h := w.Header()
	if status < 200 && status != http.StatusSwitchingProtocols {
		// Early hints act for the origin before anybody has looked at them, and
		// to continue our server says by itself when the body is read.
		clear(h)
		return
	}
	for name, values := range w.outer {
		if _, there := h[name]; !there {
			h[name] = values
		}
	}
	w.began.Store(true)
	w.ResponseWriter.WriteHeader(status)
}

// Hijack is for [http.ResponseController]. The connection ends with the passage:
// a browser that doesn't close its side would hold it otherwise.
func (w *pacedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := w.control.Hijack()
	if err == nil {
		w.taken = true
		context.AfterFunc(w.ctx, func() { conn.Close() })
	}
	return conn, buf, err
}

func (w *pacedWriter) Write(p []byte) (int, error) {
	w.control.SetWriteDeadline(time.Now().Add(stallTimeout)) // where the connection has any
	return w.ResponseWriter.Write(p)
}

// FlushError is for [http.ResponseController].
func (w *pacedWriter) FlushError() error {
	if w.taken {
		return nil
	}
	w.control.SetWriteDeadline(time.Now().Add(stallTimeout))
	return w.control.Flush()
}

// abort ends what is being written, if there is no other way to say that it is
// over.
func (w *pacedWriter) abort() {
	if w.began.Load() {
		w.control.SetWriteDeadline(time.Unix(1, 0))
	}
}

// release takes the deadline away, for the connection may be used again.
func (w *pacedWriter) release() { w.control.SetWriteDeadline(time.Time{}) }

// A pacedBody fails when its client sends nothing for too long. The deadline is
// the connection's, so it is only there while the body is read.
type pacedBody struct {
	body    io.ReadCloser
	control *http.ResponseController

	mu     sync.Mutex
	closed bool // guarded by mu: the connection isn't ours any more
}

func newPacedBody(body io.ReadCloser, control *http.ResponseController) *pacedBody {
	return &pacedBody{body: body, control: control}
}

func (b *pacedBody) Read(p []byte) (int, error) {
	b.deadline(time.Now().Add(stallTimeout))
	n, err := b.body.Read(p)
	b.deadline(time.Time{})
	return n, err
}

func (b *pacedBody) deadline(at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.control.SetReadDeadline(at)
	}
}

// Close ends reading. The transport may be at it yet when a handler returns.
func (b *pacedBody) Close() error {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	if first {
		b.control.SetReadDeadline(time.Now().Add(discardTimeout)) // also for who reads at this moment
	}
	b.mu.Unlock()
	if !first {
		return nil
	}
	defer b.control.SetReadDeadline(time.Time{})
	return b.body.Close()
}

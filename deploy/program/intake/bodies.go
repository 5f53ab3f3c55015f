package intake

import (
	"errors"
	"io"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// BodyTime bounds a whole body, from the end of the request's header on.
	// Handlers that accept slower bodies set their own deadlines.
	BodyTime = 10 * time.Second
	// BodiesPerAddress and MaxBodies bound the bodies that are being waited for:
	// per address and in all. They count only clients that aren't admitted yet,
	// and only while they send nothing.
	BodiesPerAddress = 64
	MaxBodies        = 4096
	// hurryTime is how long an evicted body may be silent: an honest sender never
	// is.
	hurryTime = time.Second
	// drainBytes bounds what is read of an unread body so that its connection can
	// be reused.
	drainBytes = 64 << 10
)

var (
	errSlow    = protocol.Errorf(protocol.KindInvalid, "the body didn't come within %s", BodyTime)
	errCrowded = protocol.Errorf(protocol.KindTooMany, "too many bodies are waited for that came from this address")
)

// Bodies bounds the cost of clients that start a body and don't go on.
type Bodies struct {
	// Static after construction.
	address func(*http.Request) netip.Addr
	refused func(error)
	waiting *waitlist
}

// NewBodies returns Bodies for clients at address. refused, which may be nil,
// is called for each body that didn't come.
func NewBodies(address func(*http.Request) netip.Addr, refused func(error)) *Bodies {
	if refused == nil {
		refused = func(error) {}
	}
	return &Bodies{address: address, refused: refused, waiting: newWaitlist(BodiesPerAddress, MaxBodies)}
}

// Handler makes next read bodies within the bounds. Reading one that doesn't
// come fails with a [protocol.Error].
func (b *Bodies) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
			next.ServeHTTP(w, r)
		} else {
			b.serve(w, r, next)
		}
	})
}

// serve has next serve a request with a body. It isn't part of Handler, as what has no
// body may take long, and would have all this on its stack.
func (b *Bodies) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	in := &body{
		ReadCloser: r.Body, bodies: b, control: http.NewResponseController(w), until: time.Now().Add(BodyTime),
	}
	in.waiter = waiter{address: share(b.address(r)), hurry: in.hurry}
	in.control.SetReadDeadline(in.until) // also for handlers that let the server read the body
	r.Body = in
	defer in.close()
	next.ServeHTTP(w, r)
	if !r.Close && r.ContentLength <= drainBytes && r.Header.Get("Expect") == "" {
		in.drain()
	}
}

// Admitted notes that the client of r is authenticated, so it no longer counts.
func Admitted(r *http.Request) {
	if in, ours := r.Body.(*body); ours {
		in.mu.Lock()
		defer in.mu.Unlock()
		in.admitted = true
	}
}

// A body is a request's body. Its deadlines are the connection's.
type body struct {
	io.ReadCloser
	bodies  *Bodies
	control *http.ResponseController
	until   time.Time // its deadline
	waiter  waiter

	mu       sync.Mutex
	admitted bool
	closed   bool      // the connection is no longer this request's
	since    time.Time // when a reader began to wait; zero: none waits
	hurried  bool      // its deadline was shortened
	err      error     // the final error
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if err := b.begin(); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	b.bodies.waiting.leave(&b.waiter)
	return n, b.end(err)
}

// begin notes that a reader waits.
func (b *body) begin() error {
	b.mu.Lock()
	err, admitted := b.err, b.admitted
	b.since = time.Now()
	b.mu.Unlock()
	if err == nil && !admitted {
		b.bodies.waiting.join(&b.waiter)
	}
	return err
}

// end notes that it no longer waits, and returns err in the reader's form.
func (b *body) end(err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	hurried := b.hurried
	b.since, b.hurried = time.Time{}, false
	switch {
	case err == nil:
		if hurried && !b.closed {
			b.control.SetReadDeadline(b.until)
		}
		return nil
	case b.closed:
	case errors.Is(err, io.EOF):
		if hurried { // after the server cleared the deadline: an answer may take longer
			b.control.SetReadDeadline(time.Time{})
		}
	case errors.Is(err, os.ErrDeadlineExceeded) && hurried:
		err = errCrowded
		b.bodies.refused(err)
	case errors.Is(err, os.ErrDeadlineExceeded) && !time.Now().Before(b.until) && !b.admitted:
		err = errSlow
		b.bodies.refused(err)
	}
	b.err = err
	return err
}

// hurry shortens the deadline of a body that is waited for.
func (b *body) hurry() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.admitted || b.since.IsZero() {
		return
	}
	if soon := b.since.Add(hurryTime); soon.Before(b.until) {
		b.hurried = true
		b.control.SetReadDeadline(soon)
	}
}

// close returns the connection to the server.
func (b *body) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}

// drain reads what is left, as the server would, but can be hurried.
func (b *body) drain() { io.CopyN(io.Discard, b, drainBytes) }

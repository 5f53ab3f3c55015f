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
	// BodyTime is how long a body may take in all, from the end of its request's
	// head on. Who takes bodies that may last sets deadlines of their own.
	BodyTime = 10 * time.Second
	// BodiesPerAddress and Bodies bound the bodies that are waited for at the
	// same time: of one address, and of all. Only clients that nobody has
	// admitted yet count, and only while nothing comes of them.
	BodiesPerAddress = 64
	MaxBodies        = 4096
	// hurryTime is how long one may be quiet that has to give way: who sends
	// what it has never is.
	hurryTime = time.Second
	// drainBytes is how much of a body is read that nobody wanted, so that its
	// connection can be used again.
	drainBytes = 64 << 10
)

var (
	errSlow    = protocol.Errorf(protocol.KindInvalid, "the body didn't come within %s", BodyTime)
	errCrowded = protocol.Errorf(protocol.KindTooMany, "too many bodies are waited for that came from this address")
)

// Bodies bound what clients cost that begin to send a body and don't go on.
type Bodies struct {
	// Static after construction.
	address func(*http.Request) netip.Addr
	refused func(error)
	waiting *waitlist
}

// NewBodies returns Bodies of clients at address; refused, which may be nil, is
// told of each body that didn't come.
func NewBodies(address func(*http.Request) netip.Addr, refused func(error)) *Bodies {
	if refused == nil {
		refused = func(error) {}
	}
	return &Bodies{address: address, refused: refused, waiting: newWaitlist(BodiesPerAddress, MaxBodies)}
}

// Handler has next read bodies within the bounds. Reading one that doesn't come
// fails with a [protocol.Error].
func (b *Bodies) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
			next.ServeHTTP(w, r)
			return
		}
		in := &body{
			ReadCloser: r.Body, bodies: b, control: http.NewResponseController(w), until: time.Now().Add(BodyTime),
		}
		in.waiter = waiter{address: share(b.address(r)), hurry: in.hurry}
		in.control.SetReadDeadline(in.until) // also for who reads nothing and lets the server do it
		r.Body = in
		defer in.close()
		next.ServeHTTP(w, r)
		if !r.Close && r.ContentLength <= drainBytes && r.Header.Get("Expect") == "" {
			in.drain()
		}
	})
}

// Admitted notes that somebody vouches for the client of r: it counts no more
// among those that nobody knows.
func Admitted(r *http.Request) {
	if in, ours := r.Body.(*body); ours {
		in.mu.Lock()
		defer in.mu.Unlock()
		in.admitted = true
	}
}

// A body is a request's. Its deadlines are the connection's.
type body struct {
	io.ReadCloser
	bodies  *Bodies
	control *http.ResponseController
	until   time.Time // it has to be there
	waiter  waiter

	mu       sync.Mutex
	admitted bool
	closed   bool      // the connection isn't this request's any more
	since    time.Time // a reader waits since then; zero: none does
	hurried  bool      // the deadline was brought forward
	err      error     // the end
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

// end notes that it waits no more, and returns err as the reader finds it.
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
		if hurried { // after the server took the deadline away: an answer may take its time
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

// hurry has a body that is waited for come soon, or not at all.
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

// close gives the connection back.
func (b *body) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}

// drain reads what nobody wanted: so does the server, but none would hurry it.
func (b *body) drain() { io.CopyN(io.Discard, b, drainBytes) }

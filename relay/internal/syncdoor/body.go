package syncdoor

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// leastRate is the least rate at which a client must send its body, in bytes per
	// second, over rateSpan.
	leastRate = 64 << 10
	rateSpan  = 10 * time.Second
)

var errSlow = protocol.Errorf(protocol.KindInvalid, "the body came slower than %d KiB/s for %s", leastRate>>10, rateSpan)

// A body is a client's, read no slower than it must come. Time in which nobody
// reads it doesn't count: then it is the sandbox that is slow.
type body struct {
	// Static after construction.
	in      io.Reader
	most    int64
	control *http.ResponseController
	place   *place // taken while a piece of it is passed on, and behind its last one

	// Owned by the reader.
	left  int64         // bytes that it may still have
	spent time.Duration // waiting for the client in this span
	came  int64         // bytes in this span

	mu sync.Mutex
	// Guarded by mu.
	err    error // what ended it; io.EOF: its end
	closed bool  // the connection isn't the reader's any more
}

func newBody(w http.ResponseWriter, r *http.Request, most int64, at *place) *body {
	return &body{in: r.Body, most: most, left: most, control: http.NewResponseController(w), place: at}
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	if err := b.end(); err != nil {
		return 0, err
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	b.place.rest()
	began := time.Now()
	if !b.deadline(began.Add(rateSpan - b.spent)) {
		return 0, os.ErrClosed
	}
	n, err := b.in.Read(p)
	open := b.deadline(time.Time{})
	b.spent += time.Since(began)
	b.came += int64(n)
	b.left -= int64(n)
	switch {
	case b.left < 0:
		n, err = 0, tooLarge(b.most)
	case errors.Is(err, os.ErrDeadlineExceeded) && open:
		err = nil // came tells whether it is too slow
		fallthrough
	case err == nil && b.spent >= rateSpan:
		if b.came < leastRate*int64(rateSpan/time.Second) {
			err = errSlow
		}
		b.spent, b.came = 0, 0
	}
	if gone := b.place.take(); gone != nil {
		n, err = 0, gone
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
	return n, err
}

// deadline sets the connection's read deadline, unless it isn't the reader's any
// more. Where none can be set, the server's own counts.
func (b *body) deadline(at time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		_ = b.control.SetReadDeadline(at)
	}
	return !b.closed
}

// end returns what has ended the body; nil: nothing.
func (b *body) end() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// leave takes the connection from the reader, which may still be reading when the
// answer is there.
func (b *body) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.err != io.EOF {
		_ = b.control.SetReadDeadline(time.Now())
	}
}

// whole reports whether all of it was read.
func (b *body) whole() bool { return b.end() == io.EOF }

// failed returns what is wrong with the body; nil: nothing.
func (b *body) failed() error {
	err := b.end()
	if err == nil || protocol.AsError(err).Kind == protocol.KindInternal {
		return nil
	}
	return err
}

func tooLarge(most int64) error {
	return protocol.Errorf(protocol.KindTooLarge, "the body is over %d bytes", most)
}

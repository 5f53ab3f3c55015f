package pagestream

import (
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol/jws"
)

const (
	// heartbeat is the interval of comments, by which either side notices that
	// the other is gone.
	heartbeat = 15 * time.Second
	// writeTimeout bounds how long a page takes for what it is sent. It may
	// fall behind by no more than that: what waits for it is what waits for
	// the user anyway.
	writeTimeout = 10 * time.Second
	// opening tells the page to come back after 2 s.
	opening = "retry: 2000\n\n"
)

// Why a stream ended; the label of the counter.
const (
	endedLeft    = "left"    // by the page
	endedSlow    = "slow"    // it didn't take what it was sent in time
	endedExpired = "expired" // its grant
	endedRevoked = "revoked" // its grant
	endedClosing = "closing" // the relay is
)

// A stream is one page that listens.
type stream struct {
	// Static after construction.
	grant *jws.Grant
	use   *lifetime.Use // nil: the grant had ended already
	box   *box
	news  chan struct{} // something may be there for it; holds one
	over  chan struct{} // closed once reason is set

	reason atomic.Pointer[string]

	reached uint64 // the newest number it was given or passed by; guarded by Pages.mu
}

// wake says that something may be there.
func (s *stream) wake() {
	select {
	case s.news <- struct{}{}:
	default: // it is going to look anyway
	}
}

// end ends s from outside, the first time it is called.
func (s *stream) end(reason string) {
	if s.reason.CompareAndSwap(nil, &reason) {
		close(s.over)
	}
}

// ends ends s with its grant.
func (s *stream) ends(cause error) {
	if errors.Is(cause, lifetime.ErrRevoked) {
		s.end(endedRevoked)
	} else {
		s.end(endedExpired)
	}
}

// Serve answers r with the commands for the user of grant, until the page
// leaves, the grant ends by the relay's clock, or [Pages.Close]. after is the id of the last event
// that the page has seen, empty for all that waits. It fails before anything is
// written, with kind too_many or restarting.
func (p *Pages) Serve(w http.ResponseWriter, r *http.Request, grant *jws.Grant, after string) error {
	s, err := p.open(grant, after)
	if err != nil {
		return err
	}
	defer p.drop(s)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Accel-Buffering", "no") // proxies must not wait for more
	w.WriteHeader(http.StatusOK)
	p.ended.WithLabelValues(p.feed(w, r, s)).Inc()
	return nil
}

// feed writes events and heartbeats until s is over, and returns why.
func (p *Pages) feed(w http.ResponseWriter, r *http.Request, s *stream) string {
	out := http.NewResponseController(w)
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	next := append([]byte(opening), p.take(s)...)
	for {
		if len(next) > 0 {
			if err := write(w, out, next); err != nil {
				if r.Context().Err() != nil {
					return endedLeft
				}
				return endedSlow
			}
		}
		next = nil
		select {
		case <-s.news:
			next = p.take(s)
		case <-beat.C:
			next = []byte(": \n\n")
		case <-s.over:
			return *s.reason.Load()
		case <-r.Context().Done():
			return endedLeft
		}
	}
}

// write sends data at once.
func write(w http.ResponseWriter, out *http.ResponseController, data []byte) error {
	if err := out.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		return err
	}
	return out.Flush()
}

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
	// heartbeat is the interval of comments, which show either side whether the
	// other is still there.
	heartbeat = 15 * time.Second
	// writeTimeout bounds a write to a page, and so how far it falls behind. What
	// waits for it then waits for the user anyway.
	writeTimeout = 10 * time.Second
	// opening tells the page to reconnect after 2 s.
	opening = "retry: 2000\n\n"
)

// Why a stream ended; the label of the counter.
const (
	endedLeft    = "left"    // by the page
	endedSlow    = "slow"    // it took too long to read
	endedExpired = "expired" // its grant
	endedRevoked = "revoked" // its grant
	endedClosing = "closing" // the relay is
)

// A stream is one listening page.
type stream struct {
	// Static after construction.
	grant   *jws.Grant
	browser string        // empty: it names none
	use     *lifetime.Use // nil: the grant had already ended
	box     *box
	news    chan struct{} // wakes feed; holds one
	over    chan struct{} // closed once reason is set

	reason atomic.Pointer[string]

	reached uint64 // the newest number it was sent or skipped; guarded by Pages.mu
}

// wake tells feed to look for commands.
func (s *stream) wake() {
	select {
	case s.news <- struct{}{}:
	default: // it is going to look anyway
	}
}

// end ends s with a reason. Only the first call counts.
func (s *stream) end(reason string) {
	if s.reason.CompareAndSwap(nil, &reason) {
		close(s.over)
	}
}

// ends ends s when its grant ends.
func (s *stream) ends(cause error) {
	if errors.Is(cause, lifetime.ErrRevoked) {
		s.end(endedRevoked)
	} else {
		s.end(endedExpired)
	}
}

// A Page is one that wants to listen.
type Page struct {
	Grant   *jws.Grant
	Browser string // the installation of the extension beside it; empty: it doesn't say
	After   string // the id of the last event that it has seen; empty: all that wait are new
}

// Serve sends page the commands for its user as events, until it leaves, its
// grant ends by the relay's clock, or [Pages.Close]. It fails before writing
// anything, with kind too_many or restarting.
func (p *Pages) Serve(w http.ResponseWriter, r *http.Request, page Page) error {
	s, err := p.open(page)
	if err != nil {
		return err
	}
	defer p.drop(s)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Accel-Buffering", "no") // proxies must not buffer
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

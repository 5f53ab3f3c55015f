package tunnel

import (
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// probeJitter is the fraction by which pauses vary.
	probeJitter = 0.1
	// minLife is the age below which the end of a QUIC tunnel counts against QUIC.
	minLife = time.Minute
)

// A Ladder remembers across one tunnel's dials which carriers work: QUIC is the
// upper rung, WebSocket the lower one. A nil Ladder remembers nothing. Its
// methods may be called concurrently.
type Ladder struct {
	// Guarded by mu.
	mu       sync.Mutex
	avoid    Carrier // not to be tried first next time
	failures int     // failures of QUIC in a row
	trust    bool    // the last tunnel was over QUIC, and its path was fine
}

// headStart returns how long c is tried before another carrier.
func (l *Ladder) headStart(c Carrier) time.Duration {
	if l == nil || c != CarrierQUIC {
		return headStart
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.trust {
		return longHeadStart
	}
	return headStart
}

// doubt notes that QUIC took longer than its head start.
func (l *Ladder) doubt() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trust = false
}

// stalled notes a connection over which no handshake succeeded.
func (l *Ladder) stalled(c Carrier) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.avoid = c
}

// skip reports whether c is not to be tried first this time.
func (l *Ladder) skip(c Carrier) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	skip := l.avoid == c
	l.avoid = ""
	return skip
}

// ended notes how a tunnel ended, and its age. If one over QUIC soon fell
// silent, something blocks its packets.
func (l *Ladder) ended(c Carrier, lived time.Duration, err error) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.trust = c == CarrierQUIC && !silent(err); c != CarrierQUIC {
		return
	}
	switch {
	case lived >= minLife:
		l.failures = 0
	case silent(err):
		l.failures++
		l.avoid = c
	}
}

// failed notes that QUIC got through but the registration failed.
func (l *Ladder) failed() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures++
}

// pause returns the time until the next probe of QUIC.
func (l *Ladder) pause(pace climbPace) time.Duration {
	failures := 0
	if l != nil {
		l.mu.Lock()
		failures = l.failures
		l.mu.Unlock()
	}
	wait := min(pace.probe<<min(failures, 8), pace.most)
	return time.Duration(float64(wait) * (1 + probeJitter*(2*rand.Float64()-1)))
}

// silent reports whether a tunnel ended because either end received nothing
// more.
func silent(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout() || protocol.KindOf(err) == protocol.KindUpstream
}

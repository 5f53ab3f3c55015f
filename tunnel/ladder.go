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
	// probeJitter is the part of a pause by which it varies.
	probeJitter = 0.1
	// youth is the age up to which the death of a QUIC tunnel counts.
	youth = time.Minute
)

// A Ladder remembers across the dials of one tunnel what was found out about
// the ways to get there: QUIC is its upper rung, WebSocket the lower one. nil is
// one that remembers nothing. Its methods may be called concurrently.
type Ladder struct {
	// Guarded by mu.
	mu    sync.Mutex
	avoid Carrier // the one not to try first next time
	falls int     // from QUIC in a row
	trust bool    // the last tunnel was over QUIC, and it was not the path that ended it
}

// headStart returns how long c is tried before another carrier is too.
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

// stalled notes that a connection was made over which no handshake got through.
func (l *Ladder) stalled(c Carrier) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.avoid = c
}

// skip reports whether c is not the one to try first this time.
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

// ended notes how a tunnel ended that had lived for so long. One over QUIC that
// fell silent soon tells that there is something in the way of packets.
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
	case lived >= youth:
		l.falls = 0
	case silent(err):
		l.falls++
		l.avoid = c
	}
}

// failed notes that QUIC got through, and yet a registration over it didn't.
func (l *Ladder) failed() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.falls++
}

// pause returns the time until the next look whether QUIC gets through.
func (l *Ladder) pause(pace climbPace) time.Duration {
	falls := 0
	if l != nil {
		l.mu.Lock()
		falls = l.falls
		l.mu.Unlock()
	}
	wait := min(pace.probe<<min(falls, 8), pace.most)
	return time.Duration(float64(wait) * (1 + probeJitter*(2*rand.Float64()-1)))
}

// silent reports whether a tunnel ended because nothing came any more, at either
// end.
func silent(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout() || protocol.KindOf(err) == protocol.KindUpstream
}

// Package lifespan says when a terminal that nobody watches ends, and which signals
// end one.
//
// It knows no clock and sends nothing. An [Audience] is told who watches, an
// [Ending] decides from that.
package lifespan

import (
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// maxSockets is the most that a stream counts for.
const maxSockets = 1 << 20

// unsaid stands for the sockets of a stream whose relay hasn't said how many they
// are. It counts as one.
const unsaid = -1

// A Stream names one relay's stream to a terminal.
type Stream uint64

// An Audience is who watches a terminal: how many sockets of viewers each relay has
// there.
//
// A stream that ends with sockets was lost, or its relay went away: their browsers
// are about to come back. So they count on for protocol.ControlGrace, or until as
// many have come.
type Audience struct {
	streams map[Stream]int // sockets
	last    Stream
	here    int       // of all streams
	away    int       // of streams that have ended
	until   time.Time // the away ones count
	left    time.Time // since when here is 0
	seen    bool      // somebody has watched
}

// NewAudience returns that of a terminal that begins now: nobody.
func NewAudience(now time.Time) Audience {
	return Audience{streams: make(map[Stream]int), left: now}
}

// Open notes another stream. It counts as watched until its relay says how many do.
func (a *Audience) Open() Stream {
	a.last++
	a.streams[a.last] = unsaid
	a.here += counted(unsaid)
	a.seen = true
	return a.last
}

// Say notes that a stream's relay has n sockets of viewers.
func (a *Audience) Say(s Stream, n int, now time.Time) {
	was, open := a.streams[s]
	if !open {
		return
	}
	n = min(max(n, 0), maxSockets)
	a.streams[s] = n
	a.away -= min(a.away, max(n-max(was, 0), 0))
	a.count(n-counted(was), now)
}

// Close notes that a stream has ended.
func (a *Audience) Close(s Stream, now time.Time) {
	was, open := a.streams[s]
	if !open {
		return
	}
	delete(a.streams, s)
	if n := counted(was); n > 0 {
		if !now.Before(a.until) {
			a.away = 0
		}
		a.away, a.until = a.away+n, now.Add(protocol.ControlGrace)
		a.count(-n, now)
	}
}

// count changes how many sockets there are.
func (a *Audience) count(by int, now time.Time) {
	before := a.here
	a.here += by
	if a.here == 0 && before > 0 {
		a.left = now
	}
}

// counted returns what a stream's sockets count for.
func counted(n int) int {
	if n == unsaid {
		return 1
	}
	return n
}

// An Absence says since when nobody watches a terminal.
type Absence struct {
	Nobody bool
	Since  time.Time // may be yet to come: who is away counts until then
	Never  bool      // nobody ever has
}

// Absence returns how it stands.
func (a *Audience) Absence() Absence {
	if a.here > 0 {
		return Absence{}
	}
	since := a.left
	if a.away > 0 && a.until.After(since) {
		since = a.until
	}
	return Absence{Nobody: true, Since: since, Never: !a.seen}
}

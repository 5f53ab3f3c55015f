package client

import (
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// Silence is how long a relay may say nothing before its viewers go to another
// one. It is asked for a sign of life after half of that. Browsers do the same.
const Silence = 3 * time.Second

// shunned is how long nobody goes back to a relay that was silent, on another
// one's word.
const shunned = 10 * time.Second

// relays decides to which relay a viewer goes next. It is pure.
type relays struct {
	known  *UserOptions // whose Relays are tried in their order; Anywhere: also others that a relay names
	at     int          // index of the present or next one
	beyond string       // the present or next one if it isn't known
	silent map[string]time.Time
}

// several reports whether there is another relay to go to.
func (r *relays) several() bool { return len(r.known.Relays) > 1 }

// current returns the origin in use.
func (r *relays) current() string {
	if r.beyond != "" {
		return r.beyond
	}
	return r.known.Relays[r.at%len(r.known.Relays)]
}

// advance goes on to the next relay of the list, if there are several. A viewer
// that knows one only stays where it was sent.
func (r *relays) advance() {
	if r.several() {
		r.at, r.beyond = r.at+1, ""
	}
}

// shun notes that the relay in use is silent.
func (r *relays) shun(now time.Time) {
	if r.silent == nil {
		r.silent = make(map[string]time.Time)
	}
	r.silent[r.current()] = now
}

func (r *relays) shuns(origin string, now time.Time) bool {
	at, ok := r.silent[origin]
	return ok && now.Sub(at) <= shunned
}

// choose returns where the next attempt goes: to the relay that was named, if
// there was one, else to the present one, but to none that was silent a moment
// ago if there is another.
func (r *relays) choose(named string, now time.Time) string {
	if named != "" && !r.shuns(named, now) {
		if i := slices.Index(r.known.Relays, named); i >= 0 {
			r.at, r.beyond = i, ""
			return named
		}
		if r.known.Anywhere {
			r.beyond = named
			return named
		}
	}
	for range r.known.Relays {
		if !r.shuns(r.current(), now) {
			break
		}
		r.advance()
	}
	return r.current()
}

// A pulse decides when a relay is asked for a sign of life, and when it counts
// as silent. It is pure.
type pulse struct {
	asked time.Time
	dead  bool
}

type sign int

const (
	signNone sign = iota
	signAsk       // send a ping
	signDead      // leave: told once
)

// check returns what to do at now about a relay that was last heard then.
func (p *pulse) check(heard, now time.Time, silence time.Duration) sign {
	askAfter := silence / 2
	if p.dead {
		return signNone
	}
	switch quiet := now.Sub(heard); {
	case quiet >= silence && p.asked.After(heard) && now.Sub(p.asked) >= silence-askAfter:
		p.dead = true
		return signDead
	case quiet >= askAfter && !p.asked.After(heard):
		p.asked = now
		return signAsk
	}
	return signNone
}

const pingText = `{"type":"` + protocol.ClientPing + `"}`

package client

import (
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// Silence is how long a relay may be silent before its viewers switch to
// another one. After half of that they ping it. Browsers do the same.
const Silence = 3 * time.Second

// shunned is how long viewers don't return to a silent relay, even if another
// one names it.
const shunned = 10 * time.Second

// relays decides which relay a viewer uses next. It is pure.
type relays struct {
	known  *UserOptions // Relays are tried in order; Anywhere: also others that a relay names
	at     int          // index of the current relay
	beyond string       // the current relay if it isn't known
	silent map[string]time.Time
}

// several reports whether there is more than one relay.
func (r *relays) several() bool { return len(r.known.Relays) > 1 }

// current returns the current relay's origin.
func (r *relays) current() string {
	if r.beyond != "" {
		return r.beyond
	}
	return r.known.Relays[r.at%len(r.known.Relays)]
}

// advance moves on to the next known relay, if there are several. With only
// one, a viewer stays where it was sent.
func (r *relays) advance() {
	if r.several() {
		r.at, r.beyond = r.at+1, ""
	}
}

// shun notes that the current relay is silent.
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

// choose returns the origin for the next attempt: the relay that was named, if
// any, otherwise the current one. It avoids relays that were silent recently if
// there is another.
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

// A pulse decides when to ping a relay, and when it counts as silent. It is
// pure.
type pulse struct {
	asked time.Time
	dead  bool
}

type sign int

const (
	signNone sign = iota
	signAsk       // send a ping
	signDead      // leave the relay; returned once
)

// check returns what to do at now about a relay last heard at heard.
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

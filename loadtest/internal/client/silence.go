package client

import (
	"errors"
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// A relay of several that has said nothing for askAfter is asked whether it is
// there, and left after silence, as browsers do. For shunned nobody goes back to
// it on another one's word. Tests have less patience.
var (
	askAfter = 1500 * time.Millisecond
	silence  = 3 * time.Second
)

const shunned = 10 * time.Second

var errSilent = errors.New("the relay is silent")

var pingText = appendFrame(nil, opText, []byte(`{"type":"`+protocol.ClientPing+`"}`))

// listen asks a silent relay for a sign of life, and tells the viewer when none
// comes. The caller holds the viewer's mu.
func (s *socket) listen(at time.Time) {
	if len(s.viewer.user.relays) < 2 || s.given {
		return
	}
	switch quiet := at.Sub(s.at); {
	case quiet >= silence && s.asked.After(s.at) && at.Sub(s.asked) >= silence-askAfter:
		s.given = true
		close(s.silent)
	case quiet >= askAfter && !s.asked.After(s.at):
		s.asked = at
		_ = s.link.write(pingText) // an error is the reading side's to tell
	}
}

// shun notes that the relay of the present socket is silent. The caller is run.
func (v *Viewer) shun() {
	if v.left == nil {
		v.left = make(map[int]time.Time)
	}
	v.left[v.relay%len(v.user.relays)] = time.Now()
}

// choose returns where the next attempt goes: to the relay that was named, else
// to the next one, but to none that was silent a moment ago if there is another.
// The caller is run.
func (v *Viewer) choose(named string) string {
	relays := v.user.relays
	if i := slices.Index(relays, named); i >= 0 && time.Since(v.left[i]) > shunned {
		v.relay = i
		return named
	}
	for range relays {
		if time.Since(v.left[v.relay%len(relays)]) > shunned {
			break
		}
		v.relay++
	}
	return relays[v.relay%len(relays)]
}

package arbiter

import (
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/lifespan"
)

// Audience notes how many sockets of viewers the relay of this stream has. Until it
// says so, its stream counts as one that is watched.
func (a *Stream) Audience(m protocol.Audience) {
	b := a.arbiter
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.err != nil {
		return
	}
	b.audience.Say(a.seats, m.Sockets, time.Now())
	b.Poke()
}

// Absence says since when nobody watches the terminal.
func (b *Arbiter) Absence() lifespan.Absence {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.audience.Absence()
}

package feed

import "github.com/fairlead/fairlead/protocol"

// pacing is how far a reader is that holds the terminal back.
type pacing struct {
	on  bool   // it is a pace-setter
	at  uint64 // it has everything before: shown, or written to its socket
	due uint64 // the agent is to hear when it has reached this
}

// moved follows a new position. Until the reader acknowledges something, or is
// written to, it has no more than before, unless that was of another log.
func (p *pacing) moved(offset uint64, anew bool) {
	if anew {
		p.at = offset
	}
	p.due = offset
}

// reached notes where the reader is, and reports whether the agent should hear of
// it.
func (p *pacing) reached(offset uint64) bool {
	p.at = offset
	if !p.on || offset < p.due {
		return false
	}
	p.due = offset + protocol.PaceBytes
	return true
}

// SetPace makes the reader a pace-setter, or ends that.
func (r *Reader) SetPace(on bool) {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	r.pace.on = on
	r.pace.due = r.pace.at + protocol.PaceBytes
	r.paced.Store(on)
}

// Pace returns where the reader is.
func (r *Reader) Pace() uint64 {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	return r.pace.at
}

// Wrote notes that everything that the reader was sent is written to its socket.
// It reports whether the agent should hear of it. For readers that acknowledge it
// hears by that; for most others, nothing.
func (r *Reader) Wrote() bool {
	if !r.paced.Load() || r.acks {
		return false
	}
	f := r.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	p := &r.pos
	return p.generation == f.generation && p.prefix == nil && r.pace.reached(p.sent())
}

package feed

import "github.com/fairlead/fairlead/protocol"

// pacing is the progress of a reader that may hold the terminal back.
type pacing struct {
	on  bool   // it is a pace-setter
	at  uint64 // it has everything before: shown, or written to its socket
	due uint64 // the agent is told when at reaches this
}

// moved sets a new position. It doesn't change what the reader has until it
// acknowledges or its socket is written to, except in another log.
func (p *pacing) moved(offset uint64, anew bool) {
	if anew {
		p.at = offset
	}
	p.due = offset
}

// reached sets the reader's progress and reports whether to tell the agent.
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

// Pace returns the reader's progress.
func (r *Reader) Pace() uint64 {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	return r.pace.at
}

// Wrote notes that everything sent to the reader is written to its socket. It
// reports whether to tell the agent. It does nothing for most readers, and for
// those that acknowledge: their acks say it.
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

package tunnel

import (
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// A peer may leave a PING unanswered for so many intervals, and at least
	// for leastSilence.
	silenceIntervals = 2
	leastSilence     = 1200 * time.Millisecond
	// lateAsk is how late a peer's PING may be before that is suspicious.
	lateAsk = 50 * time.Millisecond
)

// A pinger measures whether and how fast the peer answers.
type pinger struct {
	changed chan struct{} // due has changed

	// Guarded by mu.
	mu      *sync.Mutex
	watched bool
	lastAsk time.Time // the peer's last PING
	mirror  time.Time // until then the peer's frequent PINGs are matched
	due     time.Time // of the next PING
	next    uint64
	sent    map[uint64]time.Time // unanswered, few
	rtt     time.Duration
}

func newPinger() pinger {
	return pinger{changed: make(chan struct{}, 1), mu: &sync.Mutex{}, sent: map[uint64]time.Time{}}
}

// SetWatched says whether somebody watches a terminal of this sandbox: then a
// dead peer must be noticed soon, so PINGs are frequent.
func (s *Session) SetWatched(watched bool) {
	p := &s.pinger
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watched == watched {
		return
	}
	p.watched = watched
	p.ask(time.Now())
}

// Probe sends a PING now and frequent ones for a while, so that a peer that is
// gone is noticed soon although nobody has watched yet.
func (s *Session) Probe() {
	p := &s.pinger
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.mirror = now.Add(protocol.PingIdle)
	p.ask(now)
}

// ask makes a PING due at a time. The caller holds mu.
func (p *pinger) ask(at time.Time) {
	p.due = at
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// RTT returns the last measured round trip, 0 before the first.
func (s *Session) RTT() time.Duration {
	s.pinger.mu.Lock()
	defer s.pinger.mu.Unlock()
	return s.pinger.rtt
}

// ping sends PINGs and ends the session when the peer is silent.
func (s *Session) ping() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-s.pinger.changed:
		case <-s.done:
			return
		}
		id, wait, dead := s.pinger.tick(time.Now())
		if dead {
			s.end(protocol.Errorf(protocol.KindUpstream, "tunnel: the peer is silent"))
			return
		}
		if id != 0 && s.write(protocol.Ping{ID: id}) != nil {
			return
		}
		timer.Reset(wait)
	}
}

// tick returns the id of a PING that is due now, 0 when none is, and the time
// until there is something to do again; or that the peer has been silent for
// too long.
func (p *pinger) tick(now time.Time) (id uint64, wait time.Duration, dead bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	matching := now.Before(p.mirror)
	interval := protocol.PingIdle
	if p.watched || matching {
		interval = protocol.PingWatched
	}
	if !now.Before(p.due) {
		p.next++
		id = p.next
		p.sent[id] = now
		p.due = now.Add(interval)
		if late := p.lastAsk.Add(protocol.PingWatched + lateAsk); matching && late.After(now) && late.Before(p.due) {
			p.due = late
		}
	}
	wait = p.due.Sub(now)
	for _, at := range p.sent {
		left := at.Add(max(silenceIntervals*interval, leastSilence)).Sub(now)
		if left <= 0 {
			return 0, 0, true
		}
		wait = min(wait, left)
	}
	return id, wait, false
}

// asked notes a PING of the relay. While it pings often, somebody watches, and
// the agent must notice a dead relay as soon as it can. Only the agent matches:
// if both did, neither would ever slow down again. Its own PINGs fall in the
// middle between the relay's, and one more follows when the relay's doesn't
// come: so a relay that is gone gets a packet within 300 ms, which its host or
// its successor answers with the end of the tunnel.
func (p *pinger) asked(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	often := now.Sub(p.lastAsk) < 2*protocol.PingWatched
	p.lastAsk = now
	if !often {
		return
	}
	fresh := !now.Before(p.mirror)
	p.mirror = now.Add(protocol.PingIdle)
	if fresh {
		p.ask(now)
	} else {
		p.ask(now.Add(protocol.PingWatched / 2))
	}
}

// heard notes an answer: it stands for all earlier PINGs too.
func (p *pinger) heard(id uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, ok := p.sent[id]; ok {
		p.rtt = time.Since(at)
	}
	for sent := range p.sent {
		if sent <= id {
			delete(p.sent, sent)
		}
	}
}

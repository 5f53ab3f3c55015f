package tunnel

import (
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// silence is how long a peer may leave PINGs unanswered, in intervals and at
// least.
const (
	silenceIntervals = 2
	leastSilence     = 1200 * time.Millisecond
)

// A pinger measures whether and how fast the peer answers.
type pinger struct {
	changed chan struct{} // the interval has changed

	// Guarded by mu.
	mu      *sync.Mutex
	watched bool
	lastAsk time.Time // the peer's last PING
	mirror  time.Time // until then the peer's frequent PINGs are matched
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
	for {
		id, wait, dead := s.pinger.tick(time.Now())
		if dead {
			s.end(protocol.Errorf(protocol.KindUpstream, "tunnel: the peer is silent"))
			return
		}
		if s.write(protocol.Ping{ID: id}) != nil {
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-s.pinger.changed:
		case <-s.done:
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// tick returns the id of the next PING and the time until the one after it,
// or that the peer has been silent for too long.
func (p *pinger) tick(now time.Time) (id uint64, wait time.Duration, dead bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wait = protocol.PingIdle
	if p.watched || now.Before(p.mirror) {
		wait = protocol.PingWatched
	}
	for _, at := range p.sent {
		if now.Sub(at) >= max(silenceIntervals*wait, leastSilence) {
			return 0, 0, true
		}
	}
	p.next++
	p.sent[p.next] = now
	return p.next, wait, false
}

// asked notes a PING of the relay. While it pings often, somebody watches, and
// the agent must notice a dead path as soon as the relay does. Only the agent
// matches: if both did, neither would ever slow down again.
func (p *pinger) asked(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	often := now.Sub(p.lastAsk) < 2*protocol.PingWatched
	p.lastAsk = now
	if !often {
		return
	}
	fresh := now.After(p.mirror)
	p.mirror = now.Add(protocol.PingIdle)
	if fresh {
		select {
		case p.changed <- struct{}{}:
		default:
		}
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

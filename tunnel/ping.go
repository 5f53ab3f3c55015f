package tunnel

import (
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel/internal/carrier"
)

const (
	// A peer from which nothing has come for so long since a PING is dead:
	// watchedSilence while somebody watches and otherwise idleSilence, so that an
	// idle tunnel's end is known within 6 s. On a long path it is silenceTrips
	// round trips, enough for a PING and its PONG to be lost once each, and
	// maxSilence at most.
	watchedSilence = 1200 * time.Millisecond
	idleSilence    = 1800 * time.Millisecond
	silenceTrips   = 4
	maxSilence     = 10 * time.Second
	// A peer that sends packets but answers no PING for hungSilences such times is
	// stuck or hostile.
	hungSilences = 4
	// listenEvery is how often to check for the carrier's packets while a PING is
	// unanswered.
	listenEvery = 200 * time.Millisecond
	// maxFirstTrip bounds the assumed round trip before the first measured one.
	maxFirstTrip = time.Second
	// lateAsk is how late a peer's PING may be before we send one.
	lateAsk = 50 * time.Millisecond
	// standstill is the delay of a check at which this process itself must have
	// stood still: stopped, paused with its machine, or starved. What the peer
	// sent meanwhile is still to be read.
	standstill = 200 * time.Millisecond
)

// A pinger measures whether and how fast the peer answers PINGs.
type pinger struct {
	changed chan struct{} // due has changed

	// Guarded by mu.
	mu       *sync.Mutex
	watched  bool
	watchers int       // see Watch
	lastAsk  time.Time // time of the peer's last PING
	mirror   time.Time // until when the peer's frequent PINGs are matched
	spare    time.Time // until when the peer's PINGs replace ours, unless somebody watches
	due      time.Time // time of the next PING
	look     time.Time // latest time of the next tick
	next     uint64
	sent     map[uint64]time.Time // unanswered PINGs; few
	rtt      time.Duration        // the last one
	longest  time.Duration        // longest round trip; shorter ones lower it slowly
	heardAt  time.Time            // when anything last came from the peer
	packets  uint64               // packets that had come by then
}

// newPinger is called at the start of the handshake.
func newPinger() pinger {
	return pinger{changed: make(chan struct{}, 1), mu: &sync.Mutex{}, sent: map[uint64]time.Time{}, heardAt: time.Now()}
}

// SetWatched says whether somebody watches a terminal of this sandbox. Then
// PINGs are frequent, so that a dead peer is noticed soon.
func (s *Session) SetWatched(watched bool) {
	s.pinger.mu.Lock()
	defer s.pinger.mu.Unlock()
	s.pinger.watch(watched)
}

// Watch is SetWatched for several independent watchers: it counts delta more of
// them, or fewer.
func (s *Session) Watch(delta int) {
	s.pinger.mu.Lock()
	defer s.pinger.mu.Unlock()
	s.pinger.watchers += delta
	s.pinger.watch(s.pinger.watchers > 0)
}

// Watchers returns how many Watch has counted.
func (s *Session) Watchers() int {
	s.pinger.mu.Lock()
	defer s.pinger.mu.Unlock()
	return s.pinger.watchers
}

// watch says whether somebody watches. The caller holds mu.
func (p *pinger) watch(watched bool) {
	if p.watched != watched {
		p.watched = watched
		p.ask(time.Now())
	}
}

// Probe sends a PING now and frequent ones for a while, so that a dead peer is
// noticed soon even before somebody watches.
func (s *Session) Probe() {
	p := &s.pinger
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.mirror = now.Add(protocol.PingIdle)
	p.ask(now)
}

// ask schedules a PING. The caller holds mu.
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

// ping sends PINGs, and ends the session if the peer is silent.
func (s *Session) ping() {
	s.pinger.begin(time.Now())
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-s.pinger.changed:
		case <-s.done:
			return
		}
		id, wait, dead := s.pinger.tick(time.Now(), s.packets())
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

// packets returns how many packets have come, if the carrier counts them.
func (s *Session) packets() uint64 {
	if counting, ok := s.conn.(carrier.Counting); ok {
		return counting.Stats().PacketsReceived
	}
	return 0
}

// begin takes the handshake, one or two round trips, as the first measurement.
func (p *pinger) begin(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.longest = min(now.Sub(p.heardAt), maxFirstTrip)
	p.heardAt = now
}

// silence returns how long nothing may come after a PING. The caller holds mu.
func (p *pinger) silence(often bool) time.Duration {
	least := idleSilence
	if often {
		least = watchedSilence
	}
	return min(max(silenceTrips*p.longest, least), maxSilence)
}

// tick returns the id of a PING that is due now, 0 for none, and the time until
// the next tick; or that the peer is dead. packets is how many have come so
// far.
func (p *pinger) tick(now time.Time, packets uint64) (id uint64, wait time.Duration, dead bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if late := now.Sub(p.look); late > standstill && !p.look.IsZero() {
		p.excuse(now, late)
	}
	if packets != p.packets {
		p.packets, p.heardAt = packets, now
	}
	defer func() { p.look = now.Add(wait) }()
	matching := now.Before(p.mirror)
	often := p.watched || matching
	interval := protocol.PingIdle
	if often {
		interval = protocol.PingWatched
	}
	if !often && p.next > 0 && p.due.Before(p.spare) {
		p.due = p.spare
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
	if len(p.sent) == 0 {
		return id, wait, false
	}
	left := p.left(now, p.silence(often))
	if left <= 0 {
		return 0, 0, true
	}
	return id, min(wait, left, listenEvery), false
}

// excuse discounts the time d until now, in which this process didn't listen:
// it is neither the peer's silence nor a round trip. The caller holds mu.
func (p *pinger) excuse(now time.Time, d time.Duration) {
	if p.heardAt = p.heardAt.Add(d); p.heardAt.After(now) {
		p.heardAt = now
	}
	for id, at := range p.sent {
		p.sent[id] = at.Add(d)
	}
}

// left returns the time until the peer counts as dead: silent since the oldest
// unanswered PING, or stuck. The caller holds mu.
func (p *pinger) left(now time.Time, silence time.Duration) time.Duration {
	oldest := now
	for _, at := range p.sent {
		if at.Before(oldest) {
			oldest = at
		}
	}
	since := oldest
	if p.heardAt.After(since) {
		since = p.heardAt
	}
	return min(since.Add(silence).Sub(now), oldest.Add(hungSilences*silence).Sub(now))
}

// asked notes a PING of the relay. If they are frequent, somebody watches, and
// the agent must notice a dead relay quickly, too. Only the agent matches them:
// if both did, neither would ever slow down. Its own PINGs fall between the
// relay's, and one more follows if the relay's doesn't come. So a dead relay
// gets a packet within 300 ms, and its host or successor answers that with the
// end of the tunnel.
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

// spared notes a PING of the agent. While nobody watches, it replaces one of
// the relay's own, which may have a thousand tunnels: it proves that the
// agent's packets arrive. The agent notices just as soon if the relay's don't.
// The relay sends its own PING if the agent's next one is late.
func (p *pinger) spared(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spare = now.Add(protocol.PingIdle + lateAsk)
}

// heard notes an answer, which counts for all earlier PINGs, too.
func (p *pinger) heard(id uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	at, ok := p.sent[id]
	if !ok {
		return // an unsolicited answer proves nothing
	}
	if p.rtt == 0 {
		p.longest = 0 // it was a guess
	}
	p.rtt = max(now.Sub(at), 1)
	p.longest = max(p.rtt, (7*p.longest+p.rtt)/8)
	p.heardAt = now
	for sent := range p.sent {
		if sent <= id {
			delete(p.sent, sent)
		}
	}
}

package tunnel

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel/internal/quiclink"
)

const (
	// probeTimeout bounds one probe.
	probeTimeout = 2 * time.Second
	// quietInterval is how often a climb looks whether something passes that it
	// would cut off.
	quietInterval = 50 * time.Millisecond
	// climbGrace is how long a registration over QUIC that is under way may go
	// on when the tunnel it is to replace has ended: that may be why.
	climbGrace = time.Second
)

// A climbPace says when a tunnel over WebSocket is replaced.
type climbPace struct {
	// probe is the time between two looks whether QUIC gets through; it doubles
	// up to most with each QUIC tunnel in a row that died young, and each climb
	// that failed. Both vary by probeJitter, a part of themselves.
	probe, most time.Duration
	// confirm is the time between the two probes that must succeed.
	confirm time.Duration
	// quiet is how long a climb waits at most until nothing passes that it would
	// cut off.
	quiet time.Duration
}

// usualPace is the pace of climbs outside tests, which are in a hurry.
var usualPace = climbPace{probe: 10 * time.Second, most: 35 * time.Second, confirm: time.Second, quiet: 20 * time.Second}

// A Climb says how a tunnel over WebSocket is replaced by one over QUIC. While
// one is served, QUIC is probed every 10 s or so; after two successes a second
// apart, and once no file or page is passing (or 20 s later), the agent registers
// again.
type Climb struct {
	// Probe finds out whether QUIC gets through to addr; see [Probe].
	Probe func(ctx context.Context, addr string) error
	// Dial registers over QUIC at the relay that from leads to, and nowhere
	// else, with a new generation: the relay then ends from. If it fails, from
	// stays.
	Dial   func(ctx context.Context, addr string, from *Session) (*Session, error)
	Ladder *Ladder // the one that dials use
	Events *Events // nil: nobody counts

	pace *climbPace // nil: the usual one
}

// Probe makes a QUIC connection to cfg.Addr and closes it, within 2 s.
func Probe(ctx context.Context, cfg DialConfig) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := quiclink.Dial(ctx, cfg.Addr, cfg.TLS)
	if err != nil {
		return err
	}
	conn.Close(protocol.Errorf(protocol.KindUnavailable, "a probe"))
	return nil
}

// A climber looks for the way up from one tunnel.
type climber struct {
	// Static after construction.
	stop   context.CancelFunc // of looking
	abort  context.CancelFunc // of everything
	result chan *Session      // gets the tunnel that replaces it, or nil
}

// climb begins to look for the way up from s. It returns nil where there is
// none.
func (c *Climb) climb(ctx context.Context, addr string, s *Session, log *slog.Logger) *climber {
	if c == nil || s.Carrier() != CarrierWebSocket {
		return nil
	}
	all, abort := context.WithCancel(ctx)
	looking, stop := context.WithCancel(all)
	up := &climber{stop: stop, abort: abort, result: make(chan *Session, 1)}
	go func() { up.result <- c.run(looking, all, addr, s, log) }() // whoever began waits for it
	return up
}

// end stops looking and returns the tunnel that was found nevertheless, if any.
func (u *climber) end() *Session {
	if u == nil {
		return nil
	}
	defer u.abort()
	u.stop()
	late := time.AfterFunc(climbGrace, u.abort)
	defer late.Stop()
	return <-u.result
}

// replacement delivers the tunnel that replaces the one below.
func (u *climber) replacement() <-chan *Session {
	if u == nil {
		return nil
	}
	return u.result
}

// run looks until looking ends, and registers until all ends.
func (c *Climb) run(looking, all context.Context, addr string, s *Session, log *slog.Logger) *Session {
	pace := usualPace
	if c.pace != nil {
		pace = *c.pace
	}
	for {
		if !rest(looking, c.Ladder.pause(pace)) {
			return nil
		}
		if c.Probe(looking, addr) != nil {
			continue
		}
		seen := time.Now()
		if !rest(looking, pace.confirm) || c.Probe(looking, addr) != nil {
			continue
		}
		s.awaitQuiet(looking, pace.quiet)
		if looking.Err() != nil {
			return nil
		}
		next, err := c.Dial(all, addr, s)
		if c.Events != nil && c.Events.Climbed != nil {
			c.Events.Climbed(err, time.Since(seen))
		}
		if err == nil {
			log.Info("back on QUIC", "addr", addr)
			return next
		}
		c.Ladder.failed()
		log.Info("not back on QUIC", "addr", addr, "err", err)
	}
}

// rest waits, and reports whether ctx still lasts.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// stay serves s, and what replaces it, until the last one is over.
func (cfg *RunConfig) stay(ctx context.Context, addr string, s *Session) error {
	served := cfg.serve(ctx, addr, s)
	for {
		up := cfg.Climb.climb(ctx, addr, s, cfg.Logger)
		var next *Session
		select {
		case next = <-up.replacement(): // none if ctx has ended
			up.abort()
		case <-served.over:
			next = up.end()
		}
		if next == nil {
			<-served.over
			return served.err
		}
		upper := cfg.serve(ctx, addr, next) // before the lower one is missed
		retire(s, served)
		s, served = next, upper
	}
}

// A service is the use of a tunnel.
type service struct {
	over chan struct{} // closed when it is over
	err  error         // what Serve returned; once it is over
}

// serve uses a tunnel aside.
func (cfg *RunConfig) serve(ctx context.Context, addr string, s *Session) *service {
	served := &service{over: make(chan struct{})}
	began := time.Now()
	go func() { // stay waits for it
		defer close(served.over)
		served.err = cfg.Serve(ctx, addr, s)
		s.Close()
		if cfg.Climb != nil && ctx.Err() == nil {
			cfg.Climb.Ladder.ended(s.Carrier(), time.Since(began), s.Err())
		}
	}()
	return served
}

// retire waits until the relay has ended a tunnel that is replaced, or ends it.
func retire(s *Session, served *service) {
	timer := time.NewTimer(maxLinger)
	defer timer.Stop()
	select {
	case <-served.over:
		return
	case <-timer.C:
	}
	s.CloseWith(protocol.Errorf(protocol.KindSuperseded, "replaced by a tunnel over QUIC"))
	<-served.over
}

// fleeting holds the streams that a climb would cut off for good: their peers
// don't take them up again where they ended.
type fleeting []*Stream

// note adds a stream that has come, and forgets those that are over.
func (f *fleeting) note(stream *Stream) {
	if len(*f) == cap(*f) {
		*f = f.alive()
	}
	*f = append(*f, stream)
}

// alive returns the streams that aren't closed.
func (f fleeting) alive() fleeting {
	return slices.DeleteFunc(f, func(s *Stream) bool { return !s.served.Load() })
}

// noteFleeting notes a stream of the peer's, if it is one that a climb waits
// for.
func (s *Session) noteFleeting(kind protocol.StreamKind, stream *Stream) {
	if !s.agent || s.Carrier() != CarrierWebSocket {
		return
	}
	switch kind {
	case protocol.StreamRead, protocol.StreamHTTP, protocol.StreamCommand:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.fleeting.note(stream)
	}
}

// awaitQuiet waits until no such stream is open, for at most so long.
func (s *Session) awaitQuiet(ctx context.Context, most time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for !s.quiet() {
		if !rest(ctx, quietInterval) {
			return
		}
	}
}

func (s *Session) quiet() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fleeting = s.fleeting.alive()
	return len(s.fleeting) == 0
}

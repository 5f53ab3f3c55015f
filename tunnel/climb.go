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
	// quietInterval is how often a climb checks for streams that it would cut off.
	quietInterval = 50 * time.Millisecond
	// climbGrace is how much longer a registration over QUIC may take after the
	// tunnel that it replaces has ended: it may be the cause.
	climbGrace = time.Second
)

// A climbPace says when to replace a tunnel over WebSocket.
type climbPace struct {
	// probe is the time between two probes of QUIC. It doubles, up to most, with
	// each QUIC tunnel in a row that died young and each failed climb. Both vary
	// by the fraction probeJitter.
	probe, most time.Duration
	// confirm is the time between the two probes that must succeed.
	confirm time.Duration
	// quiet bounds a climb's wait for the end of streams that it would cut off.
	quiet time.Duration
}

// usualPace is the pace of climbs outside tests, which use a faster one.
var usualPace = climbPace{probe: 10 * time.Second, most: 35 * time.Second, confirm: time.Second, quiet: 20 * time.Second}

// A Climber reaches relays over QUIC.
type Climber interface {
	// Probe checks whether QUIC reaches addr; see [Probe].
	Probe(ctx context.Context, addr string) error
	// Climb registers over QUIC with a new generation, only at the relay of the
	// tunnel from; the relay then ends from. If it fails, from stays.
	Climb(ctx context.Context, addr string, from *Session) (*Session, error)
}

// A Climb replaces a tunnel over WebSocket by one over QUIC. While the former
// is served, QUIC is probed every 10 s or so. After two successes a second
// apart the agent registers again, once no file or page is being transferred,
// or after 20 s.
type Climb struct {
	Climber
	Ladder *Ladder // shared with dials
	Events *Events // may be nil

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

// A climber tries to replace one tunnel.
type climber struct {
	// Static after construction.
	stop   context.CancelFunc // ends probing
	abort  context.CancelFunc // ends everything
	result chan *Session      // gets the replacing tunnel, or nil
}

// climb starts to replace s. It returns nil if s needs no replacement.
func (c *Climb) climb(ctx context.Context, addr string, s *Session, log *slog.Logger) *climber {
	if c == nil || s.Carrier() != CarrierWebSocket {
		return nil
	}
	all, abort := context.WithCancel(ctx)
	looking, stop := context.WithCancel(all)
	up := &climber{stop: stop, abort: abort, result: make(chan *Session, 1)}
	go func() { up.result <- c.run(looking, all, addr, s, log) }() // the caller waits for it
	return up
}

// end stops probing and returns the replacement, if there is one.
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

// replacement receives the tunnel that replaces the present one.
func (u *climber) replacement() <-chan *Session {
	if u == nil {
		return nil
	}
	return u.result
}

// run probes until looking ends, and registers until all ends.
func (c *Climb) run(looking, all context.Context, addr string, s *Session, log *slog.Logger) *Session {
	pace := usualPace
	if c.pace != nil {
		pace = *c.pace
	}
	for {
		if pause(looking, c.Ladder.pause(pace)) != nil {
			return nil
		}
		if c.Probe(looking, addr) != nil {
			continue
		}
		seen := time.Now()
		if pause(looking, pace.confirm) != nil || c.Probe(looking, addr) != nil {
			continue
		}
		s.awaitQuiet(looking, pace.quiet)
		if looking.Err() != nil {
			return nil
		}
		next, err := c.Climber.Climb(all, addr, s)
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

// stay serves s and its replacements until the last one is over.
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
		upper := cfg.serve(ctx, addr, next) // before the lower one ends
		retire(s, served)
		s, served = next, upper
	}
}

// A service is a tunnel in use.
type service struct {
	over chan struct{} // closed at its end
	err  error         // the result of Serve, once over
}

// serve serves a tunnel on a goroutine of its own.
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

// retire waits for the relay to end a replaced tunnel, or ends it.
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

// fleeting are the streams that a climb would cut off for good: their peers
// don't resume them.
type fleeting []*Stream

// note adds a new stream and drops those that are over.
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

// noteFleeting notes a stream from the peer if a climb has to wait for it.
func (s *Session) noteFleeting(kind protocol.StreamKind, stream *Stream) {
	if !s.agent || s.Carrier() != CarrierWebSocket {
		return
	}
	switch kind {
	case protocol.StreamRead, protocol.StreamHTTP, protocol.StreamSync, protocol.StreamCommand:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.fleeting.note(stream)
	}
}

// awaitQuiet waits until no such stream is open, for at most most.
func (s *Session) awaitQuiet(ctx context.Context, most time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for !s.quiet() {
		if pause(ctx, quietInterval) != nil {
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

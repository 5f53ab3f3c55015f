package tunnel

import (
	"context"
	"testing"
	"time"

	"github.com/fairlead/fairlead/tunnel/internal/carrier"
	"github.com/fairlead/fairlead/tunnel/internal/mux"
)

// The bounds that tests reach for.
const (
	MaxConnects          = maxConnects
	ConnectBurst         = connectBurst
	ConnectsPerSecond    = connectsPerSecond
	AddressConnectBurst  = addressConnectBurst
	MaxConnectAddresses  = maxAddresses
	RefusalTime          = refusalTime
	AddressConnectPerSec = addressConnectsPerSecond
)

// Impatient has tunnels that begin from now on wait less for readers, for
// readers of piped streams, and for carriers, until the test is over.
func Impatient(tb testing.TB, stall, piped, stuck time.Duration) {
	a, b, c := streamStall, pipedStall, mux.WriteTimeout
	streamStall, pipedStall, mux.WriteTimeout = stall, piped, stuck
	tb.Cleanup(func() { streamStall, pipedStall, mux.WriteTimeout = a, b, c })
}

// Patient has dials that begin from now on not try another carrier while one is
// under way, until the test is over.
func Patient(tb testing.TB) {
	short, long := headStart, longHeadStart
	headStart, longHeadStart = time.Hour, time.Hour
	tb.Cleanup(func() { headStart, longHeadStart = short, long })
}

// A Connector serves connect streams on any carrier.
type Connector struct{ c *connector }

func NewConnector(cfg ListenConfig) *Connector {
	return &Connector{newConnector(cfg.Connect, cfg.Connected)}
}

// Serve serves what a Listener would, and returns what the first stream was
// named.
func (c *Connector) Serve(ctx context.Context, conn carrier.Conn) (name string, err error) {
	stream, lane, err := greet(ctx, conn)
	if err != nil {
		return string(lane), err
	}
	c.c.serve(ctx, conn, stream)
	return string(lane), nil
}

// Addresses returns how many addresses are told apart at the moment.
func (c *Connector) Addresses() int {
	c.c.mu.Lock()
	defer c.c.mu.Unlock()
	return len(c.c.addresses)
}

// Hurry has a climb look for the way up every so often, and wait for quiet for
// so long.
func (c *Climb) Hurry(probe, quiet time.Duration) *Climb {
	c.pace = &climbPace{probe: probe, most: 4 * probe, confirm: probe, quiet: quiet}
	return c
}

// Ended, Failed and Pause are the Ladder's own.
func (l *Ladder) Ended(c Carrier, lived time.Duration, err error) { l.ended(c, lived, err) }
func (l *Ladder) Failed()                                         { l.failed() }
func (l *Ladder) HeadStart(c Carrier) time.Duration               { return l.headStart(c) }
func (l *Ladder) Doubt()                                          { l.doubt() }
func (l *Ladder) Pause() time.Duration                            { return l.pause(usualPace) }
func (l *Ladder) Skip(c Carrier) bool                             { return l.skip(c) }

// Turns are what registrations wait for.
type Turns struct{ t *turns }

func NewTurns(perSecond float64) Turns { return Turns{newTurns(perSecond)} }

func (t Turns) Take(now time.Time) (wait time.Duration, ok bool) { return t.t.take(now) }
func (t Turns) Begin(now time.Time) (wait time.Duration)         { return t.t.begin(now) }

// Ration has Admit keep to cfg.Registrations, as a Listener does.
func Ration(cfg *ListenConfig) { cfg.ration() }

// ListenTo returns a Listener for the connections of another carrier.
func ListenTo(from interface {
	Accept(ctx context.Context) (carrier.Conn, error)
}, cfg ListenConfig) *Listener {
	l := newListener(cfg)
	l.running.Go(func() { l.accept(from) })
	return l
}

package uplink

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
)

const (
	// maxFarewell bounds the time that a relay may give its agents to leave.
	maxFarewell = time.Minute
	// handoverTime is how long a tunnel without streams waits for another one to
	// take over before it leaves its relay.
	handoverTime = 2 * time.Second
	// streamsInterval is how often a tunnel that leaves its relay looks for open
	// streams.
	streamsInterval = 20 * time.Millisecond
	// farewellTicks is how many looks in a row must find none: the last ROLE has
	// to arrive before the tunnel ends.
	farewellTicks = 3
)

// A keeper keeps one of the tunnels up.
type keeper struct {
	// Static after construction.
	tunnels  *Tunnels
	options  *Options // of tunnels
	identity Identity
	server   Server
	ladder   *tunnel.Ladder

	// Owned by tunnel.Run.
	addr     string // dialled last
	refused  int    // dials in a row that were refused as superseded
	patience time.Duration

	// Guarded by mu.
	mu     sync.Mutex
	latest *tunnel.Session // served last
	again  bool            // its relay is still the first to try
}

func newKeeper(t *Tunnels, identity Identity, server Server) *keeper {
	return &keeper{
		tunnels: t, options: &t.options, identity: identity, server: server,
		ladder: &tunnel.Ladder{}, patience: t.options.Patience,
	}
}

// run keeps the tunnel number i up until ctx ends or an error is fatal.
func (k *keeper) run(ctx context.Context, i int) error {
	if i > 0 {
		select {
		case <-k.tunnels.begun:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	cfg := tunnel.RunConfig{Keeper: k, Hurry: k.tunnels.hurry[i], Logger: k.options.Log}
	if len(k.options.Carriers) == 0 { // a tunnel over WebSocket may be replaced
		cfg.Climb = &tunnel.Climb{Climber: k, Ladder: k.ladder, Events: k.tunnels.events}
	}
	return tunnel.Run(ctx, cfg)
}

// Next returns the address to dial: the one that was up, or else another one
// in turn.
func (k *keeper) Next(ctx context.Context) (string, error) {
	k.tunnels.release(k.addr)
	k.mu.Lock()
	again := k.again
	k.again = false
	k.mu.Unlock()
	addr, err := k.tunnels.take(ctx, k.addr, again)
	k.addr = addr
	return addr, err
}

// Dial registers at addr, if a relay answers there in time.
func (k *keeper) Dial(ctx context.Context, addr string) (*tunnel.Session, error) {
	hurried, cancel := context.WithCancel(ctx)
	defer cancel()
	late := time.AfterFunc(k.patience, cancel)
	defer late.Stop()
	session, err := k.register(hurried, addr, func(c protocol.Challenge) error {
		late.Stop()
		return k.tunnels.meet(addr, c.RelayID)
	})
	switch {
	case err == nil:
		k.patience = k.options.Patience
	case hurried.Err() != nil:
		k.patience = min(2*k.patience, protocol.HandshakeTimeout)
	}
	if err != nil {
		k.tunnels.dialled()
	}
	k.refused++
	switch kind := protocol.KindOf(err); {
	case err != nil && (kind == protocol.KindUnauthenticated || kind == protocol.KindExpired):
		k.identity.Doubted()
		k.refused = 0
	case kind != protocol.KindSuperseded:
		k.refused = 0
	}
	return session, err
}

// Probe finds out whether QUIC gets through.
func (k *keeper) Probe(ctx context.Context, addr string) error {
	return tunnel.Probe(ctx, tunnel.DialConfig{Addr: addr, TLS: k.options.TLS})
}

// errOtherRelay is the end of a climb whose address has come to lead elsewhere.
var errOtherRelay = errors.New("another relay answers over QUIC")

// Climb registers again over QUIC, at the relay that from leads to.
func (k *keeper) Climb(ctx context.Context, addr string, from *tunnel.Session) (*tunnel.Session, error) {
	return k.register(ctx, addr, func(c protocol.Challenge) error {
		if c.RelayID != from.Welcome().RelayID {
			return errOtherRelay
		}
		return nil
	}, tunnel.CarrierQUIC)
}

// Serve uses a registered tunnel until it is over.
func (k *keeper) Serve(ctx context.Context, addr string, session *tunnel.Session) error {
	k.mu.Lock()
	k.latest = session
	k.mu.Unlock()
	again, err := k.use(ctx, addr, session)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.latest == session { // not one that has been replaced
		k.again = again
	}
	return err
}

// Fatal reports whether dialling again is pointless: another copy of the
// sandbox is newer. A certificate that is refused may be accepted later, by a
// relay that knows newer keys. A newer registration may have been our own
// other tunnel, at a relay with two addresses, but not twice.
func (k *keeper) Fatal(err error) bool {
	e, ok := errors.AsType[*protocol.Error](err)
	return ok && e.Kind == protocol.KindSuperseded && k.refused != 1
}

// register opens and registers a tunnel under a new generation, at a relay that
// meet doesn't object to. The carriers are those of the options, if none are
// named.
func (k *keeper) register(
	ctx context.Context, addr string, meet func(protocol.Challenge) error, by ...tunnel.Carrier,
) (*tunnel.Session, error) {
	generation, err := k.options.Generations.NextGeneration()
	if err != nil {
		return nil, err
	}
	if len(by) == 0 {
		by = k.options.Carriers
	}
	return tunnel.Dial(ctx, tunnel.DialConfig{
		Addr: addr, TLS: k.options.TLS, Carriers: by, Ladder: k.ladder,
		Events: k.tunnels.events, Logger: k.options.Log,
		Hello: func(c protocol.Challenge, exporter []byte) (protocol.Hello, error) {
			if err := meet(c); err != nil {
				return protocol.Hello{}, err
			}
			hello := k.options.Hello
			hello.MinVersion, hello.MaxVersion, hello.Generation = protocol.MinVersion, protocol.MaxVersion, generation
			err := k.identity.SignHello(&hello, c, exporter)
			return hello, err
		},
	})
}

// use has a registered tunnel served until it is over. again says that its relay
// is the first to try afterwards.
func (k *keeper) use(ctx context.Context, addr string, session *tunnel.Session) (again bool, err error) {
	c := k.tunnels.arrive(session, addr)
	k.options.Log.Info("connected", "relay", session.Welcome().RelayID, "addr", session.RemoteAddr(), "carrier", session.Carrier())
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan struct{})
	go func() { // use waits for it below
		defer close(served)
		k.server.Serve(ctx, session)
	}()
	again, err = k.watch(ctx, c)
	k.tunnels.depart(c) // first of all: another tunnel is primary now
	cancel()
	session.Close()
	<-served
	return again, err
}

// watch waits for the end of c and says why.
func (k *keeper) watch(ctx context.Context, c *connection) (again bool, err error) {
	select {
	case m := <-c.session.GoAways():
		return false, k.leave(ctx, c, m)
	case <-c.session.Done():
		k.tunnels.depart(c)
		select {
		case m := <-c.session.GoAways(): // it came with the end
			return false, k.superseded(m)
		default:
		}
		k.options.Log.Info("disconnected", "relay", c.session.Welcome().RelayID, "err", c.session.Err())
		return true, nil
	case <-ctx.Done():
		return false, nil
	}
}

// superseded returns an error when another copy of this sandbox took over.
func (k *keeper) superseded(m protocol.GoAway) error {
	if m.Reason == protocol.KindSuperseded && m.InstanceID != k.options.Hello.InstanceID {
		return protocol.Errorf(protocol.KindSuperseded,
			"another copy of sandbox %s took over (instance %s; this is %s): %s",
			k.options.Hello.SandboxID, m.InstanceID, k.options.Hello.InstanceID, m.Message)
	}
	k.options.Log.Info("the relay asks to go", "reason", m.Reason, "message", m.Message)
	return nil
}

// leave acts on a GOAWAY: another tunnel becomes primary before this one is
// given up, which happens when its streams are over, or at the deadline.
func (k *keeper) leave(ctx context.Context, c *connection, m protocol.GoAway) error {
	if err := k.superseded(m); err != nil || m.Reason == protocol.KindSuperseded {
		if err == nil {
			k.tunnels.awaitReplaced(ctx, c)
		}
		return err
	}
	k.tunnels.learn(m.Alternates)
	k.tunnels.leave(c)
	farewell := time.Duration(min(max(m.DeadlineMS, 0), maxFarewell.Milliseconds())) * time.Millisecond
	deadline := time.NewTimer(farewell)
	defer deadline.Stop()
	poll := time.NewTicker(streamsInterval)
	defer poll.Stop()
	free := 0 // looks in a row that found no reason to stay
	for began := time.Now(); ; {
		select {
		case <-poll.C:
			alone := !k.tunnels.replaced(c) && time.Since(began) < handoverTime
			if free++; alone || c.session.Serving() > 0 {
				free = 0
			}
			if free > farewellTicks {
				return nil
			}
		case <-deadline.C:
			return nil
		case <-c.session.Done():
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

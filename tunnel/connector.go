package tunnel

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel/internal/carrier"
)

// Limits of the connections of agents that aren't registered.
const (
	// maxConnects bounds the concurrent connections.
	maxConnects = 64
	// connectsPerSecond and connectBurst bound the rate of all connections.
	// addressConnectsPerSecond and addressConnectBurst bound that of one address:
	// enough for many sandboxes behind it, too little for it to use up the rate of
	// all.
	connectsPerSecond        = 100
	connectBurst             = 100
	addressConnectsPerSecond = 20
	addressConnectBurst      = 50
	// maxAddresses bounds the addresses with a limiter; the others share one.
	maxAddresses = 4096
	// sweepInterval is how often idle addresses are dropped.
	sweepInterval = time.Second
)

// A ConnectOutcome says how a connection of an unregistered agent ended.
type ConnectOutcome string

const (
	ConnectDone        ConnectOutcome = "done"         // either side ended it
	ConnectUnsupported ConnectOutcome = "unsupported"  // refused: this relay has no way to the control plane
	ConnectUnreachable ConnectOutcome = "unreachable"  // refused: the control plane can't be reached
	ConnectBusy        ConnectOutcome = "busy"         // refused, or evicted for another: too many at once
	ConnectRate        ConnectOutcome = "rate"         // refused: too many lately
	ConnectAddressRate ConnectOutcome = "address_rate" // refused: too many lately from this address
	ConnectBytes       ConnectOutcome = "bytes"        // ended: too many bytes
	ConnectTime        ConnectOutcome = "time"         // ended: open for too long
)

// ConnectOutcomes returns all outcomes.
func ConnectOutcomes() []ConnectOutcome {
	return []ConnectOutcome{
		ConnectDone, ConnectUnsupported, ConnectUnreachable, ConnectBusy, ConnectRate, ConnectAddressRate, ConnectBytes, ConnectTime,
	}
}

// A connector pipes connections of agents that aren't registered to the
// control plane, within bounds.
type connector struct {
	// Static after construction.
	dial  func(ctx context.Context, from net.Addr) (net.Conn, error)
	ended func(ConnectOutcome)
	slots *slots
	all   *rate.Limiter
	rest  *rate.Limiter // of the addresses without one of their own

	// Guarded by mu.
	mu        sync.Mutex
	addresses map[netip.Prefix]*rate.Limiter
	swept     time.Time
}

func newConnector(dial func(context.Context, net.Addr) (net.Conn, error), ended func(ConnectOutcome)) *connector {
	if ended == nil {
		ended = func(ConnectOutcome) {}
	}
	return &connector{
		dial: dial, ended: ended, slots: newSlots(maxConnects),
		all:       rate.NewLimiter(connectsPerSecond, connectBurst),
		rest:      rate.NewLimiter(addressConnectsPerSecond, addressConnectBurst),
		addresses: map[netip.Prefix]*rate.Limiter{},
	}
}

// serve pipes one connection or refuses it. Over a limit it closes it with the
// limit's kind, which costs nothing more.
func (c *connector) serve(ctx context.Context, conn carrier.Conn, stream carrier.Stream) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	slot, outcome, e := c.enter(conn.RemoteAddr(), func() {
		conn.Close(errSlots)
		cancel() // also while dialling the control plane
	})
	if e == nil {
		outcome, e = c.connect(ctx, conn, stream, slot)
		c.slots.leave(slot)
		if slot.evicted.Load() {
			outcome = ConnectBusy
		}
	}
	conn.Close(e)
	c.ended(outcome)
}

// errSlots ends a connection that got no slot or lost it.
var errSlots = protocol.Errorf(protocol.KindTooMany, "over %d connections of agents that aren't registered", maxConnects)

// enter takes a slot for a connection from addr, unless it is over a limit.
func (c *connector) enter(addr net.Addr, evict func()) (*connectSlot, ConnectOutcome, *protocol.Error) {
	tooOften := protocol.Errorf(protocol.KindTooMany, "too many connections of agents that aren't registered")
	if !c.limiter(addr).Allow() { // first, so that one address can't use up the slots of all
		return nil, ConnectAddressRate, tooOften
	}
	if !c.all.Allow() {
		return nil, ConnectRate, tooOften
	}
	slot := c.slots.enter(keyOf(addr), evict)
	if slot == nil {
		return nil, ConnectBusy, errSlots
	}
	return slot, "", nil
}

// limiter returns the limiter of addr's connections.
func (c *connector) limiter(addr net.Addr) *rate.Limiter {
	key := keyOf(addr)
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.addresses[key]; known != nil {
		return known
	}
	now := time.Now()
	if len(c.addresses) >= maxAddresses && now.Sub(c.swept) >= sweepInterval {
		c.swept = now
		for key, l := range c.addresses {
			if l.TokensAt(now) >= addressConnectBurst { // as full as a new one
				delete(c.addresses, key)
			}
		}
	}
	if len(c.addresses) >= maxAddresses {
		return c.rest
	}
	next := rate.NewLimiter(addressConnectsPerSecond, addressConnectBurst)
	c.addresses[key] = next
	return next
}

// keyOf returns the key of an address: one for a whole IPv6 network, which is
// one subscriber's.
func keyOf(addr net.Addr) netip.Prefix {
	at, ok := addr.(interface{ AddrPort() netip.AddrPort }) // UDP and TCP
	if !ok {
		return netip.Prefix{}
	}
	ip := at.AddrPort().Addr().Unmap()
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	prefix, err := ip.WithZone("").Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return prefix
}

// connect serves a connection that has a slot, and returns the error that the
// agent gets.
func (c *connector) connect(ctx context.Context, conn carrier.Conn, stream carrier.Stream, slot *connectSlot) (ConnectOutcome, *protocol.Error) {
	ctx, cancel := context.WithTimeout(ctx, protocol.ConnectTimeout)
	defer cancel()
	stream.SetDeadline(time.Now().Add(protocol.ConnectTimeout + refusalTime)) // after ctx
	if c.dial == nil {
		return ConnectUnsupported, turnAway(ctx, conn, stream,
			protocol.Errorf(protocol.KindUnsupported, "the control plane can't be reached through this relay"))
	}
	upstream, err := c.dial(ctx, conn.RemoteAddr())
	if err != nil {
		return ConnectUnreachable, turnAway(ctx, conn, stream, protocol.AsError(err))
	}
	defer upstream.Close()
	if err := protocol.Write(stream, protocol.Opened{}); err != nil {
		return ConnectDone, protocol.AsError(err)
	}
	return pipe(ctx, conn, stream, upstream, slot)
}

// turnAway sends REFUSED and lets the agent read it.
func turnAway(ctx context.Context, conn carrier.Conn, stream carrier.Stream, e *protocol.Error) *protocol.Error {
	if protocol.Write(stream, protocol.Refused{Kind: e.Kind, Message: e.Error()}) == nil {
		linger(ctx, conn)
	}
	return e
}

// linger waits for the agent to close, at most refusalTime.
func linger(ctx context.Context, conn carrier.Conn) {
	timer := time.NewTimer(refusalTime)
	defer timer.Stop()
	select {
	case <-conn.Done():
	case <-timer.C:
	case <-ctx.Done():
	}
}

// errTooMuch ends a direction that carried too many bytes.
var errTooMuch = errors.New("tunnel: over the bytes of a connect stream")

// pipe carries bytes both ways until one side ends it or a limit is reached.
func pipe(
	ctx context.Context, conn carrier.Conn, stream carrier.Stream, upstream net.Conn, slot *connectSlot,
) (ConnectOutcome, *protocol.Error) {
	up, down := make(chan error, 1), make(chan error, 1)
	var moving sync.WaitGroup
	defer moving.Wait()
	moving.Go(func() { up <- move(upstream, slot.watch(stream)) })
	moving.Go(func() { down <- move(stream, slot.watch(upstream)) })
	outcome, e := ConnectDone, protocol.Errorf(protocol.KindUnavailable, "the connection to the control plane is over")
	for waiting := true; waiting; {
		select {
		case err := <-up: // the agent may have ended its half only
			if waiting = err == nil; errors.Is(err, errTooMuch) {
				outcome, e = ConnectBytes, protocol.Errorf(protocol.KindTooLarge, "over %d bytes", protocol.MaxConnectBytes)
			}
			up = nil
		case err := <-down:
			if waiting = false; errors.Is(err, errTooMuch) {
				outcome, e = ConnectBytes, protocol.Errorf(protocol.KindTooLarge, "over %d bytes", protocol.MaxConnectBytes)
			} else if err == nil {
				linger(ctx, conn) // it has not read everything yet
			}
		case <-ctx.Done():
			outcome, e = ConnectTime, protocol.Errorf(protocol.KindUnavailable, "open for over %s", protocol.ConnectTimeout)
			waiting = false
		}
	}
	conn.Close(e) // ends both directions
	upstream.Close()
	return outcome, e
}

// move copies src to dst, up to the limit of bytes.
func move(dst io.WriteCloser, src io.Reader) error {
	n, err := io.Copy(dst, io.LimitReader(src, protocol.MaxConnectBytes))
	if err != nil {
		return err
	}
	if n == protocol.MaxConnectBytes {
		if extra, _ := io.ReadFull(src, make([]byte, 1)); extra > 0 {
			return errTooMuch
		}
	}
	if half, ok := dst.(carrier.HalfCloser); ok {
		return half.CloseWrite()
	}
	return dst.Close()
}

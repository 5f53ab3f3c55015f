package tunnel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel/internal/carrier"
)

// headStart is how long one carrier is tried before the other, and
// longHeadStart the same for one whose packets are known to get through: a
// relay to which many agents return may be slow, and dialling it twice doesn't
// help. They are variables so that a test can raise them.
var (
	headStart     = 250 * time.Millisecond
	longHeadStart = 750 * time.Millisecond
)

// finish is the result of one carrier's attempt.
type finish struct {
	conn carrier.Conn
	err  error
}

// race dials by the carriers that cfg allows, the second after a head start or
// as soon as the first has failed. The first completed handshake wins; the
// other attempt has ended when race returns.
func race(ctx context.Context, cfg DialConfig) (carrier.Conn, error) {
	order, err := cfg.order()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	finishes := make(chan finish, len(order))
	running := 0
	begin := func() {
		next := order[0]
		order = order[1:]
		running++
		go func() { finishes <- cfg.attempt(ctx, next) }() // race waits for it
	}
	late := time.NewTimer(cfg.Ladder.headStart(order[0]))
	defer late.Stop()
	begin()
	var won carrier.Conn
	var failures []error
	for won == nil && running > 0 {
		select {
		case f := <-finishes:
			running--
			if won = f.conn; f.err != nil {
				failures = append(failures, f.err)
			}
			if won == nil && len(order) > 0 && ctx.Err() == nil {
				begin()
			}
		case <-late.C:
			if len(order) > 0 {
				cfg.Ladder.doubt()
				begin()
			}
		}
	}
	cancel()
	for ; running > 0; running-- {
		if f := <-finishes; f.conn != nil {
			f.conn.Close(protocol.Errorf(protocol.KindUnavailable, "the other carrier was faster"))
		}
	}
	if won == nil {
		return nil, errors.Join(failures...)
	}
	return won, nil
}

// attempt dials by one carrier.
func (cfg DialConfig) attempt(ctx context.Context, by Carrier) finish {
	began := time.Now()
	conn, err := by.dial(ctx, cfg.Addr, cfg.TLS)
	if e := cfg.Events; e != nil && e.Dialled != nil {
		e.Dialled(by, err, time.Since(began))
	}
	if err != nil {
		return finish{err: err}
	}
	return finish{conn: conn}
}

// order returns the carriers to try, the preferred one first.
func (cfg DialConfig) order() ([]Carrier, error) {
	order := slices.Clone(cfg.Carriers)
	if len(order) == 0 {
		order = Carriers()
	}
	for _, c := range order {
		if _, err := ParseCarrier(string(c)); err != nil {
			return nil, fmt.Errorf("tunnel: %w", err)
		}
	}
	if cfg.Ladder.skip(order[0]) {
		slices.Reverse(order)
	}
	return order, nil
}

// allows reports whether c may be dialled.
func (cfg DialConfig) allows(c Carrier) bool {
	return len(cfg.Carriers) == 0 || slices.Contains(cfg.Carriers, c)
}

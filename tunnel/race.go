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

// headStart is how long one carrier is tried before the other is too, and
// longHeadStart how long one of which it is known that packets get through:
// a relay to which a whole crowd returns may be slow to answer, and is not
// helped by everybody's coming twice. A test has more patience.
var (
	headStart     = 250 * time.Millisecond
	longHeadStart = 750 * time.Millisecond
)

// finish is how one carrier's attempt ended.
type finish struct {
	conn carrier.Conn
	err  error
}

// race connects by the carriers that cfg allows, the second a little later or
// as soon as the first has failed. The first whose handshake is done wins; the
// other is ended, and has ended when race returns.
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

// attempt connects by one carrier.
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

package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/e2e"
)

const (
	// rateBound is how many times the bare loop's highest rate ours should be.
	rateBound = 3.0
	// deliveryBound is the delay at the 99th percentile up to which a rate
	// counts as sustained.
	deliveryBound = 100 * time.Millisecond
	// rungTime is how long each rate is tried, and rungStep how much higher
	// the next one is.
	rungTime = 1500 * time.Millisecond
	rungStep = 1.15
)

// An audience is a number of watchers of one source.
type audience struct {
	watchers []*watcher
	run      func(n int, rate float64) error // has the source send n chunks
}

// audiences attaches viewers watchers to a terminal, and as many to the bare
// loop.
func audiences(ctx context.Context, stack *e2e.Stack, base *baseline, viewers int) (ours, bare *audience, err error) {
	ours, bare = &audience{}, &audience{}
	defer func() {
		if err != nil {
			ours.close()
			bare.close()
		}
	}()
	alice, bob := stack.Ready.User("alice"), stack.Ready.User("bob")
	id, err := stack.NewPTY(ctx, alice, stampingGenerator)
	if err != nil {
		return nil, nil, err
	}
	grant, err := alice.Grant(ctx, stack.Ready.SessionID)
	if err != nil {
		return nil, nil, err
	}
	driver, err := watchRelay(ctx, stack, alice, grant, id)
	if err != nil {
		return nil, nil, err
	}
	ours.watchers = append(ours.watchers, driver)
	if grant, err = bob.Grant(ctx, stack.Ready.SessionID); err != nil {
		return nil, nil, err
	}
	for range viewers {
		w, err := watchRelay(ctx, stack, bob, grant, id)
		if err != nil {
			return nil, nil, err
		}
		ours.watchers = append(ours.watchers, w)
		if w, err = watch(ctx, strings.Replace(base.url, "http", "ws", 1)+"/viewer", nil); err != nil {
			return nil, nil, err
		}
		bare.watchers = append(bare.watchers, w)
	}
	if err := driver.await(10*time.Second, func() bool { return driver.ready }); err != nil {
		return nil, nil, err
	}
	ours.run = func(n int, rate float64) error { return driver.write(fmt.Sprintf("%d %g\n", n, rate)) }
	bare.run = func(n int, rate float64) error {
		resp, err := http.Post(fmt.Sprintf("%s/pace?n=%d&rate=%g", base.url, n, rate), "", nil)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	return ours, bare, nil
}

func (a *audience) close() {
	for _, w := range a.watchers {
		w.close()
	}
}

// block sends n chunks at a rate and returns how late they came at the watchers
// but those in skip, and how many resyncs there were. It gives up when they
// come more than patience after the last was due.
func (a *audience) block(n int, rate float64, patience time.Duration, skip *watcher) (d delays, resyncs int, err error) {
	now := time.Now()
	for _, w := range a.watchers {
		if w != skip {
			w.begin(now)
		}
	}
	sent := make(chan error, 1)
	go func() { sent <- a.run(n, rate) }() // received below
	deadline := now.Add(time.Duration(float64(n)/rate*float64(time.Second)) + patience)
	for _, w := range a.watchers {
		if w == skip {
			continue
		}
		if e := w.await(max(time.Until(deadline), 0), func() bool { return w.count >= n || w.resyncs > 0 }); e != nil && err == nil {
			err = e
		}
	}
	if e := <-sent; err == nil {
		err = e
	}
	for _, w := range a.watchers {
		if w == skip {
			continue
		}
		w.mu.Lock()
		d.merge(&w.delays)
		resyncs += w.resyncs
		w.mu.Unlock()
	}
	return d, resyncs, err
}

// sustains reports whether all chunks arrive in time at a rate.
func (a *audience) sustains(rate float64) bool {
	n := int(rate * rungTime.Seconds())
	d, resyncs, err := a.block(n, rate, time.Second, nil)
	ok := err == nil && resyncs == 0 && d.percentile(99) <= deliveryBound
	if !ok { // let the backlog pass, as far as it does
		for _, w := range a.watchers {
			_ = w.await(10*time.Second, func() bool { return w.count >= n || w.resyncs > 0 })
		}
	}
	return ok
}

// highest climbs or descends from a rate to the highest that is sustained.
func (a *audience) highest(from float64) float64 {
	rate := from
	if a.sustains(rate) {
		for a.sustains(rate * rungStep) {
			rate *= rungStep
		}
		return rate
	}
	for rate > 1 && !a.sustains(rate) {
		rate /= rungStep
	}
	return rate
}

// measureRate compares the highest rate of chunks that reaches all viewers in
// time with that of the bare loop.
func measureRate(ctx context.Context, stack *e2e.Stack, base *baseline, viewers int) ([]*figure, error) {
	ours, bare, err := audiences(ctx, stack, base, viewers)
	if err != nil {
		return nil, err
	}
	defer ours.close()
	defer bare.close()
	a, b := bare.highest(chunksPerSecond), ours.highest(chunksPerSecond)
	f := &figure{name: fmt.Sprintf("highest rate, %d viewers", viewers), bound: rateBound, atLeast: true}
	for i := 0; i < blocks || i < maxBlocks && !f.decided(); i++ {
		a, b = bare.highest(a), ours.highest(b)
		f.add(b / a)
		fmt.Fprintf(os.Stderr, "rate block %d: bare loop %.0f, relay %.0f chunks/s\n", i+1, a, b)
	}
	return []*figure{f}, nil
}

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/fairlead/fairlead/deploy/e2e"
)

const (
	// stallBound is how much later chunks may come at the 99th percentile
	// when one viewer of stallViewers doesn't read.
	stallBound   = 1.2
	stallViewers = 100
	stallRate    = 200 // chunks per second
	stallChunks  = 600
)

// measureStall compares delivery with and without a viewer that doesn't read.
func measureStall(ctx context.Context, stack *e2e.Stack, base *baseline) ([]*figure, error) {
	ours, bare, err := audiences(ctx, stack, base, stallViewers)
	if err != nil {
		return nil, err
	}
	defer ours.close()
	bare.close()
	f := &figure{name: "one of 100 stalled, p99", bound: stallBound}
	for i := 0; i < blocks || i < maxBlocks && !f.decided(); i++ {
		all, _, err := ours.block(stallChunks, stallRate, 5*time.Second, nil)
		if err != nil {
			return nil, err
		}
		stalled := ours.watchers[len(ours.watchers)-1]
		stalled.begin(time.Now())
		resume, err := stalled.stall()
		if err != nil {
			return nil, err
		}
		others, _, err := ours.block(stallChunks, stallRate, 5*time.Second, stalled)
		resume()
		if err != nil {
			return nil, err
		}
		// It gets the rest, or a resync.
		if err := stalled.await(30*time.Second, func() bool { return stalled.count >= stallChunks || stalled.resyncs > 0 }); err != nil {
			return nil, fmt.Errorf("the stalled viewer: %w", err)
		}
		a, b := all.percentile(99), others.percentile(99)
		f.add(float64(b) / float64(a))
		fmt.Fprintf(os.Stderr, "stall block %d: p99 %v, with one stalled %v\n", i+1, a, b)
	}
	return []*figure{f}, nil
}

// stall keeps the watcher from reading until resume is called. What the kernel
// takes for it meanwhile is bounded by a small buffer.
func (w *watcher) stall() (resume func(), err error) {
	if tcp, ok := w.conn.(*net.TCPConn); ok {
		if err := tcp.SetReadBuffer(4 << 10); err != nil {
			return nil, err
		}
	}
	w.mu.Lock() // read stops at its next piece of output
	return w.mu.Unlock, nil
}

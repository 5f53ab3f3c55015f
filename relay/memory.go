package relay

import (
	"context"
	"math"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// memoryBase is what an idle relay needs, and memorySlack what the collector
	// may leave uncollected beyond that and the terminals' output.
	memoryBase  = 16 << 20
	memorySlack = 40 << 20
	// memoryEvery is how often the limit follows what is in use.
	memoryEvery = time.Second
)

// memoryLimit returns the soft memory limit when used bytes are in use, shown
// of them by terminals' output. That part is bounded, so an equal amount of
// garbage beside it gains nothing. For everything else the limit leaves what
// the collector would use by default.
func memoryLimit(used, shown int64) int64 {
	return protocol.RelayRingBytes + memorySlack + 2*max(used-shown-memoryBase, 0)
}

// limitMemory keeps the program's memory near what it needs until ctx ends,
// unless the environment sets a limit.
func (r *Relay) limitMemory(ctx context.Context) {
	if debug.SetMemoryLimit(-1) != math.MaxInt64 {
		return
	}
	defer debug.SetMemoryLimit(math.MaxInt64)
	samples := []runtimemetrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	tick := time.NewTicker(memoryEvery)
	defer tick.Stop()
	for last := int64(0); ; {
		runtimemetrics.Read(samples)
		used := int64(0)
		for _, s := range samples {
			used += int64(s.Value.Uint64())
		}
		if limit := memoryLimit(used, int64(r.hubs.Held())) &^ (1<<20 - 1); limit != last {
			last = limit
			debug.SetMemoryLimit(limit)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

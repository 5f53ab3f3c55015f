package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/loadtest/internal/stage"
	"github.com/fairlead/fairlead/protocol"
)

var terminals = &stage.Scenario{
	Name:    "terminals",
	Summary: "many terminals of one sandbox, each with its viewers",
	Long: `Programs in so many real terminals print, each a stream of its own, and so many
viewers of each check every byte and time every chunk. Blocks alternate with those
of a bare loop that delivers as many chunks to as many sockets.`,
	Example: `  loadtest run terminals --local --terminals 16 --viewers 10
  loadtest run terminals --local --terminals 64 --viewers 4 --rate 10 --slo 'delivery_p99<=100ms'`,
	Metrics:   fanout.Metrics,
	Defaults:  stage.Options{Terminals: 16, Viewers: 10, Rate: 20, Chunk: 1024, Duration: 3 * time.Second, Warmup: time.Second, Blocks: 9, Seed: 1},
	Simulated: true,
	Prepare: func(o *stage.Options) error {
		// One is the session's own.
		if most := protocol.MaxPTYs - 1; o.Terminals > most {
			return fmt.Errorf("%d terminals: a sandbox has at most %d", o.Terminals, most)
		}
		return nil
	},
	Run: stage.OnStage(func(o *stage.Options) int { return o.Terminals }, func(ctx context.Context, s *stage.Stage) error {
		return watchBlocks(ctx, s, s.Env.Options.Viewers)
	}),
}

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/fairlead/fairlead/deploy/e2e"
)

const (
	// toolRounds is how many calls a block times each way.
	toolRounds = 100
	// toolBound is how many times a call on loopback one through the relay may
	// take, p50.
	toolBound = 2
	// benchTool is what is called: it asks the agent for what it knows.
	benchTool = "browser_status"
)

// measureTools times tool calls client → relay → agent and back, beside the same
// calls on the sandbox's own loopback.
func measureTools(ctx context.Context, bin string) ([]*figure, error) {
	stack, stop, err := startStack(bin)
	if err != nil {
		return nil, err
	}
	defer stop()
	credentials, err := e2e.Credentials(stack.Ready.Sandboxes[0].PID, stack.Ready.PTYID)
	if err != nil {
		return nil, err
	}
	direct, err := e2e.LocalTools(ctx, credentials)
	if err != nil {
		return nil, fmt.Errorf("on loopback: %w", err)
	}
	defer direct.Close()
	through, err := stack.Ready.User("alice").Tools(ctx, stack.Ready.SessionID)
	if err != nil {
		return nil, fmt.Errorf("through the relay: %w", err)
	}
	defer through.Close()
	latency := &figure{name: "tool call through the tunnel, p50 of a direct one's", bound: toolBound}
	for n := 0; n < blocks || n < maxBlocks && !latency.decided(); n++ {
		a, err := toolCalls(ctx, direct)
		if err != nil {
			return nil, err
		}
		b, err := toolCalls(ctx, through)
		if err != nil {
			return nil, err
		}
		latency.add(float64(percentile(b, 50)) / float64(percentile(a, 50)))
		fmt.Fprintf(os.Stderr, "tools block %d: direct p50 %v p99 %v, through p50 %v p99 %v\n",
			n+1, percentile(a, 50), percentile(a, 99), percentile(b, 50), percentile(b, 99))
	}
	return []*figure{latency}, nil
}

func toolCalls(ctx context.Context, client *e2e.ToolClient) ([]time.Duration, error) {
	var took []time.Duration
	for range toolRounds {
		began := time.Now()
		text, failed, err := client.Call(ctx, benchTool, map[string]any{})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", benchTool, err)
		}
		if failed {
			return nil, fmt.Errorf("%s: %s", benchTool, text)
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}

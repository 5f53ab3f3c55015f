// Package pause waits with a context.
package pause

import (
	"context"
	"time"
)

// For waits for d. It returns ctx's error when ctx ends before.
func For(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Until waits until at. It returns ctx's error when ctx ends before.
func Until(ctx context.Context, at time.Time) error { return For(ctx, time.Until(at)) }

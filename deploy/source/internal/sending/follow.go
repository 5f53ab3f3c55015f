package sending

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// Settle is how long nothing must change before a push: a sign-in sets a dozen
	// cookies. A browser that never rests is waited for at most Patience.
	Settle   = 500 * time.Millisecond
	Patience = 2 * time.Second
	// Apart is the least time between two pushes.
	Apart = 2 * time.Second

	firstRetry, lastRetry = 2 * time.Second, time.Minute
)

// Follow calls push now, and after each change: when that has settled, and never
// sooner than Apart after the last one. A push whose error is Passing is tried again,
// later each time; any other error ends Follow, as does ctx, whose error it returns
// then. tell is told of each error that doesn't end it, and when the next try is.
func Follow(ctx context.Context, changes <-chan struct{}, push func(context.Context) error, tell func(err error, next time.Duration)) error {
	failures := 0
	for {
		began := time.Now()
		err := push(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		wait := Apart - time.Since(began)
		switch {
		case err == nil:
			failures = 0
			if err := settled(ctx, changes); err != nil {
				return err
			}
			wait = Apart - time.Since(began)
		case Passing(err):
			wait = max(wait, After(err), retry(failures))
			failures++
			tell(err, wait)
		default:
			return err
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// retry returns how long to wait after so many failures before: twice as long each
// time, and not as long as others who wait.
func retry(failures int) time.Duration {
	wait := min(firstRetry<<min(failures, 10), lastRetry)
	return wait/2 + rand.N(wait/2)
}

// settled waits for a change, and until no other one comes.
func settled(ctx context.Context, changes <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-changes:
	}
	patience := time.NewTimer(Patience)
	defer patience.Stop()
	rest := time.NewTimer(Settle)
	defer rest.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changes:
			rest.Reset(Settle)
		case <-rest.C:
			return nil
		case <-patience.C:
			return nil
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

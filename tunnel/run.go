package tunnel

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel/internal/backoff"
)

// A Keeper dials and serves an agent's tunnel. Run calls one method after the
// other, but for Serve.
type Keeper interface {
	// Next returns the relay to dial, "host:port", once there is one.
	Next(ctx context.Context) (addr string, err error)
	Dial(ctx context.Context, addr string) (*Session, error)
	// Serve uses a tunnel until it is over. With a Climb it is also called for a
	// tunnel that replaces another one while that is still served.
	Serve(ctx context.Context, addr string, s *Session) error
	// Fatal says whether an error of Dial or Serve is permanent.
	Fatal(err error) bool
}

// A RunConfig says how an agent keeps a tunnel up.
type RunConfig struct {
	Keeper
	// Climb, unless nil, replaces tunnels over WebSocket by QUIC.
	Climb *Climb
	// Hurry ends a pause, as there is a new relay. It may be nil.
	Hurry  <-chan struct{}
	Logger *slog.Logger
}

// Run keeps a tunnel up until ctx ends or an error is fatal, which it returns.
// Between attempts it waits with full jitter, first up to 50 ms and finally up
// to 5 s. A tunnel that lived longer than the next pause can be counts as
// success; after a shorter life the pause is 0.8 s at most. After a refusal for
// too many registrations it is 1 to 5 s.
func Run(ctx context.Context, cfg RunConfig) error {
	var pause backoff.Backoff
	for {
		addr, err := cfg.Next(ctx)
		if err != nil {
			return err
		}
		lived, err := runOnce(ctx, cfg, addr)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && cfg.Fatal(err) {
			return err
		}
		pause.Lived(lived)
		wait := pause.Next()
		if lived == 0 && protocol.KindOf(err) == protocol.KindTooMany {
			wait = busyPause()
		}
		if err != nil {
			cfg.Logger.Info("no tunnel", "addr", addr, "again_in", wait.Round(time.Millisecond), "err", err)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-cfg.Hurry:
			pause.Reset()
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// The pause after a refusal for too many registrations.
const minBusyPause, maxBusyPause = time.Second, 5 * time.Second

// busyPause returns a random one.
func busyPause() time.Duration { return minBusyPause + rand.N(maxBusyPause-minBusyPause) }

// runOnce dials and serves one tunnel. lived is how long it was up, 0 if it
// never was: a dial that times out is no success.
func runOnce(ctx context.Context, cfg RunConfig, addr string) (lived time.Duration, err error) {
	s, err := cfg.Dial(ctx, addr)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	err = cfg.stay(ctx, addr, s)
	return time.Since(began), err
}

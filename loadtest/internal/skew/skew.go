// Package skew bounds how far the clock of a source is from ours.
package skew

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/loadtest/internal/measure"
)

const (
	// leastAsked and mostAsked are how often the source is asked for its time:
	// more often than the least only within askTime.
	leastAsked, mostAsked = 7, 32
	askTime               = 2 * time.Second
)

// A Source obeys the order "clock" of package source: it answers with a line of
// that prefix and its time, in microseconds since 1970.
type Source interface {
	Ask(ctx context.Context, order, prefix string) (rest string, err error)
}

// A Clock is a source's, as it was read before a run. The nil Clock is ours.
type Clock struct {
	source Source
	out    *measure.Collection
	skew   Skew
}

// Read reads the source's clock before a run, and tells out how wrong that may be.
func Read(ctx context.Context, source Source, out *measure.Collection) (*Clock, error) {
	s, err := Measure(ctx, source)
	if err != nil {
		return nil, fmt.Errorf("the source's clock: %w", err)
	}
	out.ClockError(s.Error)
	return &Clock{source, out, s}, nil
}

// Ahead returns by how much it is ahead of ours, as far as is known.
func (c *Clock) Ahead() time.Duration {
	if c == nil {
		return 0
	}
	return c.skew.Ahead
}

// Error returns by how much Ahead may be wrong before the run, rounded up to 10 µs.
func (c *Clock) Error() time.Duration {
	if c == nil {
		return 0
	}
	const step = 10 * time.Microsecond
	return (c.skew.Error + step - 1).Truncate(step)
}

// Settle reads the clock once more after the run, and tells by how much the times
// are wrong as the clocks have drifted apart meanwhile.
func (c *Clock) Settle(ctx context.Context) error {
	if c == nil {
		return nil
	}
	now, err := Measure(ctx, c.source)
	if err != nil {
		return fmt.Errorf("the source's clock after the run: %w", err)
	}
	c.out.ClockError((now.Ahead - c.skew.Ahead).Abs() + now.Error)
	return nil
}

// A Skew is what is known of a clock.
type Skew struct {
	Ahead time.Duration // of ours: an estimate
	Error time.Duration // of Ahead, up or down, at most
}

// Measure estimates by how much the source's clock is ahead of ours, and bounds
// the error of that: the true offset is within Ahead ± Error, as long as neither
// clock is set meanwhile.
//
// The source read its clock at some moment between question and answer. The
// estimate takes the middle. If all of the round trip's delay lay on one way, it
// would be wrong by half of the round trip, and it can't be wrong by more, which
// is NTP's argument (RFC 5905, section 8). So the shortest of up to 32 round
// trips bounds it best. Seven are the least, and the others take two seconds
// together at most.
func Measure(ctx context.Context, source Source) (Skew, error) {
	best, ahead := time.Duration(-1), time.Duration(0)
	began := time.Now()
	for i := range mostAsked {
		if i >= leastAsked && time.Since(began) >= askTime {
			break
		}
		asked := time.Now()
		answer, err := source.Ask(ctx, "clock", "clock")
		if err != nil {
			return Skew{}, err
		}
		took := time.Since(asked)
		micros, err := strconv.ParseInt(answer, 10, 64)
		if err != nil {
			return Skew{}, fmt.Errorf("the source's clock says %q", answer)
		}
		if best < 0 || took < best {
			best, ahead = took, time.UnixMicro(micros).Sub(asked.Add(took/2))
		}
	}
	return Skew{ahead, best/2 + time.Microsecond}, nil // the answer's last digit is cut off
}

// Package usage counts what people do in memory, and hands the counts to the
// store every few seconds.
package usage

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/clock"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
)

const (
	interval = 5 * time.Second
	maxRows  = 10_000 // between two writes
)

// A Store keeps the counts.
type Store interface {
	Add(ctx context.Context, list []store.Usage) error
}

// A key names one row of counters.
type key struct {
	dashboard string // empty: of none
	user      protocol.UserID
	day       string // UTC
}

// A Meter counts in memory, so that a request doesn't wait for the disk. A
// process that dies loses the seconds since the last write: usage is a
// statistic, not a record.
type Meter struct {
	// Static after construction.
	store  Store
	logger *slog.Logger
	clock  clock.Clock

	mu      sync.Mutex
	rows    map[key]map[string]int64 // guarded by mu
	dropped int64                    // guarded by mu: counts that found no room
}

// New returns a meter that hands its counts to st while Run runs.
func New(st Store, logger *slog.Logger, clk clock.Clock) *Meter {
	return &Meter{store: st, logger: logger, clock: clk, rows: make(map[key]map[string]int64)}
}

// Count adds one to a counter of today. An empty dashboard stands for none.
func (m *Meter) Count(dashboard string, user protocol.UserID, counter string) {
	m.add(key{dashboard, user, m.clock.Now().UTC().Format(time.DateOnly)}, map[string]int64{counter: 1})
}

func (m *Meter) add(of key, counts map[string]int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	row := m.rows[of]
	if row == nil {
		if len(m.rows) >= maxRows {
			m.dropped++
			return
		}
		row = make(map[string]int64)
		m.rows[of] = row
	}
	for name, n := range counts {
		row[name] += n
	}
}

// Run writes what was counted until ctx ends, and what is left then.
func (m *Meter) Run(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			m.Flush(ctx)
		case <-ctx.Done():
			m.Flush(context.WithoutCancel(ctx))
			return
		}
	}
}

// Flush writes what was counted so far. What can't be written is counted again,
// as far as there is room.
func (m *Meter) Flush(ctx context.Context) {
	m.mu.Lock()
	rows, dropped := m.rows, m.dropped
	m.rows, m.dropped = make(map[key]map[string]int64), 0
	m.mu.Unlock()
	if dropped > 0 {
		m.logger.Warn("usage not counted: too many rows", "counts", dropped)
	}
	var list []store.Usage
	for of, counts := range rows {
		list = append(list, store.Usage{Dashboard: of.dashboard, User: of.user, Day: of.day, Counts: counts})
	}
	if len(list) == 0 {
		return
	}
	if err := m.store.Add(ctx, list); err != nil {
		m.logger.Warn("usage not written", "error", err)
		for of, counts := range rows {
			m.add(of, counts)
		}
	}
}

package controlplane

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
)

const (
	usageInterval = 5 * time.Second
	maxUsageRows  = 10_000 // between two writes
	maxUsageDays  = 366    // in one answer
)

// A usageKey is one row of counters.
type usageKey struct {
	dashboard string // empty: of none
	user      protocol.UserID
	day       string // UTC
}

// A meter counts in memory, so that a request doesn't wait for the disk, and
// hands what it counted to the store every few seconds. A process that dies
// loses those seconds: usage is a statistic, not a record.
type meter struct {
	// Static after construction.
	store  *store.Store
	logger *slog.Logger
	now    func() time.Time

	mu      sync.Mutex
	rows    map[usageKey]map[string]int64 // guarded by mu
	dropped int64                         // guarded by mu: counts that found no room
}

func newMeter(st *store.Store, logger *slog.Logger, now func() time.Time) *meter {
	return &meter{store: st, logger: logger, now: now, rows: make(map[usageKey]map[string]int64)}
}

// count adds one to a counter of today.
func (m *meter) count(dashboard string, user protocol.UserID, counter string) {
	m.add(usageKey{dashboard, user, m.now().UTC().Format(time.DateOnly)}, map[string]int64{counter: 1})
}

func (m *meter) add(key usageKey, counts map[string]int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	row := m.rows[key]
	if row == nil {
		if len(m.rows) >= maxUsageRows {
			m.dropped++
			return
		}
		row = make(map[string]int64)
		m.rows[key] = row
	}
	for name, n := range counts {
		row[name] += n
	}
}

// run writes what was counted until ctx ends, and what is left then.
func (m *meter) run(ctx context.Context) {
	tick := time.NewTicker(usageInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			m.flush(ctx)
		case <-ctx.Done():
			m.flush(context.WithoutCancel(ctx))
			return
		}
	}
}

// flush writes what was counted so far. What can't be written is counted again,
// as far as there is room.
func (m *meter) flush(ctx context.Context) {
	m.mu.Lock()
	rows, dropped := m.rows, m.dropped
	m.rows, m.dropped = make(map[usageKey]map[string]int64), 0
	m.mu.Unlock()
	if dropped > 0 {
		m.logger.Warn("usage not counted: too many rows", "counts", dropped)
	}
	var list []store.Usage
	for key, counts := range rows {
		list = append(list, store.Usage{Dashboard: key.dashboard, User: key.user, Day: key.day, Counts: counts})
	}
	if len(list) == 0 {
		return
	}
	if err := m.store.Usage.Add(ctx, list); err != nil {
		m.logger.Warn("usage not written", "error", err)
		for key, counts := range rows {
			m.add(key, counts)
		}
	}
}

type usageAnswer struct {
	Dashboard string     `json:"dashboard"`
	From      string     `json:"from"`
	To        string     `json:"to"`
	Usage     []usageRow `json:"usage"`
	revised
}

type usageRow struct {
	Day    string           `json:"day"`
	User   protocol.UserID  `json:"user"`
	Counts map[string]int64 `json:"counts"`
}

// getUsage tells the members of a dashboard what was done in it: by default in
// the last 30 days.
func (s *Server) getUsage(w http.ResponseWriter, r *http.Request) error {
	m, err := s.member(w, r, protocol.CapView)
	if err != nil {
		return err
	}
	from, to, err := s.days(r.URL.Query().Get("from"), r.URL.Query().Get("to"))
	if err != nil {
		return err
	}
	s.usage.flush(r.Context())
	rows, err := s.store.Usage.In(r.Context(), m.dashboard.ID, from, to)
	if err != nil {
		return err
	}
	answer := usageAnswer{Dashboard: m.dashboard.ID, From: from, To: to, Usage: []usageRow{}, revised: s.stamp()}
	for _, row := range rows {
		answer.Usage = append(answer.Usage, usageRow{row.Day, row.User, row.Counts})
	}
	return s.write(w, http.StatusOK, answer)
}

// days reads two days, both inclusive, that may be absent.
func (s *Server) days(from, to string) (first, last string, err error) {
	end, err := dayOr("to", to, s.now().UTC().Truncate(24*time.Hour))
	if err != nil {
		return "", "", err
	}
	start, err := dayOr("from", from, end.AddDate(0, 0, -29))
	if err != nil {
		return "", "", err
	}
	if days := end.Sub(start).Hours() / 24; days < 0 || days >= maxUsageDays {
		return "", "", protocol.Errorf(protocol.KindInvalid, "want 1 to %d days, from before to", maxUsageDays)
	}
	return start.Format(time.DateOnly), end.Format(time.DateOnly), nil
}

func dayOr(name, text string, absent time.Time) (time.Time, error) {
	if text == "" {
		return absent, nil
	}
	day, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return day, protocol.Errorf(protocol.KindInvalid, "%s: want a day like 2026-01-31", name)
	}
	return day, nil
}

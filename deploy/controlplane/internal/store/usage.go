package store

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/db"
	"github.com/fairlead/fairlead/protocol"
)

// The counters of usage.
const (
	UsageGrants         = "grants"
	UsageCommands       = "commands"
	UsageCommandsFailed = "commands_failed"
	UsageTerminals      = "terminals"
	UsageSignIns        = "sign_ins"
	UsageAPIRequests    = "api_requests"
)

// UsageCounters lists the counters.
var UsageCounters = []string{
	UsageGrants, UsageCommands, UsageCommandsFailed, UsageTerminals, UsageSignIns, UsageAPIRequests,
}

// A Usage is how often a user did what in a dashboard, on one day.
type Usage struct {
	Dashboard string // empty: in none
	User      protocol.UserID
	Day       string // YYYY-MM-DD, UTC
	Counts    map[string]int64
}

const (
	maxUsageDays = 366
	maxUsageRows = 100_000 // of one answer
)

func (u Usage) check() error {
	if _, err := dayOf(u.Day); err != nil {
		return err
	}
	for c, n := range u.Counts {
		if !slices.Contains(UsageCounters, c) || n < 0 {
			return protocol.Errorf(protocol.KindInvalid, "usage counter %q can't rise by %d", c, n)
		}
	}
	return nil
}

func dayOf(day string) (time.Time, error) {
	t, err := time.Parse(time.DateOnly, day)
	if err != nil {
		err = protocol.Errorf(protocol.KindInvalid, "a day is YYYY-MM-DD")
	}
	return t, err
}

// Add adds all counts of list to those of their days, or none.
func (s *Usages) Add(ctx context.Context, list []Usage) error {
	for _, u := range list {
		if err := u.check(); err != nil {
			return err
		}
	}
	// In one order for all, so that no two transactions wait for each other.
	list = slices.SortedFunc(slices.Values(list), func(a, b Usage) int {
		return cmp.Or(cmp.Compare(a.Dashboard, b.Dashboard), cmp.Compare(a.Day, b.Day), cmp.Compare(a.User, b.User))
	})
	return s.db.Concurrently(ctx, func(tx db.Runner) error {
		for _, u := range list {
			for _, c := range slices.Sorted(maps.Keys(u.Counts)) {
				if _, err := tx.Exec(ctx, `
					INSERT INTO usage_counts (dashboard_id, user_id, day, counter, count) VALUES (?, ?, ?, ?, ?)
					ON CONFLICT (dashboard_id, day, user_id, counter) DO UPDATE SET count = usage_counts.count + excluded.count`,
					u.Dashboard, u.User, u.Day, c, u.Counts[c]); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// In lists what was done in a dashboard from one day to another, both
// included, by day and user; at most a year.
func (s *Usages) In(ctx context.Context, dashboard, from, to string) ([]Usage, error) {
	first, err := dayOf(from)
	if err != nil {
		return nil, err
	}
	last, err := dayOf(to)
	if err != nil {
		return nil, err
	}
	if last.Sub(first) >= maxUsageDays*24*time.Hour {
		return nil, protocol.Errorf(protocol.KindInvalid, "more than %d days", maxUsageDays)
	}
	type count struct {
		day, counter string
		user         protocol.UserID
		n            int64
	}
	counts, err := db.Collect(ctx, s.db.Reads(), func(row db.Scanner) (c count, err error) {
		return c, row.Scan(&c.day, &c.user, &c.counter, &c.n)
	}, `
		SELECT day, user_id, counter, count FROM usage_counts
		WHERE dashboard_id = ? AND day >= ? AND day <= ? ORDER BY day, user_id, counter LIMIT ?`,
		dashboard, from, to, maxUsageRows)
	var list []Usage
	for _, c := range counts {
		if n := len(list); n == 0 || list[n-1].Day != c.day || list[n-1].User != c.user {
			list = append(list, Usage{dashboard, c.user, c.day, make(map[string]int64)})
		}
		list[len(list)-1].Counts[c.counter] = c.n
	}
	return list, err
}

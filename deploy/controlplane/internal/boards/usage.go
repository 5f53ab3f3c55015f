package boards

import (
	"net/http"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
)

const maxUsageDays = 366 // in one answer

type usageAnswer struct {
	Dashboard string     `json:"dashboard"`
	From      string     `json:"from"`
	To        string     `json:"to"`
	Usage     []usageRow `json:"usage"`
}

type usageRow struct {
	Day    string           `json:"day"`
	User   protocol.UserID  `json:"user"`
	Counts map[string]int64 `json:"counts"`
}

// getUsage tells the members of a dashboard what was done in it: by default in
// the last 30 days.
func (b *Boards) getUsage(w *web.Writer, r *http.Request) error {
	m, err := b.Gate.Member(w, r, protocol.CapView)
	if err != nil {
		return err
	}
	from, to, err := b.days(r.URL.Query().Get("from"), r.URL.Query().Get("to"))
	if err != nil {
		return err
	}
	b.Meter.Flush(r.Context())
	rows, err := b.Usage.In(r.Context(), m.Dashboard.ID, from, to)
	if err != nil {
		return err
	}
	answer := usageAnswer{Dashboard: m.Dashboard.ID, From: from, To: to, Usage: []usageRow{}}
	for _, row := range rows {
		answer.Usage = append(answer.Usage, usageRow{row.Day, row.User, row.Counts})
	}
	return w.JSON(http.StatusOK, answer)
}

// days reads two days, both inclusive, that may be absent.
func (b *Boards) days(from, to string) (first, last string, err error) {
	end, err := dayOr("to", to, b.Clock.Now().UTC().Truncate(24*time.Hour))
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

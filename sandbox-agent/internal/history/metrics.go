package history

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/program/instrument"
)

var (
	eventsTotal  = prometheus.NewDesc("fairlead_history_events_total", "What became of transcripts and news of conversations.", []string{"event"}, nil)
	foundNow     = prometheus.NewDesc("fairlead_history_transcripts", "Transcripts of coding agents that are known.", nil, nil)
	followersNow = prometheus.NewDesc("fairlead_history_followers", "Streams that follow the news of a session's conversations.", nil, nil)
)

// Metrics show what a History counts; the zero value shows zeros.
type Metrics struct{ History *History }

// Describe implements [prometheus.Collector].
func (m Metrics) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, out) }

// Collect implements [prometheus.Collector].
func (m Metrics) Collect(out chan<- prometheus.Metric) {
	now := m.History.stats()
	for event, n := range now.events {
		instrument.Count(out, eventsTotal, n, event)
	}
	instrument.Gauge(out, foundNow, now.found)
	instrument.Gauge(out, followersNow, now.followers)
}

// stats are what a History shows at one moment.
type stats struct {
	events           map[string]uint64
	found, followers int
}

// stats returns those of h, which may be nil.
func (h *History) stats() stats {
	if h == nil {
		h = &History{news: newNews(nil)}
	}
	now := stats{events: map[string]uint64{
		"told": h.counts.told.Load(), "dropped": h.counts.dropped.Load(), "refused": h.counts.refused.Load(),
		"unadopted": h.counts.unadopted.Load(), "page": h.counts.pages.Load(), "image": h.counts.uploads.Load(),
		"unwatched": h.watcher.Missed(),
	}, followers: h.news.count()}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.sessions {
		now.found += len(s.found)
	}
	return now
}

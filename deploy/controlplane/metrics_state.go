package controlplane

import (
	"context"
	"database/sql"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/clock"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/integrations"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/metrics"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/notices"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/webhook"
	"github.com/fairlead/fairlead/deploy/program/instrument"
)

// Metrics returns all metrics of a control plane at which nothing has happened
// yet, so that whoever asks for some by name can be checked.
func Metrics() *prometheus.Registry {
	s := &Server{metrics: metrics.New(), web: web.New("", nil, clock.Clock{}), integrations: &integrations.Integrations{}, notices: &notices.Notices{}}
	return s.registry()
}

// registry returns everything that the admin listener serves.
func (s *Server) registry() *prometheus.Registry {
	registry := instrument.NewRegistry("fairlead_controlplane_info", s.revision)
	registry.MustRegister(s.metrics.Collectors()...)
	registry.MustRegister(s.web.Collectors(eachProvider(append(s.routes(), s.agentRoutes()...)))...)
	registry.MustRegister(&state{s})
	return registry
}

// A state is a collector of what a Server knows when it is asked.
type state struct{ server *Server }

const (
	statePrefix = "fairlead_controlplane_"
	// stateTimeout is how long the database may take to answer a scrape.
	stateTimeout = time.Second
)

var (
	databaseUp    = prometheus.NewDesc(statePrefix+"database_up", "1 while the database answers.", nil, nil)
	databaseOpen  = prometheus.NewDesc(statePrefix+"database_connections", "Connections to the database, by what they are for and whether they are in use.", []string{"use", "state"}, nil)
	databaseWaits = prometheus.NewDesc(statePrefix+"database_waits_total", "Times that a connection to the database had to be waited for, by what it was for.", []string{"use"}, nil)
	databaseWait  = prometheus.NewDesc(statePrefix+"database_wait_seconds_total", "Time that connections to the database were waited for, by what they were for.", []string{"use"}, nil)
	relaysKnown   = prometheus.NewDesc(statePrefix+"relays", "Relays that are registered at the moment.", nil, nil)
	relaysBehind  = prometheus.NewDesc(statePrefix+"relays_behind", "Relays that don't have the newest revocation list, though they were sent it.", nil, nil)
	tabsShared    = prometheus.NewDesc(statePrefix+"shared_tabs", "Tabs of people's own browsers that are shared with a session at the moment.", nil, nil)
	webhookSent   = prometheus.NewDesc(statePrefix+"webhook_delivered_total", "Notices that the approval webhook took.", nil, nil)
	webhookTries  = prometheus.NewDesc(statePrefix+"webhook_tries_total", "Tries to deliver a notice to the approval webhook.", nil, nil)
	webhookGone   = prometheus.NewDesc(statePrefix+"webhook_dropped_total", "Notices that the approval webhook never got, by reason.", []string{"reason"}, nil)
	webhookQueue  = prometheus.NewDesc(statePrefix+"webhook_waiting", "Notices that wait for the approval webhook.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (*state) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		databaseUp, databaseOpen, databaseWaits, databaseWait, relaysKnown, relaysBehind, tabsShared,
		webhookSent, webhookTries, webhookGone, webhookQueue,
	} {
		descs <- desc
	}
}

// Collect implements [prometheus.Collector].
func (c *state) Collect(out chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...)
	}
	count := func(desc *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, v, labels...)
	}
	s := c.server
	up, known, shared := s.askDatabase()
	gauge(databaseUp, up)
	gauge(relaysKnown, float64(known))
	gauge(tabsShared, float64(shared))
	var read, write sql.DBStats
	if s.store != nil {
		read, write = s.store.Stats()
	}
	for _, db := range []struct {
		use   string
		stats sql.DBStats
	}{{"reading", read}, {"writing", write}} {
		gauge(databaseOpen, float64(db.stats.InUse), db.use, "in_use")
		gauge(databaseOpen, float64(db.stats.Idle), db.use, "idle")
		count(databaseWaits, float64(db.stats.WaitCount), db.use)
		count(databaseWait, db.stats.WaitDuration.Seconds(), db.use)
	}
	gauge(relaysBehind, float64(s.spread.Behind()))
	var told webhook.Counts
	if hook := s.notices.Webhook; hook != nil {
		told = hook.Counts()
	}
	count(webhookSent, float64(told.Delivered))
	count(webhookTries, float64(told.Tries))
	for _, reason := range []webhook.Reason{webhook.Overflow, webhook.Refused, webhook.TooOld, webhook.Shutdown} {
		count(webhookGone, float64(told.Dropped[reason]), string(reason))
	}
	gauge(webhookQueue, float64(told.Waiting))
}

// askDatabase returns 1 if the database answers, how many relays it knows to be
// there, and how many tabs to be shared.
func (s *Server) askDatabase() (up float64, relays, tabs int) {
	if s.store == nil {
		return 0, 0, 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), stateTimeout)
	defer cancel()
	list, err := s.relays.Registered(ctx)
	if err == nil {
		tabs, err = s.store.Tabs.CountShared(ctx, s.clock.Now())
	}
	if err != nil {
		return 0, 0, 0
	}
	return 1, len(list), tabs
}

package broker

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/program/instrument"
)

var (
	requests = prometheus.NewDesc("fairlead_broker_requests_total", "Requests of known terminals to the broker.", nil, nil)
	refused  = prometheus.NewDesc("fairlead_broker_refused_total", "Requests that the broker has refused.", []string{"reason"}, nil)
	active   = prometheus.NewDesc("fairlead_broker_active", "Requests of the broker that are under way.", nil, nil)
	bodies   = prometheus.NewDesc("fairlead_broker_bytes_total", "Bytes of bodies through the broker.", []string{"direction"}, nil)
)

// Metrics show what a server counts; the zero value shows zeros.
type Metrics struct{ Server *Server }

// Describe implements [prometheus.Collector].
func (m Metrics) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, out) }

// Collect implements [prometheus.Collector].
func (m Metrics) Collect(out chan<- prometheus.Metric) {
	var now Snapshot
	if m.Server != nil {
		now = m.Server.Snapshot()
	}
	instrument.Count(out, requests, now.Requests)
	for _, reason := range Refusals() {
		instrument.Count(out, refused, now.Refused[reason], reason)
	}
	instrument.Gauge(out, active, now.Active)
	instrument.Count(out, bodies, now.RequestBytes, "request")
	instrument.Count(out, bodies, now.ResponseBytes, "response")
}

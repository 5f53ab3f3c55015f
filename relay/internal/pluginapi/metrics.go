package pluginapi

import (
	"io"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/protocol"
)

// Metrics counts sockets of plugins.
type Metrics struct {
	Open    prometheus.Gauge
	Refused *prometheus.CounterVec // before the upgrade, by kind
	Closed  *prometheus.CounterVec // by code

	up, down prometheus.Counter // bytes of frames
}

// otherCode is the label of codes that a plugin or a client has made up, and of
// none.
const otherCode = "other"

// codes are the codes that are ours, and those that close most sockets.
var codes = []int{1000, 1001, 1002, 1009, 1012, 1013, 4400, 4401, 4403, 4404, 4429, 4502}

// NewMetrics returns Metrics registered with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	bytes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fairlead_plugin_bytes_total", Help: "Bytes of frames to plugins (up) and from them (down).",
	}, []string{"direction"})
	m := &Metrics{
		Open: prometheus.NewGauge(prometheus.GaugeOpts{Name: "fairlead_plugin_sockets", Help: "Open sockets of plugins."}),
		Refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_plugin_sockets_refused_total", Help: "Sockets of plugins refused, by kind of error.",
		}, []string{"kind"}),
		Closed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_plugin_sockets_closed_total", Help: "Sockets of plugins that have ended, by the code of the Close frame.",
		}, []string{"code"}),
		up: bytes.WithLabelValues("up"), down: bytes.WithLabelValues("down"),
	}
	for _, row := range protocol.Kinds {
		m.Refused.WithLabelValues(row.Label)
	}
	for _, code := range codes {
		m.Closed.WithLabelValues(strconv.Itoa(code))
	}
	m.Closed.WithLabelValues(otherCode)
	reg.MustRegister(m.Open, m.Refused, m.Closed, bytes)
	return m
}

// closed counts a socket that has ended.
func (m *Metrics) closed(code int) {
	for _, known := range codes {
		if code == known {
			m.Closed.WithLabelValues(strconv.Itoa(code)).Inc()
			return
		}
	}
	m.Closed.WithLabelValues(otherCode).Inc()
}

// A counter counts what is written.
type counter struct {
	io.Writer
	bytes prometheus.Counter
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.bytes.Add(float64(n))
	return n, err
}

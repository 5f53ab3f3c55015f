package browser

import (
	"io"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

var _ interface {
	feature.Router
	feature.Operator
	toolbox.Set
	feature.SessionEnder
	io.Closer
} = (*Browser)(nil)

var _ prometheus.Collector = (*Metrics)(nil)

// SessionEnded implements [feature.SessionEnder].
func (b *Browser) SessionEnded(session protocol.SessionID) error {
	b.End(session)
	return nil
}

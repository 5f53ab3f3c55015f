// Package sidebar is the chat of a browser extension's side panel (seed 000): a
// conversation for each tab, and what people see of them.
//
// A session has a Panel, which owns the tabs' queues and the entries. What is said
// in a tab's conversation it hears from that conversation, whoever has said it, so
// the panel and every other client of the conversation see the same. The numbers
// of entries never fall: not when they are forgotten, and not when the agent is
// restarted. Then entries come back from the conversations' logs as they were, and
// queues are lost, which people are told.
package sidebar

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/mask"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/lineup"
)

// maxPanels bounds the sessions whose side panels are in use.
const maxPanels = 256

// Sidebars are the side panels of a sandbox. They are safe for concurrent use.
type Sidebars struct {
	// Static after construction.
	o      Options
	counts *counts

	mu sync.Mutex
	// Guarded by mu.
	panels map[protocol.SessionID]*Panel
	closed bool
}

// Open returns the side panels in o.Dir. Close them.
func Open(o Options) (*Sidebars, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	workspace, err := filepath.EvalSymlinks(o.Workspace)
	if err != nil {
		return nil, err
	}
	o.Workspace = workspace
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Secrets == nil {
		o.Secrets = &mask.Secrets{}
	}
	return &Sidebars{o: o, panels: map[protocol.SessionID]*Panel{}, counts: newCounts()}, nil
}

var _ interface {
	feature.Router
	feature.Operator
	feature.SessionEnder
} = (*Sidebars)(nil)

// panel returns a session's panel, made if it is missing.
func (s *Sidebars) panel(session protocol.SessionID) (*Panel, error) {
	p, err := s.made(session)
	if err == nil {
		p.restored.Do(p.restore)
	}
	return p, err
}

// made is panel, before it is restored.
func (s *Sidebars) made(session protocol.SessionID) (*Panel, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch p := s.panels[session]; {
	case s.closed:
		return nil, protocol.Errorf(protocol.KindUnavailable, "the sandbox's agent is ending")
	case p != nil:
		return p, nil
	case len(s.panels) >= maxPanels:
		return nil, protocol.Errorf(protocol.KindTooMany, "over %d sessions have a side panel", maxPanels)
	}
	p := newPanel(&s.o, s.counts, session, s.file(session))
	s.panels[session] = p
	return p, nil
}

// file is where a session's panel is stored.
func (s *Sidebars) file(session protocol.SessionID) string {
	return filepath.Join(s.o.Dir, string(session)+fileEnd)
}

// SessionEnded implements [feature.SessionEnder].
func (s *Sidebars) SessionEnded(session protocol.SessionID) error {
	s.mu.Lock()
	p := s.panels[session]
	delete(s.panels, session)
	s.mu.Unlock()
	if p != nil {
		p.close()
	}
	s.o.Activity.SessionEnded(session)
	for _, path := range []string{s.file(session), placesOf(s.file(session))} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return protocol.Fault(protocol.KindUnavailable, err)
		}
	}
	return nil
}

// Close ends all streams, and hears no conversation any more. Their runs are theirs.
func (s *Sidebars) Close() error {
	s.mu.Lock()
	s.closed = true
	panels := s.panels
	s.panels = nil
	s.mu.Unlock()
	for _, p := range panels {
		p.close()
	}
	return nil
}

// Metrics are those of a sandbox without side panels.
func Metrics() prometheus.Collector { return &Sidebars{counts: newCounts()} }

// Describe implements [prometheus.Collector].
func (s *Sidebars) Describe(ch chan<- *prometheus.Desc) {
	ch <- tabsBusy
	for _, c := range []prometheus.Collector{s.counts.messages, s.counts.streams, s.counts.refused} {
		c.Describe(ch)
	}
}

// Collect implements [prometheus.Collector].
func (s *Sidebars) Collect(ch chan<- prometheus.Metric) {
	states := map[string]int{lineup.Processing: 0, lineup.Hung: 0}
	s.mu.Lock()
	panels := make([]*Panel, 0, len(s.panels))
	for _, p := range s.panels {
		panels = append(panels, p)
	}
	s.mu.Unlock()
	for _, p := range panels {
		p.count(states)
	}
	for state, n := range states {
		ch <- prometheus.MustNewConstMetric(tabsBusy, prometheus.GaugeValue, float64(n), state)
	}
	for _, c := range []prometheus.Collector{s.counts.messages, s.counts.streams, s.counts.refused} {
		c.Collect(ch)
	}
}

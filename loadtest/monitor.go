package loadtest

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/scenario"
	"github.com/fairlead/fairlead/loadtest/internal/stack"
)

const (
	// monitorEvery is how often the processes of the deployment are looked at.
	monitorEvery = time.Second
	// metricsTimeout bounds a look at a process's metrics.
	metricsTimeout = 500 * time.Millisecond
)

// A monitor records what the processes of the deployment use.
type monitor struct {
	env    *scenario.Env
	client *http.Client
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// startMonitor watches until stop.
func startMonitor(ctx context.Context, env *scenario.Env) *monitor {
	ctx, cancel := context.WithCancel(ctx)
	m := &monitor{env: env, client: &http.Client{Timeout: metricsTimeout}, cancel: cancel}
	m.done.Go(func() { m.watch(ctx) })
	return m
}

func (m *monitor) stop() {
	m.cancel()
	m.done.Wait()
	m.client.CloseIdleConnections()
}

func (m *monitor) watch(ctx context.Context) {
	ticker := time.NewTicker(monitorEvery)
	defer ticker.Stop()
	for {
		m.look(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// look records every process once. One that is just being restarted is left
// out.
func (m *monitor) look(ctx context.Context) {
	target := m.env.Target
	if m.env.Local != nil {
		target = m.env.Local.Target()
	}
	if target == nil {
		target = &stack.Target{}
	}
	for i, r := range target.Relays {
		m.record(ctx, fmt.Sprintf("relay-%d", i+1), stack.Process{PID: r.PID, AdminURL: r.AdminURL})
	}
	for i, s := range target.Sandboxes {
		m.record(ctx, fmt.Sprintf("sandbox-agent-%d", i+1), stack.Process{PID: s.PID})
	}
	m.record(ctx, "controlplane", target.ControlPlane)
	if m.env.Baseline != nil {
		m.record(ctx, "baseline", stack.Process{PID: m.env.Baseline.PID()})
	}
}

func (m *monitor) record(ctx context.Context, name string, p stack.Process) {
	var r measure.Resource
	if p.PID != 0 {
		var err error
		if r, err = measure.ReadProcess(p.PID); err != nil {
			return
		}
	}
	if p.AdminURL != "" {
		if err := r.ReadMetrics(ctx, m.client, p.AdminURL); err != nil && p.PID == 0 {
			return
		}
	}
	if r != (measure.Resource{}) {
		m.env.Out.Resource(name, time.Now(), r)
	}
}

package loadtest

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/stack"
	"github.com/fairlead/fairlead/loadtest/internal/stage"
	"github.com/fairlead/fairlead/loadtest/internal/usage"
)

const (
	// monitorEvery is how often the processes of the deployment are looked at.
	monitorEvery = time.Second
	// metricsTimeout bounds a look at a process's metrics.
	metricsTimeout = 500 * time.Millisecond
	// agentEvery is how many looks are between two requests to the agent, which go
	// through what is measured.
	agentEvery = 5
)

// A monitor records what the processes of the deployment use.
type monitor struct {
	// Static after construction.
	env    *stage.Env
	client *http.Client
	agent  *usage.Agent // nil unless it is asked
	cancel context.CancelFunc
	done   sync.WaitGroup

	// Owned by watch.
	looks int
	told  *measure.Resource // what the agent said last, nil unless it did
}

// startMonitor watches until stop. With agent what the agent tells of itself is
// recorded as well.
func startMonitor(ctx context.Context, env *stage.Env, agent bool) *monitor {
	ctx, cancel := context.WithCancel(ctx)
	m := &monitor{env: env, client: &http.Client{Timeout: metricsTimeout}, cancel: cancel}
	if agent && env.Target != nil {
		m.agent = usage.NewAgent(env)
	}
	m.done.Go(func() { m.watch(ctx) })
	return m
}

func (m *monitor) stop() {
	m.cancel()
	m.done.Wait()
	m.client.CloseIdleConnections()
	if m.agent != nil {
		m.agent.Close()
	}
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
	target := m.env.Now()
	if target == nil {
		target = &stack.Target{}
	}
	for i, r := range target.Relays {
		m.record(ctx, fmt.Sprintf("relay-%d", i+1), stack.Process{PID: r.PID, AdminURL: r.AdminURL}, nil)
	}
	m.ask(ctx)
	for i := range max(1, len(target.Sandboxes)) {
		var p stack.Process
		if i < len(target.Sandboxes) {
			p.PID = target.Sandboxes[i].PID
		}
		var told *measure.Resource
		if i == 0 {
			told = m.told
		}
		m.record(ctx, fmt.Sprintf("sandbox-agent-%d", i+1), p, told)
	}
	m.record(ctx, "controlplane", target.ControlPlane, nil)
	if m.env.Baseline != nil {
		m.record(ctx, "baseline", stack.Process{PID: m.env.Baseline.PID()}, nil)
	}
}

// ask has the agent tell of itself, now and then.
func (m *monitor) ask(ctx context.Context) {
	if m.agent == nil {
		return
	}
	if m.looks++; m.looks%agentEvery != 1 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, metricsTimeout)
	defer cancel()
	if told, err := m.agent.Read(ctx); err == nil {
		m.told = &told
	}
}

// record records what is known of a process, told (if not nil) by itself.
func (m *monitor) record(ctx context.Context, name string, p stack.Process, told *measure.Resource) {
	var r measure.Resource
	if told != nil {
		r = *told
	}
	if p.PID != 0 {
		var err error
		if r, err = measure.ReadProcess(p.PID); err != nil {
			return
		}
		if told != nil {
			r.Goroutines, r.HeapBytes = told.Goroutines, told.HeapBytes
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

// Package agents is a kind of generator: simulated sandboxes in one process,
// who register at relays and come back when they are thrown out.
package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/fairlead/fairlead/loadtest/internal/enrol"
	"github.com/fairlead/fairlead/loadtest/internal/generator"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/simagent"
	"github.com/fairlead/fairlead/protocol"
)

// Kind is the name under which [New] is registered.
const Kind = "agents"

// Orders, with their arguments and answers.
const (
	OrderConnect = "connect" // Wait → Back
	OrderReturn  = "return"  // Wait → Back
	OrderStats   = "stats"   // nothing → simagent.Stats
)

// A Spec says which sandboxes are simulated.
type Spec struct {
	// Identities is a directory of package enrol; this process takes those from
	// First up to, without, Last.
	Identities  string `json:"identities"`
	First, Last int
	Relays      []string `json:"relays,omitempty"` // host:port; empty: those of the enrolment
}

// A Wait is for everybody to have registered since At.
type Wait struct {
	At     time.Time     `json:"at"`
	Within time.Duration `json:"within"` // from At
	// Latency is the name of that of each agent's registration; empty: none.
	Latency string `json:"latency,omitempty"`
}

// Back says who has.
type Back struct {
	Agents int             `json:"agents"`
	After  []time.Duration `json:"after"` // of each that has: its first registration since At
	Why    string          `json:"why,omitempty"`
}

// fleet is the worker.
type fleet struct {
	// Static after construction.
	rec    *measure.Recorder
	fleet  *simagent.Fleet
	count  int
	cancel context.CancelFunc
	start  sync.Once
	ctx    context.Context
	over   sync.WaitGroup

	mu         sync.Mutex
	registered map[protocol.SandboxID][]time.Time // guarded by mu
	lost       error                              // guarded by mu: the last tunnel's end, or why the last dial failed
}

// New makes simulated agents, which is a [generator.Kind].
func New(_ context.Context, job *generator.Job) (generator.Worker, error) {
	var spec Spec
	if err := job.Decode(&spec); err != nil {
		return nil, err
	}
	identities, err := enrol.Load(spec.Identities, time.Now())
	if err != nil {
		return nil, err
	}
	if spec.First < 0 || spec.Last > len(identities) || spec.First >= spec.Last {
		return nil, fmt.Errorf("there are %d identities, not %d to %d", len(identities), spec.First, spec.Last)
	}
	w := &fleet{rec: job.Rec, count: spec.Last - spec.First, registered: make(map[protocol.SandboxID][]time.Time)}
	w.fleet, err = simagent.New(simagent.Config{
		Identities: identities[spec.First:spec.Last], Relays: spec.Relays,
		Registered: w.noteRegistered, Failed: w.noteLost, Lost: w.noteLost,
	})
	if err != nil {
		return nil, err
	}
	// A thousand agents are mostly live heap; garbage would hide how little each
	// of them is.
	debug.SetGCPercent(50)
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w, nil
}

// maxTimes bounds the registrations that are remembered of each agent.
const maxTimes = 16

func (w *fleet) noteRegistered(sandbox protocol.SandboxID, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	times := append(w.registered[sandbox], at)
	w.registered[sandbox] = times[max(0, len(times)-maxTimes):]
}

func (w *fleet) noteLost(_ protocol.SandboxID, _ time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = err
}

// Close implements [generator.Worker].
func (w *fleet) Close() {
	w.cancel()
	w.over.Wait()
}

// Do implements [generator.Worker].
func (w *fleet) Do(ctx context.Context, order string, arg json.RawMessage) (any, error) {
	switch order {
	case OrderConnect, OrderReturn:
		var wait Wait
		if err := json.Unmarshal(arg, &wait); err != nil {
			return nil, err
		}
		w.start.Do(func() { w.over.Go(func() { w.fleet.Run(w.ctx) }) })
		return w.await(ctx, wait), nil
	case OrderStats:
		return w.fleet.Stats(), nil
	}
	return nil, errors.New("agents know no order " + order)
}

// await waits until all agents have registered since wait.At.
func (w *fleet) await(ctx context.Context, wait Wait) Back {
	ctx, cancel := context.WithDeadline(ctx, wait.At.Add(wait.Within))
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		back := w.since(wait.At)
		if len(back.After) == back.Agents {
			w.record(wait, back)
			return back
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			w.record(wait, back)
			return back
		}
	}
}

func (w *fleet) record(wait Wait, back Back) {
	if wait.Latency == "" {
		return
	}
	latency := w.rec.Latency(wait.Latency)
	for _, after := range back.After {
		latency.RecordDuration(wait.At, after)
	}
	w.rec.Counter("agents_missing").Add(int64(back.Agents - len(back.After)))
}

// since returns who has registered since at.
func (w *fleet) since(at time.Time) Back {
	w.mu.Lock()
	defer w.mu.Unlock()
	back := Back{Agents: w.count}
	for _, times := range w.registered {
		for _, t := range times {
			if t.After(at) {
				back.After = append(back.After, t.Sub(at))
				break
			}
		}
	}
	if len(back.After) < back.Agents && w.lost != nil {
		back.Why = w.lost.Error()
	}
	return back
}

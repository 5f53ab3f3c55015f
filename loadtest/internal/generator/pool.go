package generator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/fairlead/fairlead/loadtest/internal/measure"
)

// Timeouts of what every child must do.
const (
	startTimeout = 20 * time.Second // to its first word
	endTimeout   = 10 * time.Second // to its end
)

// A Pool starts generator processes and ends them.
type Pool struct {
	// Static after construction.
	Command []string            // the executable and its arguments
	Out     *measure.Collection // gets what they measure

	mu      sync.Mutex
	groups  []*Group // guarded by mu
	started int      // guarded by mu: names them
}

// NewPool returns a pool of children of this executable, run with args.
func NewPool(out *measure.Collection, args ...string) (*Pool, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("path of this program: %w", err)
	}
	return &Pool{Command: append([]string{self}, args...), Out: out}, nil
}

// PIDs returns the processes that run, by the name that their resources have.
func (p *Pool) PIDs() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	pids := make(map[string]int)
	for _, g := range p.groups {
		for _, c := range g.children {
			if !c.over() {
				pids[c.name] = c.cmd.Process.Pid
			}
		}
	}
	return pids
}

// Start starts one process for each of specs, which are encoded as JSON, and
// returns when all have made their workers.
func (p *Pool) Start(ctx context.Context, kind string, specs []any) (*Group, error) {
	g := &Group{pool: p, failed: make(chan struct{})}
	p.mu.Lock()
	p.groups = append(p.groups, g)
	for i, spec := range specs {
		data, err := json.Marshal(spec)
		if err != nil {
			p.mu.Unlock()
			return nil, fmt.Errorf("specification of a generator: %w", err)
		}
		p.started++
		c, err := g.startChild(hello{
			Name: fmt.Sprintf("generator-%d", p.started), Kind: kind, Index: i, Of: len(specs), Spec: data,
		})
		if err != nil {
			p.mu.Unlock()
			g.Close()
			return nil, err
		}
		g.children = append(g.children, c)
	}
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, c := range g.children {
		select {
		case <-c.ready:
		case <-g.failed:
			g.Close()
			return nil, g.err()
		case <-ctx.Done():
			g.Close()
			return nil, fmt.Errorf("%s of kind %s isn't ready: %w", c.name, kind, ctx.Err())
		}
	}
	return g, nil
}

// Close ends all processes.
func (p *Pool) Close() {
	p.mu.Lock()
	groups := p.groups
	p.mu.Unlock()
	for _, g := range groups {
		g.Close()
	}
}

// A Group is the processes of one Start. They get the same orders.
type Group struct {
	// Static after Start.
	pool     *Pool
	children []*child
	failed   chan struct{} // closed when one of them ended that shouldn't have

	mu      sync.Mutex
	cause   error // guarded by mu: of the first that failed
	closing bool  // guarded by mu
}

// Size returns how many processes there are.
func (g *Group) Size() int { return len(g.children) }

// Phase says that what is recorded from now on belongs to phase and block.
func (g *Group) Phase(ctx context.Context, phase string, block int) error {
	_, err := g.all(ctx, request{Order: orderPhase, Phase: phase, Block: block}, nil)
	return err
}

// Begin says that what was due before at is warm-up, and isn't recorded.
func (g *Group) Begin(ctx context.Context, at time.Time) error {
	_, err := g.all(ctx, request{Order: orderBegin, Begin: at}, nil)
	return err
}

// Ask gives all processes an order and returns their answers. args has one
// member for each of them, or one for all. When it returns, everything that
// they recorded until their answers is in the pool's collection.
func (g *Group) Ask(ctx context.Context, order string, args ...any) ([]json.RawMessage, error) {
	return g.all(ctx, request{Order: order}, args)
}

func (g *Group) all(ctx context.Context, r request, args []any) ([]json.RawMessage, error) {
	answers := make([]json.RawMessage, len(g.children))
	errs := make([]error, len(g.children))
	var asking sync.WaitGroup
	for i, c := range g.children {
		one := r
		if len(args) > 0 {
			arg, err := json.Marshal(args[min(i, len(args)-1)])
			if err != nil {
				return nil, fmt.Errorf("order %s: %w", r.Order, err)
			}
			one.Arg = arg
		}
		asking.Go(func() { answers[i], errs[i] = c.ask(ctx, one) })
	}
	asking.Wait()
	return answers, errors.Join(errs...)
}

// Ask is [Group.Ask] with decoded answers.
func Ask[T any](ctx context.Context, g *Group, order string, args ...any) ([]T, error) {
	raw, err := g.Ask(ctx, order, args...)
	if err != nil {
		return nil, err
	}
	answers := make([]T, len(raw))
	for i, data := range raw {
		if len(data) == 0 {
			continue
		}
		if err := json.Unmarshal(data, &answers[i]); err != nil {
			return nil, fmt.Errorf("answer to %s: %w", order, err)
		}
	}
	return answers, nil
}

// Sum is [Ask] with the answers added up.
func Sum[T any, P interface {
	*T
	Add(T)
}](ctx context.Context, g *Group, order string, args ...any) (sum T, err error) {
	answers, err := Ask[T](ctx, g, order, args...)
	for _, a := range answers {
		P(&sum).Add(a)
	}
	return sum, err
}

// Close ends the processes, and waits for them.
func (g *Group) Close() {
	g.mu.Lock()
	g.closing = true
	g.mu.Unlock()
	for _, c := range g.children {
		c.stdin.Close()
	}
	deadline := time.AfterFunc(endTimeout, func() {
		for _, c := range g.children {
			c.cmd.Process.Kill()
		}
	})
	defer deadline.Stop()
	for _, c := range g.children {
		<-c.ended
	}
}

// fail notes that a child has ended, or said that it can't go on.
func (g *Group) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closing || g.cause != nil {
		return
	}
	g.cause = err
	close(g.failed)
}

func (g *Group) err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cause
}

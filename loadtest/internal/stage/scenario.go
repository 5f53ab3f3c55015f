// Package stage is what scenarios stand on: a deployment with its people and
// terminals, generators and a baseline, and blocks of them in turn.
package stage

import (
	"context"
	"log/slog"
	"time"

	"github.com/fairlead/fairlead/deploy/client"
	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/loadtest/internal/baseline"
	"github.com/fairlead/fairlead/loadtest/internal/generator"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/stack"
)

// A Scenario is one kind of load.
type Scenario struct {
	Name    string
	Summary string // one line without a final stop, for the table of scenarios
	Long    string // what it does and measures, for --help
	Example string // command lines, one each line, for --help

	// Metrics are all that a run may record. A bound on any other is refused
	// before anything starts.
	Metrics []measure.Metric

	// Defaults are those of the common flags. A size that is 0 isn't used by the
	// scenario, and has no flag.
	Defaults Options
	// Simulated says that it can run against a simulated agent.
	Simulated bool
	// NoTarget scenarios load no deployment, only the baseline's process.
	NoTarget bool
	// NeedsLocal says why it runs with --local only; empty: anywhere.
	NeedsLocal string
	// TellsAgent says that the agent's own metrics are recorded as well, which
	// takes a request to it every few seconds.
	TellsAgent bool
	// FindsLimit says that load grows until something fails. That may be the
	// generator, which makes the figures worse, never better.
	FindsLimit bool
	// Stack is what --local starts beside the defaults.
	Stack stack.Options
	// Flags declares flags of its own, which it keeps in Options.Own. May be nil.
	Flags func(c *program.Command, o *Options)

	// Prepare completes the options once all flags are known, and checks those
	// of its own. May be nil.
	Prepare func(o *Options) error

	// Run makes the load and records to env.Out. It returns an error when it
	// could not be carried out, but not for bad figures or lost bytes.
	Run func(ctx context.Context, env *Env) error
}

// Options are the sizes of a run.
type Options struct {
	Viewers    int
	Terminals  int
	Agents     int
	Rate       float64       // chunks (or keystrokes, commands) a second of each source
	Chunk      int           // bytes
	Duration   time.Duration // of each block where there are blocks, else of the whole
	Warmup     time.Duration // excluded from the figures
	Blocks     int           // interleaved blocks of fairlead and its baseline, at least
	Generators int           // processes; 0: chosen by the load
	Seed       uint64

	OwnGrants  bool // each viewer has a grant of its own
	NoBaseline bool
	Simulated  bool
	Hops       bool   // programs note what passes them; needs --local
	Impair     string // a profile of tunnel/tunneltest/impair, in front of the relay's tunnel; empty: none

	// SLOs are the bounds on the figures. Blocks go on while one on a ratio is
	// undecided.
	SLOs []measure.SLO
	// Own is what the scenario's Flags set it to: a pointer to a struct of the
	// scenario's.
	Own any
}

// An Env is what a running scenario has.
type Env struct {
	Target     *stack.Target // nil for a NoTarget scenario
	Local      *stack.Local  // nil when the deployment isn't ours
	Options    *Options
	Out        *measure.Collection
	Generators *generator.Pool
	Baseline   *baseline.Server // nil with --no-baseline
	Log        *slog.Logger     // for who debugs; a person reads Say

	admitted []stack.User // to a simulated sandbox's session, beside its owner

	// Say tells a person something in one line, beside the progress.
	Say func(format string, args ...any)
	// Progress says how far the run is in its present phase.
	Progress func(phase string, done, total float64)
}

// Now returns the deployment as it is now. A restarted relay has another
// process.
func (e *Env) Now() *stack.Target {
	if e.Local != nil {
		return e.Local.Target()
	}
	return e.Target
}

// Owner returns the owner of the session. The caller closes it.
func (e *Env) Owner() *client.User {
	return client.NewUser(client.UserOptions{Token: e.Target.Owner().Token, Session: e.Target.Session, Relays: e.Origins()})
}

// Origins returns the relays' public origins.
func (e *Env) Origins() []string {
	var all []string
	for _, r := range e.Target.Relays {
		all = append(all, r.URL)
	}
	return all
}

// Own returns a scenario's Flags, which keep what they are set to in a T.
func Own[T any](declare func(c *program.Command, own *T)) func(*program.Command, *Options) {
	return func(c *program.Command, o *Options) {
		t := new(T)
		o.Own = t
		declare(c, t)
	}
}

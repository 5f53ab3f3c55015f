// Package loadtest is the program that loads a deployment with one scenario
// after the other, compares what it measures with the barest thing that could do
// the same, and judges it by bounds.
package loadtest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/deploy/program/standin"
	"github.com/fairlead/fairlead/loadtest/internal/baseline"
	"github.com/fairlead/fairlead/loadtest/internal/generator"
	"github.com/fairlead/fairlead/loadtest/internal/impair"
	"github.com/fairlead/fairlead/loadtest/internal/scenario"
	"github.com/fairlead/fairlead/loadtest/internal/source"
	"github.com/fairlead/fairlead/loadtest/internal/stage"
)

// Exit statuses beside 0, which means that every bound holds and nothing was
// lost.
const (
	statusFailed      = 1 // a bound is broken, bytes were lost, or the run could not be carried out
	statusUsage       = 2
	statusByClock     = 3 // nothing failed, but the error of the clocks leaves bounds open
	statusInterrupted = 130
)

const about = `Loads a running fairlead, or one of its own (--local), as its users would, and
says how it holds up: with intervals, beside a baseline measured in the same
minute, and with a verdict on the bounds you give.

  loadtest scenarios
  loadtest run echo --local
  loadtest run fanout --local --viewers 1000 --slo 'lost_bytes==0'
  loadtest run fanout --url https://relay.example --token-file token --session ID
  loadtest compare before.json after.json

It exits with 0 when every bound holds and nothing was lost, 1 when not (or when
more blocks would have to tell), 2 when it was called wrongly, 3 when only the
error of the clocks leaves a bound open, 130 when it was interrupted.

Every flag may also be set as an environment variable (--log-level is
FAIRLEAD_LOG_LEVEL) or as a key of the --config file. A flag wins over the
environment, which wins over the file.`

const aboutRun = `Runs a scenario. Each has flags of its own: loadtest run echo --help.

It exits with 0 when every bound holds and nothing was lost. It exits with 1 when
a bound is broken or undecided by statistics, bytes were lost, or the run could not
be carried out. It exits with 3 when nothing of that is so, but the source's clock
and this machine's may be so far apart that a bound is undecided by clock: nearer
to the source, or with --local, there is less error or none.`

// Declare declares the program.
func Declare(c *program.Command) {
	c.Describe(about)
	c.UsageStatus(statusUsage)
	c.Sub("run", "Run a scenario", func(c *program.Command) {
		c.Describe(aboutRun)
		for _, s := range scenario.All() {
			c.Sub(s.Name, s.Summary, func(c *program.Command) { declareRun(c, s) })
		}
	})
	c.Sub("scenarios", "List the scenarios and what they measure", declareScenarios)
	c.Sub("compare", "Compare two results", declareCompare)
	c.Sub("impair", "Be a bad network in front of a relay", impair.Declare)
	declareRoles(c)
}

// declareRoles declares what this program starts itself as.
func declareRoles(c *program.Command) {
	c.Sub("generator", "Make load for another process", func(c *program.Command) {
		c.Hide()
		c.Run(func(ctx context.Context, env *program.Env) error {
			stage.RegisterKinds()
			return generator.Serve(ctx, env.Stdin, env.Stdout)
		})
	})
	c.Sub(standin.Role, "Be a coding agent's program that does what its messages say", func(c *program.Command) {
		var name string
		var args []string
		c.Hide()
		c.Arg(&name, "PROGRAM")
		c.Rest(&args, "ARGUMENT")
		c.Run(func(context.Context, *program.Env) error {
			os.Exit(standin.Main(append([]string{name}, args...)))
			return nil
		})
	})
	c.Sub("source", "Print what a load test watches, in a terminal of a sandbox", source.Declare)
	c.Sub(baseline.Role, "Serve the baselines for another process", func(c *program.Command) {
		c.Hide()
		c.Run(func(ctx context.Context, env *program.Env) error {
			return baseline.Serve(ctx, env.Stdin, env.Stdout)
		})
	})
}

func declareScenarios(c *program.Command) {
	c.Describe("Lists the scenarios. loadtest run SCENARIO --help says what one does, and which\nfigures a bound (--slo) can be set on.")
	c.Run(func(_ context.Context, env *program.Env) error {
		table := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintf(table, "SCENARIO\tWHAT IT DOES\tHEADLINE FIGURES\n")
		for _, s := range scenario.All() {
			fmt.Fprintf(table, "%s\t%s\t%s\n", s.Name, s.Summary, strings.Join(headlines(s), ", "))
		}
		return table.Flush()
	})
}

// headlines names the metrics of a scenario that stand at the top.
func headlines(s *stage.Scenario) []string {
	var names []string
	for _, m := range s.Metrics {
		if m.Headline {
			names = append(names, m.Name)
		}
	}
	return names
}

package loadtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/pattern"
	"github.com/fairlead/fairlead/loadtest/internal/report"
	"github.com/fairlead/fairlead/loadtest/internal/stack"
	"github.com/fairlead/fairlead/loadtest/internal/stage"
	"github.com/fairlead/fairlead/tunnel/tunneltest/impair"
)

// maxGenerators bounds the processes that make the load: more only take the
// machine from each other.
const maxGenerators = 64

// flags are what a run is told, beside the scenario's options.
type flags struct {
	target targetFlags
	output outputFlags
	slos   []string
	seed   int
	// allowSaturated takes figures that may be the generator's own.
	allowSaturated bool
}

// targetFlags say what is loaded.
type targetFlags struct {
	local  bool
	bin    string
	relays int
	file   string
	remote stack.Flags

	running *stack.Target // that the others name, set by check; nil with local
}

// outputFlags say what is told, and where.
type outputFlags struct {
	json, html, dir string
	progress        string
	mode            report.Mode // of progress
}

// declareCommon declares the flags of every scenario, and of the sizes those
// that s uses.
func declareCommon(c *program.Command, s *stage.Scenario, o *stage.Options) *flags {
	f := &flags{}
	if !s.NoTarget {
		declareTarget(c, s, &f.target)
		c.String(&o.Impair, "impair", "", "`profile` of the network between the sandbox and the first relay of --local: delay=25ms,jitter=5ms,rate=20mbit,loss=2%")
	}
	declareSizes(c, s, o)
	c.Int(&f.seed, "seed", 1, "`number` that all chance comes from")
	c.Texts(&f.slos, "slo", "a `bound` on a figure, such as 'echo_p99<20ms'; may be repeated")
	c.String(&f.output.json, "json", "", "`file` to write the result to")
	c.String(&f.output.html, "html", "", "`file` to write the report to")
	c.String(&f.output.dir, "report-dir", "loadtest-reports", "`directory` for result and report, named by scenario and time; empty: none")
	c.String(&f.output.progress, "progress", "auto", "`how` to show what goes on: auto, bar, plain, none")
	c.Bool(&f.allowSaturated, "allow-saturated", false, "take figures that may be the load generator's own")
	if s.Flags != nil {
		s.Flags(c, o)
	}
	return f
}

// declareTarget declares what says where the deployment is.
func declareTarget(c *program.Command, s *stage.Scenario, t *targetFlags) {
	c.Bool(&t.local, "local", false, "load a stack of this machine, started for the run with the programs in --bin")
	c.String(&t.bin, "bin", "", "`directory` with the programs (default: where loadtest is)")
	c.Int(&t.relays, "relays", max(s.Stack.Relays, 1), "`number` of relays of --local")
	c.String(&t.file, "target", "", "`file` that describes a running deployment, like the ready file of devstack")
	c.String(&t.remote.URL, "url", "", "`origin` of a running deployment")
	c.Secret(&t.remote.Token, "token", "a user's token at --url")
	c.String(&t.remote.Session, "session", "", "`id` of the session at --url to load")
	c.Strings(&t.remote.AdminURLs, "admin-url", "`origins` of the relays' admin listeners at --url, for their memory and goroutines")
}

// declareSizes declares the sizes that s has defaults of.
func declareSizes(c *program.Command, s *stage.Scenario, o *stage.Options) {
	d := s.Defaults
	number := func(p *int, value int, name, usage string) {
		if value > 0 {
			c.Int(p, name, value, usage)
		}
	}
	duration := func(p *time.Duration, value time.Duration, name, usage string) {
		if value > 0 {
			c.Duration(p, name, value, usage)
		}
	}
	number(&o.Viewers, d.Viewers, "viewers", "`number` of viewers of a terminal")
	number(&o.Terminals, d.Terminals, "terminals", "`number` of terminals")
	number(&o.Agents, d.Agents, "agents", "`number` of simulated agents")
	if d.Rate > 0 {
		c.Float(&o.Rate, "rate", d.Rate, "how `many` a second, of each source")
	}
	number(&o.Chunk, d.Chunk, "chunk", "`bytes` of each chunk of output")
	what := "how long the load lasts"
	if d.Blocks > 0 {
		what = "how long each block lasts"
	}
	duration(&o.Duration, d.Duration, "duration", what)
	duration(&o.Warmup, d.Warmup, "warmup", "load before anything is measured")
	if d.Blocks > 0 {
		c.Int(&o.Blocks, "blocks", d.Blocks, "`number` of blocks at least, of fairlead and its baseline in turn; while a bound is undecided more follow, up to 30")
	}
	if hasBaseline(s) {
		c.Bool(&o.NoBaseline, "no-baseline", false, "measure fairlead alone")
	}
	if !s.NoTarget {
		c.Int(&o.Generators, "generators", 0, "`number` of processes that make the load (0: by its size)")
	}
	if d.Viewers > 0 {
		c.Bool(&o.OwnGrants, "own-grants", false, "a grant of its own for each viewer, instead of one for all of a person's")
	}
	if s.Simulated {
		c.Bool(&o.Simulated, "simulated", false, "use a simulated agent instead of a real one")
	}
}

// settle checks what was given and completes the options.
func (f *flags) settle(s *stage.Scenario, o *stage.Options) error {
	if _, err := impair.Parse(o.Impair); err != nil {
		return fmt.Errorf("--impair: %w", err)
	}
	for _, expr := range f.slos {
		slo, err := measure.ParseSLO(expr)
		if err == nil {
			err = slo.Check(s.Metrics)
		}
		if err != nil {
			return program.Hint(fmt.Errorf("--slo: %w", err), "loadtest run "+s.Name+" --help says what the figures mean")
		}
		o.SLOs = append(o.SLOs, slo)
	}
	o.Seed = uint64(f.seed)
	if err := positive(s, o); err != nil {
		return err
	}
	var err error
	if f.output.mode, err = report.ParseMode(f.output.progress); err != nil {
		return fmt.Errorf("--progress: %w", err)
	}
	if s.Prepare != nil {
		if err := s.Prepare(o); err != nil {
			return err
		}
	}
	return f.target.check(s, o)
}

// positive checks the sizes that s uses.
func positive(s *stage.Scenario, o *stage.Options) error {
	d := s.Defaults
	for _, size := range []struct {
		name            string
		value, standard float64
	}{
		{"viewers", float64(o.Viewers), float64(d.Viewers)},
		{"terminals", float64(o.Terminals), float64(d.Terminals)},
		{"agents", float64(o.Agents), float64(d.Agents)},
		{"rate", o.Rate, d.Rate},
		{"duration", o.Duration.Seconds(), d.Duration.Seconds()},
		{"blocks", float64(o.Blocks), float64(d.Blocks)},
	} {
		if size.standard > 0 && !(size.value > 0) {
			return fmt.Errorf("--%s must be more than 0", size.name)
		}
	}
	switch {
	case d.Chunk > 0 && (o.Chunk < pattern.MinChunk || o.Chunk > pattern.MaxChunk):
		return fmt.Errorf("--chunk must be from %d to %d bytes", pattern.MinChunk, pattern.MaxChunk)
	case o.Warmup < 0:
		return errors.New("--warmup can't be negative")
	case o.Generators < 0 || o.Generators > maxGenerators:
		return fmt.Errorf("--generators must be from 0 to %d", maxGenerators)
	}
	return nil
}

func (t *targetFlags) check(s *stage.Scenario, o *stage.Options) error {
	var given []string
	for name, is := range map[string]bool{"--local": t.local, "--target": t.file != "", "--url": t.remote.URL != ""} {
		if is {
			given = append(given, name)
		}
	}
	slices.Sort(given)
	switch {
	case s.NoTarget && len(given) > 0:
		return fmt.Errorf("%s takes no %s: it loads no deployment", s.Name, given[0])
	case s.NoTarget:
		return nil
	case len(given) == 0:
		return program.Hint(errors.New("nothing to load"), "--local starts a stack of its own, --target or --url names one that runs")
	case len(given) > 1:
		return fmt.Errorf("%s exclude each other", strings.Join(given, " and "))
	case !t.local && s.NeedsLocal != "":
		return program.Hint(fmt.Errorf("%s runs with --local only: %s", s.Name, s.NeedsLocal), "--local starts a stack of its own")
	case !t.local && o.Simulated:
		return program.Hint(errors.New("--simulated needs --local"), "a simulated sandbox has to be invited by the control plane")
	case !t.local && o.Impair != "":
		return program.Hint(errors.New("--impair needs --local"), "loadtest impair stands in front of a relay that runs elsewhere")
	case o.Hops && !t.local:
		return program.Hint(errors.New("--hops needs --local"), "programs note what passes them in files of the machine they are on")
	case t.local && t.relays < 1:
		return errors.New("--relays must be at least 1")
	}
	return t.find()
}

// find reads what describes a running deployment, or settles where the programs
// of a local one are.
func (t *targetFlags) find() (err error) {
	switch {
	case t.file != "":
		t.running, err = stack.Load(t.file)
	case !t.local:
		t.running, err = stack.FromFlags(t.remote)
	case t.bin == "":
		self, err := os.Executable()
		if err != nil {
			return err
		}
		t.bin = filepath.Dir(self)
	}
	return err
}

// describe says what is loaded, without addresses of this machine.
func (t *targetFlags) describe() string {
	switch {
	case t.local:
		return "local"
	case t.file != "":
		return filepath.Base(t.file)
	case t.remote.URL != "":
		return t.remote.URL
	}
	return "two processes of this machine"
}

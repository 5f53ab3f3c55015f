package loadtest

import (
	"context"
	"fmt"
	"os"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/report"
)

func declareCompare(c *program.Command) {
	var before, after string
	c.Describe(`Prints how the figures of B.json differ from those of A.json, as ratios with
their 95 % intervals, and marks the differences that are more than chance. Fewer
than six blocks have no such interval: then it is the range that is told.

  loadtest run echo --local --json before.json
  loadtest run echo --local --json after.json
  loadtest compare before.json after.json`)
	c.Arg(&before, "A.json")
	c.Arg(&after, "B.json")
	c.Run(func(_ context.Context, env *program.Env) error {
		a, err := readResult(before)
		if err != nil {
			return program.WithStatus(err, statusUsage)
		}
		b, err := readResult(after)
		if err != nil {
			return program.WithStatus(err, statusUsage)
		}
		return report.Compare(env.Stdout, a, b, report.TextOptions{Color: report.Color(env.Stdout)})
	})
}

func readResult(path string) (*measure.Result, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := measure.Decode(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// Command relay joins browsers and sandboxes.
package main

import (
	"context"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/relay"
)

func main() {
	program.Main("relay", "Joins browsers and sandboxes: serves terminals that agents dial in with", func(c *program.Command) {
		f := declare(c)
		c.Run(func(ctx context.Context, env *program.Env) error {
			cfg := f.config(env)
			r, err := relay.New(cfg)
			if err != nil {
				return err
			}
			return r.Run(ctx)
		})
	})
}

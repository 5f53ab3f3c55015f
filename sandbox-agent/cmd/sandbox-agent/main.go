// Command sandbox-agent hosts a sandbox's terminals and dials out to a relay.
package main

import (
	"context"

	"github.com/fairlead/fairlead/deploy/program"
	agent "github.com/fairlead/fairlead/sandbox-agent"
)

func main() {
	program.Main("sandbox-agent", "Hosts a sandbox's terminals and dials out to a relay", func(c *program.Command) {
		cfg := declare(c)
		c.Run(func(ctx context.Context, env *program.Env) error {
			cfg.Logger, cfg.Revision = env.Logger, env.Revision
			return agent.Run(ctx, *cfg)
		})
		c.Sub("keygen", "Prints the sandbox's public key, which the control plane certifies", keygen)
		forCodingAgents(c)
	})
}

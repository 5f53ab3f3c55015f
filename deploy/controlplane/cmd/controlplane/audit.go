package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/fleet"
	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
)

func audits(c *program.Command) {
	c.Sub("verify", "Find the first record of an agent's audit log that isn't as it was written", verifyAudit)
	c.Sub("head", "Print the newest head of a sandbox's audit log", auditHead)
}

func verifyAudit(c *program.Command) {
	var cfg fleet.AuditConfig
	var sandbox, file string
	c.String(&sandbox, "sandbox", "", "`id` of the sandbox whose log it is")
	c.String(&cfg.StateDir, "state-dir", "", stateUsage+": what it keeps of the sandbox must agree")
	databaseFlags(c, &cfg.Database)
	c.String(&cfg.Head, "head", "", "`file` with a head that must be in the log")
	c.String(&cfg.DeviceKey, "device-key", "", "`file` with the public key that signed the log, a JWK")
	c.Arg(&file, "FILE")
	c.Run(func(ctx context.Context, env *program.Env) error {
		cfg.Sandbox, cfg.Files = protocol.SandboxID(sandbox), []string{file}
		report, err := fleet.VerifyAudit(ctx, cfg)
		for _, note := range report.Notes {
			fmt.Fprintf(env.Stdout, "note: %s\n", note)
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(env.Stdout, "sandbox %s, device %s: records %d to %d are as they were written\n",
			report.Sandbox, report.Device, report.First, report.Last)
		return nil
	})
}

func auditHead(c *program.Command) {
	var at location
	var sandbox string
	at.flags(c)
	c.String(&sandbox, "sandbox", "", "`id` of the sandbox")
	c.Require("sandbox")
	c.Run(func(ctx context.Context, env *program.Env) error {
		b, err := fleet.AuditedSandbox(ctx, at.Location, protocol.SandboxID(sandbox))
		if err != nil {
			return err
		}
		if b.Head.Sequence == 0 {
			return fmt.Errorf("sandbox %s has sent no head of its audit log", b.ID)
		}
		data, err := json.Marshal(b.Head.AuditHead)
		if err == nil {
			fmt.Fprintf(env.Stdout, "%s\n", data)
		}
		return err
	})
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/integrations"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/vault"
	"github.com/fairlead/fairlead/deploy/program"
)

const vaultKeyUsage = "`file` of the keys under which the tokens of connected accounts are kept"

func vaults(c *program.Command) {
	c.Describe(`The tokens of connected accounts are in the database, sealed under keys that are in
a file of their own: one on each line, 32 bytes in base64. The first seals, all
open. Whoever has the database alone can't use them.`)
	c.Sub("init", "Make the key file", initVault)
	c.Sub("rotate", "Make a new key and seal everything with it", rotateVault)
}

func initVault(c *program.Command) {
	var file string
	c.String(&file, "vault-key-file", "", vaultKeyUsage)
	c.Require("vault-key-file")
	c.Run(func(context.Context, *program.Env) error {
		err := vault.Create(file)
		if errors.Is(err, fs.ErrExist) {
			return program.Hint(err, "vault rotate makes a new key in it")
		}
		return err
	})
}

func rotateVault(c *program.Command) {
	var cfg integrations.VaultRotation
	var sealOnly bool
	c.String(&cfg.StateDir, "state-dir", "", stateUsage)
	databaseFlags(c, &cfg.Database)
	c.String(&cfg.KeyFile, "vault-key-file", "", vaultKeyUsage)
	c.Bool(&sealOnly, "no-new-key", false, "make none: the first key of the file is a new one already")
	c.Bool(&cfg.DropOld, "drop-old", false, "take the old keys out of the file once nothing is sealed with them")
	c.Require("vault-key-file")
	c.Run(func(ctx context.Context, env *program.Env) error {
		cfg.NewKey = !sealOnly
		report, err := integrations.RotateVault(ctx, cfg)
		if err != nil {
			return cause(err)
		}
		fmt.Fprintf(env.Stdout, "%s seals, %d accounts were sealed anew\n", report.KeyID, report.Resealed)
		return nil
	})
}

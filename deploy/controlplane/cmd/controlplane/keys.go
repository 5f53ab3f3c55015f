package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane"
	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
)

func keys(c *program.Command) {
	c.Sub("list", "List the signing keys in the order in which they sign", listKeys)
	c.Sub("rotate", "Publish a new key, which takes over in a minute", rotateKeys)
	c.Sub("revoke", "Take a key back: nothing that it signed is believed any more", revokeKey)
}

type keyJSON struct {
	Kid   string     `json:"kid"`
	Use   string     `json:"use"`
	Made  time.Time  `json:"made"`
	Since time.Time  `json:"since"`
	Until *time.Time `json:"until,omitempty"`
}

func listKeys(c *program.Command) {
	var stateDir string
	var asJSON bool
	c.String(&stateDir, "state-dir", "", stateUsage)
	c.Bool(&asJSON, "json", false, jsonUsage)
	c.Require("state-dir")
	c.Run(func(_ context.Context, env *program.Env) error {
		keys, err := controlplane.ListKeys(stateDir, time.Now())
		if err != nil {
			return err
		}
		list := listing{header: "KID\tMADE\tUSE\tSINCE\tUNTIL\tFILE"}
		all := []keyJSON{}
		for _, key := range keys {
			file := ""
			if key.File != "" {
				file = filepath.Join(stateDir, "keys", key.File)
			}
			list.rows = append(list.rows, []string{
				key.Kid, stamp(key.Made), string(key.Use), stamp(key.Since), stamp(key.Until), text(file),
			})
			all = append(all, keyJSON{
				Kid: key.Kid, Use: string(key.Use), Made: key.Made, Since: key.Since, Until: known(key.Until),
			})
		}
		list.json = all
		return list.print(env.Stdout, asJSON)
	})
}

func rotateKeys(c *program.Command) {
	var stateDir string
	var now bool
	var after time.Duration
	c.String(&stateDir, "state-dir", "", stateUsage)
	c.Duration(&after, "after", controlplane.DefaultPrepublish, "how long the key is published before it signs")
	c.Bool(&now, "now", false, "sign with it at once: relays and agents that don't have it yet refuse for up to 30 s")
	c.Require("state-dir")
	c.Run(func(_ context.Context, env *program.Env) error {
		if now {
			after = 0
		}
		key, err := controlplane.RotateKey(stateDir, after, time.Now)
		if err != nil && protocol.KindOf(err) == protocol.KindConflict {
			return program.Hint(err, "--now makes it sign at once")
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(env.Stdout, "%s signs from %s\n", key.Kid, stamp(key.Since))
		return nil
	})
}

func revokeKey(c *program.Command) {
	var stateDir, kid string
	var replace bool
	c.String(&stateDir, "state-dir", "", stateUsage)
	c.Bool(&replace, "replace", false, "make another key if it is the only one")
	c.Arg(&kid, "KID")
	c.Require("state-dir")
	c.Run(func(_ context.Context, env *program.Env) error {
		key, err := controlplane.RevokeKey(stateDir, kid, replace, time.Now)
		if err != nil && protocol.KindOf(err) == protocol.KindConflict {
			return program.Hint(err, "--replace makes another one, which signs at once; or rotate first")
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(env.Stdout, "%s signs\n", key.Kid)
		return nil
	})
}

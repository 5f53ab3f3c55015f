package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/deploy/extension"
	"github.com/fairlead/fairlead/deploy/program"
)

func extensions(c *program.Command) {
	var opts extension.Options
	var dir, zip, keys string
	var more []string
	var asJSON bool
	c.Describe(`Write the browser extension to DIR, for Chrome's "Load unpacked" or a managed
machine, and print its id. Relays let its side panel in when --extension-ids of
theirs names that id.

--origins are the relays that it may talk to, as people open them: it asks Chrome
for these and for no other site. The parts are:

  panel   the side panel: Claude Code's terminal, and a chat
  pages   runs what the control plane has signed in the person's own tabs, those
          that she shares with a session; only where it is named
  sync    sends the cookies of sites that the person adds, sealed, to a sandbox;
          only where it is named

pages verifies commands with the control plane's keys, from --jwks, its own
address, since a relay could put others in their place; or, without a way there,
from --keys, and then the extension is made anew when the keys change. --tabs all
is for managed machines: every tab on http and https, without asking.

sync pairs at the control plane's own address too: --control-plane, or --jwks's.

The id follows from --key, so it is the same on every machine. A store wants a key
of your own.`)
	c.String(&dir, "out", "", "`directory` to write it to: a new one, an empty one, or one with an earlier extension")
	c.Strings(&opts.Parts, "parts", "`parts` that it is made of: panel, pages, sync (default: panel)")
	c.Strings(&opts.Origins, "origins", "`origins` of the relays, such as https://relay.example, the first one to begin with")
	c.Strings(&more, "origin", "more `origins`, or the only one")
	c.String(&opts.JWKS, "jwks", "", "of pages: `address` of the control plane's keys, such as https://control.example/.well-known/jwks.json")
	c.String(&keys, "keys", "", "of pages: `file` with the control plane's keys, where there is no --jwks")
	c.String(&opts.Tabs, "tabs", extension.TabsShared, "of pages: `which` tabs commands touch: shared, those that the person shares; all")
	c.Strings(&opts.Except, "except", "of pages: further `origins` that no command touches, nor what is below them: of previews")
	c.String(&opts.ControlPlane, "control-plane", "", "of sync: the control plane's own `origin`, such as https://control.example (default: --jwks's)")
	c.String(&opts.Key, "key", "", "public key, base64 of its DER, that gives it its id; empty: the project's")
	c.String(&opts.Version, "extension-version", "1.0.0", "version in its manifest")
	c.String(&zip, "zip", "", "`file` to write it to as well, as a store takes it")
	c.Bool(&asJSON, "json", false, jsonUsage)
	c.Require("out")
	c.Run(func(_ context.Context, env *program.Env) error {
		if !extension.Built() {
			return program.Hint(errors.New("the extension was not built into this program"), "make build builds it, or go run ./deploy/extension/build before go build")
		}
		if keys != "" {
			data, err := os.ReadFile(keys)
			if err != nil {
				return err
			}
			opts.Keys = data
		}
		opts.Origins = append(opts.Origins, more...)
		if len(opts.Origins) == 0 {
			return program.Hint(errors.New("it needs the origin of a relay"), "--origins https://relay.example")
		}
		e, err := extension.Make(opts)
		if err != nil {
			return err
		}
		if dir, err = filepath.Abs(dir); err != nil {
			return err
		}
		if err := e.WriteTo(dir); err != nil {
			return err
		}
		if zip != "" {
			data, err := e.Zip()
			if err != nil {
				return err
			}
			if err := program.ReplaceFile(zip, data, 0o644); err != nil {
				return err
			}
		}
		if asJSON {
			return printJSON(env.Stdout, map[string]any{"id": e.ID, "dir": dir, "parts": e.Parts})
		}
		_, err = fmt.Fprintf(env.Stdout, "%s is in %s, made of %s\n", e.ID, dir, strings.Join(e.Parts, ", "))
		return err
	})
}

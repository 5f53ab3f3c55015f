package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/deploy/extension"
	"github.com/fairlead/fairlead/deploy/program"
)

func extensions(c *program.Command) {
	var opts extension.Options
	var dir, zip string
	var asJSON bool
	c.Describe(`Write the browser extension to DIR, for Chrome's "Load unpacked" or a managed
machine, and print its id. Relays let its side panel in when --extension-ids of
theirs names that id.

--origins are the relays that it may talk to, as people open them: it asks Chrome
for these and for no other site. The parts are:

  panel   the side panel: Claude Code's terminal, and a chat
  pages   signed commands to the person's own tabs (not built yet)
  sync    sends sites' cookies, sealed, to a sandbox (not built yet)

The id follows from --key, so it is the same on every machine. A store wants a key
of your own.`)
	c.String(&dir, "out", "", "`directory` to write it to: a new one, an empty one, or one with an earlier extension")
	c.Strings(&opts.Parts, "parts", "`parts` that it is made of: panel, pages, sync (default: all that are built)")
	c.Strings(&opts.Origins, "origins", "`origins` of the relays, such as https://relay.example, the first one to begin with")
	c.String(&opts.Key, "key", "", "public key, base64 of its DER, that gives it its id; empty: the project's")
	c.String(&opts.Version, "extension-version", "1.0.0", "version in its manifest")
	c.String(&zip, "zip", "", "`file` to write it to as well, as a store takes it")
	c.Bool(&asJSON, "json", false, jsonUsage)
	c.Require("out", "origins")
	c.Run(func(_ context.Context, env *program.Env) error {
		if !extension.Built() {
			return program.Hint(errors.New("the extension was not built into this program"), "make build builds it, or go run ./deploy/extension/build before go build")
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

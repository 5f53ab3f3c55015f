package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
	agent "github.com/fairlead/fairlead/sandbox-agent"
	"github.com/fairlead/fairlead/sandbox-agent/internal/bridge"
	"github.com/fairlead/fairlead/sandbox-agent/internal/browser/jarfile"
	"github.com/fairlead/fairlead/sandbox-agent/internal/history/dbread"
	"github.com/fairlead/fairlead/sandbox-agent/internal/hooks"
)

// forCodingAgents declares what runs in terminals.
func forCodingAgents(c *program.Command) {
	c.Sub("mcp-bridge", "Gives a coding agent in a terminal the sandbox's tools", mcpBridge)
	c.Sub("hook", "Tells what a coding agent in a terminal does", hook)
	c.Sub("plugin", "Makes a program in a terminal a plugin of its session", offerPlugin)
	c.Sub(agent.ReadDatabase, "Reads the database of a coding agent, for sandbox-agent itself", readDatabase)
	c.Sub(agent.WriteCookies, "Writes cookies into a browser's profile, for sandbox-agent itself", writeCookies)
	c.Sub("wiring", "Looks after the settings of a terminal's coding agents", wiring)
}

// mcpBridge is the subcommand that coding agents start as their MCP server.
func mcpBridge(c *program.Command) {
	o := bridge.Options{Getenv: os.Getenv}
	c.Describe(`Speaks MCP on standard input and output for a coding agent in a terminal, and
passes everything on to the sandbox's agent. It knows from its environment, or
from ~/` + credentialsFile + `, where that is. An agent that restarts is waited for.`)
	url, session, pty := "", "", ""
	c.String(&url, "mcp-url", "", "`URL` of the agent's MCP server (default: the terminal's)")
	c.String(&session, "session-id", "", "`id` of the session (default: the terminal's)")
	c.String(&pty, "pty-id", "", "`id` of the terminal (default: its own)")
	c.Secret(&o.Flags.Secret, "mcp-secret", "the terminal's secret (default: its own)")
	c.String(&o.Credentials, "credentials", "", "`file` with all of this (default: ~/"+credentialsFile+")")
	c.Run(func(ctx context.Context, env *program.Env) error {
		o.Flags.URL, o.In, o.Out, o.Log = url, env.Stdin, env.Stdout, env.Logger
		o.Flags.SessionID, o.Flags.PTYID = protocol.SessionID(session), protocol.PTYID(pty)
		if home, err := os.UserHomeDir(); err == nil && o.Credentials == "" {
			o.Credentials = filepath.Join(home, credentialsFile)
		}
		return bridge.Run(ctx, o)
	})
}

// hook is the subcommand that coding agents' hooks run.
func hook(c *program.Command) {
	o := hooks.ReportOptions{Getenv: os.Getenv}
	c.Describe(`Tells the sandbox's agent what the coding agent AGENT does: EVENT is start, stop,
ask, fail, interrupt or ready. Its hooks run this. It prints nothing and never
fails, for the coding agent would take that for its own.`)
	c.Arg(&o.Agent, "AGENT")
	c.Arg(&o.Event, "EVENT")
	c.Rest(&o.Args, "JSON")
	c.Run(func(ctx context.Context, env *program.Env) error {
		if len(o.Args) == 0 {
			o.Stdin = env.Stdin
		}
		if err := hooks.Report(ctx, o); err != nil {
			env.Logger.Debug("hook", "agent", o.Agent, "event", o.Event, "err", err)
		}
		return nil
	})
}

// readDatabase is the subcommand that the sandbox's agent itself runs, as the user
// of a home.
func readDatabase(c *program.Command) {
	c.Describe(`Reads what a coding agent keeps in a database of the folder where it runs: one
request on standard input, one answer on standard output, both JSON.`)
	c.Run(func(ctx context.Context, env *program.Env) error { return dbread.Serve(ctx, env.Stdin, env.Stdout) })
}

// writeCookies is the subcommand that the sandbox's agent itself runs, as the user of
// a session's browser.
func writeCookies(c *program.Command) {
	c.Describe(`Changes the cookies in the profile of a browser that doesn't run, the folder where
it runs: one request on standard input, one answer on standard output, both JSON.`)
	c.Run(func(ctx context.Context, env *program.Env) error { return jarfile.Serve(ctx, env.Stdin, env.Stdout) })
}

// wiring is the subcommand by which people look after the settings of coding
// agents.
func wiring(c *program.Command) {
	c.Describe(`The settings of the coding agents in a home: terminals have fairlead's tools and
hooks in them from their start.`)
	c.Sub("status", "Tells how each coding agent stands", func(c *program.Command) {
		wiringCommand(c, func(home *os.Root, o hooks.Options, env *program.Env) error {
			all, err := hooks.Status(home, o)
			for _, s := range all {
				state := "not wired"
				switch {
				case s.Err != nil:
					state = s.Err.Error()
				case s.Wired:
					state = "wired"
				}
				fmt.Fprintf(env.Stdout, "%-9s %s (%s)\n", s.Agent, state, strings.Join(s.Files, ", "))
			}
			return err
		})
	})
	c.Sub("add", "Puts fairlead's tools and hooks into the settings", func(c *program.Command) {
		wiringCommand(c, func(home *os.Root, o hooks.Options, _ *program.Env) error { return hooks.Wire(home, o) })
	})
	c.Sub("remove", "Takes them out of the settings", func(c *program.Command) {
		wiringCommand(c, func(home *os.Root, o hooks.Options, _ *program.Env) error { return hooks.Unwire(home, o) })
	})
}

func wiringCommand(c *program.Command, act func(*os.Root, hooks.Options, *program.Env) error) {
	var o hooks.Options
	var dir string
	c.String(&o.Agent, "agent", "", "claude, gemini, opencode, codex, droid, openclaw or cursor (default: all)")
	c.String(&dir, "home", "", "`directory` with the settings (default: the home)")
	c.Run(func(_ context.Context, env *program.Env) (err error) {
		if dir == "" {
			if dir, err = os.UserHomeDir(); err != nil {
				return err
			}
		}
		if o.Command, err = os.Executable(); err != nil {
			return err
		}
		home, err := os.OpenRoot(dir)
		if err != nil {
			return err
		}
		return errors.Join(act(home, o, env), home.Close())
	})
}
